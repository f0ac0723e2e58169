//! An engine: one thread that gives its clients' work to the driver and reports what is over. A
//! client belongs to one engine.
//!
//! One thread does both, because a hop between two threads costs more than either (decision 0104):
//! it takes new messages, issues work stream by stream in turns, polls the fences, and calls the
//! sink, holding no lock. While there is work it polls for a while, then naps; with none it sleeps.
//! What is slow (registering memory, making chains, unloading) goes to the helper threads.
//!
//! ```text
//! run ─▶ intake ─▶ lose ─▶ complete ─▶ close ─▶ state ─▶ shared ─▶ message
//!                                                 └────▶ ends
//! ```

mod close;
mod complete;
mod ends;
mod intake;
mod lose;
mod message;
mod run;
mod shared;
mod state;

pub(crate) use message::{Mailboxes, Message};
pub(crate) use shared::Shared;
pub(crate) use state::Engine;
