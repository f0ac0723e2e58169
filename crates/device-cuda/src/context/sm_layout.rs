//! Which SMs the driver's groups of SMs contain. This is found out once, before the card is opened.
//!
//! The driver splits the card into groups of SMs, but does not say which SMs a group contains. It
//! makes a partition only of groups of one split. There are two splits. Pairs of SMs can form a
//! partition of any size. Coscheduled groups are needed for thread block clusters of more than two
//! blocks (measured on an H200: otherwise such clusters fail with CUDA error 912). Partitions from
//! both splits must not overlap by accident, so the SMs of all groups have to be known.
//!
//! Therefore a probe kernel is run that shows on which SMs it runs. Groups are numbered, and there
//! is one pass for each binary digit: it runs on all groups whose number has that digit. That takes
//! 12 passes of a millisecond, where one pass for each group would take 82.
//!
//! Each pass runs in a green context, and the driver keeps some 4 MiB of the card for each that
//! there was, as long as the primary context lives. So the search has a primary context of its own,
//! which is gone before the one is made in which clients' kernels run. Another context of the same
//! card gives the same groups.
//!
//! This crate numbers the SMs in the order of the coscheduled groups, so that each chunk of 8 SMs
//! of a static partition is a coscheduled group. The server uses these numbers, too. The card's own
//! numbers, which `%smid` shows, are used here and in the notes alone.

use crate::driver::{CompileError, Coscheduling, Driver, Function, LaunchShape, PinnedWords, SmResource};
use crate::fault::{Call, CudaError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// SMs of a group of the split into pairs. The driver rounds it up to the smallest group it can
/// make.
const PAIR: u32 = 2;
/// SMs of a group of the split into coscheduled groups, rounded up likewise.
const COSCHEDULED: u32 = 8;
/// A number larger than the SMs of any card.
const MOST_SMS: usize = 1024;
/// Times the probe is repeated. Blocks of a pass may miss an SM; then the pass shows fewer SMs than
/// there are.
const ATTEMPTS: usize = 3;
/// Blocks of the probe for each SM: more than fit at once, so that every SM gets a block.
const PROBE_BLOCKS_PER_SM: u32 = 4;
/// Threads of a block of the probe: as many as possible, so that few blocks fit on an SM.
const PROBE_THREADS: u32 = 1024;

/// The kernel that shows on which SMs it runs. Each of its blocks writes 1 to the word of its SM,
/// and stays there long enough that the next block is placed on another SM.
const PTX: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry cumux_sm_probe(.param .u64 words, .param .u32 count, .param .u32 stride)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [count];
    ld.param.u32 %r2, [stride];
    mov.u32 %r3, %smid;
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra over;
    mul.wide.u32 %rd2, %r3, %r2;
    add.u64 %rd1, %rd1, %rd2;
    mov.u64 %rd3, 1;
    st.release.sys.u64 [%rd1], %rd3;
    mov.u32 %r4, 0;
again:
    nanosleep.u32 200;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p2, %r4, 100;
    @%p2 bra again;
over:
    ret;
}
";

/// The card's numbers of the SMs of each group, for both splits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SmNumbers {
    pub(super) pairs: Vec<Vec<u32>>,
    pub(super) coscheduled: Vec<Vec<u32>>,
}

impl SmNumbers {
    /// Finds out the numbers. The driver waits for running kernels of its context, so there should
    /// be none.
    ///
    /// # Errors
    /// The driver's, for a card that cannot be split; `NOT_SUPPORTED` if the probe does not show
    /// the SMs of the pairs.
    pub(super) fn find(driver: &Arc<Driver>) -> Call<SmNumbers> {
        let module = driver.load_module(PTX.as_bytes()).map_err(|CompileError { error, .. }| error)?;
        let kernel = *driver.functions(module)?.first().ok_or(CudaError::INVALID_VALUE)?;
        let probe = Probe { driver, kernel, words: PinnedWords::new(driver, MOST_SMS)? };
        let pairs = probe.find_sms(&split_into_pairs(driver)?)?;
        let coscheduled = probe.find_sms(&split_into_coscheduled(driver)).unwrap_or_default();
        Ok(SmNumbers { pairs, coscheduled })
    }

    /// True if these may be the numbers of a card: each SM is in one pair, and in one coscheduled
    /// group if there are any.
    pub(super) fn is_sound(&self) -> bool {
        let sms = |groups: &[Vec<u32>]| -> Option<BTreeSet<u32>> {
            let all: BTreeSet<u32> = groups.iter().flatten().copied().collect();
            let is_once = all.len() == groups.iter().map(Vec::len).sum::<usize>() && groups.iter().all(|group| !group.is_empty());
            (is_once && all.iter().all(|sm| (*sm as usize) < MOST_SMS)).then_some(all)
        };
        match (sms(&self.pairs), sms(&self.coscheduled)) {
            (Some(pairs), Some(coscheduled)) => !pairs.is_empty() && (coscheduled.is_empty() || coscheduled == pairs),
            _ => false,
        }
    }
}

fn split_into_pairs(driver: &Driver) -> Call<Vec<SmResource>> {
    driver.split_sms(PAIR, Coscheduling::Ignored)
}

/// Without coscheduled groups, partitions have no large clusters; everything else works.
fn split_into_coscheduled(driver: &Driver) -> Vec<SmResource> {
    driver.split_sms(COSCHEDULED, Coscheduling::Required).unwrap_or_default()
}

/// A group of a split, with its SMs by this crate's numbers.
struct Group {
    sms: Vec<u32>,
    resource: SmResource,
}

/// The SMs of a card, by the groups of both splits.
pub(super) struct SmLayout {
    pairs: Vec<Group>,
    coscheduled: Vec<Group>,
    count: u32,
}

impl SmLayout {
    /// The layout of the card, whose SMs have these numbers.
    ///
    /// # Errors
    /// The driver's, for a card that cannot be split; `NOT_SUPPORTED` if its groups are not those
    /// of which the numbers were found.
    pub(super) fn of(driver: &Driver, found: SmNumbers) -> Call<SmLayout> {
        let numbers = number_sms(&found.pairs, &found.coscheduled);
        let groups = |resources: Vec<SmResource>, found: Vec<Vec<u32>>| {
            let is_same = resources.len() == found.len() && resources.iter().zip(&found).all(|(resource, sms)| resource.count() == sms.len());
            let renumber = |sms: Vec<u32>| {
                let mut sms: Vec<u32> = sms.iter().filter_map(|sm| numbers.get(sm).copied()).collect();
                sms.sort_unstable();
                sms
            };
            is_same.then(|| found.into_iter().zip(resources).map(|(sms, resource)| Group { sms: renumber(sms), resource }).collect::<Vec<_>>())
        };
        let pairs = groups(split_into_pairs(driver)?, found.pairs).ok_or(CudaError::NOT_SUPPORTED)?;
        let coscheduled = groups(split_into_coscheduled(driver), found.coscheduled).unwrap_or_default();
        let count = numbers.len() as u32;
        let mut layout = SmLayout { pairs, coscheduled, count };
        if layout.coscheduled.iter().map(|group| group.sms.len()).sum::<usize>() != count as usize {
            tracing::warn!("the card's groups of SMs are not understood: shares take pairs of SMs, in which clusters of more than two blocks do not fit");
            layout.coscheduled.clear();
        }
        Ok(layout)
    }

    /// SMs of the card.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The SMs of each coscheduled group. The rest of the split is a group as well.
    pub(super) fn coscheduled(&self) -> Vec<Range<u32>> {
        self.coscheduled.iter().filter_map(|group| Some(*group.sms.first()?..group.sms.last()? + 1)).collect()
    }

    /// The driver's groups that together are exactly these SMs: coscheduled groups if possible,
    /// else pairs.
    pub(super) fn resources_for(&self, sms: &[u32]) -> Option<Vec<SmResource>> {
        [&self.coscheduled, &self.pairs].into_iter().find_map(|split| {
            let inside: Vec<&Group> = split.iter().filter(|group| group.sms.iter().all(|sm| sms.contains(sm))).collect();
            let covered: usize = inside.iter().map(|group| group.sms.len()).sum();
            (covered == sms.len() && covered > 0).then(|| inside.iter().map(|group| group.resource).collect())
        })
    }
}

/// Runs the probe kernel.
struct Probe<'a> {
    driver: &'a Arc<Driver>,
    kernel: Function,
    words: PinnedWords,
}

impl Probe<'_> {
    /// The card's numbers of the SMs of each group.
    fn find_sms(&self, groups: &[SmResource]) -> Call<Vec<Vec<u32>>> {
        let sizes: Vec<usize> = groups.iter().map(SmResource::count).collect();
        for _ in 0..ATTEMPTS {
            let digits = usize::BITS - groups.len().leading_zeros();
            let passes: Vec<Vec<bool>> = (0..digits).map(|digit| self.run_pass(&with_digit(groups, digit))).collect::<Result<_, _>>()?;
            if let Some(found) = decode_passes(&passes, &sizes) {
                return Ok(found);
            }
        }
        tracing::warn!("where the SMs of {} groups of the card lie cannot be found out", groups.len());
        Err(CudaError::NOT_SUPPORTED)
    }

    /// For each SM of the card, whether it is in one of these groups.
    fn run_pass(&self, groups: &[SmResource]) -> Call<Vec<bool>> {
        (0..MOST_SMS).for_each(|sm| self.words.clear(sm));
        let green = self.driver.create_green_context(groups)?;
        let run = || {
            let stream = self.driver.create_green_stream(green, 0)?;
            let sms: usize = groups.iter().map(SmResource::count).sum();
            let mut parameters = self.words.address(0).to_le_bytes().to_vec();
            parameters.extend(u32::try_from(MOST_SMS).unwrap_or(0).to_le_bytes());
            parameters.extend(self.words.stride().to_le_bytes());
            let shape = LaunchShape { grid: [sms as u32 * PROBE_BLOCKS_PER_SM, 1, 1], block: [PROBE_THREADS, 1, 1], ..LaunchShape::default() };
            let launched = self.driver.launch(self.kernel, &shape, &parameters, stream);
            let ended = launched.and_then(|()| self.driver.synchronize(stream));
            self.driver.destroy_stream(stream);
            ended
        };
        let ended = run();
        self.driver.destroy_green_context(green);
        ended.map(|()| (0..MOST_SMS).map(|sm| self.words.load(sm) != 0).collect())
    }
}

/// True if the number of a group has this binary digit. Numbers begin at 1, so each group is in at
/// least one pass.
fn has_digit(group: usize, digit: u32) -> bool {
    (group + 1) >> digit & 1 == 1
}

fn with_digit(groups: &[SmResource], digit: u32) -> Vec<SmResource> {
    groups.iter().enumerate().filter(|(at, _)| has_digit(*at, digit)).map(|(_, group)| *group).collect()
}

/// The SMs of each group, from the passes' results. `None` if a group does not have the size that
/// the driver states.
fn decode_passes(passes: &[Vec<bool>], sizes: &[usize]) -> Option<Vec<Vec<u32>>> {
    let mut groups = vec![Vec::new(); sizes.len()];
    for sm in 0..passes.iter().map(Vec::len).max().unwrap_or(0) {
        let number: usize = passes.iter().enumerate().filter(|(_, pass)| pass.get(sm) == Some(&true)).map(|(digit, _)| 1 << digit).sum();
        if number > 0 {
            groups.get_mut(number - 1)?.push(u32::try_from(sm).ok()?);
        }
    }
    groups.iter().zip(sizes).all(|(group, size)| group.len() == *size).then_some(groups)
}

/// This crate's number for each of the card's SMs: first those of the coscheduled groups, in order,
/// then the others.
fn number_sms(pairs: &[Vec<u32>], coscheduled: &[Vec<u32>]) -> BTreeMap<u32, u32> {
    let mut numbers = BTreeMap::new();
    for sm in coscheduled.iter().chain(pairs).flatten() {
        let next = numbers.len() as u32;
        numbers.entry(*sm).or_insert(next);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The results of the passes if SM `sm` is in group `owner[sm]`.
    fn passes(owner: &[Option<usize>], groups: usize) -> Vec<Vec<bool>> {
        (0..usize::BITS - groups.leading_zeros()).map(|digit| owner.iter().map(|group| group.is_some_and(|group| has_digit(group, digit))).collect()).collect()
    }

    proptest! {
        #[test]
        fn every_sm_is_found_in_its_group(owner in proptest::collection::vec(proptest::option::of(0_usize..66), 1..160)) {
            let mut expected = vec![Vec::new(); 66];
            for (sm, group) in owner.iter().enumerate() {
                if let Some(group) = group {
                    expected[*group].push(sm as u32);
                }
            }
            let sizes: Vec<usize> = expected.iter().map(Vec::len).collect();
            prop_assert_eq!(decode_passes(&passes(&owner, 66), &sizes), Some(expected));
        }
    }

    #[test]
    fn an_sm_that_was_not_seen_is_noticed() {
        let owner: Vec<Option<usize>> = (0..8).map(|sm| Some(sm / 2)).collect();
        let mut seen = passes(&owner, 4);
        assert_eq!(decode_passes(&seen, &[2; 4]).unwrap()[3], [6, 7]);
        seen[0][2] = !seen[0][2];
        assert_eq!(decode_passes(&seen, &[2; 4]), None);
        assert_eq!(decode_passes(&passes(&[Some(6)], 7), &[0; 4]), None, "a number that no group has");
    }

    #[test]
    fn numbers_follow_the_groups() {
        // As on an H200, where the SMs of a group are not consecutive.
        let groups = [vec![0, 1, 16, 17], vec![2, 3, 18, 19]];
        let pairs = [vec![0, 1], vec![2, 3], vec![120, 121], vec![16, 17], vec![18, 19]];
        let numbers = number_sms(&pairs, &groups);
        assert_eq!([0, 1, 16, 17, 2, 19, 120, 121].map(|sm| numbers[&sm]), [0, 1, 2, 3, 4, 7, 8, 9]);
    }
}
