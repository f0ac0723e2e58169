//! Has the program export the functions of the C library that it replaces for its libraries
//! (`crates/locks`).
#![allow(clippy::disallowed_macros, reason = "what a build script says to cargo")]

/// As in `crates/locks/src/exports.rs`.
const REPLACED: [&str; 9] = ["rdlock", "tryrdlock", "timedrdlock", "clockrdlock", "wrlock", "trywrlock", "timedwrlock", "clockwrlock", "unlock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in REPLACED {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=pthread_rwlock_{name}");
    }
}
