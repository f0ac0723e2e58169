//! Streams, SMs and workers: what runs next.
//!
//! ```text
//! submit ─▶ stream queue ─▶ head becomes a task ─▶ workers run pieces of it ─▶ report ─▶ next head
//! ```
//!
//! Invariants:
//! - A stream has at most one task or one report in flight. Its order, and exactly one report for
//!   each submission, follow from that.
//! - The next work of a stream begins only after the sink has returned from the report of the work
//!   before it.
//! - What a worker runs for a client is noted in [`Scheduler::workers`] under the lock, so revoking
//!   memory and closing a client can wait for it.
//! - After a report each worker yields once to the operating system before its next slice: a thread
//!   that the report woke need not wait for the system's next tick.
//! - Nobody polls: workers sleep on [`SoftwareCard::work`] and are notified when something becomes
//!   runnable.
//!
//! Fairness: each client and each task has a virtual time, raised by the time it used. The least
//! virtual time goes next, among clients first, then among the client's tasks. A task's time counts
//! a quarter for each step of stream priority. Clients below normal priority get what normal ones
//! leave. A client is charged for an expected slice when a worker takes a piece, so that several
//! workers spread over the clients.

pub(crate) mod breakage;
mod card;
mod client;
mod family;
mod kernel;
mod launch;
mod moment;
mod partitions;
mod placement;
mod report;
mod scheduler;
mod stream;
pub(crate) mod worker;

pub(crate) use card::SoftwareCard;
pub(crate) use client::{CardClient, ClientEnd, HostWindow, not_open};
pub(crate) use partitions::SHARE;
pub(crate) use scheduler::{DevicePhase, Scheduler};
