//! A minimal card for tests of the execution core: buffers, collected output, a clock.
#![expect(clippy::disallowed_types, reason = "buffers are memory of kernels")]
#![allow(dead_code)]

use cumux_device::Channel;
use cumux_device_sim::exec::Block;
use cumux_device_sim::exec::interface::{Access, BlockCoordinates, Fault, GlobalMemory, Launch, MemoryFault, Services, Status};
use cumux_device_sim::lower::compile;
use cumux_device_sim::program::LinkedProgram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the first buffer lies; each has its own megabyte-aligned place.
const BASE: u64 = 0x1000_0000_0000;
const STEP: u64 = 1 << 28;

/// Buffers at fixed addresses.
#[derive(Default)]
pub struct Flat {
    buffers: Vec<(u64, Vec<AtomicU64>)>,
    /// Bytes and addresses reported before stores.
    pub stores: Vec<(u64, u32)>,
}

impl Flat {
    pub fn allocate(&mut self, bytes: &[u8]) -> u64 {
        let address = BASE + self.buffers.len() as u64 * STEP;
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            AtomicU64::new(u64::from_le_bytes(word))
        });
        // Vectors of words are only 8-byte aligned: one spare word makes room for 16.
        let mut words: Vec<AtomicU64> = words.collect();
        words.insert(0, AtomicU64::new(0));
        words.push(AtomicU64::new(0));
        self.buffers.push((bytes.len() as u64, words));
        self.align(address);
        address
    }

    /// Moves contents so that they begin at a multiple of 16.
    fn align(&mut self, address: u64) {
        let (_, words) = &mut self.buffers[((address - BASE) / STEP) as usize];
        if (words[0].as_ptr() as usize).is_multiple_of(16) {
            words.remove(0);
            words.push(AtomicU64::new(0));
        }
    }

    fn start(&self, index: usize) -> usize {
        usize::from(!(self.buffers[index].1[0].as_ptr() as usize).is_multiple_of(16))
    }

    pub fn read(&self, address: u64) -> Vec<u8> {
        let index = ((address - BASE) / STEP) as usize;
        let (bytes, words) = &self.buffers[index];
        let mut out: Vec<u8> = words[self.start(index)..].iter().flat_map(|word| word.load(Ordering::SeqCst).to_le_bytes()).collect();
        out.truncate(*bytes as usize);
        out
    }
}

// SAFETY: pointers lie in vectors that live and do not move while a block runs; they are made of
// atomics, to which no plain reference exists.
unsafe impl GlobalMemory for Flat {
    fn access(&mut self, address: u64, bytes: u64, _: Access) -> Result<*mut u8, MemoryFault> {
        let index = (address.wrapping_sub(BASE) / STEP) as usize;
        let offset = address.wrapping_sub(BASE) % STEP;
        match self.buffers.get(index) {
            Some((size, words)) if address >= BASE && offset + bytes <= *size => {
                Ok(words[self.start(index)].as_ptr().cast::<u8>().wrapping_add(offset as usize))
            }
            _ => Err(MemoryFault::OutOfBounds),
        }
    }

    fn before_store(&mut self, address: u64, _: *mut u8, bytes: u32) {
        self.stores.push((address, bytes));
    }
}

/// Collects output; the heap hands out buffers of a `Flat`.
#[derive(Default)]
pub struct Host {
    pub printed: Vec<u8>,
    pub heap: Vec<u64>,
    pub live: Vec<u64>,
    pub now: u64,
}

impl Services for Host {
    fn print(&mut self, _: Channel, text: &[u8]) {
        self.printed.extend_from_slice(text);
    }
    fn malloc(&mut self, _: u64) -> u64 {
        let address = self.heap.pop().unwrap_or(0);
        self.live.push(address);
        address
    }
    fn free(&mut self, address: u64) -> bool {
        let at = self.live.iter().position(|live| *live == address);
        at.map(|at| self.live.remove(at)).is_some()
    }
    fn globaltimer(&mut self) -> u64 {
        self.now += 1000;
        self.now
    }
    fn clock(&mut self) -> u64 {
        self.now += 10;
        self.now
    }
}

/// A program with its variables in memory.
pub struct Loaded {
    pub linked: Arc<LinkedProgram>,
    pub memory: Flat,
    pub host: Host,
}

impl Loaded {
    pub fn new(text: &str) -> Result<Loaded, String> {
        let program = compile(text).map_err(|error| error.to_string())?;
        let mut memory = Flat::default();
        let addresses: Vec<u64> = program.variables.iter().map(|v| memory.allocate(&vec![0; v.bytes as usize])).collect();
        let linked = LinkedProgram::new(program.clone(), addresses.clone());
        for (n, address) in addresses.iter().enumerate() {
            let initial = linked.initial(n);
            let index = ((address - BASE) / STEP) as usize;
            let start = memory.start(index);
            for (at, chunk) in initial.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                memory.buffers[index].1[start + at].store(u64::from_le_bytes(word), Ordering::SeqCst);
            }
        }
        Ok(Loaded { linked: Arc::new(linked), memory, host: Host::default() })
    }

    /// Runs a grid with all blocks resident, turn by turn.
    pub fn run(&mut self, kernel: &str, grid: [u32; 3], block: [u32; 3], shared: u32, parameters: Vec<u8>) -> Result<u64, Box<Fault>> {
        self.run_clusters(kernel, grid, block, [1; 3], shared, parameters)
    }

    /// The same, with clusters of `cluster` blocks.
    pub fn run_clusters(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        cluster: [u32; 3],
        shared: u32,
        parameters: Vec<u8>,
    ) -> Result<u64, Box<Fault>> {
        let index = self.linked.program().kernel(kernel).expect("no such kernel");
        let workspace = self.memory.allocate(&[0; 64]);
        let launch = Arc::new(Launch {
            linked: self.linked.clone(),
            kernel: index,
            grid,
            block,
            cluster,
            explicit_cluster: cluster != [1; 3],
            dynamic_shared: shared,
            parameters: parameters.into(),
            grid_id: 7,
            stack_bytes: 1024,
            multiprocessors: 132,
            warps_per_multiprocessor: 64,
            grid_workspace: workspace,
        });
        let mut blocks = Vec::new();
        let within = |size: [u32; 3]| (0..size[2]).flat_map(move |z| (0..size[1]).flat_map(move |y| (0..size[0]).map(move |x| [x, y, z])));
        for at in within([0, 1, 2].map(|n| grid[n] / cluster[n])) {
            let members: Vec<BlockCoordinates> = within(cluster)
                .map(|inside| [0, 1, 2].map(|n| at[n] * cluster[n] + inside[n]))
                .map(|ctaid| BlockCoordinates { ctaid, multiprocessor: ctaid[0] % 132, first_warp: 0 })
                .collect();
            blocks.push(Block::new(launch.clone(), &members));
        }
        let mut executed = 0;
        for _ in 0..100_000 {
            let mut running = false;
            for block in &mut blocks {
                match block.run(3000, &mut self.memory, &mut self.host) {
                    Status::Running => running = true,
                    Status::Done => {}
                    Status::Fault(fault) => return Err(fault),
                }
            }
            if !running {
                executed += blocks.iter().map(Block::executed).sum::<u64>();
                return Ok(executed);
            }
        }
        panic!("the grid does not end");
    }
}
