//! How programs would fare on a card under each way of sharing it, and which way to take. Pure: no
//! device, no clock, no files.
//!
//! - [`card`]: cards by their multiprocessors, clocks, bandwidth, cache and memory.
//! - [`mig`]: which MIG instances a card can have beside each other.
//! - [`profile`]: what is known of a program, as JSON with a version.
//! - [`observe`]: profiles out of what a recorder hears of running programs.
//! - [`work`]: a profile taken to a card, or to an instance of it.
//! - [`simulate`]: a discrete-event simulation of programs on it.
//! - [`mode`]: the ways of sharing, with what was measured of each.
//! - [`plan`]: programs, wishes, a table of answers and a recommendation.
//!
//! Files use each other in this order: `card` and `mig` at the bottom, `plan` on top.
//!
//! Invariants: the same input gives the same answer on every machine (the random numbers are our
//! own and have a fixed seed). No answer has a geometry that the tables do not allow, or more
//! memory than there is.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod card;
pub mod mig;
pub mod mode;
pub mod observe;
pub mod plan;
pub mod profile;
pub mod simulate;
pub mod work;
