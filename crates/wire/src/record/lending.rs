//! What both sides must know of memory that clients lend each other.

/// As what an allocation is lent. What was lent as one kind cannot be opened as another.
pub mod lent {
    /// `cuIpcGetMemHandle`.
    pub const MEMORY: u32 = 0;
    /// The cell of an event: `cuIpcGetEventHandle`.
    pub const EVENT: u32 = 1;
    /// A block of a memory pool: `cuMemPoolExportPointer`.
    pub const POOL: u32 = 2;
    /// All of them.
    pub const ALL: [u32; 3] = [MEMORY, EVENT, POOL];
}

/// The memory of an event that several clients use: 8-byte words. The first one counts how often
/// the event was recorded. Each record has one of the other words, in turn: its stream writes the
/// record's number there when it gets so far. A record may be reached before an earlier one.
pub mod event_cell {
    /// Bytes of the cell.
    pub const BYTES: u64 = 512;
    /// Words for records.
    const SLOTS: u64 = BYTES / 8 - 1;
    /// Looks only.
    pub const LOOK: u32 = 0;
    /// Counts one more record.
    pub const RECORD: u32 = 1;
    /// Nothing was recorded yet.
    pub const CLEAR: u32 = 2;

    /// Where in the cell the stream of this record writes its number.
    #[must_use]
    pub const fn place_of(record: u64) -> u64 {
        8 + record % SLOTS * 8
    }
}

#[cfg(test)]
mod tests {
    use super::event_cell::{BYTES, place_of};

    #[test]
    fn records_lie_behind_the_count_and_inside_the_cell() {
        for record in (0..200).chain([u64::MAX]) {
            assert!(place_of(record) >= 8 && place_of(record) + 8 <= BYTES && place_of(record).is_multiple_of(8), "{record}");
        }
        assert_ne!(place_of(1), place_of(2), "two records at the same time do not meet");
    }
}
