//! From the PTX tree to executable form.

mod arithmetic;
mod body;
pub(crate) mod code;
mod compare;
mod control;
mod convert;
mod floating;
mod instruction;
mod memory;
mod module;
pub mod program;
mod registers;
mod warp;
