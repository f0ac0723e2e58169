//! An engine: submits its clients' work to the driver and reports what is complete. A client
//! belongs to one engine.
//!
//! One thread does both, because handing work from thread to thread costs more than either
//! (decision 0104): the engine's own, or the lane that takes in the work of its clients and carries
//! the engine (decision 0132). In each round the engine handles its messages, serves the queues
//! that are ready, polls the fences, and calls the sink while it holds no lock. An idle engine
//! polls for a while, then naps as long as it has work in flight, else sleeps. Slow calls
//! (registering memory, making chains, unloading) are made on the helper threads.
//!
//! ```text
//! carry ─▶ seat ◀─┐
//!   └─────▶ run ──┘
//! run ─▶ intake ─▶ make, gather, lose ─▶ complete ─▶ inquiry ─▶ finish ─▶ conclude, evacuate
//!                                              │             └──▶ close ─▶ printing
//!                                              └─▶ held ────────────────────▲ │
//!                                           ┌─────────────────────────────────┘
//!                                           └─▶ state ─▶ shared ─▶ message ─▶ handover
//!                                                 └────▶ ends ◀──┼──────────────┘
//!                                                 └────▶ orders  ├─▶ assign
//!                                                 └────▶ pace    │
//!                                                                └─▶ due
//! ```

mod assign;
mod carry;
mod close;
mod complete;
mod conclude;
mod due;
mod ends;
mod evacuate;
mod finish;
mod gather;
mod handover;
mod held;
mod inquiry;
mod intake;
mod lose;
mod make;
mod message;
mod orders;
mod pace;
mod printing;
mod run;
mod seat;
mod shared;
mod stall;
mod state;

pub(crate) use carry::{carry, put_down};
pub(crate) use conclude::SPARED_WAITS;
pub(crate) use due::DueChains;
pub(crate) use message::{Mailboxes, Message};
pub(crate) use run::Runner;
pub(crate) use seat::Seat;
pub(crate) use shared::Shared;
pub(crate) use stall::watch_engines;
pub(crate) use state::Engine;
