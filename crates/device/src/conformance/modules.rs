//! Modules, their variables, and what kernels can do besides computing.

use std::collections::{BTreeSet, HashMap};

use cumux_wire::cuda::{DeviceAttribute, FunctionAttribute};
use cumux_wire::positions::SmPositions;
use cumux_wire::record::Launch;
use cumux_wire::result;

use super::client::Variables;
use super::{Args, KERNELS, Opener, Setup};
use crate::{ClientSpec, DeviceError, GlobalsAllocator, ImageHash};

pub fn variables_are_placed_and_filled(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let out = client.allocate(4 * 5);
    assert_eq!(client.read(module.global("table"), 4), [10, 20, 30, 40]);
    client.launch(stream, &module, "read_table", 1, 4, Args::new().u64(out));
    client.drain(stream);
    assert_eq!(client.read(out, 5), [17, 27, 37, 47, 30]);
    client.write(module.global("table") + 8, &[31]);
    client.launch(stream, &module, "read_table", 1, 4, Args::new().u64(out));
    client.drain(stream);
    assert_eq!(client.read(out, 5), [17, 27, 38, 47, 31]);
}

pub fn restored_variables_keep_their_contents(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let stream = client.stream();
    let kept = client.allocate(4);
    client.write(kept, &[41]);
    let mut place = Variables { actor: &client, restored: HashMap::from([("counter".to_owned(), kept)]) };
    let module = client.load(KERNELS.as_bytes(), &mut place).expect("loads");
    assert_eq!(module.global("counter"), kept);
    let out = client.allocate(4);
    client.launch(stream, &module, "count", 1, 1, Args::new().u64(out));
    client.drain(stream);
    assert_eq!((client.read(out, 1), client.read(kept, 1)), (vec![42], vec![42]));
}

/// Says no from the given time on that variables are to be filled, and reads them then.
struct Refusing<'a, 'b> {
    place: Variables<'a, 'b>,
    before: u32,
    seen: Option<Vec<(u64, Vec<u32>)>>,
}

impl Refusing<'_, '_> {
    fn read(&self) -> Vec<(u64, Vec<u32>)> {
        let mut blocks: Vec<u64> = self.place.actor.placed().into_values().collect();
        blocks.sort_unstable();
        blocks.into_iter().map(|address| (address, self.place.actor.read(address, 1))).collect()
    }
}

impl GlobalsAllocator for Refusing<'_, '_> {
    fn variable(&mut self, name: &str, bytes: u64, align: u64, managed: bool) -> Result<(u64, bool), DeviceError> {
        self.place.variable(name, bytes, align, managed)
    }

    fn fill(&mut self, write: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        if self.before == 0 {
            self.seen = Some(self.read());
            return Err(DeviceError::LetGo("the client is elsewhere".into()));
        }
        self.before -= 1;
        write()
    }
}

/// A client may leave while its module is loaded: from then on its memory is not written to.
pub fn variables_are_filled_when_their_client_agrees(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let mut refusals = 0;
    loop {
        let mut place = Refusing { place: Variables { actor: &client, restored: HashMap::new() }, before: refusals, seen: None };
        let loaded = client.load(KERNELS.as_bytes(), &mut place);
        let Some(seen) = &place.seen else {
            assert_eq!(client.read(loaded.expect("nobody has refused").global("table"), 1), [10]);
            break;
        };
        assert!(matches!(loaded, Err(DeviceError::LetGo(_))), "{loaded:?}");
        assert!(seen.iter().all(|(address, before)| client.read(*address, 1) == *before), "written after the client has left");
        assert!(refusals > 0 || seen.iter().all(|(_, before)| *before == [0]), "written before the client was asked");
        refusals += 1;
    }
    // A device may keep variables itself.
    assert!(refusals >= 1 || client.placed().is_empty(), "the suite's kernels have variables");
}

/// What a standby does: modules are there before the client that is taken over.
pub fn a_preloaded_module_is_adopted_with_the_variables_of_its_client(open: Opener) {
    let setup = Setup::new(open);
    let (client, other) = (setup.client(1), setup.client(2));
    let image = KERNELS.as_bytes();
    let (hash, mut reads) = (ImageHash::of(image), 0);
    assert!(client.adopt(hash, &mut Variables { actor: &client, restored: HashMap::new() }).expect("asked").is_none(), "nobody has loaded it");
    // As the predecessor placed them.
    let first = client.kernels();
    let kept = |info: &crate::ModuleInfo| info.globals.iter().map(|global| (global.name.clone(), global.address)).collect::<HashMap<_, _>>();
    let blocks = client.placed();
    client.device().unload_module(client.id, first.id);
    client.write(first.global("counter"), &[41]);
    let preload = |reads: &mut u32| {
        let mut read = || {
            *reads += 1;
            Ok(Box::new(image) as Box<dyn AsRef<[u8]>>)
        };
        client.device().preload_module(hash, &mut read, &mut Variables { actor: &client, restored: blocks.clone() }).expect("loads")
    };
    let number = preload(&mut reads).expect("every device gains by it");
    assert_eq!(reads, 1);
    assert!(client.adopt(hash, &mut Variables { actor: &client, restored: HashMap::new() }).expect("asked").is_none(), "this client is not restored");
    let module = client.adopt(hash, &mut Variables { actor: &client, restored: blocks.clone() }).expect("asked").expect("it was preloaded");
    assert_eq!(kept(&module.info), kept(&first.info), "the variables are where they were");
    let (stream, out) = (client.stream(), client.allocate(4));
    client.launch(stream, &module, "count", 1, 1, Args::new().u64(out));
    client.drain(stream);
    assert_eq!(client.read(out, 1), [42], "and have the contents that they had");
    let later = preload(&mut reads).expect("loads");
    client.device().drop_preloaded(number);
    let again = client.adopt(hash, &mut Variables { actor: &client, restored: blocks.clone() }).expect("asked");
    assert!(again.is_some() && later != number, "what was preloaded later has another number");
    client.device().drop_preloaded(later);
    client.launch(stream, &module, "count", 1, 1, Args::new().u64(out));
    client.drain(stream);
    assert_eq!(client.read(out, 1), [43], "it is the client's now");
    let none = other.adopt(hash, &mut Variables { actor: &other, restored: HashMap::from([("counter".to_owned(), out)]) });
    assert!(matches!(none, Ok(None)), "nothing is preloaded any more");
    let number = preload(&mut reads).expect("loads again");
    client.device().drop_preloaded(number);
    client.device().drop_preloaded(number);
}

pub fn clients_have_variables_of_their_own(open: Opener) {
    let setup = Setup::new(open);
    for id in 1..4 {
        let client = setup.client(id);
        let (stream, module, out) = (client.stream(), client.kernels(), client.allocate(4));
        for expected in 1..4 {
            client.launch(stream, &module, "count", 1, 1, Args::new().u64(out));
            client.drain(stream);
            assert_eq!(client.read(out, 1), [expected]);
        }
    }
}

pub fn printf_reaches_its_client_in_order(open: Opener) {
    let setup = Setup::new(open);
    let (one, two) = (setup.client(1), setup.client(2));
    for client in [&one, &two] {
        let (stream, module) = (client.stream(), client.kernels());
        for round in 0..20 {
            client.launch(stream, &module, "say", 1, 1, Args::new().u32(client.id * 1000 + round));
        }
        client.drain(stream);
        let expected: String = (0..20).map(|round| format!("number {}\n", client.id * 1000 + round)).collect();
        assert_eq!(client.text(), expected);
    }
}

pub fn cooperative_grids_synchronise(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let (blocks, rounds) = (24, 5);
    let (values, out) = (client.allocate(4 * 64), client.allocate(4 * 64));
    let shape = Launch { grid: [blocks, 1, 1], block: [32, 1, 1], cooperative: true, ..Launch::default() };
    for _ in 0..2 {
        client.submit(stream, crate::Work::Set { target: values, pitch: 0, value: 0, element: 4, width: 64, height: 1 });
        client.launch_with(stream, &module, "sync_grid", shape.clone(), Args::new().u64(values).u64(out).u32(rounds));
    }
    client.drain(stream);
    assert_eq!(client.read(values, blocks as usize), vec![rounds; blocks as usize]);
    assert_eq!(client.read(out, blocks as usize), vec![0; blocks as usize]);
}

pub fn a_cooperative_grid_that_does_not_fit(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client_with(1, &ClientSpec { multiprocessors: 2, ..ClientSpec::default() });
    let module = client.kernels();
    let (values, out) = (client.allocate(1 << 16), client.allocate(1 << 16));
    let blocks = 2 * setup.device.facts().attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR).cast_unsigned() / 1024;
    let shape = |blocks| Launch { grid: [blocks, 1, 1], block: [1024, 1, 1], cooperative: true, ..Launch::default() };
    let args = || Args::new().u64(values).u64(out).u32(1);
    client.done(client.launch_with(client.stream(), &module, "sync_grid", shape(2), args()));
    let token = client.launch_with(client.stream(), &module, "sync_grid", shape(blocks + 1), args());
    let text = client.fault(token, result::COOPERATIVE_LAUNCH_TOO_LARGE);
    assert!(text.contains("sync_grid"), "{text}");
}

pub fn dynamic_shared_memory_beyond_the_default(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let (stream, module) = (client.stream(), client.kernels());
    let p = client.allocate(4 * 256);
    client.write(p, &(0..256).collect::<Vec<u32>>());
    let most = setup.device.facts().attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    let function = module.function("reverse_shared");
    let largest = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert!(client.device().set_function(1, module.id, function, largest, most + 1).is_err());
    client.device().set_function(1, module.id, function, largest, most).expect("the largest");
    let shape = Launch { grid: [1, 1, 1], block: [256, 1, 1], shared: most.cast_unsigned(), ..Launch::default() };
    client.launch_with(stream, &module, "reverse_shared", shape, Args::new().u64(p));
    client.drain(stream);
    assert_eq!(client.read(p, 256), (0..256).rev().collect::<Vec<u32>>());
}

pub fn bad_images_say_what_is_wrong(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let mut place = Variables { actor: &client, restored: HashMap::new() };
    let broken = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry broken()\n{\n    mov.u32 %nothing, 1;\n    ret;\n}\n";
    match client.load(broken.as_bytes(), &mut place) {
        Err(DeviceError::Image { result: result::INVALID_PTX, text }) => assert!(text.contains('6'), "line 6: {text}"),
        other => panic!("{:?}", other.map(|m| m.info)),
    }
    for image in [&b"nonsense"[..], b"", b"\x7fELF"] {
        assert!(matches!(client.load(image, &mut place), Err(DeviceError::Image { .. })));
    }
    client.drain(client.stream());
}

pub fn function_information_is_complete(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client(1);
    let module = client.kernels();
    let fill = &module.info.functions[module.function("fill") as usize];
    let layout: Vec<(u32, u32)> = fill.parameters.iter().map(|p| (p.offset, p.bytes)).collect();
    assert_eq!(layout, [(0, 8), (8, 4), (12, 4)]);
    assert_eq!(fill.parameter_bytes, 16);
    assert!(fill.registers > 0 && fill.registers <= 255 && fill.max_threads == 1024);
    let table = module.info.globals.iter().find(|g| g.name == "table").expect("table");
    assert_eq!((table.bytes, table.constant, table.managed), (16, false, false));
}

pub fn blocks_know_their_multiprocessor(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client_with(3, &ClientSpec { multiprocessors: 8, ..ClientSpec::default() });
    let (stream, module) = (client.stream(), client.kernels());
    let blocks = 500;
    let (sms, threads) = (client.allocate(4 * 500), client.allocate(4 * 500));
    client.launch(stream, &module, "where", blocks, 96, Args::new().u64(sms).u64(threads));
    client.drain(stream);
    let mut used = client.read(sms, 500);
    assert!(used.iter().all(|sm| *sm < setup.device.facts().multiprocessors()));
    used.sort_unstable();
    used.dedup();
    assert!(used.len() <= 8, "the client may use 8 of them: {used:?}");
    assert_eq!(client.read(threads, 500), vec![96; 500]);
}

pub fn partitions_at_positions_are_exactly_those(open: Opener) {
    let setup = Setup::new(open);
    let client = setup.client_with(3, &ClientSpec { multiprocessors: 32, ..ClientSpec::default() });
    let module = client.kernels();
    let (sms, threads) = (client.allocate(4 * 600), client.allocate(4 * 600));
    let used = |partition: u32| {
        let stream = setup.device.create_stream_in(3, partition, 0).expect("a stream in the partition");
        client.launch(stream, &module, "where", 600, 1024, Args::new().u64(sms).u64(threads));
        client.drain(stream);
        client.read(sms, 600).into_iter().collect::<BTreeSet<u32>>()
    };
    let share = used(0);
    for (partition, positions) in [(1, 0..16), (2, 16..32), (3, 16..32), (4, 0..32)] {
        setup.device.place_partition(3, partition, positions.collect()).expect("a partition");
    }
    let (low, high, again, all) = (used(1), used(2), used(3), used(4));
    assert_eq!((low.len(), high.len(), low.intersection(&high).count()), (16, 16, 0));
    assert!(low.union(&high).copied().collect::<BTreeSet<u32>>() == share && all == share && again == high, "{share:?}: {low:?} {high:?}");
    assert!(setup.device.place_partition(3, 1, (0..16).collect()).is_err(), "the number is in use");
    assert!(setup.device.place_partition(3, 9, SmPositions::default()).is_err() && setup.device.place_partition(77, 1, (0..2).collect()).is_err());
    setup.device.close_partition(3, 1);
    setup.device.place_partition(3, 1, (0..2).collect()).expect("free again");
    assert_eq!(used(1).len(), 2);
}
