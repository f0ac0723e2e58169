//! Memory of the device runtime: the buffers in which kernels write the parameters of their
//! launches, and the texts of errors.
//!
//! Only this process has it, as the heap of `malloc`.

use std::collections::HashMap;

use cumux_device::Parameters;
use cumux_ranges::{AllowedRange, FirstFit};
use parking_lot::RwLock;

use super::permissions::Permissions;
use crate::exec::request::Configuration;
use crate::mapping::Mapping;

/// Bytes of all buffers and texts of a client.
const BYTES: u64 = 32 << 20;
/// Buffers are aligned to this many bytes.
const ALIGN: u64 = 64;
/// Bytes of the largest parameters of a kernel (CUDA C++ Programming Guide, *`__global__` function
/// parameters*).
pub(crate) const MOST_PARAMETERS: u64 = 32_764;

/// A buffer that was asked for and is not launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// The number of the grid whose thread asked.
    task: u64,
    bytes: u64,
    /// What is to be launched with it, if that was said.
    pub(crate) configuration: Option<Configuration>,
}

/// What one client's kernels have of the device runtime's memory.
#[derive(Debug, Default)]
pub(crate) struct LaunchMemory {
    /// Made with the first buffer, with what is free in it. Nothing is taken out of the client's
    /// table: the client goes with its mapping.
    memory: Option<(Mapping, FirstFit)>,
    buffers: HashMap<u64, Buffer>,
    /// Addresses of texts.
    texts: HashMap<&'static str, u64>,
}

impl LaunchMemory {
    /// A piece of memory that the client may touch; `None` where there is none.
    fn take(&mut self, bytes: u64, table: &RwLock<Permissions>) -> Option<u64> {
        let (_, pieces) = match &mut self.memory {
            Some(memory) => memory,
            none => {
                let mapping = Mapping::private(BYTES).ok()?;
                table.write().allow(AllowedRange::new(mapping.address(), BYTES, true, 0)).ok()?;
                let mut pieces = FirstFit::new(ALIGN);
                pieces.add(mapping.address(), BYTES);
                none.insert((mapping, pieces))
            }
        };
        pieces.allocate(bytes, ALIGN)
    }

    /// A buffer for the parameters of a launch by this grid; `None` where there is no room.
    pub(crate) fn open_buffer(&mut self, task: u64, bytes: u64, configuration: Option<Configuration>, table: &RwLock<Permissions>) -> Option<u64> {
        let address = self.take(bytes, table)?;
        self.buffers.insert(address, Buffer { task, bytes, configuration });
        Some(address)
    }

    /// The buffer at an address.
    pub(crate) fn buffer(&self, address: u64) -> Option<Buffer> {
        self.buffers.get(&address).copied()
    }

    /// What a buffer begins with, at most `bytes` bytes; the buffer is closed.
    pub(crate) fn close_buffer(&mut self, address: u64, bytes: u64) -> Parameters {
        let mut contents = Parameters::new();
        let Some(buffer) = self.buffers.remove(&address) else { return contents };
        if let Some((mapping, pieces)) = &mut self.memory {
            contents.resize(bytes.min(buffer.bytes) as usize, 0);
            mapping.read(address - mapping.address(), &mut contents);
            pieces.release(address);
        }
        contents
    }

    /// A grid is over: closes what it has not launched.
    pub(crate) fn end_task(&mut self, task: u64) {
        if self.buffers.is_empty() {
            return;
        }
        let left: Vec<u64> = self.buffers.iter().filter(|(_, buffer)| buffer.task == task).map(|(address, _)| *address).collect();
        for address in left {
            self.close_buffer(address, 0);
        }
    }

    /// The address of a text with a zero behind it, 0 where there is no room.
    pub(crate) fn text(&mut self, text: &'static str, table: &RwLock<Permissions>) -> u64 {
        if let Some(address) = self.texts.get(text) {
            return *address;
        }
        let bytes = [text.as_bytes(), &[0]].concat();
        let Some(address) = self.take(bytes.len() as u64, table) else { return 0 };
        if let Some((mapping, _)) = &self.memory {
            mapping.write(address - mapping.address(), &bytes);
        }
        self.texts.insert(text, address);
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::interface::Access;

    #[test]
    fn buffers_are_closed_by_their_launch_or_with_their_grid() {
        let (mut memory, table) = (LaunchMemory::default(), RwLock::new(Permissions::default()));
        let first = memory.open_buffer(1, 100, None, &table).unwrap();
        let second = memory.open_buffer(2, 100, None, &table).unwrap();
        assert!(table.read().look_up(first, 100, Access::Store).is_ok() && second >= first + 100);
        let (mapping, _) = memory.memory.as_ref().unwrap();
        mapping.write(first - mapping.address(), &[7; 100]);
        assert_eq!(memory.close_buffer(first, 12)[..], [7; 12]);
        assert_eq!((memory.buffer(first), memory.close_buffer(first, 12).len()), (None, 0), "a buffer is launched once");
        memory.end_task(1);
        assert!(memory.buffer(second).is_some());
        memory.end_task(2);
        assert!(memory.buffer(second).is_none());
        assert_eq!(memory.open_buffer(3, BYTES, None, &table), Some(first), "all of it is free again");
        assert_eq!(memory.open_buffer(3, 1, None, &table), None);
    }

    #[test]
    fn a_text_has_one_address() {
        let (mut memory, table) = (LaunchMemory::default(), RwLock::new(Permissions::default()));
        let address = memory.text("no error", &table);
        assert_eq!(memory.text("no error", &table), address);
        let (mapping, _) = memory.memory.as_ref().unwrap();
        let mut read = [1; 9];
        mapping.read(address - mapping.address(), &mut read);
        assert_eq!(&read, b"no error\0");
    }
}
