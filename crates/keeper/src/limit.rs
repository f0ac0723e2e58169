//! Room for descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's limit of open descriptors as far as it may: every client costs several. A refusal is no error; the limit then
/// shows when it is met.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
