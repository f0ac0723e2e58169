//! Whatever comes in packets: daemon, server and keeper stay whole, answer whom they have to, and
//! come to their end.
#![no_main]

use cumux_fuzz::bytes::Bytes;
use cumux_fuzz::{daemon, keeper, server};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes::new(data);
    match bytes.below(4) {
        0 => daemon::run(&mut bytes),
        1 => keeper::run(&mut bytes),
        _ => server::run(&mut bytes),
    }
});
