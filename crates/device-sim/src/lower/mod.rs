//! From the PTX tree to executable form.

pub mod program;
