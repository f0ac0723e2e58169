//! Waiting for a quiet card. Some calls of the driver, above all loading a module, wait until
//! running kernels have ended, and hold the lock that launches need meanwhile. They are made at a
//! moment when no long kernel runs, and none begins until they are over (decision 0107).

mod gate;
mod hold;

pub(crate) use gate::{Gate, LongWorkHolders};
pub(crate) use hold::LongWork;
