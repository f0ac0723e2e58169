//! Has the program export the functions of the C library that it replaces for its libraries
//! (`crates/locks`), whether or not the linker does so by itself.
#![allow(clippy::disallowed_macros, reason = "what a build script says to cargo")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=pthread_rwlock_*");
}
