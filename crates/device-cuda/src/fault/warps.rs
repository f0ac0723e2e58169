//! The states of a card's warps, as the driver's debugger reads and writes them around a core dump.
//! Pure.
//!
//! With core dumps on, a fault stops all warps. Each one waits in the card's trap handler until its
//! record says that it goes. The driver reads the area of all records, writes the dump, writes the
//! area with the states changed from waiting to going, and lets the card continue. If a warp faults
//! again then, all warps stop again, and the driver does not let them continue any more.
//!
//! The layout is the driver's own and nowhere documented (measured on an H200 with driver 580, see
//! `docs/decisions/0120`). So it is believed only if the driver changed states and nothing else
//! in front of our eyes, and what is done here is what the driver did then.

/// Bytes of a warp's record.
const RECORD: usize = 0x2a0;
/// Where the first record's state is in the area: a word.
const FIRST_STATE: usize = 0x2ac;
/// The bit of a state that is set while the warp waits to continue.
const WAITS: u32 = 0x100;
/// The bit of a state that lets the warp continue. It is set at the first stop, and the warp may
/// have cleared it at later ones.
const GOES: u32 = 1;

/// Whether the area of all records is laid out as this module knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WarpRecords(());

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

    /// Lets all warps continue. Returns how many waited.
    pub(crate) fn release(self, area: &mut [u8]) -> usize {
        let mut released = 0;
        for at in (FIRST_STATE..area.len()).step_by(RECORD) {
            if word(area, at).is_some_and(|state| state & !GOES == WAITS)
                && let Some(state) = area.get_mut(at..at + 4)
            {
                state.copy_from_slice(&GOES.to_le_bytes());
                released += 1;
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An area with warps that wait in these places.
    fn area(waiting: &[usize]) -> Vec<u8> {
        let mut area = vec![0x5a; FIRST_STATE + 9 * RECORD + 8];
        for record in 0..10 {
            let state = if waiting.contains(&record) { WAITS | GOES } else { GOES };
            let at = FIRST_STATE + record * RECORD;
            area[at..at + 4].copy_from_slice(&state.to_le_bytes());
        }
        area
    }

    fn continued(mut area: Vec<u8>) -> Vec<u8> {
        WarpRecords(()).release(&mut area);
        area
    }

    #[test]
    fn the_layout_is_learnt_from_what_the_driver_does() {
        let read = area(&[0, 3]);
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
    fn all_warps_that_wait_continue() {
        let mut stopped = area(&[0, 3, 9]);
        // One that stops again may have taken its permission to go.
        stopped[FIRST_STATE + 3 * RECORD] = 0;
        assert_eq!(WarpRecords(()).release(&mut stopped), 3);
        assert_eq!(stopped, area(&[]));
        assert_eq!(WarpRecords(()).release(&mut stopped), 0);
    }

    #[test]
    fn areas_of_any_size_do_no_harm() {
        let whole = area(&[0, 9]);
        for end in 0..whole.len() {
            let mut cut = whole[..end].to_vec();
            WarpRecords(()).release(&mut cut);
            let _ = WarpRecords::learn(&whole[..end], &cut);
        }
    }
}
