//! What `cumux record` is told while a program runs: by the program's library what the host does,
//! by the executor how long the card took for it.
//!
//! Both connect to the socket that [`VARIABLE`] names and send packets: a [`Fact`] as JSON, or up
//! to [`MOMENTS_A_PACKET`] [`Moment`]s behind [`MAGIC`]. [`decode`] is the one checked constructor:
//! what it returns has known kinds. It says nothing about numbers of sessions, modules and streams.

use crate::facts::DeviceFacts;
use crate::layout::WINDOW_BASE;
use crate::limits::volume;
use crate::record::{CopyEnd, LaunchFields, Op};
use serde::{Deserialize, Serialize};

/// The environment variable with the path of the recorder's socket.
pub const VARIABLE: &str = "CUMUX_RECORD";
/// The first bytes of a packet of moments.
pub const MAGIC: [u8; 8] = *b"moments1";
/// Most moments in a packet.
pub const MOMENTS_A_PACKET: usize = 640;
/// Characters of a name that are sent.
pub const LONGEST_NAME: usize = 400;

const WORDS: usize = 5;
const MOMENT_BYTES: usize = WORDS * 8;

/// Something that is said once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    /// The sender is an executor.
    Executor,
    /// The sender is a program.
    Program {
        /// Its number among the server's clients.
        session: u32,
        /// Its process.
        pid: u32,
        /// Its name.
        name: String,
        /// Its first device.
        device: Box<DeviceFacts>,
        /// Multiprocessors of it that the program may use, 0 = all.
        multiprocessors: u32,
    },
    /// A kernel of a module that the program has loaded.
    Function {
        /// The module.
        module: u32,
        /// Its place in the module.
        function: u32,
        /// Its name.
        name: String,
        /// Registers of a thread.
        registers: u32,
        /// Static shared memory of a block.
        shared: u32,
    },
}

/// From where to where a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    ToHost,
    /// On the device; setting memory counts as this, too.
    OnDevice,
}

/// A kernel as it is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// The module.
    pub module: u32,
    /// The function's place in it.
    pub function: u32,
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared: u32,
}

impl Shape {
    /// The shape of a launch.
    #[must_use]
    pub fn of(launch: impl Into<LaunchFields>) -> Self {
        let launch = launch.into();
        let bounded = |product: u64| u32::try_from(product).unwrap_or(u32::MAX);
        Self {
            module: launch.module,
            function: launch.function,
            blocks: bounded(volume(launch.grid)),
            threads: bounded(volume(launch.block)),
            shared: launch.shared,
        }
    }
}

/// Something that happens often. Times are CLOCK_MONOTONIC in nanoseconds; `took` is how long the
/// host was in the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described with their moment")]
pub enum Moment {
    /// The host launches a kernel.
    Launch { from: u64, took: u64, stream: u32, shape: Shape },
    /// The host begins a copy.
    Copy { from: u64, took: u64, stream: u32, way: Way, bytes: u64 },
    /// The host waits, for a stream or for all.
    Wait { from: u64, took: u64, stream: Option<u32> },
    /// A kernel has run for `ns`. `alone`: nothing else of its client was on the device.
    Ran { session: u32, shape: Shape, ns: u64, alone: bool },
    /// A copy has taken `ns`.
    Copied { session: u32, way: Way, bytes: u64, ns: u64 },
    /// The client has this much device memory.
    Memory { session: u32, at: u64, bytes: u64 },
}

/// Way and bytes of an operation that copies or sets memory.
#[must_use]
pub fn moved(op: &Op) -> Option<(Way, u64)> {
    match op {
        Op::Copy { target, source, extent, .. } => {
            let way = match (*target >= WINDOW_BASE, *source >= WINDOW_BASE) {
                (false, true) => Way::ToDevice,
                (true, false) => Way::ToHost,
                _ => Way::OnDevice,
            };
            Some((way, extent.width.saturating_mul(extent.height).saturating_mul(extent.depth)))
        }
        Op::ArrayCopy { target, source, extent } => {
            let is_host = |end: &CopyEnd| end.address().is_some_and(|address| address >= WINDOW_BASE);
            let way = match (is_host(target), is_host(source)) {
                (false, true) => Way::ToDevice,
                (true, false) => Way::ToHost,
                _ => Way::OnDevice,
            };
            Some((way, extent.width.saturating_mul(extent.height).saturating_mul(extent.depth)))
        }
        Op::Set { element, width, height, .. } => Some((Way::OnDevice, u64::from(*element).saturating_mul(*width).saturating_mul(*height))),
        _ => None,
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn low(word: u64) -> u32 {
    (word & u32::MAX as u64) as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Lowest byte of the first word: the kind. The three bytes above it belong to the kind.
const fn head(kind: u8, small: u32) -> u32 {
    kind as u32 | small << 8
}

impl Way {
    const fn number(self) -> u32 {
        match self {
            Way::ToDevice => 0,
            Way::ToHost => 1,
            Way::OnDevice => 2,
        }
    }

    const fn of_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Way::ToDevice),
            1 => Some(Way::ToHost),
            2 => Some(Way::OnDevice),
            _ => None,
        }
    }
}

impl Moment {
    fn words(&self) -> [u64; WORDS] {
        let of_shape = |shape: &Shape| [pair(shape.module, shape.function), pair(shape.blocks, shape.threads)];
        match self {
            Moment::Launch { from, took, stream, shape } => {
                let [named, sized] = of_shape(shape);
                [pair(head(1, *stream), shape.shared), *from, *took, named, sized]
            }
            Moment::Copy { from, took, stream, way, bytes } => [pair(head(2, *stream), way.number()), *from, *took, *bytes, 0],
            Moment::Wait { from, took, stream } => [pair(head(3, u32::from(stream.is_some())), stream.unwrap_or(0)), *from, *took, 0, 0],
            Moment::Ran { session, shape, ns, alone } => {
                let [named, sized] = of_shape(shape);
                [pair(head(4, u32::from(*alone)), *session), *ns, u64::from(shape.shared), named, sized]
            }
            Moment::Copied { session, way, bytes, ns } => [pair(head(5, way.number()), *session), *ns, *bytes, 0, 0],
            Moment::Memory { session, at, bytes } => [pair(head(6, 0), *session), *at, *bytes, 0, 0],
        }
    }

    fn of_words([first, a, b, c, d]: [u64; WORDS]) -> Option<Self> {
        let (kind, small, beside) = (first & 0xFF, low(first) >> 8, high(first));
        let shape = |shared| Shape { module: low(c), function: high(c), blocks: low(d), threads: high(d), shared };
        Some(match kind {
            1 => Moment::Launch { from: a, took: b, stream: small, shape: shape(beside) },
            2 => Moment::Copy { from: a, took: b, stream: small, way: Way::of_number(beside)?, bytes: c },
            3 => Moment::Wait { from: a, took: b, stream: (small != 0).then_some(beside) },
            4 => Moment::Ran { session: beside, shape: shape(low(b)), ns: a, alone: small != 0 },
            5 => Moment::Copied { session: beside, way: Way::of_number(small)?, bytes: b, ns: a },
            6 => Moment::Memory { session: beside, at: a, bytes: b },
            _ => return None,
        })
    }

    /// Appends the moment to a packet; an empty packet gets its beginning first. Returns whether
    /// the packet is full.
    pub fn append(&self, packet: &mut Vec<u8>) -> bool {
        if packet.is_empty() {
            packet.extend(MAGIC);
        }
        let mut bytes = [0; MOMENT_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        packet.extend_from_slice(&bytes);
        packet.len() >= MAGIC.len() + MOMENTS_A_PACKET * MOMENT_BYTES
    }
}

/// What a packet brought.
#[derive(Debug, Clone, PartialEq)]
pub enum Packet {
    /// One fact.
    Fact(Fact),
    /// Moments, in their order.
    Moments(Vec<Moment>),
}

/// Why bytes are no packet of a recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// Neither moments nor a fact of this version.
    #[error("a packet of the recording is not understood ({0}): the program's library and cumux must be of the same version")]
    Form(String),
}

/// Decodes a packet.
///
/// # Errors
/// [`RecordingError`] when it is none of this version.
pub fn decode(packet: &[u8]) -> Result<Packet, RecordingError> {
    let Some(moments) = packet.strip_prefix(&MAGIC) else {
        return serde_json::from_slice(packet).map(Packet::Fact).map_err(|error| RecordingError::Form(error.to_string()));
    };
    let chunks = moments.chunks_exact(MOMENT_BYTES);
    if !chunks.remainder().is_empty() {
        return Err(RecordingError::Form(format!("{} bytes of moments", moments.len())));
    }
    let read = |chunk: &[u8]| {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(chunk.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        Moment::of_words(words).ok_or_else(|| RecordingError::Form(format!("a moment of kind {}", words[0] & 0xFF)))
    };
    chunks.map(read).collect::<Result<_, _>>().map(Packet::Moments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_read() {
        let shape = Shape { module: 7, function: 3, blocks: u32::MAX, threads: 1024, shared: 49_152 };
        let moments = vec![
            Moment::Launch { from: 1 << 60, took: 5, stream: 1023, shape },
            Moment::Copy { from: 2, took: 6, stream: 4, way: Way::ToHost, bytes: 1 << 40 },
            Moment::Wait { from: 3, took: 7, stream: Some(0) },
            Moment::Wait { from: 3, took: 7, stream: None },
            Moment::Ran { session: 9, shape, ns: 4, alone: true },
            Moment::Copied { session: 9, way: Way::OnDevice, bytes: 5, ns: 6 },
            Moment::Memory { session: 9, at: 10, bytes: 11 },
        ];
        let mut packet = Vec::new();
        assert!(moments.iter().all(|moment| !moment.append(&mut packet)));
        assert_eq!(decode(&packet), Ok(Packet::Moments(moments)));
        let fact = Fact::Function { module: 1, function: 2, name: "k".into(), registers: 32, shared: 0 };
        assert_eq!(decode(&serde_json::to_vec(&fact).unwrap()), Ok(Packet::Fact(fact)));
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let mut packet = Vec::new();
        Moment::Memory { session: 9, at: 10, bytes: 11 }.append(&mut packet);
        assert!(decode(&packet[..packet.len() - 1]).is_err());
        packet[8] = 77;
        assert!(decode(&packet).unwrap_err().to_string().contains("kind 77"));
        packet[8] = 5;
        packet[9] = 9;
        assert!(decode(&packet).is_err(), "no way has this number");
        assert!(decode(b"").is_err() && decode(b"{}").is_err());
    }

    #[test]
    fn a_full_packet_is_one_that_a_connection_takes() {
        let mut packet = Vec::new();
        while !(Moment::Memory { session: 9, at: 10, bytes: 11 }).append(&mut packet) {}
        assert!(packet.len() <= crate::message::MAX_PACKET);
        assert!(matches!(decode(&packet), Ok(Packet::Moments(moments)) if moments.len() == MOMENTS_A_PACKET));
    }
}
