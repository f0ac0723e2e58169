//! The C library's read-write locks, for libraries that read the same lock on several threads.
//!
//! Each read of such a lock writes its line of the cache twice, so that threads which only read
//! wait for each other. NVIDIA's driver takes one in every call. Here threads that have been
//! [admitted](admit) note their reads in lines of their own, as long as nobody writes ("biased
//! locking", Dice and Kogan, BRAVO, USENIX ATC 2019).
//!
//! `pthread_rwlock_rdlock` and its siblings are exported under the C library's own names, and the
//! dynamic linker prefers those of the program. Each program that is linked with this crate exports
//! them; `bin/cumux` asks for it, too (its `build.rs`). Where nobody is admitted, a writer has two
//! steps more on a line that it writes anyhow.
//!
//! Invariants:
//! - The C library's lock is always below: whoever is not admitted, and whoever writes, has it.
//! - A writer has the lock when no reader has it, noted here or there. While it waits for readers,
//!   others may begin to read, as the C library allows by default: a thread that reads twice does
//!   not wait for a writer between.
//! - A lock that processes share is left to the C library.
//! - Whoever unlocks is who has locked, as POSIX demands. A child that is forked, and does not call
//!   `exec`, does not use these locks: notes of its parent would stay.
//!
//! ```text
//!            enough reads, no writer waits          a writer comes
//!  counting ────────────────────────────▶ biased ─────────────────▶ counting
//! ```
//!
//! Floors, from above: `exports`, `readers`, `notes`, `bias`. The last two are the protocol, which
//! loom checks (`tests/model.rs`).
#![cfg_attr(not(all(target_arch = "x86_64", target_env = "gnu")), forbid(unsafe_code))]

pub mod bias;
pub mod notes;
mod sync;

cfg_select! {
    all(target_arch = "x86_64", target_env = "gnu", not(loom)) => {
        mod exports;
        mod readers;
        pub use exports::*;
        pub use readers::{Admitted, admit};
    }
    _ => {
        mod unchanged;
        pub use unchanged::{Admitted, admit};
    }
}
