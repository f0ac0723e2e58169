//! Programs, wishes, and what each way of sharing a card makes of them.
//!
//! [`make`] looks at every mode and, on cards with MIG, at every full geometry with every way of
//! sharing inside its instances. Each with as few cards as meet the wishes.
//!
//! Invariant: no answer that meets the wishes is better than the recommended one in cards,
//! throughput, isolation and p99 together (a property test checks it).

mod measure;
mod pack;
mod rank;

use crate::card::CardModel;
use crate::mig::Geometry;
use crate::mode::{Isolation, Mode};
use crate::profile::Profile;
use crate::work::{DoesNotFit, Machine, Work};
use cumux_wire::share::Share;
use measure::{Measurer, Site};
use pack::{Bin, Item, NoRoom, pack};
use serde::Serialize;

/// A program, or copies of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Its name in the answer.
    pub name: String,
    /// What is known of it.
    pub profile: Profile,
    /// Copies.
    pub count: u32,
    /// Requests a second of each copy; `None` if it takes the next as soon as it has done one.
    pub rate: Option<f64>,
    /// Part of the multiprocessors that each copy may use, where the mode can limit it: MPS and
    /// cumux.
    pub share: Option<Share>,
}

/// What is wished.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Wishes {
    /// 99 of 100 requests take at most so long.
    pub p99_ns: Option<f64>,
    /// What may not reach another program.
    pub isolation: Isolation,
    /// Cards there are; `None` for as many as needed.
    pub most_cards: Option<u32>,
}

/// What a program gets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fares {
    /// Requests a second of all its copies.
    pub throughput: f64,
    /// Half of the requests take at most so long.
    pub p50_ns: f64,
    /// 99 of 100.
    pub p99_ns: f64,
    /// True if more comes than is done: times grow without end.
    pub overloaded: bool,
}

/// One way to do it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// How programs share a card, or an instance of it.
    pub mode: Mode,
    /// The MIG geometry of each card; `None` without MIG.
    pub geometry: Option<String>,
    /// In words.
    pub title: String,
    /// Cards that it takes.
    pub cards: u32,
    /// `None` if it fits; else why not.
    pub does_not_fit: Option<String>,
    /// Wishes that it does not meet, a sentence each.
    pub unmet: Vec<String>,
    /// Most programs on one machine of it.
    pub most_sharers: u32,
    /// Memory of the fullest card that is in use, in MiB, with what the mode takes.
    pub memory_mib: u64,
    /// Requests a second of all programs.
    pub throughput: f64,
    /// The worst p99 of a program.
    pub p99_ns: f64,
    /// Part of the multiprocessors in use, over time, of all cards.
    pub occupied: f64,
    /// Part of the time in which anything runs.
    pub active: f64,
    /// By program.
    pub fares: Vec<Fares>,
    /// What is kept apart.
    pub isolation: Isolation,
    /// What a fault takes down.
    pub fault: String,
    /// What must be restarted to change it.
    pub change: String,
    /// True if numbers are estimates that nobody has seen on a card.
    pub estimated: bool,
    /// What speaks against it, beside the recommended one; empty for that one.
    pub against: String,
}

impl Answer {
    /// True if it fits and meets every wish.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.does_not_fit.is_none() && self.unmet.is_empty()
    }
}

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// `cumux-plan`.
    pub format: &'static str,
    /// 1.
    pub version: u32,
    /// The card.
    pub card: &'static str,
    /// Where the card's numbers are from.
    pub card_source: &'static str,
    /// The programs: name, copies, rate, MiB of one, and how long one request takes alone.
    pub programs: Vec<ProgramLine>,
    /// What was wished.
    pub wishes: Wishes,
    /// The answers, the best first.
    pub answers: Vec<Answer>,
    /// True if the first answer meets every wish: it is the recommended one.
    pub met: bool,
    /// Why it is recommended; or why nothing is.
    pub reasons: Vec<String>,
}

/// A program in the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramLine {
    /// Name.
    pub name: String,
    /// Copies.
    pub count: u32,
    /// Requests a second of a copy.
    pub rate: Option<f64>,
    /// Memory of a copy without contexts.
    pub memory_mib: u64,
    /// One request alone on the card.
    pub alone_ns: f64,
}

/// What cannot be planned, or is wished and contradicts itself.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum PlanError {
    /// Nothing to plan.
    #[error("there is no program to plan for: name one with --profile or --program")]
    NoPrograms,
    /// Too many.
    #[error("{0} programs are more than the planner takes (512): plan a part of them")]
    TooMany(u64),
    /// No card.
    #[error("--cards 0 leaves no card to plan with")]
    NoCards,
    /// A program that no card of the kind can have.
    #[error("{program} needs {needs} MiB with its context, and a {card} has {has}: it fits no card of this kind")]
    TooLarge {
        /// Program.
        program: String,
        /// MiB.
        needs: u64,
        /// Card.
        card: &'static str,
        /// MiB.
        has: u32,
    },
    /// A kernel that the card cannot run.
    #[error("{program} does not run on a {card}: {cause}")]
    DoesNotRun {
        /// Program.
        program: String,
        /// Card.
        card: &'static str,
        /// The kernel.
        cause: DoesNotFit,
    },
    /// A p99 below what the program takes alone.
    #[error(
        "{program} takes {alone_ms:.1} ms for a request alone on a {card}, so no way of sharing gives a p99 of {wished_ms:.1} ms: wish at least {alone_ms:.1} ms, or take a faster card"
    )]
    TooSoon {
        /// Program.
        program: String,
        /// Card.
        card: &'static str,
        /// Alone.
        alone_ms: f64,
        /// Wished.
        wished_ms: f64,
    },
    /// A rate above what the program does alone.
    #[error("{program} is to do {rate:.1} requests a second and does at most {alone:.1} alone on a {card}: plan for more copies with a lower rate each")]
    TooFast {
        /// Program.
        program: String,
        /// Card.
        card: &'static str,
        /// Wished.
        rate: f64,
        /// Alone.
        alone: f64,
    },
    /// Hard isolation for more programs than there are instances.
    #[error(
        "hard isolation gives each of the {programs} programs a card or a MIG instance of its own, and {cards} of {card} {have}: take at least {needed}, or wish --isolation faults"
    )]
    TooFewForHard {
        /// Programs.
        programs: u32,
        /// Cards.
        cards: String,
        /// Card.
        card: &'static str,
        /// What they have.
        have: String,
        /// Cards that would do.
        needed: u32,
    },
}

/// Most programs of a plan.
const MOST_PROGRAMS: u64 = 512;

/// Requests of each simulation, over all its clients.
const SAMPLES: u32 = 1200;

/// Plans.
///
/// # Errors
/// [`PlanError`]: wishes that contradict themselves, or programs that no such card can have.
pub fn make(card: &'static CardModel, programs: &[Program], wishes: Wishes) -> Result<Plan, PlanError> {
    make_with(card, programs, wishes, SAMPLES)
}

/// As [`make`], with so many requests in each simulation: fewer are faster, and their p99 is
/// rougher.
///
/// # Errors
/// As [`make`].
pub fn make_with(card: &'static CardModel, programs: &[Program], wishes: Wishes, samples: u32) -> Result<Plan, PlanError> {
    let lines = check(card, programs, wishes)?;
    let mut planner = Planner { card, programs, wishes, measurer: Measurer::new(programs, samples) };
    let mut answers = vec![planner.fewest_cards(&[(None, Mode::Exclusive)])];
    answers.extend(Mode::SHARED.map(|mode| planner.fewest_cards(&[(None, mode)])));
    if let Some(table) = &card.mig {
        let geometries = table.full_geometries();
        let with = |mode: Mode, least: usize| -> Vec<(Option<&Geometry>, Mode)> {
            geometries.iter().filter(|geometry| geometry.instances.len() >= least).map(|geometry| (Some(geometry), mode)).collect()
        };
        for (mode, least) in [(Mode::Exclusive, 1), (Mode::Cumux, 2), (Mode::Mps, 2)] {
            answers.push(planner.fewest_cards(&with(mode, least)));
        }
    }
    rank::order(&mut answers);
    let met = answers.first().is_some_and(Answer::is_good);
    let reasons = rank::explain(&mut answers, programs, wishes);
    Ok(Plan { format: "cumux-plan", version: 1, card: card.id, card_source: card.source, programs: lines, wishes, answers, met, reasons })
}

/// Refuses what cannot be, and says what each program does alone.
fn check(card: &'static CardModel, programs: &[Program], wishes: Wishes) -> Result<Vec<ProgramLine>, PlanError> {
    let copies: u64 = programs.iter().map(|program| u64::from(program.count)).sum();
    match (copies, wishes.most_cards) {
        (0, _) => return Err(PlanError::NoPrograms),
        (n, _) if n > MOST_PROGRAMS => return Err(PlanError::TooMany(n)),
        (_, Some(0)) => return Err(PlanError::NoCards),
        _ => {}
    }
    let machine = Machine::whole(card);
    let mut lines = Vec::new();
    for program in programs {
        let of = || program.name.clone();
        let memory_kib = program.profile.peak_memory().div_ceil(1024);
        let needs = memory_kib.div_ceil(1024) + Mode::Exclusive.overhead_mib(1);
        if needs > u64::from(card.memory_mib) {
            return Err(PlanError::TooLarge { program: of(), needs, card: card.id, has: card.memory_mib });
        }
        Work::on(&program.profile, &machine).map_err(|cause| PlanError::DoesNotRun { program: of(), card: card.id, cause })?;
        let alone = Program { rate: None, share: None, ..program.clone() };
        let site = Site { machine: machine.clone(), mode: Mode::Exclusive, programs: vec![1] };
        let alone_ns = match Measurer::new(&[alone], 20).measure(&site) {
            Ok(result) => result.fares[0].map_or(0.0, |fares| fares.p50_ns),
            Err(cause) => return Err(PlanError::DoesNotRun { program: of(), card: card.id, cause }),
        };
        if let Some(wished) = wishes.p99_ns
            && wished < alone_ns
        {
            return Err(PlanError::TooSoon { program: of(), card: card.id, alone_ms: alone_ns / 1e6, wished_ms: wished / 1e6 });
        }
        if let Some(rate) = program.rate
            && rate * alone_ns >= 1e9
        {
            return Err(PlanError::TooFast { program: of(), card: card.id, rate, alone: 1e9 / alone_ns });
        }
        lines.push(ProgramLine { name: of(), count: program.count, rate: program.rate, memory_mib: memory_kib.div_ceil(1024), alone_ns });
    }
    let instances = card.mig.as_ref().map_or(1, |table| table.geometries().iter().map(|geometry| geometry.instances.len()).max().unwrap_or(1)) as u32;
    if let (Isolation::Hard, Some(cards)) = (wishes.isolation, wishes.most_cards)
        && copies > u64::from(cards) * u64::from(instances)
    {
        let have = match instances {
            1 => "cannot be divided".to_owned(),
            n => format!("{} at most {} instances", if cards == 1 { "has" } else { "have" }, u64::from(n) * u64::from(cards)),
        };
        return Err(PlanError::TooFewForHard {
            programs: copies as u32,
            cards: cards.to_string(),
            card: card.id,
            have,
            needed: (copies as u32).div_ceil(instances),
        });
    }
    Ok(lines)
}

struct Planner<'a> {
    card: &'static CardModel,
    programs: &'a [Program],
    wishes: Wishes,
    measurer: Measurer<'a>,
}

/// Card counts that are tried one by one before steps become larger.
const ONE_BY_ONE: u32 = 4;

impl Planner<'_> {
    /// The best of these ways with the fewest cards with which one of them meets the wishes; if
    /// none does with any number, the best with the most cards.
    fn fewest_cards(&mut self, ways: &[(Option<&Geometry>, Mode)]) -> Answer {
        let copies: u32 = self.programs.iter().map(|program| program.count).sum();
        // With more cards nobody would share.
        let sharing = match ways.first() {
            None | Some((_, Mode::Exclusive)) => copies,
            Some((None, _)) => copies - 1,
            Some((Some(_), _)) => (copies - 1) / 2,
        };
        let most = self.wishes.most_cards.unwrap_or(copies).min(sharing.max(1));
        // What a way does not keep apart, it does not keep apart on more cards.
        let hopeless = copies > 1 && ways.iter().all(|(_, mode)| mode.isolation() < self.wishes.isolation);
        let (mut cards, mut failed) = (1, 0);
        let mut best = self.best(ways, cards);
        while !best.is_good() && cards < most && !(hopeless && best.does_not_fit.is_none()) {
            failed = cards;
            cards = if cards < ONE_BY_ONE { cards + 1 } else { (cards * 3).div_ceil(2) }.min(most);
            best = self.best(ways, cards);
        }
        // What a larger step has left out.
        while best.is_good() && cards - failed > 1 {
            let middle = failed + (cards - failed) / 2;
            let between = self.best(ways, middle);
            if between.is_good() {
                (cards, best) = (middle, between);
            } else {
                failed = middle;
            }
        }
        best
    }

    fn best(&mut self, ways: &[(Option<&Geometry>, Mode)], cards: u32) -> Answer {
        let mut answers: Vec<Answer> = ways.iter().map(|(geometry, mode)| self.answer(*geometry, *mode, cards)).collect();
        rank::order(&mut answers);
        answers.swap_remove(0)
    }

    /// The machines of one card.
    fn machines(&self, geometry: Option<&Geometry>) -> Vec<Machine> {
        match (geometry, &self.card.mig) {
            (Some(geometry), Some(table)) => geometry.instances.iter().map(|instance| Machine::instance(self.card, table, instance)).collect(),
            _ => vec![Machine::whole(self.card)],
        }
    }

    fn answer(&mut self, geometry: Option<&Geometry>, mode: Mode, cards: u32) -> Answer {
        let machines = self.machines(geometry);
        let estimated = geometry.is_some_and(|geometry| geometry.instances.iter().any(|instance| instance.profile.is_estimated()));
        let mut answer = Answer {
            mode,
            geometry: geometry.map(ToString::to_string),
            title: title(mode, geometry),
            cards,
            does_not_fit: None,
            unmet: Vec::new(),
            most_sharers: 0,
            memory_mib: 0,
            throughput: 0.0,
            p99_ns: 0.0,
            occupied: 0.0,
            active: 0.0,
            fares: Vec::new(),
            isolation: mode.isolation(),
            fault: fault(mode, geometry),
            change: change(mode, geometry),
            estimated,
            against: String::new(),
        };
        let sites = match self.sites(&machines, mode, cards) {
            Ok(sites) => sites,
            Err(why) => {
                answer.does_not_fit = Some(why);
                return answer;
            }
        };
        if let Err(cause) = self.fill_in(&mut answer, &sites, machines.len()) {
            answer.does_not_fit = Some(cause.to_string());
            return answer;
        }
        let copies: u32 = self.programs.iter().map(|program| program.count).sum();
        if mode != Mode::Exclusive && answer.most_sharers <= 1 && (copies > 1 || geometry.is_some()) {
            let place = if geometry.is_some() { "instance" } else { "card" };
            answer.does_not_fit = Some(format!("each {place} has one program: nobody shares"));
            return answer;
        }
        self.hold_against_wishes(&mut answer);
        answer
    }

    /// Assigns the programs to the machines of so many cards.
    fn sites(&self, machines: &[Machine], mode: Mode, cards: u32) -> Result<Vec<Site>, String> {
        let all: Vec<&Machine> = (0..cards).flat_map(|_| machines).collect();
        // What the mode takes once, and what it takes for each client.
        let once = 2 * mode.overhead_mib(1) - mode.overhead_mib(2);
        let each = mode.overhead_mib(2) - mode.overhead_mib(1);
        let bins: Vec<Bin> = all
            .iter()
            .map(|machine| Bin {
                room: u64::from(machine.memory_mib).saturating_sub(once) * 1024,
                most: mode.most_clients(),
                speed: f64::from(machine.multiprocessors),
            })
            .collect();
        let items: Vec<Item> = self.programs.iter().map(|program| self.item(program, each)).collect();
        let copies: u32 = items.iter().map(|item| item.count).sum();
        let assignment = pack(&bins, &items).map_err(|why| {
            let asked: u64 = items.iter().map(|item| item.memory * u64::from(item.count)).sum::<u64>() / 1024;
            let room: u64 = bins.iter().map(|bin| bin.room).sum::<u64>() / 1024;
            let places: u64 = bins.iter().map(|bin| u64::from(bin.most)).sum();
            let largest = bins.iter().map(|bin| bin.room).max().unwrap_or(0);
            let on = if cards == 1 { "1 card".to_owned() } else { format!("{cards} cards") };
            match why {
                NoRoom::GivenUp => format!("no assignment to {on} was found in the time of the search"),
                NoRoom::Proven if u64::from(copies) > places => format!("{copies} programs, and {on} {} {places}", if cards == 1 { "takes" } else { "take" }),
                NoRoom::Proven if asked > room => {
                    format!("programs and contexts need {asked} MiB, and {on} {} {room}", if cards == 1 { "has" } else { "have" })
                }
                NoRoom::Proven if items.iter().any(|item| item.memory > largest) => {
                    format!("a program is larger than the largest instance ({} MiB)", largest / 1024)
                }
                NoRoom::Proven => {
                    format!("{asked} of {room} MiB would be used on {on}, but the programs cannot be divided so that each has its memory in one piece")
                }
            }
        })?;
        let site = |(machine, programs): (&&Machine, Vec<u32>)| Site { machine: (*machine).clone(), mode, programs };
        Ok(all.iter().zip(assignment).map(site).collect())
    }

    fn item(&self, program: &Program, each_mib: u64) -> Item {
        let machine = Machine::whole(self.card);
        let busy = Work::on(&program.profile, &machine).map_or(1.0, |work| {
            let busy = work.busy_ns(&machine);
            // What keeps the device busy of each second.
            program.rate.map_or(busy / (busy + work.host_ns()).max(1.0), |rate| rate * busy / 1e9)
        });
        Item { count: program.count, memory: program.profile.peak_memory().div_ceil(1024) + each_mib * 1024, load: busy.max(1e-6) }
    }

    /// Simulates the sites and writes down what they achieve.
    fn fill_in(&mut self, answer: &mut Answer, sites: &[Site], machines_of_a_card: usize) -> Result<(), DoesNotFit> {
        let nothing = Fares { throughput: 0.0, p50_ns: 0.0, p99_ns: 0.0, overloaded: false };
        answer.fares = vec![nothing; self.programs.len()];
        let all: f64 = sites.iter().map(|site| f64::from(site.machine.multiprocessors)).sum();
        for site in sites {
            let result = self.measurer.measure(site)?;
            let part = f64::from(site.machine.multiprocessors) / all;
            answer.occupied += result.occupied * part;
            answer.active += result.active * part;
            answer.most_sharers = answer.most_sharers.max(site.programs.iter().sum());
            if result.cut && result.fares.iter().flatten().any(|fares| fares.p99_ns == 0.0) {
                answer.estimated = true;
            }
            for (sum, one) in answer.fares.iter_mut().zip(&result.fares) {
                let Some(one) = one else { continue };
                sum.throughput += one.throughput;
                sum.p50_ns = sum.p50_ns.max(one.p50_ns);
                sum.p99_ns = sum.p99_ns.max(one.p99_ns);
                sum.overloaded |= one.overloaded;
            }
        }
        answer.throughput = answer.fares.iter().map(|fares| fares.throughput).sum();
        answer.p99_ns = answer.fares.iter().map(|fares| fares.p99_ns).fold(0.0, f64::max);
        let memory = |site: &Site| {
            let clients: u32 = site.programs.iter().sum();
            let asked: u64 = self.programs.iter().zip(&site.programs).map(|(program, count)| program.profile.peak_memory() * u64::from(*count)).sum();
            if clients == 0 { 0 } else { asked.div_ceil(1 << 20) + site.mode.overhead_mib(clients) }
        };
        answer.memory_mib = sites.chunks(machines_of_a_card).map(|card| card.iter().map(memory).sum()).max().unwrap_or(0);
        // Alone on its machine, a program has it for itself.
        if answer.most_sharers <= 1 {
            answer.isolation = Isolation::Hard;
        }
        Ok(())
    }

    fn hold_against_wishes(&self, answer: &mut Answer) {
        if answer.isolation < self.wishes.isolation {
            answer.unmet.push(match self.wishes.isolation {
                Isolation::Hard => "programs take bandwidth and time from each other".to_owned(),
                _ => format!("a fault takes down {}", answer.fault),
            });
        }
        for (program, fares) in self.programs.iter().zip(&answer.fares) {
            if fares.overloaded {
                answer.unmet.push(format!("{}: more requests come than are done ({:.0} a second)", program.name, fares.throughput));
            } else if let Some(wished) = self.wishes.p99_ns
                && fares.p99_ns > wished
            {
                answer.unmet.push(format!("{}: p99 is {:.1} ms", program.name, fares.p99_ns / 1e6));
            }
        }
        answer.unmet.dedup();
    }
}

fn title(mode: Mode, geometry: Option<&Geometry>) -> String {
    match (geometry, mode) {
        (None, mode) => mode.title().to_owned(),
        (Some(geometry), Mode::Exclusive) => format!("MIG {geometry}"),
        (Some(geometry), mode) => format!("MIG {geometry}, {} inside", mode.title()),
    }
}

fn fault(mode: Mode, geometry: Option<&Geometry>) -> String {
    match (geometry, mode) {
        (Some(_), Mode::Mps) => "all clients in its instance".to_owned(),
        (Some(_), Mode::Cumux) => "the faulting program; others in its instance pause".to_owned(),
        _ => mode.fault().to_owned(),
    }
}

fn change(mode: Mode, geometry: Option<&Geometry>) -> String {
    match (geometry, mode) {
        (None, mode) => mode.change().to_owned(),
        (Some(_), _) => "every program on an instance that changes; all of the card to switch MIG on or off".to_owned(),
    }
}
