//! Streams, SMs and workers: what runs next.
//!
//! ```text
//! submit ─▶ stream queue ─▶ head becomes a task ─▶ pieces run by workers ─▶ report ─▶ next head
//! ```
//!
//! Invariants:
//! - A stream has at most one task or one report in flight: order and "exactly one report" follow.
//! - The next work of a stream begins only after the sink has returned from the report of the one before.
//! - What a worker runs for a client is noted in [`Scheduler::workers`] under the lock, so revoking and closing can wait for it.
//! - After a report each worker yields once to the system at its next slice: whoever was woken must not wait for the system's next tick.
//! - Nobody polls: workers sleep on [`Card::work`] and are woken when something becomes runnable.
//!
//! Fairness: each client and each task has a virtual time, raised by what it used; the least goes next, clients first. A task's time counts
//! a quarter for each step of stream priority. Clients below normal get what normal ones leave. Workers are pre-charged a slice, so that several of them spread.

mod card;
mod client;
mod kernel;
mod launch;
mod parts;
mod placement;
mod report;
mod state;
pub(crate) mod worker;

pub(crate) use card::Card;
pub(crate) use client::{Client, ClientEnd};
pub(crate) use state::Scheduler;
