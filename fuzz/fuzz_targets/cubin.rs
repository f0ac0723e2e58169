//! Any bytes are a compiled image or an obstacle, and placing its variables keeps its length; its
//! unbounded kernels are found or not; it is divided or not, and its parts are images again.
#![no_main]

use cumux_fatbin::calls::find_unbounded;
use cumux_fatbin::cubin::{Cubin, Division, Literals};
use cumux_fatbin::stacks::find_moving_stacks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = find_unbounded(data);
    let _ = find_moving_stacks(data);
    if let Ok(division) = Division::read(data) {
        for part in [division.outline(data), division.excerpt(data, 0)].into_iter().flatten() {
            assert!(part.len() <= 3 * data.len() + 4096);
            assert!(Division::read(&part).is_ok(), "a part of an image is no image");
        }
    }
    let Ok(cubin) = Cubin::read(data) else { return };
    for block in &cubin.blocks {
        assert!(block.align.is_power_of_two());
        assert!(block.contents(data).is_none_or(|bytes| bytes.len() as u64 == block.bytes));
    }
    let addresses: Vec<u64> = (1..=cubin.blocks.len() as u64).map(|n| n << 32).collect();
    let mut image = data.to_vec();
    let placed = cubin.place(&mut image, &addresses, Literals::Placed);
    assert!(placed.is_ok() || image == data || cubin.obstacle.is_none());
    assert_eq!(image.len(), data.len());
});
