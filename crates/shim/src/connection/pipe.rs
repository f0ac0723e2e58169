//! The sending side of a session: sequence numbers, joins of the NULL stream, answer slots.
//! Everything here happens under one short lock.
//!
//! Invariants: records of a stream are pushed in the order of their sequence numbers (numbering and
//! pushing are one step under the lock); a stream index is minted again only when all work of its
//! former owner is done; sequence numbers of an index never go back.
//!
//! **The NULL stream.** The legacy NULL stream of a context orders itself after all earlier work in
//! that context's blocking streams, and they after it. Each of the two directions becomes a `Wait`
//! record, pushed lazily: only when the other side has unfinished work that this side has not
//! waited for yet.

use cumux_ring::client::RingClient;
use cumux_ring::queue::Producer;
use cumux_wire::layout::{ANSWERS, STREAMS};
use cumux_wire::record::{self, Header, LaunchFields, NO_ANSWER, NO_STREAM, Op};

/// What a timeline is to the NULL stream of its group (a context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nobody's: free.
    Free,
    /// The legacy NULL stream of a group.
    Legacy,
    /// Joined with it.
    Blocking,
    /// Not joined with it.
    Independent,
}

/// The operations pushed under one stream index of the ring, numbered one after the other.
#[derive(Debug, Clone, Copy)]
struct Timeline {
    seq: u64,
    /// How often the index has been minted.
    epoch: u32,
    group: u32,
    role: Role,
    /// Blocking: sequence of the NULL stream that this timeline has waited for.
    waited: u64,
    /// Blocking: has work that the NULL stream has not waited for.
    fresh: bool,
}

impl Timeline {
    /// The header of the record that is pushed next on this timeline, whose index is `index`.
    fn next_header(&self, index: u32) -> Header {
        Header { stream: index, answer: NO_ANSWER, seq: self.seq + 1, request: 0 }
    }
}

/// Names a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineId {
    /// The index of the stream in the ring.
    pub index: u32,
    /// How often that index has been minted.
    pub epoch: u32,
}

#[derive(Debug, Default)]
struct Group {
    legacy: Option<u32>,
    /// Blocking timelines with `fresh` set.
    fresh: Vec<u32>,
    /// Part of the client's share on which its timelines run.
    partition: u32,
}

/// Nobody will take what is pushed, or no slot is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    Gone,
    /// All stream indices are in use.
    NoTimeline,
}

/// State under the lock.
#[derive(Debug)]
pub struct Pipe {
    producer: Producer,
    timelines: Vec<Timeline>,
    /// Timelines whose stream was destroyed; minted again when drained.
    resting: std::collections::VecDeque<u32>,
    groups: Vec<Group>,
    request: u64,
    /// One bit an answer slot.
    slots: u64,
    scratch: Vec<u8>,
    /// The record of the last launch. Its memory is used again, so that a launch allocates nothing.
    launch: Vec<u8>,
}

impl Pipe {
    /// A pipe that has pushed nothing.
    #[must_use]
    pub fn new(producer: Producer) -> Self {
        Self {
            producer,
            timelines: Vec::with_capacity(64),
            resting: std::collections::VecDeque::new(),
            groups: Vec::new(),
            request: 0,
            slots: 0,
            scratch: Vec::with_capacity(record::MAX_BYTES),
            launch: vec![0; 4096],
        }
    }

    /// Sequence of the last record pushed on a timeline.
    #[must_use]
    pub fn last(&self, index: u32) -> u64 {
        self.timelines.get(index as usize).map_or(0, |timeline| timeline.seq)
    }

    /// Whether the timeline still belongs to who minted it as `id`.
    #[must_use]
    pub fn is_current(&self, id: TimelineId) -> bool {
        self.timelines.get(id.index as usize).is_some_and(|timeline| timeline.epoch == id.epoch && timeline.role != Role::Free)
    }

    /// A group for a new context, which runs on a part of the client's share (0 = all of it).
    pub fn new_group(&mut self, partition: u32) -> u32 {
        self.groups.push(Group { partition, ..Group::default() });
        u32::try_from(self.groups.len() - 1).unwrap_or(u32::MAX)
    }

    /// Mints a timeline: tells the executor and returns its place.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn create(
        &mut self,
        ring: &RingClient,
        group: u32,
        role: Role,
        device: u32,
        priority: i32,
        alive: impl FnMut() -> bool,
    ) -> Result<TimelineId, PushError> {
        let index = self.free_timeline(ring).ok_or(PushError::NoTimeline)?;
        let timeline = self.timelines.get_mut(index as usize).ok_or(PushError::NoTimeline)?;
        *timeline = Timeline { seq: timeline.seq, epoch: timeline.epoch.wrapping_add(1), group, role, waited: 0, fresh: false };
        let id = TimelineId { index, epoch: timeline.epoch };
        if role == Role::Legacy
            && let Some(group) = self.groups.get_mut(group as usize)
        {
            group.legacy = Some(index);
        }
        let partition = self.groups.get(group as usize).map_or(0, |group| group.partition);
        self.control(ring, NO_ANSWER, 0, &Op::StreamCreate { index, device, priority, partition }, alive)?;
        Ok(id)
    }

    fn free_timeline(&mut self, ring: &RingClient) -> Option<u32> {
        // The unused first: a destroyed stream's index rests as long as possible.
        if self.timelines.len() < STREAMS / 2 {
            return self.fresh_timeline();
        }
        let drained = |timelines: &[Timeline], index: u32| timelines.get(index as usize).is_some_and(|timeline| ring.completed(index) >= timeline.seq);
        match self.resting.iter().position(|index| drained(&self.timelines, *index)) {
            Some(position) => self.resting.remove(position),
            None if self.timelines.len() < STREAMS => self.fresh_timeline(),
            None => None,
        }
    }

    fn fresh_timeline(&mut self) -> Option<u32> {
        let index = u32::try_from(self.timelines.len()).ok()?;
        self.timelines.push(Timeline { seq: 0, epoch: 0, group: 0, role: Role::Free, waited: 0, fresh: false });
        Some(index)
    }

    /// Gives a timeline back; its pushed work still runs.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn destroy(&mut self, ring: &RingClient, id: TimelineId, alive: impl FnMut() -> bool) -> Result<(), PushError> {
        if !self.is_current(id) {
            return Ok(());
        }
        if let Some(timeline) = self.timelines.get_mut(id.index as usize) {
            timeline.role = Role::Free;
        }
        self.resting.push_back(id.index);
        self.control(ring, NO_ANSWER, 0, &Op::StreamDestroy { index: id.index }, alive)
    }

    /// Pushes a record that belongs to no stream.
    ///
    /// # Errors
    /// [`PushError::Gone`].
    pub fn control(&mut self, ring: &RingClient, answer: u32, request: u64, op: &Op, alive: impl FnMut() -> bool) -> Result<(), PushError> {
        let header = Header { stream: NO_STREAM, answer, seq: request, request: 0 };
        self.scratch.clear();
        record::encode(&header, op, &mut self.scratch);
        if ring.push(&mut self.producer, &self.scratch, alive) { Ok(()) } else { Err(PushError::Gone) }
    }

    /// An answer slot and a request number; `None` when all slots wait for answers.
    pub fn take_slot(&mut self) -> Option<(u32, u64)> {
        let slot = (!self.slots).trailing_zeros();
        if slot as usize >= ANSWERS.min(64) {
            return None;
        }
        self.slots |= 1 << slot;
        self.request += 1;
        Some((slot, self.request))
    }

    /// Gives an answer slot back.
    pub fn free_slot(&mut self, slot: u32) {
        self.slots &= !(1_u64 << (slot & 63));
    }

    /// Makes a timeline wait for whatever the NULL stream's rules ask for; then everything up to
    /// [`Pipe::last`] is "all that came before".
    ///
    /// # Errors
    /// [`PushError::Gone`].
    pub fn join(&mut self, ring: &RingClient, index: u32, mut alive: impl FnMut() -> bool) -> Result<(), PushError> {
        let Some(timeline) = self.timelines.get_mut(index as usize) else { return Ok(()) };
        match timeline.role {
            Role::Free | Role::Independent => Ok(()),
            Role::Blocking => {
                let (group, waited) = (timeline.group, timeline.waited);
                let Some(legacy) = self.groups.get(group as usize).and_then(|group| group.legacy) else { return Ok(()) };
                let seq = self.last(legacy);
                if seq <= waited {
                    return Ok(());
                }
                if let Some(timeline) = self.timelines.get_mut(index as usize) {
                    timeline.waited = seq;
                }
                if ring.completed(legacy) < seq {
                    self.raw(ring, index, &Op::Wait { stream: legacy, seq }, &mut alive)?;
                    self.mark_fresh(index);
                }
                Ok(())
            }
            Role::Legacy => {
                let group = timeline.group as usize;
                while let Some(other) = self.groups.get_mut(group).and_then(|group| group.fresh.pop()) {
                    let Some(timeline) = self.timelines.get_mut(other as usize) else { continue };
                    timeline.fresh = false;
                    let seq = timeline.seq;
                    if ring.completed(other) < seq {
                        self.raw(ring, index, &Op::Wait { stream: other, seq }, &mut alive)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn mark_fresh(&mut self, index: u32) {
        if let Some(timeline) = self.timelines.get_mut(index as usize)
            && timeline.role == Role::Blocking
            && !timeline.fresh
            && let Some(group) = self.groups.get_mut(timeline.group as usize)
        {
            timeline.fresh = true;
            group.fresh.push(index);
        }
    }

    /// Pushes an operation on a timeline, joined as the NULL stream's rules ask. Returns its
    /// sequence number.
    ///
    /// # Errors
    /// [`PushError::Gone`].
    pub fn submit(&mut self, ring: &RingClient, index: u32, op: &Op, mut alive: impl FnMut() -> bool) -> Result<u64, PushError> {
        self.join(ring, index, &mut alive)?;
        let seq = self.raw(ring, index, op, &mut alive)?;
        self.mark_fresh(index);
        Ok(seq)
    }

    /// Like [`Pipe::submit`] for a launch whose parameter block of `length` bytes is written by
    /// `fill`, all of it.
    ///
    /// # Errors
    /// [`PushError::Gone`].
    #[inline]
    pub fn submit_launch(
        &mut self,
        ring: &RingClient,
        index: u32,
        fields: &LaunchFields,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
        mut alive: impl FnMut() -> bool,
    ) -> Result<u64, PushError> {
        self.join(ring, index, &mut alive)?;
        let timeline = self.timelines.get_mut(index as usize).ok_or(PushError::NoTimeline)?;
        let header = timeline.next_header(index);
        let bytes = record::encode_launch(&header, fields, length, fill, &mut self.launch);
        if !ring.push(&mut self.producer, &self.launch[..bytes], &mut alive) {
            return Err(PushError::Gone);
        }
        timeline.seq = header.seq;
        self.mark_fresh(index);
        Ok(header.seq)
    }

    fn raw(&mut self, ring: &RingClient, index: u32, op: &Op, alive: &mut impl FnMut() -> bool) -> Result<u64, PushError> {
        let header = self.timelines.get(index as usize).ok_or(PushError::NoTimeline)?.next_header(index);
        self.scratch.clear();
        record::encode(&header, op, &mut self.scratch);
        self.push_scratch(ring, &header, alive)
    }

    /// Pushes the record in `scratch`, the next one of its timeline.
    fn push_scratch(&mut self, ring: &RingClient, header: &Header, alive: &mut impl FnMut() -> bool) -> Result<u64, PushError> {
        if !ring.push(&mut self.producer, &self.scratch, alive) {
            return Err(PushError::Gone);
        }
        if let Some(timeline) = self.timelines.get_mut(header.stream as usize) {
            timeline.seq = header.seq;
        }
        Ok(header.seq)
    }

    /// Every timeline with unfinished work, with the sequence to wait for.
    #[must_use]
    pub fn all_unfinished(&self, ring: &RingClient) -> Vec<(u32, u64)> {
        let timelines = self.timelines.iter().enumerate().filter(|(_, timeline)| timeline.epoch != 0);
        timelines.map(|(index, timeline)| (index as u32, timeline.seq)).filter(|(index, seq)| ring.completed(*index) < *seq).collect()
    }

    /// Every timeline of a group with unfinished work, with the sequence to wait for.
    #[must_use]
    pub fn unfinished(&self, ring: &RingClient, group: u32) -> Vec<(u32, u64)> {
        let of_group = |timeline: &Timeline| timeline.epoch != 0 && timeline.group == group;
        let timelines = self.timelines.iter().enumerate().filter(|(_, timeline)| of_group(timeline));
        timelines.map(|(index, timeline)| (index as u32, timeline.seq)).filter(|(index, seq)| ring.completed(*index) < *seq).collect()
    }
}
