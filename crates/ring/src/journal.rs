//! What a successor needs to continue a client's session: the log of its objects, and its accepted
//! work that has not retired.
//!
//! One executor at a time writes it; the next one reads it after the writer's death was confirmed.
//! Every append is published by one store, so a writer that dies at any instruction leaves a valid
//! prefix. The client never has this file, but the reader checks lengths all the same: a damaged
//! journal is an error, not a crash.
//!
//! - Object log: two halves. When one is full, [`Journal::append_object`] writes the whole state
//!   into the other and switches over with the one store that also holds the length.
//! - Work log: circular. An entry's position (bytes ever written before it) is its token; tokens
//!   grow. The tail moves over done entries.

use crate::file::{FileError, Mapping};
use crate::memory::{Memory, Ordering};
use cumux_wire::layout::STREAMS;
use cumux_wire::layout::journal::{BYTES, CASE, CASES, COMPLETED, COUNTER, COUNTERS, HEADER_BYTES, OBJECT_BYTES, SUBMITTED, WORK_BYTES};
use cumux_wire::record::MAX_BYTES;
use std::os::fd::AsFd;

const TAKEN: usize = 0;
/// Bit 63: the live half; the rest: bytes in it.
const OBJECTS: usize = 8;
const WORK_HEAD: usize = 16;
const WORK_TAIL: usize = 24;
const WORK: usize = HEADER_BYTES + 2 * OBJECT_BYTES;
/// Work entry: u32 bytes (whole entry), u32 state, u64 ring end, record.
const ENTRY_HEADER: usize = 16;

const ACCEPTED: u32 = 1;
const DONE: u32 = 2;
const PAD: u32 = 3;

/// Why an entry cannot be written, or why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be mapped.
    #[error(transparent)]
    File(#[from] FileError),
    /// The objects of one client do not fit. The number is the size of the log in bytes.
    #[error("the client's object log is full ({0} bytes); it has too many streams, modules and allocations at once")]
    ObjectsFull(usize),
    /// Contents that no executor writes; the text names what is wrong.
    #[error("the journal is damaged: {0}")]
    Damaged(&'static str),
}

/// A record that was accepted and has not retired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkEntry {
    /// Names the entry for [`Journal::retire`].
    pub token: u64,
    /// Ring position behind the record.
    pub ring_end: u64,
    /// The record as the client encoded it.
    pub record: Vec<u8>,
}

/// A mapped journal of one session.
#[derive(Debug)]
pub struct Journal {
    map: Mapping,
    objects: u64,
    head: u64,
    tail: u64,
}

/// Where the live half of the object log begins, and the bytes in it.
fn live_half(objects: u64) -> (usize, usize) {
    let half = usize::from(objects >> 63 != 0);
    (HEADER_BYTES + half * OBJECT_BYTES, (objects & !(1 << 63)) as usize)
}

/// The object entries of the live half that begin at byte `from` or later.
fn read_objects(map: &Mapping, objects: u64, from: usize) -> Result<Vec<Vec<u8>>, JournalError> {
    let (base, used) = live_half(objects);
    let (mut at, mut out) = (from, Vec::new());
    while at < used {
        let mut word = [0; 8];
        if used - at < 8 {
            return Err(JournalError::Damaged("object length"));
        }
        map.read(base + at, &mut word);
        let len = usize::try_from(u64::from_le_bytes(word)).map_err(|_| JournalError::Damaged("object length"))?;
        if len > used - at - 8 {
            return Err(JournalError::Damaged("object length"));
        }
        let mut entry = vec![0; len];
        map.read(base + at + 8, &mut entry);
        out.push(entry);
        at += (8 + len).next_multiple_of(8);
    }
    Ok(out)
}

/// Entries that were added to an object log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewObjects {
    /// True if they are the whole log: what was read before is void.
    pub is_whole: bool,
    /// The entries, oldest first.
    pub entries: Vec<Vec<u8>>,
}

/// The object log of a journal that another executor writes. What it tells is a hint: the writer
/// may change over to the other half of the log, twice even, while this one is read.
#[derive(Debug)]
pub struct ObjectReader {
    map: Mapping,
    /// What the word at [`OBJECTS`] was when it was last read.
    seen: Option<u64>,
}

impl ObjectReader {
    /// Maps a journal.
    ///
    /// # Errors
    /// [`JournalError`] when the file is not a journal.
    pub fn map(file: impl AsFd) -> Result<Self, JournalError> {
        Ok(Self { map: Mapping::of(file, BYTES)?, seen: None })
    }

    /// What was added since the last call.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] when it could not be read while it was written. The next call
    /// gives the whole log.
    pub fn read_new(&mut self) -> Result<NewObjects, JournalError> {
        let objects = self.map.load64(OBJECTS, Ordering::Acquire);
        let (base, used) = live_half(objects);
        let before = self.seen.take().map(live_half).filter(|(half, read)| *half == base && *read <= used);
        if used > OBJECT_BYTES {
            return Err(JournalError::Damaged("positions"));
        }
        let entries = read_objects(&self.map, objects, before.map_or(0, |(_, read)| read))?;
        if live_half(self.map.load64(OBJECTS, Ordering::Acquire)).0 != base {
            return Err(JournalError::Damaged("it changed while it was read"));
        }
        self.seen = Some(objects);
        Ok(NewObjects { is_whole: before.is_none(), entries })
    }
}

impl Journal {
    /// Maps a journal. It is empty for a new session, otherwise as the last executor left it.
    ///
    /// # Errors
    /// [`JournalError`] when the file is not a journal.
    pub fn map(file: impl AsFd) -> Result<Self, JournalError> {
        let map = Mapping::of(file, BYTES)?;
        let objects = map.load64(OBJECTS, Ordering::Acquire);
        let head = map.load64(WORK_HEAD, Ordering::Acquire);
        let tail = map.load64(WORK_TAIL, Ordering::Acquire);
        let apart = head.checked_sub(tail).is_some_and(|bytes| bytes <= WORK_BYTES as u64);
        if (objects & !(1 << 63)) > OBJECT_BYTES as u64 || !apart || !head.is_multiple_of(8) || !tail.is_multiple_of(8) {
            return Err(JournalError::Damaged("positions"));
        }
        Ok(Self { map, objects, head, tail })
    }

    /// Ring position up to which records have been taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.map.load64(TAKEN, Ordering::Acquire)
    }

    /// Commits the ring position up to which records have been taken.
    pub fn set_taken(&self, position: u64) {
        self.map.store64(TAKEN, position, Ordering::Release);
    }

    /// Commits that the stream's work up to `seq` is done: a successor will not repeat it.
    pub fn set_completed(&self, stream: u32, seq: u64) {
        self.map.store64(COMPLETED + (stream as usize % STREAMS) * 8, seq, Ordering::Release);
    }

    /// Sequence up to which the stream's work is done.
    #[must_use]
    pub fn completed(&self, stream: u32) -> u64 {
        self.map.load64(COMPLETED + (stream as usize % STREAMS) * 8, Ordering::Acquire)
    }

    /// Records, before the submission, that the stream's work up to `seq` is with the device; 0: no
    /// work is.
    pub fn set_submitted(&self, stream: u32, seq: u64) {
        self.map.store64(SUBMITTED + (stream as usize % STREAMS) * 8, seq, Ordering::Release);
    }

    /// Sequence up to which the stream's work was submitted to the device.
    #[must_use]
    pub fn submitted(&self, stream: u32) -> u64 {
        self.map.load64(SUBMITTED + (stream as usize % STREAMS) * 8, Ordering::Acquire)
    }

    /// Stores the client's counts for its next executor. They may be a batch behind when this
    /// executor dies.
    pub fn set_counters(&self, counters: &[u64; COUNTERS]) {
        for (at, value) in counters.iter().enumerate() {
            self.map.store64(COUNTER + at * 8, *value, Ordering::Relaxed);
        }
    }

    /// The counts as last stored.
    #[must_use]
    pub fn counters(&self) -> [u64; COUNTERS] {
        std::array::from_fn(|at| self.map.load64(COUNTER + at * 8, Ordering::Relaxed))
    }

    /// A word of the evidence that this client's work ended earlier executors.
    #[must_use]
    pub fn case(&self, word: usize) -> u64 {
        self.map.load64(CASE + (word % CASES) * 8, Ordering::Acquire)
    }

    /// Stores a word of that evidence.
    pub fn set_case(&self, word: usize, value: u64) {
        self.map.store64(CASE + (word % CASES) * 8, value, Ordering::Release);
    }

    fn half(&self) -> (usize, usize) {
        live_half(self.objects)
    }

    /// Appends one object entry. If the half is full, `snapshot` returns all entries that are still
    /// valid, without the new one.
    ///
    /// # Errors
    /// [`JournalError::ObjectsFull`] when even the snapshot and the entry do not fit; the journal
    /// is then unchanged.
    pub fn append_object(&mut self, entry: &[u8], snapshot: impl FnOnce() -> Vec<Vec<u8>>) -> Result<(), JournalError> {
        let (base, used) = self.half();
        let needed = object_bytes(entry);
        if used + needed <= OBJECT_BYTES {
            self.write_object(base + used, entry);
            self.objects += needed as u64;
            self.map.store64(OBJECTS, self.objects, Ordering::Release);
            return Ok(());
        }
        let entries = snapshot();
        let total: usize = entries.iter().map(|e| object_bytes(e)).sum::<usize>() + needed;
        // At most half full after compaction: otherwise the next append would compact again.
        if total > OBJECT_BYTES / 2 {
            return Err(JournalError::ObjectsFull(total));
        }
        let other = 1 - usize::from(self.objects >> 63 != 0);
        let mut at = HEADER_BYTES + other * OBJECT_BYTES;
        for e in entries.iter().map(Vec::as_slice).chain([entry]) {
            self.write_object(at, e);
            at += object_bytes(e);
        }
        self.objects = (other as u64) << 63 | total as u64;
        self.map.store64(OBJECTS, self.objects, Ordering::Release);
        Ok(())
    }

    fn write_object(&self, at: usize, entry: &[u8]) {
        self.map.write(at, &(entry.len() as u64).to_le_bytes());
        self.map.write(at + 8, entry);
    }

    /// All object entries, oldest first.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] when lengths do not add up.
    pub fn objects(&self) -> Result<Vec<Vec<u8>>, JournalError> {
        read_objects(&self.map, self.objects, 0)
    }

    /// Whether a record of any length can be accepted now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        WORK_BYTES as u64 - (self.head - self.tail) >= 2 * (ENTRY_HEADER + MAX_BYTES) as u64
    }

    /// Appends an accepted record and returns its token. Call only when [`Journal::has_room`]. A
    /// successor sees the record after [`Journal::publish`].
    pub fn accept(&mut self, ring_end: u64, record: &[u8]) -> u64 {
        let needed = (ENTRY_HEADER + record.len()).next_multiple_of(8);
        let offset = offset(self.head);
        if WORK_BYTES - offset < needed {
            self.write_entry(offset, WORK_BYTES - offset, PAD, 0, &[]);
            self.head += (WORK_BYTES - offset) as u64;
        }
        let token = self.head;
        self.write_entry(crate::journal::offset(token), needed, ACCEPTED, ring_end, record);
        self.head += needed as u64;
        token
    }

    /// Publishes the accepted records to a successor.
    pub fn publish(&self) {
        self.map.store64(WORK_HEAD, self.head, Ordering::Release);
    }

    fn write_entry(&self, offset: usize, bytes: usize, state: u32, ring_end: u64, record: &[u8]) {
        self.map.write(WORK + offset, &(bytes as u32).to_le_bytes());
        self.map.write(WORK + offset + 4, &state.to_le_bytes());
        if bytes >= ENTRY_HEADER {
            self.map.write(WORK + offset + 8, &ring_end.to_le_bytes());
            self.map.write(WORK + offset + ENTRY_HEADER, record);
        }
    }

    /// Marks the work of `token` as over: no successor repeats it.
    pub fn retire(&mut self, token: u64) {
        self.retire_all(&[token]);
    }

    /// As [`Journal::retire`], for several.
    pub fn retire_all(&mut self, tokens: &[u64]) {
        for token in tokens.iter().filter(|token| (self.tail..self.head).contains(*token)) {
            self.map.store32(WORK + offset(*token) + 4, DONE, Ordering::Release);
        }
        while self.tail < self.head {
            let at = WORK + offset(self.tail);
            let state = self.map.load32(at + 4, Ordering::Relaxed);
            if state != DONE && state != PAD {
                break;
            }
            self.tail += u64::from(self.map.load32(at, Ordering::Relaxed)).max(8);
        }
        self.map.store64(WORK_TAIL, self.tail, Ordering::Release);
    }

    /// Accepted work that was not retired, oldest first.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] when lengths do not add up.
    pub fn work(&self) -> Result<Vec<WorkEntry>, JournalError> {
        let (mut at, mut out) = (self.tail, Vec::new());
        while at < self.head {
            let offset = offset(at);
            let bytes = self.map.load32(WORK + offset, Ordering::Relaxed) as usize;
            let state = self.map.load32(WORK + offset + 4, Ordering::Relaxed);
            if bytes < 8 || !bytes.is_multiple_of(8) || bytes > WORK_BYTES - offset {
                return Err(JournalError::Damaged("work length"));
            }
            if state == ACCEPTED {
                if bytes < ENTRY_HEADER + 8 {
                    return Err(JournalError::Damaged("work length"));
                }
                let mut record = vec![0; bytes - ENTRY_HEADER];
                self.map.read(WORK + offset + ENTRY_HEADER, &mut record);
                out.push(WorkEntry { token: at, ring_end: self.map.load64(WORK + offset + 8, Ordering::Relaxed), record });
            }
            at += bytes as u64;
        }
        Ok(out)
    }
}

fn object_bytes(entry: &[u8]) -> usize {
    (8 + entry.len()).next_multiple_of(8)
}

fn offset(position: u64) -> usize {
    (position % WORK_BYTES as u64) as usize
}
