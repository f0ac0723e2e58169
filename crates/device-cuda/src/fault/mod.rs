//! What can go wrong with a card: the driver's error codes, and the sentences for them.

mod code;
pub(crate) mod remedy;

pub(crate) use code::{Call, CudaError};
