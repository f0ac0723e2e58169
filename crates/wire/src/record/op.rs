//! Every operation, once: its number, its fields in the order of the record, and what they must
//! satisfy.
//!
//! The table in this file is the only place that knows an operation's record. [`Op`], its number,
//! its writing and its checked reading all come from it. `=> check` after a field refuses single
//! values, `where` refuses combinations.

use super::array::{ArrayWish, CopyEnd, ObjectWish, check_ends};
use super::fields::{Field, Reader};
use super::launch::Launch;
use super::{CopyExtent, DecodeError, TensorWish, span};
use crate::cuda::WaitCondition;
use crate::layout::{EVENTS, STREAMS};

/// Numbers from here on belong to operations that take effect in the order of a stream.
const FIRST_IN_STREAM: u32 = 32;
/// Numbers from here on belong to operations in no stream again.
const FIRST_IN_NONE: u32 = 128;

macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $code:literal $name:ident
        $({ $($field:ident: $type:ty $(=> $check:path)?),* $(,)? })?
        $(($payload:ident: $payload_type:ty))?
        $(where $whole:expr)?
    ),* $(,)?) => {
        /// What a client asks for. Operations at intake take effect when the executor reads the
        /// record; those in a stream when the stream reaches them.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Op {
            $(
                $(#[$doc])*
                #[allow(missing_docs, reason = "the fields are described with their operation")]
                $name $({ $($field: $type),* })? $(($payload_type))?,
            )*
        }

        impl Op {
            /// The operation's number in a record.
            pub(super) const fn code(&self) -> u32 {
                match self {
                    $(Op::$name { .. } => $code,)*
                }
            }

            /// Appends the fields.
            pub(super) fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Op::$name $({ $($field),* })? $(($payload))? => {
                        $($($field.write(out);)*)?
                        $($payload.write(out);)?
                    })*
                }
            }

            /// Reads the fields of operation `code` and checks them.
            pub(super) fn read(code: u32, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                match code {
                    $($code => {
                        $($(
                            let $field = <$type as Field>::read(reader)?;
                            $(let $field = $check($field)?;)?
                        )*)?
                        $(let $payload = <$payload_type as Field>::read(reader)?;)?
                        $($whole?;)?
                        Ok(Op::$name $({ $($field),* })? $(($payload))?)
                    })*
                    other => Err(DecodeError::Operation(other)),
                }
            }
        }
    };
}

/// The number of [`Op::Launch`].
pub(super) const LAUNCH: u32 = 32;

operations! {
    /// Fills the end of the data area. Never decoded into work.
    0 Pad,
    // ---- Taken at intake, in no stream.
    /// A new stream; `index` was minted by the client and must be free. Priority as CUDA's (lower
    /// is more urgent). Sequence numbers of an index never start again: a stream that reuses an
    /// index goes on counting where the one before it ended. `partition` 0 is the client's whole
    /// share, another one was opened on the same device.
    1 StreamCreate { index: u32 => stream_index, device: u32, priority: i32, partition: u32 },
    /// The index may be minted again when this record's stream has drained.
    2 StreamDestroy { index: u32 => stream_index },
    /// Loads the image at `image` (an address in the client's window, `image_bytes` long) as module
    /// `module`, a number that the client minted and that is free. Answer: words[0] = bytes of
    /// encoded [`crate::module::ModuleInfo`] written at `info` (an address in the window, at most
    /// `info_bytes`); words[1] = bytes needed when it did not fit (result INVALID_VALUE). On
    /// failure the diagnostic text is written at `info` and words[0] is its length.
    3 ModuleLoad { module: u32, device: u32, image: u64, image_bytes: u64, info: u64, info_bytes: u64 },
    /// Kernels of the module that still run are waited for.
    4 ModuleUnload { module: u32 },
    /// `CUfunction_attribute` set on a function (for example the dynamic shared memory limit).
    5 FunctionSet { module: u32, function: u32, attribute: u32, value: i32 },
    /// Device memory of `bytes` bytes, aligned to `align` (a power of two). Answer: words[0] =
    /// address.
    6 MemAlloc { device: u32, bytes: u64, align: u64 => allocation_alignment },
    /// Takes effect when all work the client has pushed before is done.
    7 MemFree { address: u64 },
    /// Answer: words[0] = free bytes within the client's limit, words[1] = the device's bytes,
    /// words[2] = how many of those there are: a software GPU may have less memory behind it.
    8 MemInfo { device: u32 },
    /// Address space without memory. Answer: words[0] = address. `fixed` = 0 or a wished address.
    9 VmmReserve { bytes: u64, align: u64 => reservation_alignment, fixed: u64 },
    /// Gives reserved addresses back.
    10 VmmUnreserve { address: u64, bytes: u64 },
    /// Physical memory; `handle` is client-minted. Answered.
    11 VmmCreate { handle: u32, device: u32, bytes: u64 },
    /// The memory goes when nothing maps it any more.
    12 VmmRelease { handle: u32 },
    /// Answered.
    13 VmmMap { address: u64, bytes: u64, handle: u32, offset: u64 },
    /// Takes effect when all earlier work is done. Answered.
    14 VmmUnmap { address: u64, bytes: u64 },
    /// `access`: 0 none, 1 read, 3 read and write (`CUmemAccess_flags`). Answered.
    15 VmmAccess { address: u64, bytes: u64, access: u32 },
    /// The `bytes` of the client's private memory at `user` are now shared: they are the window's
    /// memory at `window`. Kernels may use either address.
    16 HostRegister { user: u64, window: u64, bytes: u64 },
    /// Undoes `HostRegister` for the memory at `user`.
    17 HostUnregister { user: u64 },
    /// A context limit (`CUlimit`): stack size, printf fifo, malloc heap.
    18 LimitSet { limit: u32, value: u64 },
    /// Answered when everything pushed before is done and all objects of the client are gone.
    19 Reset,
    /// The client is about to use these bytes of its window as pinned memory. The device makes them
    /// reachable, which is slow. Answered.
    20 WindowUse { address: u64, bytes: u64 },
    /// A part of the client's share for streams made in it. The client mints `partition`: free and
    /// not 0. `multiprocessors` is a number that the card can split, at most the share. Answered.
    21 PartitionOpen { partition: u32 => partition_number, device: u32, multiprocessors: u32 => partition_number },
    /// Its streams are destroyed; what still runs ends where it is.
    22 PartitionClose { partition: u32 },
    /// Memory that is the client's already (a piece of its window, used as managed memory) and
    /// counts against its limit: `bytes` at `address`. Answered.
    23 Charge { device: u32, address: u64, bytes: u64 },
    /// Undoes `Charge` for the memory at `address`.
    24 Refund { address: u64 },
    /// Encodes a description of a tensor for the device's copy engine. The 128 bytes are written at
    /// `out`, an address in the client's window. Answered.
    25 TensorMap { device: u32, out: u64, wish: TensorWish },
    /// Lends the client's allocation at `address` to every client that is told its token. `kind`
    /// says as what it can be opened: [`lent`](super::lent). Answer: words[0] and words[1] = the
    /// token, the same one each time; words[2] = the allocation's bytes.
    26 Lend { address: u64, kind: u32 => lent_kind },
    /// Opens what another client has lent, at the address that it has there. It stays until
    /// [`Op::Return`], whatever the other client does. Answer: words[0] = address, words[1] =
    /// bytes, words[2] = the client's ordinal of its device.
    27 Borrow { token: [u64; 2], kind: u32 => lent_kind },
    /// Gives back what was opened with [`Op::Borrow`]. Takes effect when all work that the client
    /// has pushed before is done.
    28 Return { address: u64 },
    /// As [`Op::Lend`], of physical memory. Answer: words[0] and words[1] = the token.
    29 VmmLend { handle: u32 },
    /// Physical memory that another client has lent, under a handle that this client has minted. It
    /// is released like the client's own. Answer: words[0] = bytes, words[1] = the client's ordinal
    /// of its device.
    30 VmmBorrow { handle: u32, token: [u64; 2] },
    /// The cell of an event that several clients use, 8-byte words of the client's memory at
    /// `address`: [`event_cell`](super::event_cell). `action` is done first. Answer: words[0] = how
    /// often it was recorded, words[1] = whether the last record has been reached.
    31 EventCell { address: u64, action: u32 => cell_action },

    // ---- In the order of a stream.
    /// Runs a kernel.
    32 Launch(launch: Launch),
    /// Bytes from `source` to `target`; both are addresses in the arena or in the client's window.
    33 Copy { target: u64, target_pitch: u64, target_slice: u64, source: u64, source_pitch: u64, source_slice: u64, extent: CopyExtent }
        where rectangle_fits(target, target_pitch, target_slice, extent).and(rectangle_fits(source, source_pitch, source_slice, extent)),
    /// `width` elements of `element` bytes (1, 2, 4) a row, `height` rows `pitch` bytes apart.
    34 Set { target: u64, value: u32, element: u32 => element_size, width: u64, height: u64, pitch: u64 }
        where elements_fit(target, element, width, height, pitch),
    /// Writes the time to event cell `event` when reached.
    35 EventTime { event: u32 => event_index },
    /// Goes on when stream `stream` has completed `seq`.
    36 Wait { stream: u32 => awaited_stream, seq: u64 },
    /// Goes on when the client has stored `host_done[stream] >= ` this record's seq.
    37 HostCall,
    /// Stores `value` (4 or 8 bytes).
    38 ValueWrite { address: u64, value: u64, bytes: u32 }
        where value_is_aligned(address, bytes),
    /// Waits for the 4- or 8-byte value at `address`: `condition` 0 geq (cyclic), 1 equal, 2 and, 3
    /// nor, as `CUstreamWaitValue_flags`.
    39 ValueWait { address: u64, value: u64, bytes: u32, condition: u32 => wait_condition }
        where value_is_aligned(address, bytes),
    /// Frees an allocation in stream order.
    40 FreeInStream { address: u64 },
    /// Nothing; completes when reached.
    41 Nop,
    /// As `Copy`, where at least one end is an array of the client.
    42 ArrayCopy { target: CopyEnd, source: CopyEnd, extent: CopyExtent }
        where check_ends(&target, &source, extent),

    // ---- Taken at intake, in no stream.
    /// From now on work on `device` reaches all allocations of the client on `peer` (`on` = 1), or
    /// reaches them no more (0). Answered.
    128 PeerAccess { device: u32, peer: u32, on: u32 },
    /// As `VmmAccess`, for a device that is not the memory's own. Answered.
    129 VmmPeerAccess { address: u64, bytes: u64, device: u32, access: u32 },
    /// An array of the device's driver, zeroed, where the device makes textures
    /// ([`crate::facts::Capabilities::makes_textures`]). `array` was minted by the client, and is
    /// free and not 0. Answered.
    130 ArrayCreate { device: u32, array: u32 => array_number, wish: ArrayWish },
    /// Takes effect when all work the client has pushed before is done.
    131 ArrayDestroy { array: u32 },
    /// A texture or surface object of the device's driver. Answer: words[0] = the handle that
    /// kernels get.
    132 ObjectCreate { device: u32, wish: ObjectWish },
    /// Takes effect when all work the client has pushed before is done.
    133 ObjectDestroy { device: u32, handle: u64 },
    /// As `PartitionOpen`, with exactly these multiprocessors of the client's share: one bit for
    /// each position ([`crate::positions::SmPositions`]). Answered.
    134 PartitionPlace { partition: u32 => partition_number, device: u32, positions: [u64; 4] => some_positions },
}

impl Op {
    /// A copy of `bytes` bytes in one piece.
    #[must_use]
    pub const fn linear_copy(target: u64, source: u64, bytes: u64) -> Self {
        let extent = CopyExtent { width: bytes, height: 1, depth: 1 };
        Self::Copy { target, target_pitch: 0, target_slice: 0, source, source_pitch: 0, source_slice: 0, extent }
    }

    /// Whether the operation takes effect in stream order (else: when it is taken).
    #[must_use]
    pub const fn in_stream(&self) -> bool {
        self.code() >= FIRST_IN_STREAM && self.code() < FIRST_IN_NONE
    }
}

/// A value below `bound`, or the name of the field that is not.
fn below(value: u32, bound: usize, field: &'static str) -> Result<u32, DecodeError> {
    if (value as usize) < bound { Ok(value) } else { Err(DecodeError::Field(field)) }
}

fn stream_index(index: u32) -> Result<u32, DecodeError> {
    below(index, STREAMS, "stream index")
}

fn awaited_stream(index: u32) -> Result<u32, DecodeError> {
    below(index, STREAMS, "awaited stream")
}

fn event_index(index: u32) -> Result<u32, DecodeError> {
    below(index, EVENTS, "event index")
}

fn lent_kind(kind: u32) -> Result<u32, DecodeError> {
    if super::lent::ALL.contains(&kind) { Ok(kind) } else { Err(DecodeError::Field("kind of what is lent")) }
}

fn cell_action(action: u32) -> Result<u32, DecodeError> {
    if action <= super::event_cell::CLEAR { Ok(action) } else { Err(DecodeError::Field("action on an event")) }
}

fn wait_condition(condition: u32) -> Result<u32, DecodeError> {
    let last = WaitCondition::CU_STREAM_WAIT_VALUE_NOR.0;
    below(condition, last as usize + 1, "wait condition")
}

fn partition_number(number: u32) -> Result<u32, DecodeError> {
    if number == 0 { Err(DecodeError::Field("partition")) } else { Ok(number) }
}

fn array_number(number: u32) -> Result<u32, DecodeError> {
    if number == 0 { Err(DecodeError::Field("array")) } else { Ok(number) }
}

fn some_positions(positions: [u64; 4]) -> Result<[u64; 4], DecodeError> {
    if positions == [0; 4] { Err(DecodeError::Field("positions")) } else { Ok(positions) }
}

/// At most 1 GiB: no kind of memory is aligned to more.
fn allocation_alignment(align: u64) -> Result<u64, DecodeError> {
    if align.is_power_of_two() && align <= 1 << 30 { Ok(align) } else { Err(DecodeError::Field("alignment")) }
}

fn reservation_alignment(align: u64) -> Result<u64, DecodeError> {
    if align == 0 || align.is_power_of_two() { Ok(align) } else { Err(DecodeError::Field("alignment")) }
}

fn element_size(bytes: u32) -> Result<u32, DecodeError> {
    if matches!(bytes, 1 | 2 | 4) { Ok(bytes) } else { Err(DecodeError::Field("element size")) }
}

fn rectangle_fits(base: u64, pitch: u64, slice: u64, extent: CopyExtent) -> Result<(), DecodeError> {
    span(base, pitch, slice, extent).map(drop).ok_or(DecodeError::Field("copy extent"))
}

fn elements_fit(target: u64, element: u32, width: u64, height: u64, pitch: u64) -> Result<(), DecodeError> {
    let width = width.checked_mul(u64::from(element)).ok_or(DecodeError::Field("set width"))?;
    span(target, pitch, 0, CopyExtent { width, height, depth: 1 }).map(drop).ok_or(DecodeError::Field("set extent"))
}

fn value_is_aligned(address: u64, bytes: u32) -> Result<(), DecodeError> {
    if matches!(bytes, 4 | 8) && address.is_multiple_of(u64::from(bytes)) { Ok(()) } else { Err(DecodeError::Field("value size")) }
}
