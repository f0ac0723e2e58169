//! A client's side of a session, as honest or not as its user wants.

use cumux_executor::fuzzing::Bench;
use cumux_ring::client::RingClient;
use cumux_ring::create;
use cumux_ring::file::Mapping;
use cumux_ring::memory::{Memory as _, Ordering};
use cumux_ring::page::Answer;
use cumux_wire::layout::{self, MARKS_BYTES, WINDOW_BYTES, journal, page, ring};
use cumux_wire::message::{DeviceGrant, Home, SessionConfig};
use cumux_wire::record::{self, Header, NO_STREAM, Op};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;

/// Bytes of a device that a guest may have: more would only cost time.
pub const LIMIT: u64 = 64 << 20;

pub struct Guest {
    pub id: u32,
    files: [OwnedFd; 7],
    pub client: RingClient,
    pub ring: Mapping,
    pub page: Mapping,
    pub head: u64,
    pub requests: u64,
}

fn counter() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a counter")
}

impl Guest {
    /// New files, which nobody serves yet.
    ///
    /// # Panics
    /// The system has no memory files.
    #[must_use]
    pub fn new(id: u32) -> Self {
        let file = |name, bytes| create(name, bytes).expect("a memory file");
        let files = [
            file("ring", ring::BYTES as u64),
            file("page", page::BYTES as u64),
            file("window", WINDOW_BYTES),
            file("journal", journal::BYTES as u64),
            counter(),
            file("marks", MARKS_BYTES),
            // In place of a handle of its process.
            counter(),
        ];
        let client = RingClient::map(&files[0], &files[1], counter()).expect("our own files");
        let ring = Mapping::of(&files[0], ring::BYTES).expect("our own file");
        let page = Mapping::of(&files[1], page::BYTES).expect("our own file");
        Self { id, files, client, ring, page, head: 0, requests: 0 }
    }

    /// Has the session opened, by generation `generation` of the executor, with two devices.
    ///
    /// # Errors
    /// Why it cannot be.
    ///
    /// # Panics
    /// The system has no descriptors.
    pub fn open(&self, bench: &Bench, generation: u32) -> Result<(), String> {
        let part = |device| DeviceGrant { device, multiprocessors: 0, memory_limit: LIMIT };
        let config = SessionConfig {
            id: self.id,
            pid: self.id,
            uid: 0,
            program: "guest".into(),
            window_slot: self.id,
            priority: 0,
            parts: vec![part(0), part(1)],
            sms: Vec::new(),
            home: Home::Shared,
            may_run_unbounded: false,
            group: None,
        };
        let files = self.files.iter().map(|file| file.try_clone().expect("a descriptor")).collect();
        bench.open(config, files, generation)
    }

    /// Where its window lies, for device and client.
    #[must_use]
    pub fn window(&self) -> u64 {
        layout::window_address(self.id)
    }

    /// Puts bytes into the window.
    pub fn write_window(&self, offset: u64, bytes: &[u8]) {
        let _ = rustix::io::pwrite(&self.files[2], bytes, offset);
    }

    /// # Panics
    /// The window cannot be read there.
    #[must_use]
    pub fn read_window(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert_eq!(rustix::io::pread(&self.files[2], &mut bytes, offset), Ok(length));
        bytes
    }

    /// A record of an operation, with the next request number.
    pub fn record(&mut self, stream: u32, seq: u64, answer: u32, op: &Op) -> Vec<u8> {
        self.requests += 1;
        let seq = if stream == NO_STREAM { self.requests } else { seq };
        let mut bytes = Vec::new();
        record::encode(&Header { stream, answer, seq, request: self.requests }, op, &mut bytes);
        bytes
    }

    /// Puts bytes behind what is in the ring, as a producer would put a record. False if there is
    /// no room.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let size = ring::DATA_BYTES as u64;
        let offset = (self.head % size) as usize;
        let pad = if bytes.len() > ring::DATA_BYTES - offset { ring::DATA_BYTES - offset } else { 0 };
        let needed = (pad + bytes.len()) as u64;
        if size.saturating_sub(self.head.wrapping_sub(self.taken())) < needed {
            return false;
        }
        if pad > 0 {
            self.ring.write(ring::DATA + offset, &cumux_wire::record::pad(pad as u32));
        }
        self.ring.write(ring::DATA + if pad > 0 { 0 } else { offset }, bytes);
        self.set_head(self.head.wrapping_add(needed));
        true
    }

    pub fn set_head(&mut self, head: u64) {
        self.head = head;
        self.ring.store64(ring::HEAD, head, Ordering::Release);
    }

    #[must_use]
    pub fn taken(&self) -> u64 {
        self.page.load64(page::TAKEN, Ordering::Acquire)
    }

    /// The answer to the last request, if it has come.
    #[must_use]
    pub fn answer(&self, slot: u32) -> Option<Answer> {
        self.client.answer(slot, self.requests)
    }
}
