//! The exported names (recorded from driver 580) and how the shim answers each, as one list: `surface.txt`.
//!
//! The list is text so that one line is one decision. The shim's build script turns it into the jump table, and
//! `cargo xtask compatibility` into COMPATIBILITY.md. Likewise `procaddress.txt` records what `cuGetProcAddress` of
//! driver 580 answers for every name, flag and version.

/// One line per exported name: see the head of the file for the columns.
pub const SURFACE: &str = include_str!("../surface/surface.txt");

/// One line per name that `cuGetProcAddress` knows: see the head of the file for the columns.
pub const PROC_ADDRESS: &str = include_str!("../surface/procaddress.txt");
