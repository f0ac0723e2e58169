//! What a device's driver has made: its client stays, and a successor tells it. No software GPU
//! makes arrays, so they are written into the object log as though a card had made them.

use super::*;
use cumux_wire::record::{ArrayWish, CopyEnd, CopyExtent, ObjectWish, Resource};

const ARRAY: Change = Change::Array { array: 5, device: 0, bytes: 1 << 20 };
const OBJECT: Change = Change::TextureObject { device: 0, handle: 9 };

fn commit(world: &World, client: u32, change: Change) {
    let session = world.session(client);
    session.lock_then_deliver(|inner| session.commit(inner, change, 0, None));
}

#[test]
fn a_client_with_textures_stays_and_is_not_restored() {
    let world = World::new();
    let mut guest = Guest::new(&world, 31);
    guest.ask_ok(&allocate(4096, 256));
    let terms = release::Terms { wait: Duration::from_millis(1), unless_still: false };
    for change in [ARRAY, OBJECT] {
        commit(&world, 31, change);
        release::release(&world.shared, &world.intake, &world.session(31), &terms);
        let why = released(&world);
        assert!(why.contains("on the card, which only this executor's driver knows: try again when they are destroyed"), "{why}");
    }
    guest.close();
    let refused = guest.open(2).expect_err("nobody has its arrays").to_string();
    assert!(refused.contains("1 arrays and 1 texture or surface objects of this client have gone"), "{refused}");
    assert_eq!(guest.charged(), 0);
}

#[test]
fn who_has_destroyed_its_textures_goes_on_and_who_has_an_error_hears_that_one() {
    let world = World::new();
    let mut guest = Guest::new(&world, 32);
    for change in [ARRAY, OBJECT] {
        commit(&world, 32, change);
    }
    guest.tell(&Op::ObjectDestroy { device: 0, handle: 9 });
    guest.tell(&Op::ArrayDestroy { array: 5 });
    guest.close();
    guest.open(2).unwrap();
    assert_eq!(guest.client.sticky(), 0);
    commit(&world, 32, ARRAY);
    let session = world.session(32);
    let fault = Fault { result: result::ILLEGAL_ADDRESS, text: "its own".into() };
    session.lock_then_deliver(|inner| session.fault(inner, &fault));
    guest.close();
    guest.open(3).unwrap();
    assert_eq!((guest.client.sticky(), world.session(32).status().fault.as_str()), (result::ILLEGAL_ADDRESS, "its own"));
    guest.close();
}

#[test]
fn a_reset_destroys_textures() {
    let world = World::new();
    let mut guest = Guest::new(&world, 33);
    for change in [ARRAY, OBJECT] {
        commit(&world, 33, change);
    }
    guest.ask_ok(&Op::Reset);
    assert!(world.session(33).lock().objects.describe_textures().is_none());
    guest.close();
    guest.open(2).unwrap();
    guest.close();
}

#[test]
fn a_copy_of_an_array_that_is_about_to_end_breaks_the_protocol() {
    let world = World::new();
    let mut guest = Guest::new(&world, 34);
    commit(&world, 34, ARRAY);
    guest.tell(&Op::StreamCreate { index: 1, device: 0, priority: 0, partition: 0 });
    // The callback is never called: what follows waits.
    guest.push_in(1, 1, &Op::HostCall, NO_ANSWER);
    guest.tell(&Op::ArrayDestroy { array: 5 });
    let memory = CopyEnd::Memory { address: 0x1000, pitch: 64, slice: 64 };
    let copy =
        |array| Op::ArrayCopy { target: memory, source: CopyEnd::Array { array, level: 0, at: [0; 3] }, extent: CopyExtent { width: 64, height: 1, depth: 1 } };
    guest.push_in(1, 2, &copy(6), NO_ANSWER);
    assert_eq!(guest.client.sticky(), 0, "another array");
    guest.push_in(1, 3, &copy(5), NO_ANSWER);
    assert_eq!(guest.client.sticky(), result::MPS_RPC_FAILURE);
    guest.close();
}

#[test]
fn a_device_that_makes_no_arrays_says_so_and_nothing_is_charged() {
    let world = World::new();
    let mut guest = Guest::new(&world, 35);
    let wish = ArrayWish { size: [64, 64, 0], format: 0x20, channels: 1, ..ArrayWish::default() };
    assert_eq!(guest.ask(&Op::ArrayCreate { device: 0, array: 1, wish }).result, result::NOT_SUPPORTED);
    assert_eq!(guest.ask(&Op::ArrayCreate { device: 7, array: 1, wish }).result, result::INVALID_VALUE);
    let wish = ObjectWish { resource: Resource::Array { array: 1, level: 0 }, texture: None, view: None };
    assert_eq!(guest.ask(&Op::ObjectCreate { device: 0, wish }).result, result::NOT_SUPPORTED);
    assert_eq!((guest.charged(), guest.client.sticky()), (0, 0));
    guest.close();
}
