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

#[cfg(test)]
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of a warp's record.
const RECORD: usize = 0x2a0;
/// Where the first record's state is in the area: a word.
const FIRST_STATE: usize = 0x2ac;
/// Where the state is in a record, if the area begins with as many bytes that belong to no warp.
const STATE: usize = FIRST_STATE - RECORD;
/// Where the lower half of the address of a warp's instruction is, after the state. One warp of a
/// multiprocessor records nothing, and has 0 there.
const PC: usize = 0x28c;
/// The records of a multiprocessor follow one another: as many as it has warps (compute
/// capability 9.0).
const WARPS_OF_SM: usize = 64;
/// The bit of a state that is set while the warp waits to continue.
const WAITS: u32 = 0x100;
/// The bit of a state that lets the warp continue. It is set at the first stop, and the warp may
/// have cleared it at later ones.
const GOES: u32 = 1;

/// Fewer warps than this are not hidden: the driver reads and writes them in 5 ms.
const LEAST_HIDDEN: usize = 32;

/// Where the dump has seen an exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultPlace {
    /// The multiprocessor.
    pub sm: u64,
    /// Where the function is whose instruction it was.
    pub code: Option<Range<u64>>,
}

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

    /// Hides the warps that wait on other multiprocessors than these from whoever reads the area:
    /// their states are those of warps that are not there. One more multiprocessor stays, so that
    /// it is seen how its warps are let go. `None` if the area is not laid out as this module knows
    /// it, or if that is not worth it.
    pub(crate) fn hide_others(area: &mut [u8], faulting: &BTreeSet<u64>) -> Option<HiddenWarps> {
        let is_known = |at: usize| word(area, at).is_none_or(|state| state & !(WAITS | GOES) == 0);
        if faulting.is_empty() || !states(area).all(is_known) {
            return None;
        }
        let waiting: Vec<usize> = states(area).filter(|at| waits(area, *at)).collect();
        let witness = waiting.iter().map(|at| multiprocessor(*at)).find(|sm| !faulting.contains(sm))?;
        let hidden: Vec<usize> = waiting.into_iter().filter(|at| multiprocessor(*at) != witness && !faulting.contains(&multiprocessor(*at))).collect();
        if hidden.len() < LEAST_HIDDEN {
            return None;
        }
        let hidden = HiddenWarps(hidden);
        hidden.hide(area);
        Some(hidden)
    }

    /// Whether so many warps wait that it may be worth hiding some ([`Self::hide_others`]).
    pub(crate) fn is_crowded(area: &[u8]) -> bool {
        states(area).filter(|at| waits(area, *at)).count() >= LEAST_HIDDEN
    }

    /// The multiprocessors up to the last one on which a warp waits: so many.
    pub(crate) fn count_multiprocessors(area: &[u8]) -> u32 {
        states(area).filter(|at| waits(area, *at)).last().map_or(0, |at| multiprocessor(at) as u32 + 1)
    }

    /// Finds the warps that wait in both areas and have the same record but for their state: they
    /// have not moved. After a fault these are the ones that fault again and again, and perhaps
    /// others that had no turn.
    pub(crate) fn find_unmoved(self, before: &[u8], now: &[u8]) -> StillWarps {
        let is_unmoved = |at: usize| {
            let (start, end) = (at - STATE, at - STATE + RECORD);
            waits(before, at)
                && waits(now, at)
                && before.get(start..at) == now.get(start..at)
                && before.get(at + 4..end).is_some_and(|rest| Some(rest) == now.get(at + 4..end))
        };
        StillWarps(states(now).filter(|at| is_unmoved(*at)).collect())
    }

    /// Finds the warps that wait in functions in which the dump has seen exceptions, wherever they
    /// are, and those that wait on the exceptions' multiprocessors and have recorded nothing.
    pub(crate) fn find_faulting(self, area: &[u8], places: &[FaultPlace]) -> StillWarps {
        let is_in = |code: &Range<u64>, pc: u32| u64::from(pc.wrapping_sub(code.start as u32)) < code.end - code.start;
        let is_faulting = |at: &usize| {
            let (sm, pc) = (multiprocessor(*at), word(area, at + PC));
            let is_of = |place: &FaultPlace| match pc {
                None => false,
                Some(0) => place.sm == sm,
                Some(pc) => place.code.as_ref().is_some_and(|code| is_in(code, pc)),
            };
            waits(area, *at) && places.iter().any(is_of)
        };
        StillWarps(states(area).filter(is_faulting).collect())
    }

    /// The multiprocessors on which warps wait.
    pub(crate) fn multiprocessors(self, area: &[u8]) -> BTreeSet<u64> {
        states(area).filter(|at| waits(area, *at)).map(multiprocessor).collect()
    }

    /// Finds the warps that wait on these multiprocessors.
    pub(crate) fn find_on(self, area: &[u8], sms: &BTreeSet<u64>) -> StillWarps {
        StillWarps(states(area).filter(|at| waits(area, *at) && sms.contains(&multiprocessor(*at))).collect())
    }

    /// How many warps wait that are not these.
    pub(crate) fn count_others(self, area: &[u8], held: &StillWarps) -> usize {
        states(area).filter(|at| waits(area, *at) && !held.0.contains(at)).count()
    }

    /// How many warps have which state, but for those that go on.
    #[cfg(test)]
    fn count_states(self, area: &[u8]) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for state in states(area).filter_map(|at| word(area, at)).filter(|state| *state & !GOES != 0) {
            *counts.entry(state).or_default() += 1;
        }
        counts
    }

    /// Lets all warps continue but these. Returns how many waited that go on now.
    pub(crate) fn release(self, area: &mut [u8], held: &StillWarps) -> usize {
        let mut released = 0;
        for at in states(area) {
            if waits(area, at)
                && !held.0.contains(&at)
                && let Some(state) = area.get_mut(at..at + 4)
            {
                state.copy_from_slice(&GOES.to_le_bytes());
                released += 1;
            }
        }
        released
    }
}

/// Warps that are left waiting, by the places of their states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StillWarps(BTreeSet<usize>);

impl StillWarps {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Warps that wait and were hidden, by the places of their states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HiddenWarps(Vec<usize>);

impl HiddenWarps {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Hides them in an area as it was read.
    pub(crate) fn hide(&self, area: &mut [u8]) {
        self.set_states(area, 0);
    }

    /// Lets them continue in an area in which all others do.
    pub(crate) fn release(&self, area: &mut [u8]) {
        self.set_states(area, GOES);
    }

    fn set_states(&self, area: &mut [u8], new: u32) {
        for at in &self.0 {
            if let Some(state) = area.get_mut(*at..at.saturating_add(4)) {
                state.copy_from_slice(&new.to_le_bytes());
            }
        }
    }
}

/// Where the states of all records are.
fn states(area: &[u8]) -> impl Iterator<Item = usize> + use<> {
    (FIRST_STATE..area.len()).step_by(RECORD)
}

/// The multiprocessor of the warp with this state.
fn multiprocessor(at: usize) -> u64 {
    ((at - FIRST_STATE) / RECORD / WARPS_OF_SM) as u64
}

/// Whether the warp with this state waits to continue.
fn waits(area: &[u8], at: usize) -> bool {
    word(area, at).is_some_and(|state| state & !GOES == WAITS)
}

#[cfg(test)]
impl WarpRecords {
    /// As if the layout had been learnt.
    pub(crate) fn for_tests() -> Self {
        Self(())
    }

    /// An area with warps that wait in these places, and the address of a record's instruction.
    pub(crate) fn area_for_tests(waiting: &[usize]) -> (Vec<u8>, impl Fn(&[u8], usize) -> u64) {
        let mut area = tests::area(waiting);
        for record in waiting.iter().filter(|record| **record < 9) {
            area[FIRST_STATE + record * RECORD + PC..][..4].copy_from_slice(&(*record as u32 * 16).to_le_bytes());
        }
        (area, |area: &[u8], record: usize| u64::from(word(area, FIRST_STATE + record * RECORD + PC).unwrap_or_default()))
    }

    /// An area in which a warp waits on each of these multiprocessors.
    pub(crate) fn area_on_multiprocessors(sms: &[usize]) -> Vec<u8> {
        let mut area = vec![0; FIRST_STATE + 10 * WARPS_OF_SM * RECORD];
        for sm in sms {
            area[FIRST_STATE + sm * WARPS_OF_SM * RECORD..][..4].copy_from_slice(&(WAITS | GOES).to_le_bytes());
        }
        area
    }

    /// An area in which all warps of these multiprocessors wait.
    pub(crate) fn area_on_whole_multiprocessors(sms: &[usize]) -> Vec<u8> {
        let mut area = Self::area_on_multiprocessors(&[]);
        for record in sms.iter().flat_map(|sm| sm * WARPS_OF_SM..(sm + 1) * WARPS_OF_SM) {
            area[FIRST_STATE + record * RECORD..][..4].copy_from_slice(&(WAITS | GOES).to_le_bytes());
        }
        area
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An area with warps that wait in these places.
    pub(super) fn area(waiting: &[usize]) -> Vec<u8> {
        let mut area = vec![0x5a; FIRST_STATE + 9 * RECORD + 8];
        for record in 0..10 {
            let state = if waiting.contains(&record) { WAITS | GOES } else { GOES };
            let at = FIRST_STATE + record * RECORD;
            area[at..at + 4].copy_from_slice(&state.to_le_bytes());
        }
        area
    }

    fn continued(mut area: Vec<u8>) -> Vec<u8> {
        WarpRecords(()).release(&mut area, &StillWarps::default());
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
        assert_eq!(WarpRecords(()).count_states(&stopped), [(0x100, 1), (0x101, 2)].into());
        assert_eq!(WarpRecords(()).release(&mut stopped, &StillWarps::default()), 3);
        assert_eq!(WarpRecords(()).count_states(&stopped), BTreeMap::new());
        assert_eq!(stopped, area(&[]));
        assert_eq!(WarpRecords(()).release(&mut stopped, &StillWarps::default()), 0);
    }

    /// The warp that faults again and again stands where it stood; it is left waiting.
    #[test]
    fn who_has_not_moved_is_left_waiting() {
        let before = area(&[0, 3, 4]);
        let mut now = area(&[0, 3, 5]);
        // The first one has run on: its record says something else.
        now[FIRST_STATE + 8] ^= 1;
        // A state may have lost its permission to go.
        now[FIRST_STATE + 3 * RECORD..][..4].copy_from_slice(&WAITS.to_le_bytes());
        let still = WarpRecords(()).find_unmoved(&before, &now);
        assert_eq!(still, StillWarps([FIRST_STATE + 3 * RECORD].into()));
        assert_eq!(WarpRecords(()).release(&mut now, &still), 2);
        assert_eq!(WarpRecords(()).release(&mut now, &still), 0, "it waits on");
        assert_eq!(WarpRecords(()).release(&mut now, &StillWarps::default()), 1, "until all may go");
        assert_eq!(WarpRecords(()).find_unmoved(&before, &area(&[4])).count(), 1, "one that had no turn, too");
    }

    #[test]
    fn exceptions_say_who_faults() {
        let mut now = area(&[0, 3, 4]);
        let still = |places: &[usize]| StillWarps(places.iter().map(|record| FIRST_STATE + record * RECORD).collect());
        let find = |area: &[u8], sm, code| WarpRecords(()).find_faulting(area, &[FaultPlace { sm, code }]);
        for (record, pc) in [(0, 0), (3, 0xb560_7590), (4, 0xb560_7600_u32)] {
            now[FIRST_STATE + record * RECORD + PC..][..4].copy_from_slice(&pc.to_le_bytes());
        }
        assert_eq!(find(&now, 0, None), still(&[0]), "one of the multiprocessor that has recorded nothing");
        assert_eq!(find(&now, 1, None), still(&[]));
        assert_eq!(find(&now, 1, Some(0x7f33_b560_7500..0x7f33_b560_7600)), still(&[3]), "wherever it is");
        assert_eq!(find(&now, 0, Some(0x7f33_b560_7590..0x7f33_b560_7601)), still(&[0, 3, 4]));
        assert_eq!(WarpRecords(()).multiprocessors(&now), [0].into());
        assert_eq!((WarpRecords(()).find_on(&now, &[0].into()), WarpRecords(()).find_on(&now, &[1].into())), (still(&[0, 3, 4]), still(&[])));
        assert_eq!((WarpRecords(()).count_others(&now, &still(&[3])), WarpRecords(()).count_others(&now, &still(&[0, 3, 4, 7]))), (2, 0));
    }

    /// The driver's dump takes as long as there are warps that wait; only those beside an exception
    /// are evidence.
    #[test]
    fn warps_beside_no_exception_are_hidden_and_go_on_with_the_others() {
        let records = WarpRecords(());
        let mut read = WarpRecords::area_on_multiprocessors(&[]);
        let fill = |area: &mut Vec<u8>, sm: usize, warps: usize| {
            for record in sm * WARPS_OF_SM..sm * WARPS_OF_SM + warps {
                area[FIRST_STATE + record * RECORD..][..4].copy_from_slice(&(WAITS | GOES).to_le_bytes());
            }
        };
        for (sm, warps) in [(1, 3), (2, 30), (4, 20), (7, 12)] {
            fill(&mut read, sm, warps);
        }
        assert_eq!(WarpRecords::count_multiprocessors(&read), 8);
        let mut shown = read.clone();
        let hidden = WarpRecords::hide_others(&mut shown, &[4, 9].into()).expect("hidden");
        assert_eq!((hidden.count(), records.multiprocessors(&shown)), (42, [1, 4].into()), "the first other one is the witness");
        let mut again = read.clone();
        hidden.hide(&mut again);
        assert_eq!(again, shown);
        // The driver lets go those that it has seen, and the hidden ones go with them.
        let mut written = shown.clone();
        assert_eq!(records.release(&mut written, &StillWarps::default()), 23);
        assert!(WarpRecords::learn(&shown, &written).is_some());
        hidden.release(&mut written);
        assert_eq!(written, continued(read.clone()));

        let hide = |area: &[u8], faulting: &[u64]| {
            let mut shown = area.to_vec();
            let hidden = WarpRecords::hide_others(&mut shown, &faulting.iter().copied().collect());
            assert_eq!(hidden.is_none(), shown == area);
            hidden.map(|hidden| hidden.count())
        };
        assert_eq!((hide(&read, &[9]), hide(&read, &[2, 9])), (Some(62), Some(32)));
        assert_eq!(hide(&read, &[]), None, "a trap: any of them can have been it");
        assert_eq!(hide(&read, &[2, 7]), None, "some are left to the driver");
        assert_eq!(hide(&read, &[1, 2, 4, 7]), None);
        assert_eq!(hide(&[], &[2]), None);
        read[FIRST_STATE + 500 * RECORD + 1] = 2;
        assert_eq!(hide(&read, &[4]), None, "another layout");
    }

    proptest! {
        /// Whoever waits is seen or hidden, nobody beside an exception is hidden, and when the
        /// driver has let go those that it sees, all go and nothing else has changed.
        #[test]
        fn what_is_hidden_goes_on_like_what_is_seen(
            waiting in proptest::collection::btree_set(0_usize..640, 0..400),
            faulting in proptest::collection::btree_set(0_u64..12, 0..6),
            states in any::<u64>(),
        ) {
            let records = WarpRecords(());
            let mut read = WarpRecords::area_on_multiprocessors(&[]);
            for record in &waiting {
                let state = if states >> (record % 64) & 1 == 0 { WAITS } else { WAITS | GOES };
                read[FIRST_STATE + record * RECORD..][..4].copy_from_slice(&state.to_le_bytes());
            }
            let mut shown = read.clone();
            let hidden = WarpRecords::hide_others(&mut shown, &faulting).unwrap_or_default();
            let seen = records.count_others(&shown, &StillWarps::default());
            prop_assert_eq!(seen + hidden.count(), waiting.len());
            prop_assert!(hidden.count() == 0 || hidden.count() >= LEAST_HIDDEN && WarpRecords::is_crowded(&read));
            prop_assert_eq!(WarpRecords::is_crowded(&read), waiting.len() >= LEAST_HIDDEN);
            let (there, still_there) = (records.multiprocessors(&read), records.multiprocessors(&shown));
            prop_assert!(there.intersection(&faulting).all(|sm| still_there.contains(sm)));
            prop_assert!(hidden.count() == 0 || still_there.difference(&faulting).count() == 1, "one witness");
            let mut written = shown.clone();
            records.release(&mut written, &StillWarps::default());
            prop_assert!(hidden.count() == 0 || WarpRecords::learn(&shown, &written).is_some());
            hidden.release(&mut written);
            prop_assert_eq!(written, continued(read));
        }
    }

    #[test]
    fn areas_of_any_size_do_no_harm() {
        let whole = area(&[0, 9]);
        for end in 0..whole.len() {
            let mut cut = whole[..end].to_vec();
            WarpRecords(()).release(&mut cut, &StillWarps::default());
            let _ = WarpRecords(()).find_unmoved(&whole[..end], &cut);
            let _ = WarpRecords(()).find_unmoved(&cut, &whole);
            let _ = WarpRecords(()).find_faulting(&whole[..end], &[FaultPlace { sm: 0, code: Some(7..9) }, FaultPlace { sm: u64::MAX, code: None }]);
            let _ = WarpRecords::learn(&whole[..end], &cut);
            let _ = (WarpRecords::hide_others(&mut cut, &[0].into()), WarpRecords::count_multiprocessors(&whole[..end]));
            HiddenWarps(vec![0, end, usize::MAX - 9]).release(&mut cut);
        }
    }
}
