//! Extents, mappings and permissions.

use std::os::fd::AsFd;

use cumux_wire::result;

use super::{Args, Opener, Setup};
use crate::{DeviceError, Work};

pub fn granules_are_enforced(open: Opener) {
    let setup = Setup::new(open);
    let device = &setup.device;
    let granule = device.granule();
    assert!(granule.is_power_of_two() && granule >= 4096);
    assert!(device.create_extent(granule + 1).is_err() && device.create_extent(0).is_err());
    let extent = device.create_extent(2 * granule).expect("an extent");
    let at = setup.addresses(4 * granule);
    assert!(device.map(at + 4096, extent.as_fd(), 0, granule).is_err());
    assert!(device.map(at, extent.as_fd(), 4096, granule).is_err());
    assert!(device.map(at, extent.as_fd(), granule, 2 * granule).is_err(), "past the end of the extent");
    device.map(at, extent.as_fd(), granule, granule).expect("the second half");
    assert!(device.unmap(at, 2 * granule).is_err() && device.unmap(at + granule, granule).is_err());
    device.unmap(at, granule).expect("unmapped");
}

pub fn a_full_card_says_so(open: Opener) {
    let setup = Setup::new(open);
    let device = &setup.device;
    let (granule, total) = (device.granule(), device.capacity());
    let most = total / granule * granule;
    let half = (most / 2).next_multiple_of(granule);
    let first = device.create_extent(half).expect("half of the card");
    assert!(matches!(device.create_extent(half + granule), Err(DeviceError::OutOfMemory(_))));
    let at = setup.addresses(granule);
    device.map(at, first.as_fd(), 0, granule).expect("mapped");
    assert!(matches!(device.create_extent(half + granule), Err(DeviceError::OutOfMemory(_))), "mapped memory counts once");
    device.unmap(at, granule).expect("unmapped");
    drop(first);
    device.create_extent(most).expect("the whole card, now that the extent is gone");
}

pub fn what_is_mapped_ahead_is_adopted_or_gives_way(open: Opener) {
    let first = Setup::new(open);
    let granule = first.device.granule();
    let [extent, other] = [(); 2].map(|()| first.device.create_extent(granule).expect("an extent"));
    let at = first.addresses(2 * granule);
    for (extent, content) in [(&extent, 1), (&other, 2)] {
        first.device.map(at, extent.as_fd(), 0, granule).expect("mapped");
        first.device.write(at, &[content; 64]).expect("written");
        first.device.unmap(at, granule).expect("unmapped");
    }
    drop(first);
    let second = Setup::new(open);
    let device = &second.device;
    if !device.maps_ahead() {
        assert!(!device.expect_extent(7, at, extent.as_fd(), granule).expect("asked") && !device.adopt_extent(7, at, granule));
        return;
    }
    let first_byte = || {
        let mut bytes = [0; 64];
        device.read(at, &mut bytes).expect("read");
        bytes[0]
    };
    assert!(device.expect_extent(7, at, extent.as_fd(), granule).expect("mapped ahead"));
    assert!(device.expect_extent(7, at, extent.as_fd(), granule).expect("it is"), "twice is once");
    assert!(!device.adopt_extent(8, at, granule) && !device.adopt_extent(7, at, 2 * granule), "that is another extent");
    assert!(device.adopt_extent(7, at, granule) && !device.adopt_extent(7, at, granule), "once");
    assert_eq!(first_byte(), 1);
    assert!(!device.expect_extent(8, at, other.as_fd(), granule).expect("asked"), "what is mapped does not give way");
    device.forget_expected(&|_| true);
    assert_eq!(first_byte(), 1, "what was adopted is not forgotten");
    device.unmap(at, granule).expect("as if it had been mapped");
    // Its client has freed it, and has another one there: what was mapped ahead gives way.
    assert!(device.expect_extent(7, at, extent.as_fd(), granule).expect("mapped ahead"));
    assert!(device.expect_extent(8, at, other.as_fd(), granule).expect("instead of the first"));
    assert!(!device.adopt_extent(7, at, granule));
    assert!(device.expect_extent(9, at + granule, extent.as_fd(), granule).expect("mapped ahead"));
    device.map(at, other.as_fd(), 0, granule).expect("instead of what was mapped ahead");
    assert_eq!(first_byte(), 2);
    assert!(device.adopt_extent(9, at + granule, granule), "what lies behind it stays");
    device.unmap(at + granule, granule).expect("adopted");
    device.unmap(at, granule).expect("unmapped");
    assert!(device.expect_extent(7, at, extent.as_fd(), granule).expect("mapped ahead"));
    device.forget_expected(&|address| address == at);
    assert!(!device.adopt_extent(7, at, granule) && device.unmap(at, granule).is_err(), "nothing is left of it");
}

pub fn extents_begin_zeroed_and_outlive_the_device(open: Opener) {
    let address;
    let extent = {
        let setup = Setup::new(open);
        let client = setup.client(1);
        let module = client.kernels();
        address = client.allocate(4 * 10_000);
        assert_eq!(client.read(address, 10_000), vec![0; 10_000]);
        let stream = client.stream();
        client.launch(stream, &module, "fill", 40, 256, Args::new().u64(address).u32(10_000).u32(9));
        client.drain(stream);
        client.take_extent(address)
    };
    let second = Setup::new(open);
    let bytes = (4u64 * 10_000).next_multiple_of(second.device.granule());
    second.device.map(address, extent.as_fd(), 0, bytes).expect("the same address");
    {
        let client = second.client(1);
        client.device().allow(client.id, address, 40_000, true);
        let (stream, module) = (client.stream(), client.kernels());
        client.launch(stream, &module, "add_one", 40, 256, Args::new().u64(address).u32(10_000));
        client.drain(stream);
        assert_eq!(client.read(address, 10_000), vec![10; 10_000]);
    }
    second.device.unmap(address, bytes).expect("unmapped");
}

pub fn mappings_exclude_each_other(open: Opener) {
    let setup = Setup::new(open);
    let device = &setup.device;
    let granule = device.granule();
    let extent = device.create_extent(2 * granule).expect("an extent");
    let at = setup.addresses(2 * granule);
    device.map(at, extent.as_fd(), 0, granule).expect("mapped");
    assert!(matches!(device.map(at, extent.as_fd(), 0, granule), Err(DeviceError::Invalid(_))));
    assert!(device.map(at, extent.as_fd(), 0, 2 * granule).is_err());
    // One extent may be mapped twice: the same bytes at two addresses.
    device.map(at + granule, extent.as_fd(), 0, granule).expect("mapped twice");
    device.write(at + 5, &[1, 2, 3]).expect("written");
    let mut seen = [0; 3];
    device.read(at + granule + 5, &mut seen).expect("read");
    assert_eq!(seen, [1, 2, 3]);
    for address in [at, at + granule] {
        device.unmap(address, granule).expect("unmapped");
    }
}

pub fn revoking_waits_for_running_blocks(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let (p, flag) = (client.allocate(4 * 1024), client.allocate(4));
    // Writes to p until the permission is gone.
    let grinding = client.launch(client.stream(), &module, "grind", 4, 256, Args::new().u64(p).u32(1024).u32(u32::MAX));
    client.wait_for_change(p, 0);
    client.device().revoke(client.id, p);
    let frozen = client.read(p, 1024);
    client.fault(grinding, result::ILLEGAL_ADDRESS);
    if !setup.contains_faults() {
        return setup.expect_loss_by_fault();
    }
    assert_eq!(client.read(p, 1024), frozen);
    assert_eq!(client.read(flag, 1), [0]);
}

pub fn reads_and_writes_outside_streams(open: Opener) {
    let setup = Setup::new(open);
    let device = &setup.device;
    let granule = device.granule();
    let at = setup.addresses(2 * granule);
    let (first, second) = (device.create_extent(granule).expect("an extent"), device.create_extent(granule).expect("an extent"));
    device.map(at, first.as_fd(), 0, granule).expect("mapped");
    assert!(device.write(at + granule - 2, &[1; 4]).is_err(), "half of it is not mapped");
    device.map(at + granule, second.as_fd(), 0, granule).expect("mapped");
    device.write(at + granule - 2, &[1, 2, 3, 4]).expect("across two mappings");
    let client = setup.client(1);
    client.device().allow(1, at, 2 * granule, true);
    let stream = client.stream();
    client.copy(stream, at, at + granule - 2, 4);
    client.submit(stream, Work::WriteValue { address: at + 8, value: 5, bytes: 8 });
    client.drain(stream);
    let mut seen = [0; 12];
    device.read(at, &mut seen).expect("read");
    assert_eq!(seen, [1, 2, 3, 4, 0, 0, 0, 0, 5, 0, 0, 0]);
    drop(client);
    device.unmap(at, granule).expect("unmapped");
    assert!(device.read(at, &mut seen).is_err());
    device.unmap(at + granule, granule).expect("unmapped");
}
