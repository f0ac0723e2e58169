//! Which program goes where: bins with memory, programs that need it.
//!
//! [`pack`] first spreads the load evenly. Where that leaves a program without room it searches
//! every assignment, so that an answer is not missed; the search has a bound, and says so when it
//! reaches it.

use std::cmp::Ordering;

/// A place for programs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bin {
    /// Memory for programs in KiB, what the mode takes once already off.
    pub(super) room: u64,
    /// Most programs.
    pub(super) most: u32,
    /// How fast it is; loads are relative to it.
    pub(super) speed: f64,
}

/// A kind of program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Item {
    /// Copies.
    pub(super) count: u32,
    /// Memory of one in KiB, what the mode takes for each client in it.
    pub(super) memory: u64,
    /// What one asks of a machine of speed 1.
    pub(super) load: f64,
}

/// Why nothing was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// There is no assignment.
    Proven,
    /// The search was given up.
    GivenUp,
}

/// Steps of the search.
const SEARCH_LIMIT: u32 = 200_000;

/// How many of each item are in each bin: `[bin][item]`.
pub(super) type Assignment = Vec<Vec<u32>>;

/// Assigns every copy of every item to a bin.
pub(super) fn pack(bins: &[Bin], items: &[Item]) -> Result<Assignment, NoRoom> {
    let asked: u64 = items.iter().map(|item| item.memory * u64::from(item.count)).sum();
    let places: u64 = bins.iter().map(|bin| u64::from(bin.most)).sum();
    let copies: u64 = items.iter().map(|item| u64::from(item.count)).sum();
    if asked > bins.iter().map(|bin| bin.room).sum() || copies > places {
        return Err(NoRoom::Proven);
    }
    match spread(bins, items) {
        Some(assignment) => Ok(assignment),
        None => search(bins, items),
    }
}

/// Items from the one with the most memory on.
fn largest_first(items: &[Item]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|a, b| items[*b].memory.cmp(&items[*a].memory).then(items[*b].load.partial_cmp(&items[*a].load).unwrap_or(Ordering::Equal)));
    order
}

/// Each copy to the bin that is loaded the least with it.
fn spread(bins: &[Bin], items: &[Item]) -> Option<Assignment> {
    let mut assignment = vec![vec![0; items.len()]; bins.len()];
    let mut state: Vec<(u64, u32, f64)> = bins.iter().map(|bin| (bin.room, bin.most, 0.0)).collect();
    for number in largest_first(items) {
        let item = items[number];
        for _ in 0..item.count {
            let open = (0..bins.len()).filter(|bin| state[*bin].0 >= item.memory && state[*bin].1 > 0);
            let with = |bin: usize| (state[bin].2 + item.load) / bins[bin].speed;
            let best = open.min_by(|a, b| with(*a).total_cmp(&with(*b)))?;
            state[best] = (state[best].0 - item.memory, state[best].1 - 1, state[best].2 + item.load);
            assignment[best][number] += 1;
        }
    }
    Some(assignment)
}

fn search(bins: &[Bin], items: &[Item]) -> Result<Assignment, NoRoom> {
    let copies: Vec<usize> = largest_first(items).into_iter().flat_map(|number| std::iter::repeat_n(number, items[number].count as usize)).collect();
    let mut state: Vec<(u64, u32)> = bins.iter().map(|bin| (bin.room, bin.most)).collect();
    let mut assignment = vec![vec![0; items.len()]; bins.len()];
    let mut patience = SEARCH_LIMIT;
    if descend(items, &copies, 0, &mut state, &mut assignment, &mut patience) {
        Ok(assignment)
    } else if patience == 0 {
        Err(NoRoom::GivenUp)
    } else {
        Err(NoRoom::Proven)
    }
}

fn descend(items: &[Item], copies: &[usize], from: usize, state: &mut [(u64, u32)], assignment: &mut Assignment, patience: &mut u32) -> bool {
    let Some((first, rest)) = copies.split_first() else { return true };
    let memory = items[*first].memory;
    for bin in from..state.len() {
        if *patience == 0 {
            return false;
        }
        let (room, most) = state[bin];
        // Bins with the same state are the same to what follows.
        if room < memory || most == 0 || state[from..bin].contains(&(room, most)) {
            continue;
        }
        *patience -= 1;
        state[bin] = (room - memory, most - 1);
        assignment[bin][*first] += 1;
        if descend(items, rest, 0, state, assignment, patience) {
            return true;
        }
        state[bin] = (room, most);
        assignment[bin][*first] -= 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(room: u64) -> Bin {
        Bin { room, most: 100, speed: 1.0 }
    }

    fn item(count: u32, memory: u64) -> Item {
        Item { count, memory, load: 1.0 }
    }

    #[test]
    fn loads_are_spread() {
        let found = pack(&[bin(100), bin(100)], &[item(6, 10)]).unwrap();
        assert_eq!(found, [[3], [3]]);
    }

    /// Spreading puts 5 and 4 into different bins, and then there is no room for 3 + 3 + 3.
    #[test]
    fn what_only_a_search_finds_is_found() {
        let (bins, items) = ([bin(9), bin(9)], [item(1, 5), item(1, 4), item(3, 3)]);
        assert!(spread(&bins, &items).is_none(), "the case is no longer one for the search");
        let found = pack(&bins, &items).unwrap();
        assert_eq!(found.iter().map(|bin| bin[0] * 5 + bin[1] * 4 + bin[2] * 3).collect::<Vec<_>>(), [9, 9]);
        assert_eq!(pack(&[bin(8), bin(10)], &[item(2, 9)]), Err(NoRoom::Proven));
    }
}
