//! Any bytes are images or an error, and unpacking stays within its limit.
#![no_main]

use cumux_fatbin::{images, pieces, sections, total_len};
use libfuzzer_sys::fuzz_target;

const LIMIT: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let _ = total_len(data);
    let _ = sections(data);
    let _ = pieces("input", data, 90);
    for image in images(data).unwrap_or_default() {
        if let Ok(bytes) = image.bytes(LIMIT) {
            assert!(bytes.len() as u64 <= LIMIT);
        }
    }
});
