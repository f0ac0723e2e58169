//! Any bytes have a source line for an instruction or none, in bounded time and memory.
#![no_main]

use cumux_fatbin::lines::find;
use libfuzzer_sys::fuzz_target;

/// The functions of the seeds.
const FUNCTIONS: [&str; 4] = ["store", "inlined", "calls", "called$1"];

fuzz_target!(|data: &[u8]| {
    for function in FUNCTIONS {
        for offset in [0, 0x30, 0x90, 0x170, u64::MAX] {
            if let Some(source) = find(data, function, offset) {
                assert!(source.line.line > 0 && source.to_string().chars().count() < 500);
            }
        }
    }
});
