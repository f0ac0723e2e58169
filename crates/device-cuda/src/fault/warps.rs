//! The states of a card's warps, as the driver's debugger reads and writes them around a core dump.
//! Pure.
//!
//! With core dumps on, a fault stops all warps. Each one waits in the card's trap handler until its
//! record says that it goes. The driver reads the area of all records, writes the dump, writes the
//! area with the states changed from waiting to going, and lets the card continue. If a warp faults again then, all
//! warps stop again, and the driver does not let them continue any more.
//!
//! The layout is the driver's own and nowhere documented (measured on an H200 with driver 580, see
//! `docs/decisions/0120`). So it is believed only if the driver changed states and nothing else
//! in front of our eyes, and what is done here is what the driver did then.

use std::ops::Range;

/// Bytes of a warp's record.
const RECORD: usize = 0x2a0;
/// Where the first record's state is in the area: a word.
const FIRST_STATE: usize = 0x2ac;
/// How many bytes before its state a record has the address of the warp's next instruction.
const PC_BEFORE_STATE: usize = 0x14;
/// The bit of a state that is set while the warp waits to continue.
const WAITS: u32 = 0x100;
/// The bit of a state that lets the warp continue. It is set at the first stop, and the warp may have
/// cleared it at later ones.
const GOES: u32 = 1;

/// Whether the area of all records is laid out as this module knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WarpRecords(());

/// What [`WarpRecords::release`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// Warps that continue.
    pub going: usize,
    /// Warps that are left waiting.
    pub waiting: usize,
}

fn word(area: &[u8], at: usize) -> Option<u32> {
    area.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

impl WarpRecords {
    /// Compares the area as the driver has read it with what it has written: `None` unless it
    /// let one warp or more go and changed nothing else.
    pub(crate) fn learn(read: &[u8], written: &[u8]) -> Option<WarpRecords> {
        if read.len() != written.len() || read == written {
            return None;
        }
        let mut records = 0;
        for at in (0..read.len()).step_by(4).filter(|at| read.get(*at..*at + 4) != written.get(*at..*at + 4)) {
            let (before, after) = (word(read, at), word(written, at));
            let is_state = at >= FIRST_STATE && (at - FIRST_STATE).is_multiple_of(RECORD);
            if !is_state || before.is_none_or(|before| before & !GOES != WAITS) || after != Some(GOES) {
                tracing::debug!(at, ?before, ?after, "the driver does not let warps go as it was seen to do");
                return None;
            }
            records += 1;
        }
        (records > 0).then_some(WarpRecords(()))
    }

    /// Lets all warps continue but those whose next instruction lies in one of these ranges.
    pub(crate) fn release(self, area: &mut [u8], held: &[Range<u64>]) -> Released {
        let mut released = Released::default();
        for at in (FIRST_STATE..area.len()).step_by(RECORD) {
            if word(area, at).is_none_or(|state| state & !GOES != WAITS) {
                continue;
            }
            let pc = area.get(at - PC_BEFORE_STATE..).and_then(<[u8]>::first_chunk).map_or(0, |pc| u64::from_le_bytes(*pc));
            if held.iter().any(|range| range.contains(&pc)) {
                released.waiting += 1;
            } else if let Some(bytes) = area.get_mut(at..at + 4) {
                bytes.copy_from_slice(&GOES.to_le_bytes());
                released.going += 1;
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An area with warps in these places, at these addresses.
    fn area(warps: &[(usize, u64)]) -> Vec<u8> {
        let mut area = vec![0x5a; FIRST_STATE + 9 * RECORD + 8];
        for record in 0..10 {
            let at = FIRST_STATE + record * RECORD;
            area[at..at + 4].copy_from_slice(&1_u32.to_le_bytes());
        }
        for (record, pc) in warps {
            let at = FIRST_STATE + record * RECORD;
            area[at..at + 4].copy_from_slice(&0x101_u32.to_le_bytes());
            area[at - PC_BEFORE_STATE..at - PC_BEFORE_STATE + 8].copy_from_slice(&pc.to_le_bytes());
        }
        area
    }

    fn continued(mut area: Vec<u8>) -> Vec<u8> {
        WarpRecords(()).release(&mut area, &[]);
        area
    }

    #[test]
    fn the_layout_is_learnt_from_what_the_driver_does() {
        let read = area(&[(0, 0x1000), (3, 0x2000)]);
        assert!(WarpRecords::learn(&read, &continued(read.clone())).is_some());
        // Nothing was changed, or something else, too; or the area has another size.
        assert_eq!(WarpRecords::learn(&read, &read), None);
        let mut more = continued(read.clone());
        more[77] ^= 1;
        assert_eq!(WarpRecords::learn(&read, &more), None);
        assert_eq!(WarpRecords::learn(&read, &read[4..]), None);
        let mut other_bit = read.clone();
        other_bit[FIRST_STATE] ^= 1;
        assert_eq!(WarpRecords::learn(&read, &other_bit), None);
        assert_eq!(WarpRecords::learn(&[], &[]), None);
    }

    #[test]
    fn warps_of_the_faulting_function_wait_and_all_others_continue() {
        let mut stopped = area(&[(0, 0x1000), (3, 0x2010), (9, 0x2020)]);
        let held = 0x2000..0x2020;
        assert_eq!(WarpRecords(()).release(&mut stopped, std::slice::from_ref(&held)), Released { going: 2, waiting: 1 });
        assert_eq!(stopped, {
            let mut expected = area(&[(3, 0x2010)]);
            for (record, pc) in [(0, 0x1000_u64), (9, 0x2020)] {
                let at = FIRST_STATE + record * RECORD - PC_BEFORE_STATE;
                expected[at..at + 8].copy_from_slice(&pc.to_le_bytes());
            }
            expected
        });
        // A warp that stops again may have taken its permission to go.
        let mut again = area(&[(3, 0x3000)]);
        again[FIRST_STATE + 3 * RECORD] = 0;
        assert_eq!(WarpRecords(()).release(&mut again, &[]), Released { going: 1, waiting: 0 });
        assert_eq!(word(&again, FIRST_STATE + 3 * RECORD), Some(GOES));
        // Nothing is left to do but for those that wait.
        assert_eq!(WarpRecords(()).release(&mut stopped, &[held]), Released { going: 0, waiting: 1 });
    }

    #[test]
    fn areas_of_any_size_do_no_harm() {
        let whole = area(&[(0, 0), (9, 0)]);
        for end in 0..whole.len() {
            let mut cut = whole[..end].to_vec();
            WarpRecords(()).release(&mut cut, std::slice::from_ref(&(0..1)));
            let _ = WarpRecords::learn(&whole[..end], &cut);
        }
    }
}
