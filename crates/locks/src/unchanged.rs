//! Where the layout of the C library's lock is not known, nothing is changed.

/// The calling thread is admitted until this is dropped.
#[derive(Debug)]
pub struct Admitted(());

/// Has the calling thread note its reads in a line of its own; here nowhere.
pub fn admit() -> Admitted {
    Admitted(())
}
