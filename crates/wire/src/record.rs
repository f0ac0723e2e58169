//! Records of the ring: one fixed header, then the fields of the operation, all 8-byte aligned, no pointers into the client's private memory.
//!
//! [`encode`] is used by the shim, [`decode`] by the executor on a private copy. `decode` is the one checked constructor: whatever it returns
//! has a known operation, sizes that fit the record, a stream index below [`crate::layout::STREAMS`], an answer slot below
//! [`crate::layout::ANSWERS`] and dimension products that do not overflow. It says nothing about handles and addresses: those the executor looks up.

mod fields;
mod tensor;

pub use tensor::TensorWish;

use crate::layout::{ANSWERS, EVENTS, STREAMS};
use fields::{Reader, Writer};

/// Stream field of a record that belongs to no stream.
pub const NO_STREAM: u32 = u32::MAX;
/// Answer field of a record that wants no answer.
pub const NO_ANSWER: u32 = u32::MAX;
/// Bytes of the header in front of every record.
pub const HEADER_BYTES: usize = 32;
/// Longest record: a launch with the largest parameter block (32,764 bytes, CUDA 12.1 and later) and its fields.
pub const MAX_BYTES: usize = 33 * 1024;
/// Largest kernel parameter block in bytes.
pub const MAX_PARAMETERS: usize = 32_764;

/// What every record says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Stream index, or [`NO_STREAM`].
    pub stream: u32,
    /// Answer slot, or [`NO_ANSWER`].
    pub answer: u32,
    /// Position in its stream (1, 2, 3 …); for records without a stream the request number that the answer repeats.
    pub seq: u64,
    /// Request number of an answered record that is also in a stream; else 0.
    pub request: u64,
}

impl Header {
    /// The number that the answer to this record repeats.
    #[must_use]
    pub const fn request_number(&self) -> u64 {
        if self.stream == NO_STREAM { self.seq } else { self.request }
    }
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub header: Header,
    pub op: Op,
}

/// A rectangle of bytes: `depth` slices of `height` rows of `width` bytes. Strides in bytes; all zero strides are allowed where the count is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    pub width: u64,
    pub height: u64,
    pub depth: u64,
}

/// A kernel's parameters. Those of most kernels need no memory of their own: they go from thread to thread, and giving memory back elsewhere than where it
/// was taken costs both sides.
pub type Parameters = smallvec::SmallVec<[u8; 64]>;

/// How a launch is to be run. Blocks and threads in x, y, z; shared memory is the dynamic part in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    pub module: u32,
    /// Index of the function in the module's [`crate::module::ModuleInfo`].
    pub function: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub shared: u32,
    /// All blocks must be resident together (grid-wide barrier).
    pub cooperative: bool,
    pub parameters: Parameters,
}

/// What a client asks. "Intake" operations take effect when the record is taken, "stream" operations in stream order.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Fills the end of the data area. Never decoded into work.
    Pad,
    // ---- intake, no stream
    /// A new stream; `index` was minted by the client and must be free. Priority as CUDA's (lower is more urgent).
    /// Sequence numbers of an index never start again: a stream that reuses an index goes on counting where the one before it ended.
    /// `partition` 0 is the client's whole share, another one was opened on the same device.
    StreamCreate {
        index: u32,
        device: u32,
        priority: i32,
        partition: u32,
    },
    /// The index may be minted again when this record's stream has drained.
    StreamDestroy {
        index: u32,
    },
    /// Loads the image at `image` (an address in the client's window, `image_bytes` long) as module `module` (client-minted, free). Answer: words[0] = bytes
    /// of encoded [`crate::module::ModuleInfo`] written at `info` (address in the window, at most `info_bytes`); words[1] = bytes needed when it did not fit
    /// (result INVALID_VALUE); on failure the diagnostic text is written at `info` and words[0] is its length.
    ModuleLoad {
        module: u32,
        device: u32,
        image: u64,
        image_bytes: u64,
        info: u64,
        info_bytes: u64,
    },
    ModuleUnload {
        module: u32,
    },
    /// `CUfunction_attribute` set on a function (for example the dynamic shared memory limit).
    FunctionSet {
        module: u32,
        function: u32,
        attribute: u32,
        value: i32,
    },
    /// Device memory of `bytes` bytes, aligned to `align` (a power of two). Answer: words[0] = address.
    MemAlloc {
        device: u32,
        bytes: u64,
        align: u64,
    },
    /// Takes effect when all work the client has pushed before is done.
    MemFree {
        address: u64,
    },
    /// Answer: words[0] = free, words[1] = total bytes, in terms of the client's limit.
    MemInfo {
        device: u32,
    },
    /// Address space without memory. Answer: words[0] = address. `fixed` = 0 or a wished address.
    VmmReserve {
        bytes: u64,
        align: u64,
        fixed: u64,
    },
    VmmUnreserve {
        address: u64,
        bytes: u64,
    },
    /// Physical memory; `handle` is client-minted. Answered.
    VmmCreate {
        handle: u32,
        device: u32,
        bytes: u64,
    },
    VmmRelease {
        handle: u32,
    },
    /// Answered.
    VmmMap {
        address: u64,
        bytes: u64,
        handle: u32,
        offset: u64,
    },
    /// Takes effect when all earlier work is done. Answered.
    VmmUnmap {
        address: u64,
        bytes: u64,
    },
    /// `access`: 0 none, 1 read, 3 read and write (`CUmemAccess_flags`). Answered.
    VmmAccess {
        address: u64,
        bytes: u64,
        access: u32,
    },
    /// The `bytes` of the client's private memory at `user` are now shared: they are the window's memory at `window`. Kernels may use either address.
    HostRegister {
        user: u64,
        window: u64,
        bytes: u64,
    },
    HostUnregister {
        user: u64,
    },
    /// A context limit (`CUlimit`): stack size, printf fifo, malloc heap.
    LimitSet {
        limit: u32,
        value: u64,
    },
    /// The client is about to use these bytes of its window as pinned memory: the device makes them reachable (slow). Answered.
    WindowUse {
        address: u64,
        bytes: u64,
    },
    /// Encodes a description of a tensor for the device's copy engine; the 128 bytes are written at `out`, an address in the client's window. Answered.
    TensorMap {
        device: u32,
        out: u64,
        wish: TensorWish,
    },
    /// Answered when everything pushed before is done and all objects of the client are gone.
    Reset,
    /// A part of the client's share for streams made in it. `partition` is minted by the client: free and not 0. `multiprocessors` is what the card can
    /// split, at most the share. Answered.
    PartitionOpen {
        partition: u32,
        device: u32,
        multiprocessors: u32,
    },
    /// Its streams are destroyed; what still runs ends where it is.
    PartitionClose {
        partition: u32,
    },
    /// Memory that is the client's already (a piece of its window, used as managed memory) and counts against its limit: `bytes` at `address`. Answered.
    Charge {
        device: u32,
        address: u64,
        bytes: u64,
    },
    /// Undoes `Charge` for the memory at `address`.
    Refund {
        address: u64,
    },
    // ---- in a stream
    Launch(Launch),
    /// Bytes from `source` to `target`; both are addresses in the arena or in the client's window.
    Copy {
        target: u64,
        target_pitch: u64,
        target_slice: u64,
        source: u64,
        source_pitch: u64,
        source_slice: u64,
        extent: Extent,
    },
    /// `width` elements of `element` bytes (1, 2, 4) a row, `height` rows `pitch` bytes apart.
    Set {
        target: u64,
        value: u32,
        element: u32,
        width: u64,
        height: u64,
        pitch: u64,
    },
    /// Writes the time to event cell `event` when reached.
    EventTime {
        event: u32,
    },
    /// Goes on when stream `stream` has completed `seq`.
    Wait {
        stream: u32,
        seq: u64,
    },
    /// Goes on when the client has stored `host_done[stream] >= ` this record's seq.
    HostCall,
    /// Stores `value` (4 or 8 bytes).
    ValueWrite {
        address: u64,
        value: u64,
        bytes: u32,
    },
    /// Waits for the 4- or 8-byte value at `address`: `condition` 0 geq (cyclic), 1 equal, 2 and, 3 nor, as `CUstreamWaitValue_flags`.
    ValueWait {
        address: u64,
        value: u64,
        bytes: u32,
        condition: u32,
    },
    /// Frees an allocation in stream order.
    FreeInStream {
        address: u64,
    },
    /// Nothing; completes when reached.
    Nop,
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The record says it is longer or shorter than what is there.
    #[error("a record claims {claimed} bytes where {available} are there")]
    Length { claimed: usize, available: usize },
    #[error("unknown operation {0}; client and service must be of the same cumux version")]
    Operation(u32),
    #[error("field {0} is out of range")]
    Field(&'static str),
}

impl Op {
    const fn code(&self) -> u32 {
        match self {
            Op::Pad => 0,
            Op::StreamCreate { .. } => 1,
            Op::StreamDestroy { .. } => 2,
            Op::ModuleLoad { .. } => 3,
            Op::ModuleUnload { .. } => 4,
            Op::FunctionSet { .. } => 5,
            Op::MemAlloc { .. } => 6,
            Op::MemFree { .. } => 7,
            Op::MemInfo { .. } => 8,
            Op::VmmReserve { .. } => 9,
            Op::VmmUnreserve { .. } => 10,
            Op::VmmCreate { .. } => 11,
            Op::VmmRelease { .. } => 12,
            Op::VmmMap { .. } => 13,
            Op::VmmUnmap { .. } => 14,
            Op::VmmAccess { .. } => 15,
            Op::HostRegister { .. } => 16,
            Op::HostUnregister { .. } => 17,
            Op::LimitSet { .. } => 18,
            Op::Reset => 19,
            Op::WindowUse { .. } => 20,
            Op::TensorMap { .. } => 30,
            Op::PartitionOpen { .. } => 21,
            Op::PartitionClose { .. } => 22,
            Op::Charge { .. } => 23,
            Op::Refund { .. } => 24,
            Op::Launch(_) => 32,
            Op::Copy { .. } => 33,
            Op::Set { .. } => 34,
            Op::EventTime { .. } => 35,
            Op::Wait { .. } => 36,
            Op::HostCall => 37,
            Op::ValueWrite { .. } => 38,
            Op::ValueWait { .. } => 39,
            Op::FreeInStream { .. } => 40,
            Op::Nop => 41,
        }
    }

    /// Whether the operation takes effect in stream order (else: when it is taken).
    #[must_use]
    pub const fn in_stream(&self) -> bool {
        self.code() >= 32
    }
}

/// Appends the record to `out`: header, fields, zero padding to a multiple of 8.
pub fn encode(header: &Header, op: &Op, out: &mut Vec<u8>) {
    let start = out.len();
    let mut w = Writer(out);
    w.u32(0).u32(op.code()).u32(header.stream).u32(header.answer).u64(header.seq).u64(header.request);
    match op {
        Op::Pad | Op::Reset | Op::HostCall | Op::Nop => {}
        Op::StreamCreate { index, device, priority, partition } => {
            w.words32(&[*index, *device, priority.cast_unsigned(), *partition]);
        }
        Op::PartitionOpen { partition, device, multiprocessors } => {
            w.words32(&[*partition, *device, *multiprocessors]);
        }
        Op::PartitionClose { partition } => {
            w.u32(*partition);
        }
        Op::Charge { device, address, bytes } => {
            w.words64(&[u64::from(*device), *address, *bytes]);
        }
        Op::StreamDestroy { index } => {
            w.u32(*index);
        }
        Op::ModuleLoad { module, device, image, image_bytes, info, info_bytes } => {
            w.words32(&[*module, *device]).words64(&[*image, *image_bytes, *info, *info_bytes]);
        }
        Op::ModuleUnload { module } => {
            w.u32(*module);
        }
        Op::FunctionSet { module, function, attribute, value } => {
            w.words32(&[*module, *function, *attribute, value.cast_unsigned()]);
        }
        Op::MemAlloc { device, bytes, align } => {
            w.u64(u64::from(*device)).words64(&[*bytes, *align]);
        }
        Op::MemFree { address } | Op::HostUnregister { user: address } | Op::FreeInStream { address } | Op::Refund { address } => {
            w.u64(*address);
        }
        Op::MemInfo { device } => {
            w.u32(*device);
        }
        Op::VmmReserve { bytes, align, fixed } => {
            w.words64(&[*bytes, *align, *fixed]);
        }
        Op::VmmUnreserve { address, bytes } | Op::VmmUnmap { address, bytes } | Op::WindowUse { address, bytes } => {
            w.words64(&[*address, *bytes]);
        }
        Op::VmmCreate { handle, device, bytes } => {
            w.words32(&[*handle, *device]).u64(*bytes);
        }
        Op::VmmRelease { handle } => {
            w.u32(*handle);
        }
        Op::VmmMap { address, bytes, handle, offset } => {
            w.words64(&[*address, *bytes, u64::from(*handle), *offset]);
        }
        Op::VmmAccess { address, bytes, access } => {
            w.words64(&[*address, *bytes]).u32(*access);
        }
        Op::HostRegister { user, window, bytes } => {
            w.words64(&[*user, *window, *bytes]);
        }
        Op::LimitSet { limit, value } => {
            w.words64(&[u64::from(*limit), *value]);
        }
        Op::TensorMap { device, out, wish } => {
            w.words64(&[u64::from(*device), *out]).words64(&wish.words());
        }
        Op::Launch(launch) => {
            w.words32(&[launch.module, launch.function]).words32(&launch.grid).words32(&launch.block).words32(&launch.cluster);
            w.words32(&[launch.shared, u32::from(launch.cooperative), launch.parameters.len() as u32]);
            w.0.extend_from_slice(&launch.parameters);
        }
        Op::Copy { target, target_pitch, target_slice, source, source_pitch, source_slice, extent } => {
            w.words64(&[*target, *target_pitch, *target_slice, *source, *source_pitch, *source_slice]);
            w.words64(&[extent.width, extent.height, extent.depth]);
        }
        Op::Set { target, value, element, width, height, pitch } => {
            w.u64(*target).words32(&[*value, *element]).words64(&[*width, *height, *pitch]);
        }
        Op::EventTime { event } => {
            w.u32(*event);
        }
        Op::Wait { stream, seq } => {
            w.u64(u64::from(*stream)).u64(*seq);
        }
        Op::ValueWrite { address, value, bytes } => {
            w.words64(&[*address, *value]).u32(*bytes);
        }
        Op::ValueWait { address, value, bytes, condition } => {
            w.words64(&[*address, *value]).words32(&[*bytes, *condition]);
        }
    }
    let end = out.len().next_multiple_of(8);
    out.resize(end, 0);
    let bytes = (end - start) as u32;
    out[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
}

/// Length in bytes that the first eight bytes of a record claim, and whether it is a pad. Checked to be a multiple of 8, at least 8, at most `available`,
/// and for anything but a pad between [`HEADER_BYTES`] and [`MAX_BYTES`].
///
/// # Errors
/// [`DecodeError::Length`] when the claim cannot be true.
pub fn length(first: [u8; 8], available: usize) -> Result<(usize, bool), DecodeError> {
    let [a, b, c, d, e, f, g, h] = first;
    let claimed = u32::from_le_bytes([a, b, c, d]) as usize;
    let pad = u32::from_le_bytes([e, f, g, h]) == 0;
    let fits = claimed >= 8 && claimed.is_multiple_of(8) && claimed <= available;
    if fits && (pad || (HEADER_BYTES..=MAX_BYTES).contains(&claimed)) { Ok((claimed, pad)) } else { Err(DecodeError::Length { claimed, available }) }
}

/// Decodes a private copy of one record.
///
/// # Errors
/// [`DecodeError`] when the bytes are not a record that may be acted upon.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut r = Reader::new(bytes);
    let claimed = r.u32()? as usize;
    if claimed != bytes.len() {
        return Err(DecodeError::Length { claimed, available: bytes.len() });
    }
    let code = r.u32()?;
    let header = Header { stream: r.u32()?, answer: r.u32()?, seq: r.u64()?, request: r.u64()? };
    if header.answer != NO_ANSWER && header.answer as usize >= ANSWERS {
        return Err(DecodeError::Field("answer slot"));
    }
    let stream = |index: u32, name: &'static str| if (index as usize) < STREAMS { Ok(index) } else { Err(DecodeError::Field(name)) };
    let op = match code {
        0 => Op::Pad,
        1 => Op::StreamCreate { index: stream(r.u32()?, "stream index")?, device: r.u32()?, priority: r.u32()?.cast_signed(), partition: r.u32()? },
        2 => Op::StreamDestroy { index: stream(r.u32()?, "stream index")? },
        3 => Op::ModuleLoad { module: r.u32()?, device: r.u32()?, image: r.u64()?, image_bytes: r.u64()?, info: r.u64()?, info_bytes: r.u64()? },
        4 => Op::ModuleUnload { module: r.u32()? },
        5 => Op::FunctionSet { module: r.u32()?, function: r.u32()?, attribute: r.u32()?, value: r.u32()?.cast_signed() },
        6 => {
            let device = u32::try_from(r.u64()?).map_err(|_| DecodeError::Field("device"))?;
            let (bytes, align) = (r.u64()?, r.u64()?);
            if !align.is_power_of_two() || align > 1 << 30 {
                return Err(DecodeError::Field("alignment"));
            }
            Op::MemAlloc { device, bytes, align }
        }
        7 => Op::MemFree { address: r.u64()? },
        8 => Op::MemInfo { device: r.u32()? },
        9 => {
            let (bytes, align, fixed) = (r.u64()?, r.u64()?, r.u64()?);
            if align != 0 && !align.is_power_of_two() {
                return Err(DecodeError::Field("alignment"));
            }
            Op::VmmReserve { bytes, align, fixed }
        }
        10 => Op::VmmUnreserve { address: r.u64()?, bytes: r.u64()? },
        11 => Op::VmmCreate { handle: r.u32()?, device: r.u32()?, bytes: r.u64()? },
        12 => Op::VmmRelease { handle: r.u32()? },
        13 => {
            let (address, bytes, handle, offset) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
            Op::VmmMap { address, bytes, handle: u32::try_from(handle).map_err(|_| DecodeError::Field("handle"))?, offset }
        }
        14 => Op::VmmUnmap { address: r.u64()?, bytes: r.u64()? },
        15 => Op::VmmAccess { address: r.u64()?, bytes: r.u64()?, access: r.u32()? },
        16 => Op::HostRegister { user: r.u64()?, window: r.u64()?, bytes: r.u64()? },
        17 => Op::HostUnregister { user: r.u64()? },
        18 => Op::LimitSet { limit: u32::try_from(r.u64()?).map_err(|_| DecodeError::Field("limit"))?, value: r.u64()? },
        19 => Op::Reset,
        30 => Op::TensorMap { device: u32::try_from(r.u64()?).map_err(|_| DecodeError::Field("device"))?, out: r.u64()?, wish: TensorWish::read(&mut r)? },
        20 => Op::WindowUse { address: r.u64()?, bytes: r.u64()? },
        21 => {
            let (partition, device, multiprocessors) = (r.u32()?, r.u32()?, r.u32()?);
            if partition == 0 || multiprocessors == 0 {
                return Err(DecodeError::Field("partition"));
            }
            Op::PartitionOpen { partition, device, multiprocessors }
        }
        22 => Op::PartitionClose { partition: r.u32()? },
        23 => {
            let device = u32::try_from(r.u64()?).map_err(|_| DecodeError::Field("device"))?;
            Op::Charge { device, address: r.u64()?, bytes: r.u64()? }
        }
        24 => Op::Refund { address: r.u64()? },
        32 => {
            let (module, function) = (r.u32()?, r.u32()?);
            let (grid, block, cluster) = (r.dims()?, r.dims()?, r.dims()?);
            let (shared, cooperative, len) = (r.u32()?, r.u32()? != 0, r.u32()? as usize);
            if len > MAX_PARAMETERS {
                return Err(DecodeError::Field("parameter bytes"));
            }
            let threads: u64 = block.iter().fold(1, |p: u64, d| p.saturating_mul(u64::from(*d)));
            if threads == 0 || threads > 1024 || grid.contains(&0) {
                return Err(DecodeError::Field("launch dimensions"));
            }
            let parameters = Parameters::from_slice(r.rest(len)?);
            Op::Launch(Launch { module, function, grid, block, cluster, shared, cooperative, parameters })
        }
        33 => {
            let (target, target_pitch, target_slice) = (r.u64()?, r.u64()?, r.u64()?);
            let (source, source_pitch, source_slice) = (r.u64()?, r.u64()?, r.u64()?);
            let extent = Extent { width: r.u64()?, height: r.u64()?, depth: r.u64()? };
            let spans = [(target, target_pitch, target_slice), (source, source_pitch, source_slice)];
            if spans.iter().any(|(base, pitch, slice)| span(*base, *pitch, *slice, extent).is_none()) {
                return Err(DecodeError::Field("copy extent"));
            }
            Op::Copy { target, target_pitch, target_slice, source, source_pitch, source_slice, extent }
        }
        34 => {
            let target = r.u64()?;
            let (value, element) = (r.u32()?, r.u32()?);
            let (width, height, pitch) = (r.u64()?, r.u64()?, r.u64()?);
            if !matches!(element, 1 | 2 | 4) {
                return Err(DecodeError::Field("element size"));
            }
            let row = width.checked_mul(u64::from(element)).ok_or(DecodeError::Field("set width"))?;
            span(target, pitch, 0, Extent { width: row, height, depth: 1 }).ok_or(DecodeError::Field("set extent"))?;
            Op::Set { target, value, element, width, height, pitch }
        }
        35 => {
            let event = r.u32()?;
            if event as usize >= EVENTS {
                return Err(DecodeError::Field("event index"));
            }
            Op::EventTime { event }
        }
        36 => {
            let on = u32::try_from(r.u64()?).map_err(|_| DecodeError::Field("awaited stream"))?;
            Op::Wait { stream: stream(on, "awaited stream")?, seq: r.u64()? }
        }
        37 => Op::HostCall,
        38 | 39 => {
            let (address, value, bytes) = (r.u64()?, r.u64()?, r.u32()?);
            if !matches!(bytes, 4 | 8) || !address.is_multiple_of(u64::from(bytes)) {
                return Err(DecodeError::Field("value size"));
            }
            if code == 38 {
                Op::ValueWrite { address, value, bytes }
            } else {
                let condition = r.u32()?;
                if condition > 3 {
                    return Err(DecodeError::Field("wait condition"));
                }
                Op::ValueWait { address, value, bytes, condition }
            }
        }
        40 => Op::FreeInStream { address: r.u64()? },
        41 => Op::Nop,
        other => return Err(DecodeError::Operation(other)),
    };
    if op.in_stream() != (header.stream != NO_STREAM) || (op.in_stream() && header.stream as usize >= STREAMS) {
        return Err(DecodeError::Field("stream"));
    }
    Ok(Record { header, op })
}

/// Bytes from `base` to the end of a rectangle with these strides, or `None` where that overflows 64 bits.
#[must_use]
pub fn span(base: u64, pitch: u64, slice: u64, extent: Extent) -> Option<u64> {
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Some(0);
    }
    let rows = (extent.height - 1).checked_mul(pitch)?;
    let slices = (extent.depth - 1).checked_mul(slice)?;
    let bytes = rows.checked_add(slices)?.checked_add(extent.width)?;
    base.checked_add(bytes)?;
    Some(bytes)
}
