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

use cumux_ring::client::Client;
use cumux_ring::queue::Producer;
use cumux_wire::layout::{ANSWERS, STREAMS};
use cumux_wire::record::{self, Header, Launch, NO_ANSWER, NO_STREAM, Op};

/// What a lane (a stream index) is to the NULL stream of its group (a context).
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

#[derive(Debug, Clone, Copy)]
struct Lane {
    seq: u64,
    /// How often the index has been minted.
    epoch: u32,
    group: u32,
    role: Role,
    /// Blocking: sequence of the NULL stream that this lane has waited for.
    waited: u64,
    /// Blocking: has work that the NULL stream has not waited for.
    fresh: bool,
}

/// A stream's place in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneId {
    /// The index of the stream in the ring.
    pub index: u32,
    /// How often that index has been minted.
    pub epoch: u32,
}

#[derive(Debug, Default)]
struct Group {
    legacy: Option<u32>,
    /// Blocking lanes with `fresh` set.
    fresh: Vec<u32>,
    /// Part of the client's share on which its lanes run.
    partition: u32,
}

/// Nobody will take what is pushed, or no slot is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    Gone,
    /// All stream indices are in use.
    NoLane,
}

/// State under the lock.
#[derive(Debug)]
pub struct Pipe {
    producer: Producer,
    lanes: Vec<Lane>,
    /// Lanes whose stream was destroyed; minted again when drained.
    resting: std::collections::VecDeque<u32>,
    groups: Vec<Group>,
    request: u64,
    /// One bit an answer slot.
    slots: u64,
    scratch: Vec<u8>,
    /// Reused by every launch, so that a launch allocates nothing.
    launch: Op,
}

impl Pipe {
    /// A pipe that has pushed nothing.
    #[must_use]
    pub fn new(producer: Producer) -> Self {
        let mut launch = Launch::default();
        launch.parameters.reserve(4096);
        Self {
            producer,
            lanes: Vec::with_capacity(64),
            resting: std::collections::VecDeque::new(),
            groups: Vec::new(),
            request: 0,
            slots: 0,
            scratch: Vec::with_capacity(record::MAX_BYTES),
            launch: Op::Launch(launch),
        }
    }

    /// Sequence of the last record pushed in a lane.
    #[must_use]
    pub fn last(&self, index: u32) -> u64 {
        self.lanes.get(index as usize).map_or(0, |lane| lane.seq)
    }

    /// Whether the lane still belongs to who minted it as `id`.
    #[must_use]
    pub fn is_current(&self, id: LaneId) -> bool {
        self.lanes.get(id.index as usize).is_some_and(|lane| lane.epoch == id.epoch && lane.role != Role::Free)
    }

    /// A group for a new context, which runs on a part of the client's share (0 = all of it).
    pub fn new_group(&mut self, partition: u32) -> u32 {
        self.groups.push(Group { partition, ..Group::default() });
        u32::try_from(self.groups.len() - 1).unwrap_or(u32::MAX)
    }

    /// Mints a lane: tells the executor and returns its place.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn create(&mut self, ring: &Client, group: u32, role: Role, device: u32, priority: i32, alive: impl FnMut() -> bool) -> Result<LaneId, PushError> {
        let index = self.free_lane(ring).ok_or(PushError::NoLane)?;
        let lane = self.lanes.get_mut(index as usize).ok_or(PushError::NoLane)?;
        *lane = Lane { seq: lane.seq, epoch: lane.epoch.wrapping_add(1), group, role, waited: 0, fresh: false };
        let id = LaneId { index, epoch: lane.epoch };
        if role == Role::Legacy
            && let Some(group) = self.groups.get_mut(group as usize)
        {
            group.legacy = Some(index);
        }
        let partition = self.groups.get(group as usize).map_or(0, |group| group.partition);
        self.control(ring, NO_ANSWER, 0, &Op::StreamCreate { index, device, priority, partition }, alive)?;
        Ok(id)
    }

    fn free_lane(&mut self, ring: &Client) -> Option<u32> {
        // The unused first: a destroyed stream's index rests as long as possible.
        if self.lanes.len() < STREAMS / 2 {
            return self.fresh_lane();
        }
        let drained = |lanes: &[Lane], index: u32| lanes.get(index as usize).is_some_and(|lane| ring.completed(index) >= lane.seq);
        match self.resting.iter().position(|index| drained(&self.lanes, *index)) {
            Some(position) => self.resting.remove(position),
            None if self.lanes.len() < STREAMS => self.fresh_lane(),
            None => None,
        }
    }

    fn fresh_lane(&mut self) -> Option<u32> {
        let index = u32::try_from(self.lanes.len()).ok()?;
        self.lanes.push(Lane { seq: 0, epoch: 0, group: 0, role: Role::Free, waited: 0, fresh: false });
        Some(index)
    }

    /// Gives a lane back; its pushed work still runs.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn destroy(&mut self, ring: &Client, id: LaneId, alive: impl FnMut() -> bool) -> Result<(), PushError> {
        if !self.is_current(id) {
            return Ok(());
        }
        if let Some(lane) = self.lanes.get_mut(id.index as usize) {
            lane.role = Role::Free;
        }
        self.resting.push_back(id.index);
        self.control(ring, NO_ANSWER, 0, &Op::StreamDestroy { index: id.index }, alive)
    }

    /// Pushes a record that belongs to no stream.
    ///
    /// # Errors
    /// [`PushError::Gone`].
    pub fn control(&mut self, ring: &Client, answer: u32, request: u64, op: &Op, alive: impl FnMut() -> bool) -> Result<(), PushError> {
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

    /// Makes a lane wait for whatever the NULL stream's rules ask for; then everything up to
    /// [`Pipe::last`] is "all that came before".
    ///
    /// # Errors
    /// [`PushError::Gone`].
    pub fn join(&mut self, ring: &Client, index: u32, mut alive: impl FnMut() -> bool) -> Result<(), PushError> {
        let Some(lane) = self.lanes.get_mut(index as usize) else { return Ok(()) };
        match lane.role {
            Role::Free | Role::Independent => Ok(()),
            Role::Blocking => {
                let (group, waited) = (lane.group, lane.waited);
                let Some(legacy) = self.groups.get(group as usize).and_then(|group| group.legacy) else { return Ok(()) };
                let seq = self.last(legacy);
                if seq <= waited {
                    return Ok(());
                }
                if let Some(lane) = self.lanes.get_mut(index as usize) {
                    lane.waited = seq;
                }
                if ring.completed(legacy) < seq {
                    self.raw(ring, index, &Op::Wait { stream: legacy, seq }, &mut alive)?;
                    self.mark_fresh(index);
                }
                Ok(())
            }
            Role::Legacy => {
                let group = lane.group as usize;
                while let Some(other) = self.groups.get_mut(group).and_then(|group| group.fresh.pop()) {
                    let Some(lane) = self.lanes.get_mut(other as usize) else { continue };
                    lane.fresh = false;
                    let seq = lane.seq;
                    if ring.completed(other) < seq {
                        self.raw(ring, index, &Op::Wait { stream: other, seq }, &mut alive)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn mark_fresh(&mut self, index: u32) {
        if let Some(lane) = self.lanes.get_mut(index as usize)
            && lane.role == Role::Blocking
            && !lane.fresh
            && let Some(group) = self.groups.get_mut(lane.group as usize)
        {
            lane.fresh = true;
            group.fresh.push(index);
        }
    }

    /// Pushes an operation in a lane, joined as the NULL stream's rules ask. Returns its sequence
    /// number.
    ///
    /// # Errors
    /// [`PushError::Gone`].
    pub fn submit(&mut self, ring: &Client, index: u32, op: &Op, mut alive: impl FnMut() -> bool) -> Result<u64, PushError> {
        self.join(ring, index, &mut alive)?;
        let seq = self.raw(ring, index, op, &mut alive)?;
        self.mark_fresh(index);
        Ok(seq)
    }

    /// Like [`Pipe::submit`] for a launch that `fill` writes into the reused record.
    ///
    /// # Errors
    /// [`PushError::Gone`].
    pub fn submit_launch(&mut self, ring: &Client, index: u32, fill: impl FnOnce(&mut Launch), alive: impl FnMut() -> bool) -> Result<u64, PushError> {
        let mut op = std::mem::replace(&mut self.launch, Op::Nop);
        if let Op::Launch(launch) = &mut op {
            fill(launch);
        }
        let done = self.submit(ring, index, &op, alive);
        self.launch = op;
        done
    }

    fn raw(&mut self, ring: &Client, index: u32, op: &Op, alive: &mut impl FnMut() -> bool) -> Result<u64, PushError> {
        let lane = self.lanes.get_mut(index as usize).ok_or(PushError::NoLane)?;
        let seq = lane.seq + 1;
        let header = Header { stream: index, answer: NO_ANSWER, seq, request: 0 };
        self.scratch.clear();
        record::encode(&header, op, &mut self.scratch);
        if !ring.push(&mut self.producer, &self.scratch, alive) {
            return Err(PushError::Gone);
        }
        lane.seq = seq;
        Ok(seq)
    }

    /// Every lane with unfinished work, with the sequence to wait for.
    #[must_use]
    pub fn all_unfinished(&self, ring: &Client) -> Vec<(u32, u64)> {
        let lanes = self.lanes.iter().enumerate().filter(|(_, lane)| lane.epoch != 0);
        lanes.map(|(index, lane)| (index as u32, lane.seq)).filter(|(index, seq)| ring.completed(*index) < *seq).collect()
    }

    /// Every lane of a group with unfinished work, with the sequence to wait for.
    #[must_use]
    pub fn unfinished(&self, ring: &Client, group: u32) -> Vec<(u32, u64)> {
        let of_group = |lane: &Lane| lane.epoch != 0 && lane.group == group;
        let lanes = self.lanes.iter().enumerate().filter(|(_, lane)| of_group(lane));
        lanes.map(|(index, lane)| (index as u32, lane.seq)).filter(|(index, seq)| ring.completed(*index) < *seq).collect()
    }
}
