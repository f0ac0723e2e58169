//! From the PTX tree to executable form.

pub(crate) mod code;
mod module;
pub mod program;
