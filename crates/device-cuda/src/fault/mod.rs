//! What can go wrong with a card: the driver's error codes, the sentences for people who can act,
//! the end of the context, and what clients are told of it. No calls of the driver are made here.

mod blame;
mod code;
mod loss;
pub(crate) mod remedy;

pub(crate) use blame::{Blame, Suspects, accusation};
pub(crate) use code::{Call, CudaError};
pub(crate) use loss::Loss;
