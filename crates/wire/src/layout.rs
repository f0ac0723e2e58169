//! Sizes and offsets of a session's memory files and of the address ranges that all processes
//! share.
//!
//! Invariant: offsets are multiples of 8, regions of one file do not overlap (checked by the tests
//! below). All words are little-endian.

/// Streams that a client may have at once. Index 0 is its NULL stream, 1 the per-thread default
/// stream of its first thread; the shim assigns the others.
pub const STREAMS: usize = 4096;
/// Answer slots: calls of one client that may wait for an answer at the same time.
pub const ANSWERS: usize = 64;
/// Devices that a client may see.
pub const DEVICES: usize = 16;
/// Timed events that a client may have at once.
pub const EVENTS: usize = 1 << 20;

/// The ring file, written by the client. Constants are offsets in bytes unless they are named
/// otherwise.
pub mod ring {
    use super::STREAMS;
    /// u64: bytes ever written by the client (a position; modulo [`DATA_BYTES`] it is an offset).
    pub const HEAD: usize = 0;
    /// u32: threads of the client that sleep on `activity`.
    pub const WAITERS: usize = 8;
    /// u64: bytes of the text ring the client has printed.
    pub const TEXT_TAIL: usize = 16;
    /// u64: bytes of the error text ring the client has printed.
    pub const ERROR_TEXT_TAIL: usize = 24;
    /// u64: times a thread of the client waited. In a cache line of its own, with [`WAIT_NS`]: the
    /// executor polls the first line.
    pub const WAITS: usize = 64;
    /// u64: nanoseconds that the client's threads slept for [`WAITS`].
    pub const WAIT_NS: usize = 72;
    /// [u64; STREAMS]: sequence of the last host callback of the stream that has run.
    pub const HOST_DONE: usize = 4096;
    /// The record data, circular, [`DATA_BYTES`] long.
    pub const DATA: usize = HOST_DONE + STREAMS * 8;
    /// Length of the record data; a power of two.
    pub const DATA_BYTES: usize = 1 << 20;
    /// Size of the file.
    pub const BYTES: usize = DATA + DATA_BYTES;
}

/// The page file, written by the executor. Constants are offsets in bytes unless they are named
/// otherwise.
pub mod page {
    use super::{ANSWERS, EVENTS, STREAMS};
    /// u64: ring position up to which the executor has taken records.
    pub const TAKEN: usize = 0;
    /// u32 (futex): bumped after every batch of completions, answers, errors and text.
    pub const ACTIVITY: usize = 8;
    /// u32: 1 while the executor's intake sleeps and wants its doorbell rung after a push.
    pub const SLEEPING: usize = 12;
    /// u32: the client's sticky error (a `CUresult`), 0 while healthy.
    pub const STICKY: usize = 16;
    /// u32: number of the executor that serves the session; raised by every takeover.
    pub const GENERATION: usize = 20;
    /// u32: process id of the server that looks after the session; changes when the server is
    /// rebuilt.
    pub const SERVER: usize = 24;
    /// u32: sessions that the executor serves; 0 = unknown. A client decides by it whether one of
    /// its threads may spin on a core of its own instead of sleeping.
    pub const COMPANY: usize = 28;
    /// u64: bytes of device memory that the client has in use (allocations, rounded as charged).
    pub const MEMORY_USED: usize = 32;
    /// u64: bytes ever written to the text ring.
    pub const TEXT_HEAD: usize = 40;
    /// u64: bytes ever written to the error text ring.
    pub const ERROR_TEXT_HEAD: usize = 48;
    /// [u32; DEVICES]: multiprocessors that the client may use of each of its devices, 0 = all;
    /// changes with its share.
    pub const SHARES: usize = 64;
    /// u32: length in bytes of the text at [`FAULT`]. Written before [`STICKY`] and not changed
    /// afterwards.
    pub const FAULT_LENGTH: usize = 1024;
    /// The sticky error in words: UTF-8, cut at [`FAULT_BYTES`].
    pub const FAULT: usize = 1032;
    /// Room for the text at [`FAULT`].
    pub const FAULT_BYTES: usize = 2048;
    /// [u64; STREAMS]: sequence up to which the stream's work is done.
    pub const COMPLETED: usize = 4096;
    /// Answer slots: [`ANSWERS`] of [`ANSWER_BYTES`] each.
    pub const ANSWER: usize = COMPLETED + STREAMS * 8;
    /// Size of one answer: u64 request, u32 result, u32 unused, [u64; 6] words.
    pub const ANSWER_BYTES: usize = 64;
    /// Words of one answer.
    pub const ANSWER_WORDS: usize = 6;
    /// Text for the program's standard output (device printf), circular.
    pub const TEXT: usize = (ANSWER + ANSWERS * ANSWER_BYTES).next_multiple_of(4096);
    /// Length of the text ring.
    pub const TEXT_BYTES: usize = 1 << 18;
    /// Text for the program's standard error (failed assertions), circular.
    pub const ERROR_TEXT: usize = TEXT + TEXT_BYTES;
    /// Length of the error text ring.
    pub const ERROR_TEXT_BYTES: usize = 1 << 16;
    /// [u64; EVENTS]: when the stream reached the event, in nanoseconds of CLOCK_MONOTONIC; 0 = not
    /// yet.
    pub const EVENT: usize = ERROR_TEXT + ERROR_TEXT_BYTES;
    /// Size of the file.
    pub const BYTES: usize = EVENT + EVENTS * 8;
}

/// The journal file, written by the executor. Constants are offsets in bytes unless they are named
/// otherwise.
pub mod journal {
    /// Size of one of the two halves of the object log; the header names the live one. The file is
    /// sparse: room for 300,000 allocations costs nothing to a client that makes few.
    pub const OBJECT_BYTES: usize = 64 << 20;
    /// Size of the work log: accepted stream work that has not retired, circular; a power of two.
    pub const WORK_BYTES: usize = 4 << 20;
    /// [u64; COUNTERS]: the client's counts so far, for its status under the next executor. A
    /// takeover does not depend on them.
    pub const COUNTER: usize = 64;
    /// Counts at [`COUNTER`].
    pub const COUNTERS: usize = 16;
    /// [u64; CASES]: evidence that this client's work ended earlier executors
    /// (`crates/executor/src/suspicion.rs`).
    pub const CASE: usize = 256;
    /// Entries at [`CASE`].
    pub const CASES: usize = 16;
    /// [u64; STREAMS]: sequence up to which the stream's work is done: the one store that commits a
    /// completion.
    pub const COMPLETED: usize = 4096;
    /// [u64; STREAMS]: sequence up to which the stream's work was submitted to the device. Work
    /// between this and [`COMPLETED`] was under way when an executor died; where the device keeps
    /// no marks, a successor cannot know whether it was done.
    pub const SUBMITTED: usize = COMPLETED + super::STREAMS * 8;
    /// Size of the header: everything in front of the two object logs.
    pub const HEADER_BYTES: usize = SUBMITTED + super::STREAMS * 8;
    /// Size of the file.
    pub const BYTES: usize = HEADER_BYTES + 2 * OBJECT_BYTES + WORK_BYTES;
}

/// Start of the arena: device memory of all clients of an executor, at the same address in every
/// executor generation. Clients reserve these addresses without access.
pub const ARENA_BASE: u64 = 0x1000_0000_0000;
/// Size of the arena.
pub const ARENA_BYTES: u64 = 32 << 40;
/// Start of the windows: host memory that a client and its executor share.
pub const WINDOW_BASE: u64 = 0x3000_0000_0000;
/// Size of one window.
pub const WINDOW_BYTES: u64 = 64 << 30;
/// Windows that exist: clients that a server can serve at once.
pub const WINDOWS: u32 = 512;
/// The last bytes of every window, for the executor's own use (`__managed__` variables). The shim's
/// allocator stays below them.
pub const WINDOW_MANAGED_BYTES: u64 = 8 << 30;
/// What a device that pins memory reaches of a window from the beginning. Pinning takes it half a
/// millisecond for each MiB, so a client that comes waits for no more than that.
pub const WINDOW_FIRST_BYTES: u64 = 2 << 20;
/// Pieces of a window are pinned whole. They end here, and then at each multiple of
/// [`WINDOW_PIECE_BYTES`]: what a program stages lies below, if it stages much at once.
const WINDOW_SECOND_END: u64 = 16 << 20;
/// Bytes of most pieces of a window.
pub const WINDOW_PIECE_BYTES: u64 = 32 << 20;
/// Size of a session's marks file: what the device notes for a successor. Sparse.
pub const MARKS_BYTES: u64 = 256 << 20;

/// Address of the window in `slot`.
#[must_use]
pub const fn window_address(slot: u32) -> u64 {
    WINDOW_BASE + slot as u64 * WINDOW_BYTES
}

/// Where the piece of a window begins that has the byte with this offset.
#[must_use]
pub const fn window_piece_start(offset: u64) -> u64 {
    match offset {
        0..WINDOW_FIRST_BYTES => 0,
        WINDOW_FIRST_BYTES..WINDOW_SECOND_END => WINDOW_FIRST_BYTES,
        WINDOW_SECOND_END..WINDOW_PIECE_BYTES => WINDOW_SECOND_END,
        _ => offset / WINDOW_PIECE_BYTES * WINDOW_PIECE_BYTES,
    }
}

/// Where the piece of a window ends that has the byte before this offset.
#[must_use]
pub const fn window_piece_end(offset: u64) -> u64 {
    if offset <= WINDOW_FIRST_BYTES {
        WINDOW_FIRST_BYTES
    } else if offset <= WINDOW_SECOND_END {
        WINDOW_SECOND_END
    } else {
        offset.next_multiple_of(WINDOW_PIECE_BYTES)
    }
}

/// The index of a device in the list that server and executor share. A client knows its devices by
/// ordinals of its own.
pub type DeviceIndex = u32;

/// The part of the arena that holds the memory of a device.
#[must_use]
pub const fn arena_window(device: DeviceIndex) -> core::ops::Range<u64> {
    let start = ARENA_BASE + device as u64 * (ARENA_BYTES / DEVICES as u64);
    start..start + ARENA_BYTES / DEVICES as u64
}

/// The device in whose part of the arena `address` lies; 0 for addresses outside the arena.
#[must_use]
pub const fn arena_device(address: u64) -> DeviceIndex {
    if in_arena(address) { ((address - ARENA_BASE) / (ARENA_BYTES / DEVICES as u64)) as u32 } else { 0 }
}

/// Whether an address lies in the device memory arena.
#[must_use]
pub const fn in_arena(address: u64) -> bool {
    address >= ARENA_BASE && address < ARENA_BASE + ARENA_BYTES
}

/// Addresses of the arena at which memory of the host can be mapped. Each reservation there is of
/// whole [`HOST_RANGE`]s, so that nothing else is in them.
pub const HOST_RANGES: core::ops::Range<u64> = ARENA_BASE + (24 << 40)..ARENA_BASE + ARENA_BYTES;
/// Bytes of address space that a card's driver reserves at once.
pub const HOST_RANGE: u64 = 64 << 30;

/// Whether memory of the host can be mapped at an address.
#[must_use]
pub const fn in_host_ranges(address: u64) -> bool {
    address >= HOST_RANGES.start && address < HOST_RANGES.end
}

/// Whether an address lies where clients have their windows.
#[must_use]
pub const fn in_windows(address: u64) -> bool {
    address >= window_address(0) && address < window_address(WINDOWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_windows_are_no_others() {
        let windows = [window_address(0), window_address(WINDOWS) - 1];
        assert!(windows.iter().all(|address| in_windows(*address) && !in_arena(*address)));
        assert!(![window_address(0) - 1, window_address(WINDOWS), ARENA_BASE].iter().any(|address| in_windows(*address)));
    }

    #[test]
    fn pieces_of_a_window_follow_one_another() {
        let (mut offset, mut ends) = (0, Vec::new());
        while offset < WINDOW_BYTES {
            let end = window_piece_end(offset + 1);
            assert_eq!((window_piece_start(offset), window_piece_start(end - 1), window_piece_end(end)), (offset, offset, end));
            ends.push(end);
            offset = end;
        }
        assert_eq!(ends[..5], [2 << 20, 16 << 20, 32 << 20, 64 << 20, 96 << 20]);
        assert_eq!((ends[0], ends.last()), (WINDOW_FIRST_BYTES, Some(&WINDOW_BYTES)));
    }

    #[test]
    fn regions_follow_one_another_without_overlap() {
        const {
            assert!(
                ring::HOST_DONE > ring::WAIT_NS
                    && ring::ERROR_TEXT_TAIL >= ring::TEXT_TAIL + 8
                    && ring::WAITS >= ring::ERROR_TEXT_TAIL + 8
                    && journal::CASE >= journal::COUNTER + journal::COUNTERS * 8
                    && journal::COMPLETED >= journal::CASE + journal::CASES * 8
                    && ring::DATA.is_multiple_of(4096)
            )
        };
        const { assert!(ring::DATA_BYTES.is_power_of_two() && journal::WORK_BYTES.is_power_of_two()) };
        const {
            assert!(
                page::ERROR_TEXT_HEAD >= page::TEXT_HEAD + 8
                    && page::SHARES >= page::ERROR_TEXT_HEAD + 8
                    && page::FAULT_LENGTH >= page::SHARES + DEVICES * 4
                    && page::COMPLETED >= page::FAULT + page::FAULT_BYTES
                    && page::ANSWER >= page::COMPLETED + STREAMS * 8
            )
        };
        const {
            assert!(
                page::TEXT >= page::ANSWER + ANSWERS * page::ANSWER_BYTES
                    && page::ERROR_TEXT >= page::TEXT + page::TEXT_BYTES
                    && page::EVENT >= page::ERROR_TEXT + page::ERROR_TEXT_BYTES
            )
        };
        const { assert!(ARENA_BASE + ARENA_BYTES <= WINDOW_BASE) };
        for device in 0..DEVICES as u32 {
            let part = arena_window(device);
            assert_eq!((arena_device(part.start), arena_device(part.end - 1), in_arena(part.end - 1)), (device, device, true));
        }
        assert!(window_address(WINDOWS - 1) + WINDOW_BYTES <= 0x5000_0000_0000, "below where programs are mapped");
    }
}
