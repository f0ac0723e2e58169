//! Whole programs in terms of driver calls, against a stand-in for the executor. They are compiled
//! into the crate's own tests (`#[path]` in `src/lib.rs`), because they call the implementations
//! and not the exported names.

mod calls;
pub(crate) mod fake;
mod faulted;
mod graphs;
mod green;
mod memory;
mod repeated;
