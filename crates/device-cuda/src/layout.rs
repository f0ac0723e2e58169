//! Which SMs of the card the driver's pieces are, found out once when the card is opened.
//!
//! The driver splits the card into pieces but does not say which SMs a piece has, and makes parts only of pieces of one split. There are two splits: pairs, of
//! which any part can be made, and groups that are scheduled together, without which thread block clusters of more than two blocks do not fit (measured on an
//! H200: CUDA error 912). To put parts side by side whichever split they come from, one has to know both. So a kernel is run that says where it is: once for each
//! binary digit of the pieces' numbers, on all pieces whose number has that digit, which takes 12 passes of a millisecond instead of 82.
//!
//! SMs get numbers of ours in the order of the groups, so that a chunk of 8 of the static partitions is a group. Here, and in what comes from the server, SMs are
//! these numbers; `%smid` shows the card's own.

use crate::driver::{Coscheduling, Driver, Function, LaunchShape, PinnedWords, SmResource};
use crate::fault::CudaError;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// SMs of the smallest piece, and of a group, as the driver is asked for them. It takes the least it can give.
const PAIR: u32 = 2;
const GROUP: u32 = 8;
/// More SMs than any card has.
const MOST: usize = 1024;
/// A block may find its SM taken by its like; then a pass shows fewer SMs than there are.
const ATTEMPTS: usize = 3;

/// A piece of a split with the SMs it has, by our numbers.
struct Piece {
    sms: Vec<u32>,
    resource: SmResource,
}

pub(crate) struct Layout {
    pairs: Vec<Piece>,
    groups: Vec<Piece>,
    all: u32,
}

impl Layout {
    /// Looks at the card. Not while kernels run: the driver waits for them.
    pub(crate) fn find(driver: &Arc<Driver>, place: Function) -> Result<Layout, CudaError> {
        let words = PinnedWords::new(driver, MOST)?;
        let pairs = driver.split_sms(PAIR, Coscheduling::Ignored)?;
        let pairs_at = whereabouts(driver, place, &words, &pairs)?;
        // Without groups there are no big clusters in parts, and nothing else is lost.
        let groups = driver.split_sms(GROUP, Coscheduling::Required).unwrap_or_default();
        let groups_at = whereabouts(driver, place, &words, &groups).unwrap_or_default();
        let numbers = number(&pairs_at, &groups_at);
        let ours = |at: Vec<Vec<u32>>, resources: Vec<SmResource>| {
            let own = |sms: Vec<u32>| {
                let mut sms: Vec<u32> = sms.iter().filter_map(|sm| numbers.get(sm).copied()).collect();
                sms.sort_unstable();
                sms
            };
            at.into_iter().zip(resources).map(|(sms, resource)| Piece { sms: own(sms), resource }).collect()
        };
        let all = numbers.len() as u32;
        let mut layout = Layout { pairs: ours(pairs_at, pairs), groups: ours(groups_at, groups), all };
        if layout.groups.iter().map(|group| group.sms.len()).sum::<usize>() != all as usize {
            tracing::warn!("the card's groups of SMs are not understood: shares take pairs of SMs, in which clusters of more than two blocks do not fit");
            layout.groups.clear();
        }
        Ok(layout)
    }

    pub(crate) fn all(&self) -> u32 {
        self.all
    }

    /// SMs that are scheduled together. What is left of a split is a group as well.
    pub(crate) fn groups(&self) -> Vec<Range<u32>> {
        self.groups.iter().filter_map(|group| Some(*group.sms.first()?..group.sms.last()? + 1)).collect()
    }

    /// The pieces that are exactly these SMs: groups where that is possible.
    pub(crate) fn pieces(&self, sms: &[u32]) -> Option<Vec<SmResource>> {
        [&self.groups, &self.pairs].into_iter().find_map(|split| {
            let inside: Vec<&Piece> = split.iter().filter(|piece| piece.sms.iter().all(|sm| sms.contains(sm))).collect();
            let covered: usize = inside.iter().map(|piece| piece.sms.len()).sum();
            (covered == sms.len() && covered > 0).then(|| inside.iter().map(|piece| piece.resource).collect())
        })
    }
}

/// The card's numbers of the SMs of each piece.
fn whereabouts(driver: &Arc<Driver>, place: Function, words: &PinnedWords, pieces: &[SmResource]) -> Result<Vec<Vec<u32>>, CudaError> {
    let sizes: Vec<usize> = pieces.iter().map(SmResource::count).collect();
    for _ in 0..ATTEMPTS {
        let digits = usize::BITS - pieces.len().leading_zeros();
        let seen: Vec<Vec<bool>> = (0..digits)
            .map(|digit| {
                let part: Vec<SmResource> = pieces.iter().enumerate().filter(|(at, _)| (at + 1) >> digit & 1 == 1).map(|(_, piece)| *piece).collect();
                look(driver, place, words, &part)
            })
            .collect::<Result<_, _>>()?;
        if let Some(found) = decode(&seen, &sizes) {
            return Ok(found);
        }
    }
    tracing::warn!("where the SMs of {} pieces of the card lie cannot be found out", pieces.len());
    Err(CudaError::NOT_SUPPORTED)
}

/// The SMs that a part made of these pieces has.
fn look(driver: &Arc<Driver>, place: Function, words: &PinnedWords, part: &[SmResource]) -> Result<Vec<bool>, CudaError> {
    (0..MOST).for_each(|sm| words.clear(sm));
    let green = driver.create_green_context(part)?;
    let run = || {
        let stream = driver.create_green_stream(green, 0)?;
        let sms: usize = part.iter().map(SmResource::count).sum();
        let mut parameters = words.address(0).to_le_bytes().to_vec();
        parameters.extend(u32::try_from(MOST).unwrap_or(0).to_le_bytes());
        parameters.extend(words.stride().to_le_bytes());
        // Full blocks, so that few fit on an SM, and more of them than fit at once.
        let shape = LaunchShape { grid: [sms as u32 * 4, 1, 1], block: [1024, 1, 1], ..LaunchShape::default() };
        let ran = driver.launch(place, &shape, &parameters, stream).and_then(|()| driver.synchronize(stream));
        driver.destroy_stream(stream);
        ran
    };
    let ran = run();
    driver.destroy_green_context(green);
    ran.map(|()| (0..MOST).map(|sm| words.load(sm) != 0).collect())
}

/// From what was seen in the passes, one for each binary digit, to the SMs of each piece. `None` if the pieces have not the sizes they should have.
fn decode(seen: &[Vec<bool>], sizes: &[usize]) -> Option<Vec<Vec<u32>>> {
    let mut pieces = vec![Vec::new(); sizes.len()];
    for sm in 0..seen.iter().map(Vec::len).max().unwrap_or(0) {
        let number: usize = seen.iter().enumerate().filter(|(_, pass)| pass.get(sm) == Some(&true)).map(|(digit, _)| 1 << digit).sum();
        if number > 0 {
            pieces.get_mut(number - 1)?.push(u32::try_from(sm).ok()?);
        }
    }
    pieces.iter().zip(sizes).all(|(piece, size)| piece.len() == *size).then_some(pieces)
}

/// Our number of each SM: in the order of the groups, then what is in none of them.
fn number(pairs: &[Vec<u32>], groups: &[Vec<u32>]) -> BTreeMap<u32, u32> {
    let mut numbers = BTreeMap::new();
    for sm in groups.iter().chain(pairs).flatten() {
        let next = numbers.len() as u32;
        numbers.entry(*sm).or_insert(next);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the passes show if piece `owner[sm]` has the SM.
    fn passes(owner: &[Option<usize>], pieces: usize) -> Vec<Vec<bool>> {
        (0..usize::BITS - pieces.leading_zeros()).map(|digit| owner.iter().map(|piece| piece.is_some_and(|p| (p + 1) >> digit & 1 == 1)).collect()).collect()
    }

    proptest! {
        #[test]
        fn every_sm_is_found_in_its_piece(owner in proptest::collection::vec(proptest::option::of(0_usize..66), 1..160)) {
            let mut expected = vec![Vec::new(); 66];
            for (sm, piece) in owner.iter().enumerate() {
                if let Some(piece) = piece {
                    expected[*piece].push(sm as u32);
                }
            }
            let sizes: Vec<usize> = expected.iter().map(Vec::len).collect();
            prop_assert_eq!(decode(&passes(&owner, 66), &sizes), Some(expected));
        }
    }

    #[test]
    fn an_sm_that_was_not_seen_is_noticed() {
        let owner: Vec<Option<usize>> = (0..8).map(|sm| Some(sm / 2)).collect();
        let mut seen = passes(&owner, 4);
        assert_eq!(decode(&seen, &[2; 4]).unwrap()[3], [6, 7]);
        seen[0][2] = !seen[0][2];
        assert_eq!(decode(&seen, &[2; 4]), None);
        assert_eq!(decode(&passes(&[Some(6)], 7), &[0; 4]), None, "a number that no piece has");
    }

    #[test]
    fn numbers_follow_the_groups() {
        // As on an H200: a group's SMs lie apart.
        let groups = [vec![0, 1, 16, 17], vec![2, 3, 18, 19]];
        let pairs = [vec![0, 1], vec![2, 3], vec![120, 121], vec![16, 17], vec![18, 19]];
        let numbers = number(&pairs, &groups);
        assert_eq!([0, 1, 16, 17, 2, 19, 120, 121].map(|sm| numbers[&sm]), [0, 1, 2, 3, 4, 7, 8, 9]);
    }
}
