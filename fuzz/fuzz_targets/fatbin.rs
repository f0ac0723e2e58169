//! Any bytes are images or an error, and unpacking stays within its limit.
#![no_main]

use cumux_fatbin::{Bundle, images, pieces, sections, total_len};
use libfuzzer_sys::fuzz_target;

const LIMIT: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let _ = total_len(data);
    let _ = sections(data);
    let _ = pieces("input", data, 90);
    if let Ok(bundle) = Bundle::read(data) {
        assert!(bundle.inputs.iter().map(|input| input.data.len()).sum::<usize>() <= data.len());
    }
    for image in images(data).unwrap_or_default() {
        if let Ok(bytes) = image.bytes(LIMIT) {
            assert!(bytes.len() as u64 <= LIMIT);
        }
    }
});
