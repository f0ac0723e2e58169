//! What the host does again and again: the steps of one request.
//!
//! The host's steps are cut where it waits. Equal pieces are one entry with a count, and only the
//! order of the last [`MOST_PIECES`] pieces is kept. Where that order repeats itself, one
//! repetition is the request. Where it does not, all that the program did is one request.
//!
//! What counts is time: a piece has the weight of the host's time in it, with its waits. A program
//! copies its weights in hundreds of small pieces before its passes, and the passes are its
//! requests.

use super::times::Times;
use crate::profile::{Duration, Step};
use std::collections::{HashMap, VecDeque};

/// Pieces whose order is kept.
const MOST_PIECES: usize = 8192;
/// The longest repetition that is looked for, in pieces.
const LONGEST_PERIOD: usize = 1024;
/// Steps of a piece: a host that never waits is cut here.
const LONGEST_PIECE: usize = 20_000;
/// Steps of all different pieces together. Pieces beyond are counted and not kept.
const MOST_STEPS: usize = 400_000;
/// Steps of a request in the profile, as written.
const MOST_WRITTEN: usize = 50_000;
/// The longest loop that is looked for inside a request.
const LONGEST_LOOP: usize = 64;
/// So much of an order must agree with itself, one period later, to be a repetition.
const AGREEMENT: f64 = 0.8;
/// A shorter period is preferred if it agrees almost as well.
const SLACK: f64 = 0.05;
/// The parts of a program's time at its beginning and its end that are not looked at.
const BEGINNING: f64 = 0.1;
const END: f64 = 0.05;
/// A piece that makes up so much of the time, and comes so often, is the request of a program whose
/// passes vary.
const MOST_OF_IT: f64 = 0.5;
const OFTEN: u64 = 8;
/// A day, as in [`crate::profile`].
const LONGEST_NS: f64 = 86_400e9;

/// What a step does. Numbers are those of shapes and copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum What {
    Launch(u32),
    Copy(u32),
    Wait,
    WaitForAll,
}

/// A step without its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Token {
    pub what: What,
    pub stream: u32,
}

/// Steps up to a wait.
#[derive(Debug)]
struct Piece {
    tokens: Vec<Token>,
    count: u64,
    /// Host time before each step, the first time: often longer than later.
    first: Vec<u64>,
    /// The sum of all later times.
    later: Vec<u64>,
    /// Host time of all steps, calls and waits included: the first time, and the sum of all later.
    first_spent: u64,
    later_spent: u64,
    /// Host time of all steps without waits, the later times.
    busy: Times,
}

impl Piece {
    /// Whether it gives the device something to do.
    fn works(&self) -> bool {
        self.tokens.iter().any(|token| matches!(token.what, What::Launch(_) | What::Copy(_)))
    }

    /// Nanoseconds of one, at least 1.
    fn spent(&self) -> u64 {
        match self.count {
            0 | 1 => self.first_spent,
            count => self.later_spent / (count - 1),
        }
        .max(1)
    }

    fn gap(&self, step: usize) -> u64 {
        match self.count {
            0 | 1 => self.first[step],
            count => self.later[step] / (count - 1),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    open: Vec<Token>,
    gaps: Vec<u64>,
    /// Host time of the open steps, and that without waits.
    spent: u64,
    busy: u64,
    numbers: HashMap<Vec<Token>, u32>,
    pieces: Vec<Piece>,
    order: VecDeque<u32>,
    steps: usize,
    /// Some piece, or the order's beginning, is not kept.
    is_cut: bool,
}

/// One request, and how many there were.
#[derive(Debug)]
pub(super) struct Told {
    pub steps: Vec<Step>,
    pub count: u64,
    /// Host time of one without its waits, if it was seen more than once.
    pub host: Option<Duration>,
    pub note: Option<String>,
}

impl Requests {
    /// The host does this, `gap` nanoseconds after its last step, and is in the call for `took`.
    pub(super) fn step(&mut self, token: Token, gap: u64, took: u64) {
        self.open.push(token);
        self.gaps.push(gap);
        self.spent = self.spent.saturating_add(gap).saturating_add(took);
        let waits = matches!(token.what, What::Wait | What::WaitForAll);
        self.busy = self.busy.saturating_add(gap).saturating_add(if waits { 0 } else { took });
        if waits || self.open.len() >= LONGEST_PIECE {
            self.close();
        }
    }

    fn close(&mut self) {
        let (spent, busy) = (std::mem::take(&mut self.spent), std::mem::take(&mut self.busy));
        let number = match self.numbers.get(&self.open) {
            Some(number) => {
                let piece = &mut self.pieces[*number as usize];
                piece.count += 1;
                piece.later_spent = piece.later_spent.saturating_add(spent);
                piece.busy.add(busy);
                for (sum, gap) in piece.later.iter_mut().zip(&self.gaps) {
                    *sum = sum.saturating_add(*gap);
                }
                *number
            }
            None if self.steps + self.open.len() > MOST_STEPS => {
                self.is_cut = true;
                self.open.clear();
                self.gaps.clear();
                return;
            }
            None => {
                let number = self.pieces.len() as u32;
                self.steps += self.open.len();
                self.pieces.push(Piece {
                    tokens: self.open.clone(),
                    count: 1,
                    first: self.gaps.clone(),
                    later: vec![0; self.open.len()],
                    first_spent: spent,
                    later_spent: 0,
                    busy: Times::default(),
                });
                self.numbers.insert(self.open.clone(), number);
                number
            }
        };
        self.open.clear();
        self.gaps.clear();
        self.order.push_back(number);
        if self.order.len() > MOST_PIECES {
            self.order.pop_front();
            self.is_cut = true;
        }
    }

    /// The request, with each step made by `make` from a token and the host's time before it.
    pub(super) fn finish(mut self, make: impl Fn(Token, u64) -> Step) -> Told {
        if !self.open.is_empty() {
            self.close();
        }
        let order: Vec<u32> = self.order.iter().copied().collect();
        let works = |number: &u32| self.pieces.get(*number as usize).is_some_and(Piece::works);
        let spent = |number: u32| self.pieces.get(number as usize).map_or(1, Piece::spent);
        let (chosen, count, mut note) = match period(&order, spent).filter(|found| found.iter().any(works)) {
            Some(found) => {
                let chosen = self.begin_at_the_longest_pause(found);
                let count = self.count(&chosen);
                (chosen, count, None)
            }
            None if let Some((number, part)) = self.heaviest() => {
                let note = format!("the program's passes vary: the request is the piece between two waits that makes up most of its time ({part:.0} %)");
                (vec![number], self.pieces.get(number as usize).map_or(0, |piece| piece.count), Some(note))
            }
            None if !self.is_cut => {
                let note = "the program does nothing again and again: all of it is one request".to_owned();
                (order, 1, Some(note))
            }
            None => {
                let weight = |piece: &Piece| if piece.works() { piece.count.saturating_mul(piece.spent()) } else { 0 };
                let most = (0..self.pieces.len()).max_by_key(|number| weight(&self.pieces[*number])).unwrap_or(0);
                let note =
                    "what the program does again and again was not found: the request is the piece of work between two waits that takes most of its time"
                        .to_owned();
                (vec![most as u32], self.pieces.get(most).map_or(0, |piece| piece.count), Some(note))
            }
        };
        let mut flat: Vec<(Token, u64)> = Vec::new();
        for number in &chosen {
            let Some(piece) = self.pieces.get(*number as usize) else { continue };
            flat.extend(piece.tokens.iter().enumerate().map(|(step, token)| (*token, piece.gap(step))));
        }
        let mut steps = fold(&flat, &make);
        if steps.len() > MOST_WRITTEN {
            steps.truncate(MOST_WRITTEN);
            note = Some(format!("one request has more than {MOST_WRITTEN} steps: the profile has the first of them"));
        }
        if !steps.iter().any(|step| matches!(step, Step::Wait { .. })) {
            // A request ends when its work is done.
            steps.push(make(Token { what: What::WaitForAll, stream: 0 }, 0));
        }
        Told { steps, count: count.max(1), host: self.host(&chosen), note }
    }

    /// Host time of these pieces, one after the other. Where one is slow they all are: what slows
    /// a host down lasts longer than a piece.
    fn host(&self, chosen: &[u32]) -> Option<Duration> {
        let mut sum = Duration { mean_ns: 0.0, p99_ns: 0.0 };
        for number in chosen {
            let busy = &self.pieces.get(*number as usize)?.busy;
            if busy.is_empty() {
                return None;
            }
            let Duration { mean_ns, p99_ns } = busy.duration_or_zero();
            sum = Duration { mean_ns: sum.mean_ns + mean_ns, p99_ns: sum.p99_ns + p99_ns.max(mean_ns) };
        }
        // No time in a profile is longer than a day.
        Some(Duration { mean_ns: sum.mean_ns.min(LONGEST_NS), p99_ns: sum.p99_ns.min(LONGEST_NS) })
    }

    /// The piece that makes up most of the time, and its part in percent.
    fn heaviest(&self) -> Option<(u32, f64)> {
        let weight = |piece: &Piece| piece.spent() as f64 * piece.count as f64;
        let all: f64 = self.pieces.iter().map(weight).sum();
        let (number, piece) = (0..).zip(&self.pieces).filter(|(_, piece)| piece.works()).max_by(|(_, a), (_, b)| weight(a).total_cmp(&weight(b)))?;
        let part = weight(piece) / all;
        (part >= MOST_OF_IT && piece.count >= OFTEN).then_some((number, 100.0 * part))
    }

    /// Turns a repetition so that it begins behind the host's longest pause.
    fn begin_at_the_longest_pause(&self, mut found: Vec<u32>) -> Vec<u32> {
        let pause = |number: &u32| self.pieces.get(*number as usize).map_or(0, |piece| piece.gap(0));
        let first = (0..found.len()).max_by_key(|at| (pause(&found[*at]), std::cmp::Reverse(*at))).unwrap_or(0);
        found.rotate_left(first);
        found
    }

    /// How often the whole of it was done.
    fn count(&self, chosen: &[u32]) -> u64 {
        let times = |number: &u32| chosen.iter().filter(|other| *other == number).count() as u64;
        chosen.iter().map(|number| self.pieces.get(*number as usize).map_or(0, |piece| piece.count) / times(number).max(1)).min().unwrap_or(0)
    }
}

/// One repetition of an order that repeats itself; `spent` is the time of a piece.
fn period(order: &[u32], spent: impl Fn(u32) -> u64) -> Option<Vec<u32>> {
    let middle = middle(order, &spent);
    if middle.len() < 6 {
        return None;
    }
    let weights: Vec<f64> = middle.iter().map(|number| spent(*number) as f64).collect();
    let agreement = |period: usize| {
        let pairs = middle.iter().zip(&middle[period..]).zip(&weights);
        let same: f64 = pairs.filter(|((a, b), _)| a == b).map(|(_, weight)| weight).sum();
        same / weights[..middle.len() - period].iter().sum::<f64>()
    };
    let all: Vec<f64> = (1..=LONGEST_PERIOD.min(middle.len() / 3)).map(agreement).collect();
    let best = all.iter().copied().fold(0.0, f64::max);
    if best < AGREEMENT {
        return None;
    }
    let length = all.iter().position(|agreement| *agreement >= best - SLACK)? + 1;
    // Of the places where it repeats, the repetition that makes up most of the time.
    let mut found: HashMap<&[u32], u64> = HashMap::new();
    for at in 0..=middle.len() - 2 * length {
        let (one, next) = (&middle[at..at + length], &middle[at + length..at + 2 * length]);
        if one == next {
            *found.entry(one).or_default() += 1;
        }
    }
    let weight = |one: &[u32], times: u64| times as f64 * one.iter().map(|number| spent(*number) as f64).sum::<f64>();
    let (one, _) = found.into_iter().max_by(|(a, times_a), (b, times_b)| weight(a, *times_a).total_cmp(&weight(b, *times_b)).then_with(|| b.cmp(a)))?;
    Some(smallest(one).to_vec())
}

/// The order without the program's beginning and end, which are not what it does again and again.
/// The beginning goes by time, because it may have many short pieces, and is a tenth of all pieces
/// at least.
fn middle<'a>(order: &'a [u32], spent: &impl Fn(u32) -> u64) -> &'a [u32] {
    let all: f64 = order.iter().map(|number| spent(*number) as f64).sum();
    let until = |part: f64, of: &mut dyn Iterator<Item = &u32>| {
        let mut sum = 0.0;
        of.take_while(|number| {
            sum += spent(**number) as f64;
            sum <= part * all
        })
        .count()
    };
    let skip = until(BEGINNING, &mut order.iter()).max(order.len() / 10);
    let drop = until(END, &mut order.iter().rev()).min(order.len() / 20);
    &order[skip..(order.len() - drop).max(skip)]
}

/// The shortest repetition of which this is a multiple.
fn smallest(one: &[u32]) -> &[u32] {
    let repeats = |length: &usize| one.len().is_multiple_of(*length) && one.chunks(*length).all(|part| part == &one[..*length]);
    let length = (1..=one.len()).find(repeats).unwrap_or(one.len());
    &one[..length]
}

/// Writes loops as repetitions; the host's times are those of a loop's mean pass.
fn fold(flat: &[(Token, u64)], make: &impl Fn(Token, u64) -> Step) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = 0;
    while at < flat.len() {
        let mut best = (1, 1);
        for length in 1..=LONGEST_LOOP.min((flat.len() - at) / 2) {
            let body = &flat[at..at + length];
            let passes = 1 + flat[at + length..].chunks_exact(length).take_while(|next| next.iter().zip(body).all(|(a, b)| a.0 == b.0)).count();
            if passes > 1 && passes * length > best.0 * best.1 {
                best = (length, passes);
            }
        }
        let (length, passes) = best;
        if passes == 1 {
            let (token, gap) = flat[at];
            steps.push(make(token, gap));
            at += 1;
            continue;
        }
        let mean = |step: usize| ((0..passes).map(|pass| u128::from(flat[at + pass * length + step].1)).sum::<u128>() / passes as u128) as u64;
        let body = (0..length).map(|step| make(flat[at + step].0, mean(step))).collect();
        steps.push(Step::Repeat { times: passes as u64, steps: body });
        at += length * passes;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn launch(number: u32) -> Token {
        Token { what: What::Launch(number), stream: 0 }
    }

    const WAIT: Token = Token { what: What::WaitForAll, stream: 0 };

    fn make(token: Token, gap_ns: u64) -> Step {
        match token.what {
            What::Launch(kernel) => Step::Launch { kernel: kernel as usize, stream: token.stream, gap_ns },
            What::Copy(copy) => Step::Copy { copy: copy as usize, stream: token.stream, gap_ns },
            What::Wait | What::WaitForAll => Step::Wait { stream: None, gap_ns },
        }
    }

    fn unfold(steps: &[Step], out: &mut Vec<Step>) {
        for step in steps {
            match step {
                Step::Repeat { times, steps } => (0..*times).for_each(|_| unfold(steps, out)),
                other => out.push(other.clone()),
            }
        }
    }

    #[test]
    fn a_loop_is_found_behind_its_preparation() {
        let mut requests = Requests::default();
        for number in 50..60 {
            requests.step(launch(number), 1_000_000, 0);
            requests.step(WAIT, 5, 0);
        }
        for round in 0..1000 {
            // The first of each round comes after a pause; the first round of all is slow.
            requests.step(launch(1), if round == 0 { 9_000_000 } else { 400 }, 0);
            requests.step(WAIT, 10, 0);
            for _ in 0..40 {
                requests.step(launch(2), 20, 0);
            }
            requests.step(WAIT, 30, 0);
        }
        let told = requests.finish(make);
        assert_eq!(told.count, 1000);
        assert_eq!(told.note, None);
        let expected = vec![
            Step::Launch { kernel: 1, stream: 0, gap_ns: 400 },
            Step::Wait { stream: None, gap_ns: 10 },
            Step::Repeat { times: 40, steps: vec![Step::Launch { kernel: 2, stream: 0, gap_ns: 20 }] },
            Step::Wait { stream: None, gap_ns: 30 },
        ];
        assert_eq!(told.steps, expected);
    }

    /// As PyTorch does it: the weights of 53 layers in pieces of one copy each, some passes to warm
    /// up, and then passes. However many passes there are, one is the request.
    #[test]
    fn a_pass_is_the_request_and_not_a_weight() {
        let copy = |number| Token { what: What::Copy(number), stream: 0 };
        for passes in [30, 200, 600, 800, 1000, 1100, 1500, 3000] {
            let mut requests = Requests::default();
            for layer in 0..53 {
                for size in [layer % 7, 100, 100, 100, 100, 101] {
                    requests.step(copy(size), 30_000, 4_000);
                    requests.step(WAIT, 500, 8_000);
                }
            }
            for pass in 0..passes {
                requests.step(copy(102), 1_000, 4_000);
                for kernel in 0..160 {
                    requests.step(launch(kernel), if pass < 2 { 900_000 } else { 9_000 }, 1_000);
                }
                requests.step(WAIT, 2_000, 900_000);
            }
            let told = requests.finish(make);
            assert_eq!((told.count, told.note), (passes, None), "{passes} passes");
            let mut steps = Vec::new();
            unfold(&told.steps, &mut steps);
            assert_eq!(steps.len(), 162, "{passes} passes");
        }
    }

    /// Every few passes there is a kernel more, at no regular distance.
    #[test]
    fn passes_that_vary_are_still_the_request() {
        for (nth, noted) in [(16, false), (3, true)] {
            let (mut requests, mut chance) = (Requests::default(), 1_u32);
            for _ in 0..1000 {
                chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (0..20).for_each(|kernel| requests.step(launch(kernel), 5_000, 1_000));
                if (chance >> 16) % nth == 0 {
                    requests.step(launch(77), 5_000, 1_000);
                }
                requests.step(WAIT, 1_000, 50_000);
            }
            let told = requests.finish(make);
            assert_eq!(told.note.is_some_and(|note| note.contains("vary")), noted, "each {nth}th");
            let mut steps = Vec::new();
            unfold(&told.steps, &mut steps);
            let launches = steps.iter().filter(|step| matches!(step, Step::Launch { .. })).count();
            assert_eq!(launches, 20, "each {nth}th");
        }
    }

    /// Two kinds in turn are one request of both.
    #[test]
    fn kinds_in_turn_are_one_request() {
        let mut requests = Requests::default();
        for _ in 0..300 {
            for kernels in [0..5, 5..25] {
                kernels.for_each(|kernel| requests.step(launch(kernel), 5_000, 1_000));
                requests.step(WAIT, 1_000, 20_000);
            }
        }
        let told = requests.finish(make);
        let mut steps = Vec::new();
        unfold(&told.steps, &mut steps);
        assert_eq!((told.count, steps.len()), (300, 27));
    }

    #[test]
    fn what_never_repeats_is_one_request() {
        let mut requests = Requests::default();
        for number in 0..5 {
            requests.step(launch(number), 7, 0);
        }
        let told = requests.finish(make);
        assert_eq!((told.count, told.steps.len()), (1, 6));
        assert!(told.note.unwrap().contains("one request"));
    }

    #[test]
    fn a_program_that_never_stops_changing_stays_small() {
        let mut requests = Requests::default();
        for number in 0..300_000_u32 {
            requests.step(launch(number), 7, 0);
            requests.step(launch(number / 2), 7, 0);
            requests.step(WAIT, 7, 0);
        }
        assert!(requests.steps <= MOST_STEPS && requests.order.len() <= MOST_PIECES);
        let told = requests.finish(make);
        assert!(told.note.unwrap().contains("not found"));
        assert!(told.steps.len() <= MOST_WRITTEN);
    }

    proptest! {
        /// Folding loses no step and invents none.
        #[test]
        fn folding_keeps_every_step(numbers in proptest::collection::vec(0_u32..4, 1..200)) {
            let flat: Vec<(Token, u64)> = numbers.iter().map(|number| (launch(*number), 1)).collect();
            let mut unfolded = Vec::new();
            unfold(&fold(&flat, &make), &mut unfolded);
            let wanted: Vec<Step> = flat.iter().map(|(token, gap)| make(*token, *gap)).collect();
            prop_assert_eq!(unfolded, wanted);
        }

        /// Whatever repeats itself often enough is found, with its length.
        #[test]
        fn a_period_is_found(body in proptest::collection::vec(0_u32..100, 1..12), times in 8_usize..40) {
            let order: Vec<u32> = body.iter().cycle().take(body.len() * times).copied().collect();
            let found = period(&order, |_| 1).unwrap();
            prop_assert!(body.len() % found.len() == 0 || found.len() < body.len(), "{} for {}", found.len(), body.len());
            prop_assert!(found.iter().all(|number| body.contains(number)));
        }
    }
}
