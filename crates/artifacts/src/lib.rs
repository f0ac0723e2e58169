//! What an administrator applies to share cards in one way or another: scripts, systemd units,
//! configurations for Kubernetes and Slurm. Pure: text in, text out.
//!
//! - [`make`](mod@make): writes the files of a mode.
//! - [`check`](mod@check): reads files back by the rules of the programs that will read them. It is
//!   strict: what such a program takes without a word and then ignores is refused, too.
//! - [`plugin`]: the device plugin's configuration as `cumux device-plugin` reads it.
//! - `yaml`: nodes with their lines, and writing.
//!
//! Invariant: every file that [`make::files`] returns has passed [`check::file`]. A file that does
//! not is an error, never output.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod check;
pub mod make;
pub mod plugin;
mod yaml;
