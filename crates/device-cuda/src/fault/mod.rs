//! What can go wrong with a card: the driver's error codes, sentences with remedies, the loss of
//! the context, and the errors that clients get for it. Nothing here calls the driver.

mod blame;
mod code;
mod loss;
pub(crate) mod remedy;

pub(crate) use blame::{Blame, Suspects, accusation};
pub(crate) use code::{Call, CudaError};
pub(crate) use loss::Loss;
