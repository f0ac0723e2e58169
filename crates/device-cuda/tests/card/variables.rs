//! Variables in the client's memory (decision 0113). A successor is played by loading a module
//! again after it was unloaded: the driver begins anew, and the client's memory is as it was.

use cumux_device::conformance::{Actor, Args, Loaded, Setup, memory_file};
use cumux_device::{CopyExtent, DeviceError, GlobalsAllocator, Rows, Work};
use cumux_wire::cuda::DeviceAttribute;
use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::AsFd;

const DEFAULT: &[u8] = include_bytes!("../../../fatbin/tests/data/variables.sm_90.cubin");
const DEBUG: &[u8] = include_bytes!("../../../fatbin/tests/data/variables.debug.cubin");
const LINKED: &[u8] = include_bytes!("../../../fatbin/tests/data/variables.linked.cubin");
const FUNCTIONS: &[u8] = include_bytes!("../../../fatbin/tests/data/functions.sm_90.cubin");
const FUNCTIONS_DEBUG: &[u8] = include_bytes!("../../../fatbin/tests/data/functions.debug.cubin");
const MANAGED: &[u8] = include_bytes!("../../../fatbin/tests/data/managed.sm_90.cubin");
const TABLE: &[u8] = include_bytes!("../../../fatbin/tests/data/table.linked.cubin");
const HEAP: &[u8] = include_bytes!("../../../fatbin/tests/data/heap.sm_90.cubin");

/// Memory for variables, as the executor gives it.
struct Memory<'a, 'b> {
    client: &'a Actor<'b>,
    placed: HashMap<String, (u64, u64)>,
    restoring: bool,
    reason: Option<String>,
}

impl<'a, 'b> Memory<'a, 'b> {
    fn of(client: &'a Actor<'b>) -> Self {
        Memory { client, placed: HashMap::new(), restoring: false, reason: None }
    }
}

impl GlobalsAllocator for Memory<'_, '_> {
    fn variable(&mut self, name: &str, bytes: u64, align: u64, _managed: bool) -> Result<(u64, bool), DeviceError> {
        if self.restoring {
            let known = self.placed.get(name).filter(|(_, known)| *known == bytes);
            return known.map(|(address, _)| (*address, true)).ok_or_else(|| DeviceError::Invalid(format!("{name} was not there")));
        }
        let address = self.client.allocate(bytes);
        assert!(address.is_multiple_of(align));
        // Memory is not fresh in general.
        self.client.device().write(address, &vec![0xa5; bytes as usize]).expect("written");
        self.placed.insert(name.to_owned(), (address, bytes));
        Ok((address, false))
    }

    fn is_restoring(&self) -> bool {
        self.restoring
    }

    fn not_resumable(&mut self, why: &str) {
        self.reason = Some(why.to_owned());
    }
}

fn setup() -> Option<Setup> {
    super::card()?;
    let setup = Setup::new(super::open);
    if setup.device.facts().attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) != 9 {
        println!("skipped: the images are for cards of compute capability 9.0");
        return None;
    }
    Some(setup)
}

/// Runs "count" for index 0 and returns what it found.
fn count(client: &Actor<'_>, module: &Loaded) -> [u32; 2] {
    let (stream, out) = (client.stream(), client.allocate(8));
    client.launch(stream, module, "count", 1, 1, Args::new().u64(out).u32(0));
    client.drain(stream);
    let found = client.read(out, 2);
    [found[0], found[1]]
}

#[test]
fn compiled_code_uses_the_clients_memory_and_goes_on_there() {
    let Some(setup) = setup() else { return };
    for (id, image) in (1..).zip([DEFAULT, DEBUG, LINKED, FUNCTIONS]) {
        let client = setup.client(id);
        let mut memory = Memory::of(&client);
        let module = client.load(image, &mut memory).expect("loads");
        assert_eq!((memory.reason.as_deref(), memory.placed.len()), (None, 3), "image {id}");
        assert_eq!(count(&client, &module), [1 + 3 + 2 + 111, 1 + 4 + 6], "image {id}: initial values");
        assert_eq!(count(&client, &module), [11 + 3 + 2 + 111, 1 + 4 + 7]);
        assert_eq!(client.read(module.global("counters"), 4), [21, 2, 3, 4], "what code wrote is at the address that the client gets");
        client.write(module.global("zeroed") + 20, &[100]);
        client.device().unload_module(client.id, module.id);
        memory.restoring = true;
        let again = client.load(image, &mut memory).expect("loads again");
        assert_eq!(again.info, module.info, "the client sees the same addresses");
        assert_eq!(count(&client, &again), [21 + 3 + 100 + 2 + 111, 1 + 4 + 8], "image {id}: it goes on");
        assert_eq!(client.text(), "counted 0\n".repeat(3));
    }
}

#[test]
fn constants_follow_every_write_and_come_back() {
    let Some(setup) = setup() else { return };
    let client = setup.client(1);
    let stream = client.stream();
    let mut memory = Memory::of(&client);
    let module = client.load(DEFAULT, &mut memory).expect("loads");
    let factors = module.global("factors");
    let constant = |module: &Loaded| count(&client, module)[1];
    assert_eq!(client.read(factors, 4), [1.0_f32, 2.0, 3.0, 4.0].map(f32::to_bits));
    let (calls, source) = (Cell::new(5), client.allocate(4096));
    let expect = |module: &Loaded, factor: u32, how: &str| {
        calls.set(calls.get() + 1);
        assert_eq!(constant(module), factor + 4 + calls.get(), "{how}");
    };
    expect(&module, 1, "the initial value");
    client.write(source, &[70.0_f32.to_bits(), 80.0_f32.to_bits()]);
    client.copy(stream, factors, source, 4);
    client.drain(stream);
    expect(&module, 70, "a copy");
    let rows = |address, pitch| Rows { address, pitch, slice: 0 };
    client.submit(stream, Work::Copy { target: rows(factors, 8), source: rows(source + 4, 4), extent: CopyExtent { width: 4, height: 2, depth: 1 } });
    client.drain(stream);
    expect(&module, 80, "a copy of rows");
    client.submit(stream, Work::Set { target: factors, pitch: 0, value: 90.0_f32.to_bits(), element: 4, width: 4, height: 1 });
    client.drain(stream);
    expect(&module, 90, "a set");
    client.submit(stream, Work::WriteValue { address: factors, value: u64::from(60.0_f32.to_bits()), bytes: 4 });
    client.drain(stream);
    expect(&module, 60, "a value");
    // It writes two small integers, which are next to nothing as numbers of the other kind. The
    // second one is made of the second factor, which the set has left.
    client.launch(stream, &module, "count", 1, 1, Args::new().u64(factors).u32(1));
    client.drain(stream);
    calls.set(calls.get() + 1);
    let second = 90 + 4 + calls.get();
    expect(&module, 0, "a kernel that gets the address");
    client.write(factors, &[65.0_f32.to_bits()]);
    expect(&module, 65, "a write outside of streams");
    client.device().unload_module(client.id, module.id);
    memory.restoring = true;
    let again = client.load(DEFAULT, &mut memory).expect("loads again");
    assert_eq!(again.global("factors"), factors);
    expect(&again, 65, "a successor");
    let set = 90.0_f32.to_bits();
    assert_eq!(client.read(factors, 4), [65.0_f32.to_bits(), second, set, set]);
}

#[test]
fn what_cannot_be_placed_is_told_and_not_restored() {
    let Some(setup) = setup() else { return };
    for (id, image, word) in [(1, FUNCTIONS_DEBUG, "the address of t"), (2, HEAP, "malloc")] {
        let client = setup.client(id);
        let mut memory = Memory::of(&client);
        let module = client.load(image, &mut memory).expect("loads as it is");
        assert!(memory.reason.as_ref().is_some_and(|why| why.contains(word)), "{:?}", memory.reason);
        assert!(memory.placed.is_empty());
        assert_eq!(count(&client, &module), [1 + 3 + 2 + 111, 1 + 4 + 6]);
        let stream = client.stream();
        client.submit(stream, Work::WriteValue { address: module.global("counters"), value: 500, bytes: 4 });
        client.drain(stream);
        assert_eq!(count(&client, &module)[0], 500 + 3 + 2 + 111, "its own addresses are right, too");
        memory.restoring = true;
        let refused = client.load(image, &mut memory).expect_err("is not restored").to_string();
        assert!(refused.contains("gone with the executor before") && refused.contains(word), "{refused}");
    }
}

/// Memory for variables where managed ones lie in the client's window.
struct WithWindow<'a, 'b> {
    memory: Memory<'a, 'b>,
    window: u64,
    used: u64,
}

impl GlobalsAllocator for WithWindow<'_, '_> {
    fn variable(&mut self, name: &str, bytes: u64, align: u64, managed: bool) -> Result<(u64, bool), DeviceError> {
        if !managed || self.memory.restoring {
            return self.memory.variable(name, bytes, align, managed);
        }
        let address = self.window + self.used.next_multiple_of(align);
        self.used = address + bytes - self.window;
        self.memory.placed.insert(name.to_owned(), (address, bytes));
        Ok((address, false))
    }

    fn is_restoring(&self) -> bool {
        self.memory.restoring
    }

    fn not_resumable(&mut self, why: &str) {
        self.memory.not_resumable(why);
    }
}

#[test]
fn managed_variables_lie_where_host_and_card_see_them() {
    let Some(setup) = setup() else { return };
    let client = setup.client(1);
    let stream = client.stream();
    let (bytes, file) = (2 << 20, memory_file(2 << 20));
    let window = setup.window_address(bytes);
    client.device().map_window(client.id, file.as_fd(), window, bytes).expect("a window");
    let mut memory = WithWindow { memory: Memory::of(&client), window, used: 64 };
    let module = client.load(MANAGED, &mut memory).expect("loads");
    let global = |name: &str| module.info.globals.iter().find(|global| global.name == name).expect(name);
    // As the client's process sees them.
    let word = |name: &str, n: u64| {
        assert!(global(name).managed && global(name).address - window < 4096, "{name} lies at {:#x}", global(name).address);
        let mut word = [0; 4];
        rustix::io::pread(&file, &mut word, global(name).address - window + 4 * n).expect("read through the file");
        u32::from_le_bytes(word)
    };
    let floats = |words: &[u32]| words.iter().map(|word| f32::from_bits(*word)).collect::<Vec<f32>>();
    assert!(!global("beside").managed && !global("zero_beside").managed);
    assert_eq!((word("managed_count", 0), word("managed_zero", 2)), (5, 0), "initial values");
    assert_eq!(floats(&[0, 1, 2, 3].map(|n| word("managed_table", n))), [1.0, 2.0, 3.0, 4.0]);
    rustix::io::pwrite(&file, &20.0_f32.to_le_bytes(), global("managed_table").address - window + 4).expect("written through the file");
    let out = client.allocate(16);
    client.launch(stream, &module, "manage", 1, 3, Args::new().u64(out));
    client.drain(stream);
    assert_eq!(floats(&client.read(out, 3)), [1.0, 20.0, 3.0], "the kernel sees the host's");
    assert_eq!((word("managed_count", 0), word("managed_zero", 2)), (5 + 3 * 6, 2), "the host sees the kernel's");
    client.device().unload_module(client.id, module.id);
    memory.memory.restoring = true;
    let again = client.load(MANAGED, &mut memory).expect("loads again");
    assert_eq!(again.info, module.info);
    client.launch(stream, &again, "manage", 1, 1, Args::new().u64(out));
    client.drain(stream);
    assert_eq!(word("managed_count", 0), 5 + 4 * 6, "it goes on");
}

/// As NCCL has one: the driver's copy of the table is made anew, with the addresses that functions
/// have then.
#[test]
fn a_table_of_functions_that_are_only_called_is_restored() {
    let Some(setup) = setup() else { return };
    let client = setup.client(1);
    let stream = client.stream();
    let mut memory = Memory::of(&client);
    let module = client.load(TABLE, &mut memory).expect("loads");
    assert_eq!(memory.reason, None);
    let x = client.allocate(4);
    client.write(x, &[5]);
    client.launch(stream, &module, "work", 1, 1, Args::new().u64(x).u32(0));
    client.drain(stream);
    assert_eq!(client.read(x, 1), [5 * 2 + 1]);
    client.device().unload_module(client.id, module.id);
    memory.restoring = true;
    let again = client.load(TABLE, &mut memory).expect("loads again");
    client.launch(stream, &again, "work", 1, 1, Args::new().u64(x).u32(1));
    client.drain(stream);
    assert_eq!(client.read(x, 1), [11 * 3 + 2]);
}

/// A format string in a variable lies in the client's memory: the driver has to read it there, as
/// it has to read those of the compiler's own.
#[test]
fn printf_reads_formats_in_the_clients_memory() {
    let Some(_) = super::card() else { return };
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n\
                .global .align 1 .b8 format[12] = {112, 108, 97, 99, 101, 100, 32, 37, 115, 10, 0};\n\
                .global .align 1 .b8 word[8] = {119, 111, 114, 100, 0};\n\
                .visible .entry print()\n{\n.local .align 8 .b8 buffer[8];\n.reg .b32 result;\n.reg .b64 f, w, a, l;\n\
                mov.u64 f, format;\ncvta.global.u64 f, f;\nmov.u64 w, word;\ncvta.global.u64 w, w;\nmov.u64 l, buffer;\nst.local.u64 [l], w;\ncvta.local.u64 a, l;\n\
                {\n.param .b64 p0;\n.param .b64 p1;\n.param .b32 back;\nst.param.b64 [p0], f;\nst.param.b64 [p1], a;\n\
                call.uni (back), vprintf, (p0, p1);\nld.param.b32 result, [back];\n}\nret;\n}\n";
    let setup = Setup::new(super::open);
    let client = setup.client(1);
    let mut memory = Memory::of(&client);
    let module = client.load(text.as_bytes(), &mut memory).expect("loads");
    assert_eq!((memory.reason.as_deref(), memory.placed.len()), (None, 1));
    let stream = client.stream();
    client.launch(stream, &module, "print", 1, 1, Args::new());
    client.drain(stream);
    assert_eq!(client.text(), "placed word\n");
}
