//! The story tests of cumux are in `main.rs` beside this file; a package needs a library, and this
//! is it.
#![forbid(unsafe_code)]
