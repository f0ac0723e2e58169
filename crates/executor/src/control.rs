//! Records that belong to no stream: they take effect when taken, or, where CUDA says so, when
//! everything the client pushed before is over (barriers).

use crate::arena::GRANULE;
use crate::background;
use crate::drive::Caller;
use crate::objects::{Change, Objects, PartitionSpec, StreamSpec};
use crate::session::{Barrier, Inner, Session};
use crate::shared::{answer, answer_with};
use crate::stream::Stream;
use cumux_device::{DeviceError, Fault};
use cumux_ring::page::Answer;
use cumux_wire::layout::{self, in_arena};
use cumux_wire::positions::SmPositions;
use cumux_wire::record::{Header, Op, Record};
use cumux_wire::result;
use std::sync::Arc;

/// Parts that a client may divide its share into.
const PARTITIONS: usize = 256;

impl Session {
    /// Carries out a record that belongs to no stream: what it is about says where.
    pub(crate) fn control(self: &Arc<Self>, inner: &mut Inner, end: u64, bytes: &[u8], record: Record) {
        let header = record.header;
        // It may take long, also where it is no call of the device.
        self.shared.cards.put_down();
        match record.op {
            Op::StreamCreate { index, device, priority, partition } => self.stream_create(inner, end, index, StreamSpec { device, priority, partition }),
            op @ (Op::PartitionOpen { .. } | Op::PartitionPlace { .. } | Op::PartitionClose { .. }) => self.control_partition(inner, end, header, &op),
            op @ (Op::ModuleLoad { .. } | Op::FunctionSet { .. }) => self.control_module(inner, end, header, &op),
            op @ (Op::MemAlloc { .. } | Op::MemInfo { .. } | Op::Charge { .. } | Op::Refund { .. }) => self.control_memory(inner, end, header, &op),
            op
            @ (Op::VmmReserve { .. } | Op::VmmUnreserve { .. } | Op::VmmCreate { .. } | Op::VmmRelease { .. } | Op::VmmMap { .. } | Op::VmmAccess { .. }) => {
                self.control_virtual(inner, end, header, &op);
            }
            op @ (Op::Lend { .. } | Op::Borrow { .. } | Op::VmmLend { .. } | Op::VmmBorrow { .. } | Op::EventCell { .. }) => {
                self.control_loans(inner, end, header, &op);
            }
            Op::PeerAccess { device, peer, on } => {
                let (change, code) = self.set_peer_access(inner, device, peer, on != 0);
                self.commit_reply(inner, end, &header, change, answer(code));
            }
            Op::VmmPeerAccess { address, bytes: length, device, access } => {
                let code = self.set_mapping_access(inner, (address, length), device, access);
                self.commit_reply(inner, end, &header, Change::Nothing, answer(code));
            }
            op @ (Op::HostRegister { .. } | Op::WindowUse { .. }) => self.control_window(inner, end, header, &op),
            Op::TensorMap { device, out, wish } => {
                let device_index = self.device_index(device).filter(|_| self.in_window(out, 128));
                let made =
                    device_index.map_or_else(|| Err(DeviceError::Invalid(String::new())), |device_index| self.shared.cards.encode_tensor(device_index, &wish));
                let written = made.and_then(|bytes| self.shared.cards.write(self.client(), out, &bytes));
                self.commit_reply(inner, end, &header, Change::Nothing, answer(code_of(written)));
            }
            op @ (Op::ArrayCreate { .. } | Op::ObjectCreate { .. }) => self.create_texture(inner, end, header, &op),
            Op::LimitSet { limit, value } => {
                if !background::set_limit(self, inner, header, end, limit, value) {
                    self.commit_reply(inner, end, &header, Change::Nothing, answer(result::OUT_OF_MEMORY));
                }
            }
            op @ (Op::StreamDestroy { .. }
            | Op::ModuleUnload { .. }
            | Op::MemFree { .. }
            | Op::VmmUnmap { .. }
            | Op::HostUnregister { .. }
            | Op::Return { .. }
            | Op::ArrayDestroy { .. }
            | Op::ObjectDestroy { .. }
            | Op::Reset) => {
                let token = inner.journal.accept(end, bytes);
                self.taken(inner, end);
                let waits = match op {
                    Op::StreamDestroy { index } => inner.queues.streams.get(&index).map(|s| (index, s.last())).into_iter().collect(),
                    _ => inner.queues.streams.iter().filter(|(_, s)| !s.is_idle()).map(|(i, s)| (*i, s.last())).collect(),
                };
                inner.queues.barriers.push_back(Barrier { waits, header, op, token });
                self.pass_barriers(inner);
            }
            other => self.refuse_record(inner, &other),
        }
    }

    /// A record for which there is no place here.
    fn refuse_record(&self, inner: &mut Inner, op: &Op) {
        self.violation(inner, &format!("{op:?} outside a stream"));
    }

    /// Commits a change and answers the record that asked for it.
    fn commit_reply(&self, inner: &mut Inner, end: u64, header: &Header, change: Change, reply: Answer) {
        self.commit(inner, change, end, Some((header, reply)));
    }

    /// Parts of the client's share.
    fn control_partition(self: &Arc<Self>, inner: &mut Inner, end: u64, header: Header, op: &Op) {
        match *op {
            Op::PartitionOpen { partition, device, multiprocessors } => {
                self.partition_open(inner, end, header, partition, PartitionSpec { device, multiprocessors, positions: None });
            }
            Op::PartitionPlace { partition, device, positions } => {
                let positions = SmPositions::from_words(positions);
                let spec = PartitionSpec { device, multiprocessors: positions.count(), positions: Some(positions) };
                self.partition_open(inner, end, header, partition, spec);
            }
            Op::PartitionClose { partition } => {
                let known = inner.objects.partitions.contains_key(&partition);
                if known {
                    self.shared.cards.close_partition(self.client(), partition);
                }
                self.commit(inner, if known { Change::PartitionGone { number: partition } } else { Change::Nothing }, end, None);
            }
            ref other => self.refuse_record(inner, other),
        }
    }

    fn partition_open(self: &Arc<Self>, inner: &mut Inner, end: u64, header: Header, number: u32, spec: PartitionSpec) {
        let known = &inner.objects.partitions;
        if self.device_index(spec.device).is_none() || known.contains_key(&number) {
            self.commit_reply(inner, end, &header, Change::Nothing, answer(result::INVALID_VALUE));
        } else if known.len() >= PARTITIONS || !background::open_partition(self, inner, header, end, number, spec) {
            self.commit_reply(inner, end, &header, Change::Nothing, answer(result::OUT_OF_MEMORY));
        }
    }

    /// Modules and their functions.
    fn control_module(self: &Arc<Self>, inner: &mut Inner, end: u64, header: Header, op: &Op) {
        match *op {
            Op::ModuleLoad { module, device, image, image_bytes, info, info_bytes } => {
                if self.device_index(device).is_none() || inner.objects.modules.contains_key(&module) {
                    return self.commit_reply(inner, end, &header, Change::Nothing, answer(result::INVALID_VALUE));
                }
                if !background::load(self, inner, background::Request { header, end, module, device, image, image_bytes, info, info_bytes }) {
                    self.commit_reply(inner, end, &header, Change::Nothing, answer(result::OUT_OF_MEMORY));
                }
            }
            Op::FunctionSet { module, function, attribute, value } => {
                let outcome = self.shared.cards.set_function(self.client(), module, function, attribute, value);
                let change = if outcome.is_ok() { Change::Function { module, function, attribute, value } } else { Change::Nothing };
                self.commit_reply(inner, end, &header, change, answer(code_of(outcome)));
            }
            ref other => self.refuse_record(inner, other),
        }
    }

    /// Allocations, and what is charged like one.
    fn control_memory(self: &Arc<Self>, inner: &mut Inner, end: u64, header: Header, op: &Op) {
        match *op {
            Op::MemAlloc { device, bytes: wanted, align } => {
                // Where an extent has to be made, that is not the intake thread's time: it belongs
                // to all clients.
                let room = self.device_index(device).is_none_or(|device_index| inner.memory.heap.fits(wanted, align, &layout::arena_window(device_index)));
                if !room && background::allocate(self, inner, header, end, device, wanted, align) {
                    return;
                }
                let (change, reply) = match self.allocate(inner, device, wanted, align) {
                    Ok(address) => (Change::Alloc { address, bytes: wanted }, answer_with(result::SUCCESS, address, 0)),
                    Err(code) => (Change::Nothing, answer(code)),
                };
                self.commit_reply(inner, end, &header, change, reply);
            }
            Op::MemInfo { device } => {
                let reply = match self.device_index(device) {
                    Some(device_index) => {
                        let [free, total, behind] = self.shared.memory_info(self.config.id, device_index, self.limit(device));
                        Answer { result: result::SUCCESS, words: [free, total, behind, 0, 0, 0] }
                    }
                    None => answer(result::INVALID_VALUE),
                };
                self.answer(&header, &reply);
                self.taken(inner, end);
            }
            Op::Charge { device, address, bytes: length } => {
                let (change, code) = self.charge_window(inner, device, address, length);
                self.commit_reply(inner, end, &header, change, answer(code));
            }
            Op::Refund { address } => {
                let known = inner.objects.charges.get(&address).copied();
                if let Some((device, length)) = known {
                    self.refund(device, length);
                }
                self.commit(inner, if known.is_some() { Change::Refund { address } } else { Change::Nothing }, end, None);
            }
            ref other => self.refuse_record(inner, other),
        }
    }

    /// Virtual memory management: reservations, physical memory, and what is mapped where.
    fn control_virtual(self: &Arc<Self>, inner: &mut Inner, end: u64, header: Header, op: &Op) {
        match *op {
            Op::VmmReserve { bytes: wanted, align, fixed } => {
                let gone = inner.memory.leaving.extract_if(.., |(address, bytes)| self.shared.cards.is_range_spare(self.client(), *address, *bytes));
                gone.for_each(|(address, bytes)| self.shared.arena.lock().release(address, bytes));
                let (change, code, address) = self.reserve(&inner.objects, &inner.memory.leaving, wanted, align, fixed);
                self.commit_reply(inner, end, &header, change, answer_with(code, address, 0));
            }
            Op::VmmUnreserve { address, bytes: length } => {
                let range = address..address.saturating_add(length);
                let known = inner.objects.reservations.get(&address) == Some(&length)
                    && !inner.objects.mappings.range(range.clone()).any(|_| true)
                    && !inner.objects.aliases.range(range).any(|_| true);
                if known && self.shared.cards.is_range_spare(self.client(), address, length) {
                    self.shared.arena.lock().release(address, length);
                } else if known {
                    inner.memory.leaving.push((address, length));
                }
                let change = if known { Change::Unreserve { address } } else { Change::Nothing };
                self.commit_reply(inner, end, &header, change, answer(if known { result::SUCCESS } else { result::INVALID_VALUE }));
            }
            Op::VmmCreate { handle, device, bytes: wanted } => {
                if !background::create(self, inner, header, end, handle, device, wanted) {
                    let (change, code) = self.physical_create(inner, handle, device, wanted);
                    self.commit_reply(inner, end, &header, change, answer(code));
                }
            }
            Op::VmmRelease { handle } => {
                if inner.objects.mappings.values().any(|m| m.handle == handle) {
                    self.commit(inner, Change::Released { handle }, end, None);
                } else {
                    self.physical_gone(inner, handle);
                    self.taken(inner, end);
                }
            }
            Op::VmmMap { address, bytes: length, handle, offset } => {
                let (change, code) = self.map(inner, address, length, handle, offset);
                self.commit_reply(inner, end, &header, change, answer(code));
            }
            Op::VmmAccess { address, bytes: length, access } => self.access(inner, end, &header, address, length, access),
            ref other => self.refuse_record(inner, other),
        }
    }

    /// What clients lend each other.
    fn control_loans(self: &Arc<Self>, inner: &mut Inner, end: u64, header: Header, op: &Op) {
        match *op {
            Op::Lend { address, kind } => {
                let (change, reply) = self.lend(inner, address, kind);
                self.commit_reply(inner, end, &header, change, reply);
            }
            Op::VmmLend { handle } => {
                let (change, reply) = self.lend_physical(inner, handle);
                self.commit_reply(inner, end, &header, change, reply);
            }
            Op::Borrow { .. } | Op::VmmBorrow { .. } => {
                if !background::borrow(self, inner, header, end, op) {
                    self.commit_reply(inner, end, &header, Change::Nothing, answer(result::OUT_OF_MEMORY));
                }
            }
            Op::EventCell { address, action } => {
                // What a predecessor has answered was counted: only its note of that is missing.
                if !self.is_answered(&header) {
                    let reply = self.event_cell(inner, address, action);
                    self.answer(&header, &reply);
                }
                self.taken(inner, end);
            }
            ref other => self.refuse_record(inner, other),
        }
    }

    /// The client's own memory, in its window.
    fn control_window(self: &Arc<Self>, inner: &mut Inner, end: u64, header: Header, op: &Op) {
        match *op {
            Op::HostRegister { user, window, bytes: length } => {
                let (objects, last) = (&inner.objects, user.saturating_add(length.saturating_sub(1)));
                let reserved = objects.reservations.range(..=user).next_back().is_some_and(|(start, bytes)| last - start < *bytes);
                let whole = [user, window, length].iter().all(|n| n.is_multiple_of(GRANULE)) && length > 0;
                let is_free = objects.mappings.range(..=last).next_back().is_none_or(|(start, mapped)| start + mapped.bytes <= user);
                if (in_arena(user) || in_arena(last)) && !(reserved && whole && is_free) {
                    let reply = answer(result::INVALID_VALUE);
                    return self.commit_reply(inner, end, &header, Change::Nothing, reply);
                }
                if !background::alias(self, inner, header, end, user, window, length) {
                    self.commit_reply(inner, end, &header, Change::Nothing, answer(result::OUT_OF_MEMORY));
                }
            }
            Op::WindowUse { address, bytes: length } => {
                if !background::use_window(self, inner, header, end, address, length) {
                    self.commit_reply(inner, end, &header, Change::Nothing, answer(result::OUT_OF_MEMORY));
                }
            }
            ref other => self.refuse_record(inner, other),
        }
    }

    /// Memory of the window that the client uses as memory of the device.
    fn charge_window(&self, inner: &Inner, device: u32, address: u64, bytes: u64) -> (Change, u32) {
        if bytes == 0 || !self.in_window(address, bytes) || inner.objects.charges.contains_key(&address) {
            return (Change::Nothing, result::INVALID_VALUE);
        }
        match self.charge(device, bytes) {
            Ok(()) => (Change::Charge { address, device, bytes }, result::SUCCESS),
            Err(code) => (Change::Nothing, code),
        }
    }

    fn stream_create(self: &Arc<Self>, inner: &mut Inner, end: u64, index: u32, spec: StreamSpec) {
        if inner.queues.streams.contains_key(&index) {
            // The client may mint an index again as soon as it sees the old stream drained, a
            // moment before its end has been carried out.
            self.pass_barriers(inner);
        }
        let partition = spec.partition == 0 || inner.objects.partitions.get(&spec.partition).is_some_and(|partition| partition.device == spec.device);
        if self.device_index(spec.device).is_none() || !partition || inner.queues.streams.contains_key(&index) {
            return self.violation(inner, &format!("stream {index} made twice, or for device {} or partition {}", spec.device, spec.partition));
        }
        match self.open_stream(inner, index, spec) {
            Ok(()) => self.commit(inner, Change::Stream { index, spec }, end, None),
            Err(error) => {
                let fault = Fault { result: error.result(), text: format!("no more streams can be made: {error}") };
                self.fault(inner, &fault);
                if !inner.phase.is_elsewhere() {
                    self.taken(inner, end);
                }
            }
        }
    }

    /// Runs the barriers whose time has come, oldest first; whether there were any. Only on the
    /// intake thread.
    pub(crate) fn pass_barriers(self: &Arc<Self>, inner: &mut Inner) -> bool {
        let (mut at, mut any) = (0, false);
        while at < inner.queues.barriers.len() {
            if !inner.is_passed(&inner.queues.barriers[at]) {
                at += 1;
                continue;
            }
            let Some(barrier) = inner.queues.barriers.remove(at) else { break };
            self.pass_barrier(inner, &barrier);
            inner.journal.retire(barrier.token);
            any = true;
        }
        any
    }

    fn pass_barrier(self: &Arc<Self>, inner: &mut Inner, barrier: &Barrier) {
        let reply = |code| Some((&barrier.header, answer(code)));
        // It may take long, also where it is no call of the device.
        self.shared.cards.put_down();
        match barrier.op {
            Op::StreamDestroy { index } => {
                if let Some(stream) = inner.queues.streams.remove(&index) {
                    inner.queues.by_device.remove(&stream.device);
                    self.shared.cards.destroy_stream(stream.device);
                    self.commit(inner, Change::StreamGone { index }, 0, None);
                    // Whoever waited for a sequence it never reached is let go.
                    let mut waiting = inner.queues.watchers.remove(&index).unwrap_or_default();
                    self.drive(inner, &mut waiting, Caller::Intake);
                }
            }
            Op::ModuleUnload { module } => {
                if let Some(spec) = inner.objects.modules.get(&module).cloned() {
                    self.shared.cards.unload_module(self.client(), module);
                    for (_, address, bytes) in &spec.variables {
                        self.give_back(inner, *address, *bytes);
                    }
                    self.commit(inner, Change::ModuleGone { id: module }, 0, None);
                    self.shared.drop_image(self.client(), &spec.image);
                }
            }
            Op::MemFree { address } => {
                self.free(inner, address);
                // Others may have the memory now, which is what some clients wait for.
                self.answer(&barrier.header, &answer(result::SUCCESS));
            }
            Op::Return { address } => self.end_borrowing(inner, address),
            Op::ArrayDestroy { array } => self.destroy_array(inner, array),
            Op::ObjectDestroy { device, handle } => self.destroy_object(inner, device, handle),
            Op::VmmUnmap { address, bytes } => {
                let code = self.unmap(inner, address, bytes);
                self.commit(inner, Change::Nothing, 0, reply(code));
            }
            Op::HostUnregister { user } => {
                self.shared.cards.unalias(self.client(), user);
                self.commit(inner, Change::AliasGone { user }, 0, reply(result::SUCCESS));
            }
            Op::Reset => {
                let images = self.reset(inner);
                self.commit(inner, Change::Reset, 0, reply(result::SUCCESS));
                images.iter().for_each(|image| self.shared.drop_image(self.client(), image));
            }
            _ => {}
        }
    }

    /// Returns the images of the modules that have gone: they are dropped when a successor knows
    /// that.
    fn reset(&self, inner: &mut Inner) -> Vec<String> {
        for (device, peer) in inner.objects.peers.clone() {
            self.set_peer_access(inner, device, peer, false);
        }
        for (device, handle) in inner.objects.texture_objects.clone() {
            self.destroy_object(inner, device, handle);
        }
        for array in inner.objects.arrays.clone().into_keys() {
            self.destroy_array(inner, array);
        }
        let mut images = Vec::new();
        let Objects { modules, allocations, borrowed, mappings, physical, reservations, aliases, partitions, charges, .. } = inner.objects.clone();
        for (module, spec) in modules {
            self.shared.cards.unload_module(self.client(), module);
            for (_, address, bytes) in &spec.variables {
                self.give_back(inner, *address, *bytes);
            }
            images.push(spec.image);
        }
        for address in allocations.keys() {
            self.free(inner, *address);
        }
        for address in borrowed.keys() {
            self.end_borrowing(inner, *address);
        }
        for (address, mapped) in mappings {
            self.unmap(inner, address, mapped.bytes);
        }
        for handle in physical.keys() {
            self.physical_gone(inner, *handle);
        }
        for user in aliases.keys() {
            self.shared.cards.unalias(self.client(), *user);
        }
        for (address, bytes) in reservations {
            if self.shared.cards.is_range_spare(self.client(), address, bytes) {
                self.shared.arena.lock().release(address, bytes);
            } else {
                inner.memory.leaving.push((address, bytes));
            }
        }
        for (index, mut stream) in std::mem::take(&mut inner.queues.streams) {
            self.shared.cards.destroy_stream(stream.device);
            // Pushed after the reset: nobody waits for it, but its room is another's.
            let tokens = stream.abandon();
            inner.journal.set_completed(index, stream.done());
            for token in tokens {
                inner.journal.retire(token);
            }
            self.service.set_completed(index, stream.done());
        }
        self.shared.fair_queues.of(self.client()).abandoned(self.client());
        for number in partitions.keys() {
            self.shared.cards.close_partition(self.client(), *number);
        }
        for (device, bytes) in charges.values() {
            self.refund(*device, *bytes);
        }
        inner.queues.by_device.clear();
        inner.queues.watchers.clear();
        inner.queues.parked.clear();
        images
    }

    /// A device stream for a client stream; its work up to what the journal says is over.
    pub(crate) fn open_stream(&self, inner: &mut Inner, index: u32, spec: StreamSpec) -> Result<(), cumux_device::DeviceError> {
        let device_index = self.device_index(spec.device).unwrap_or(u32::MAX);
        let device = self.shared.cards.create_stream(self.client(), device_index, spec.partition, spec.priority)?;
        let done = inner.journal.completed(index);
        inner.queues.streams.insert(index, Stream::new(device, done));
        inner.queues.by_device.insert(device, index);
        Ok(())
    }
}

/// The code that a client sees of what a device has done.
fn code_of(outcome: Result<(), DeviceError>) -> u32 {
    outcome.map_or_else(|error| error.result(), |()| result::SUCCESS)
}
