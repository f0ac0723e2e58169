//! Waiting for a quiet card: one on which no long kernel runs.
//!
//! Some calls of the driver, above all loading a module, block until running kernels have ended,
//! and hold the lock that launches need meanwhile. They are made while the card is quiet, and no
//! long kernel begins until they are over (decision 0107).

mod gate;
mod hold;

pub(crate) use gate::{Gate, LongWorkHolders, NotQuiet};
pub(crate) use hold::{LongWork, Until};
