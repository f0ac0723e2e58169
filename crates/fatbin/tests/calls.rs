//! Kernels whose stack is unbounded, or that call through addresses, in images that the compiler
//! made (see data/calls.cu).

use cumux_fatbin::calls::{Unbounded, find_unbounded};
use std::collections::BTreeMap;

const KERNELS: [&str; 9] = ["plain", "calls", "divides", "says", "recursive", "mutual", "deeper", "by_table", "by_parameter"];

fn unbounded_kernels(image: &[u8]) -> BTreeMap<&'static str, Unbounded> {
    let found = find_unbounded(image);
    KERNELS.iter().filter_map(|name| Some((*name, *found.get(*name)?))).collect()
}

#[test]
fn kernels_that_call_themselves_or_through_addresses_are_found_in_every_kind_of_image() {
    use Unbounded::{Address, Recursion};
    let expected = BTreeMap::from([("recursive", Recursion), ("mutual", Recursion), ("deeper", Recursion), ("by_table", Address), ("by_parameter", Address)]);
    for (name, image) in [
        ("sm_90", &include_bytes!("data/calls.sm_90.cubin")[..]),
        ("sm_80", include_bytes!("data/calls.sm_80.cubin")),
        ("sm_100", include_bytes!("data/calls.sm_100.cubin")),
        ("debug", include_bytes!("data/calls.debug.cubin")),
        ("linked", include_bytes!("data/calls.linked.cubin")),
    ] {
        assert_eq!(unbounded_kernels(image), expected, "{name}");
    }
}

#[test]
fn a_damaged_image_is_read_without_a_panic() {
    let image = include_bytes!("data/calls.debug.cubin");
    for at in (0..image.len()).step_by(13) {
        let mut damaged = image.to_vec();
        damaged[at] ^= 0x5a;
        // Whatever it says: a byte in the middle of the code may change what is called.
        let _ = (find_unbounded(&damaged), find_unbounded(&image[..at]));
    }
}
