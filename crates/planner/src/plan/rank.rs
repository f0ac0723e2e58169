//! Which answer is better, and why.

use super::{Answer, Program, Wishes};
use crate::mode::{Isolation, Mode};
use std::cmp::{Ordering, Reverse};

/// Throughputs that differ by less count as equal.
const SAME_THROUGHPUT: f64 = 1.02;
/// The same for p99.
const SAME_P99: f64 = 1.1;

/// Which step of a geometric scale a value is on. Larger values are never on a lower step.
fn step(value: f64, ratio: f64) -> i64 {
    if value > 0.0 { (value.ln() / ratio.ln()).floor() as i64 } else { i64::MIN }
}

/// Best first: those that meet the wishes; fewer cards; more throughput; more isolation; shorter
/// p99. Each comparison is monotone in its value, so an answer that is nowhere worse and somewhere
/// better comes first.
fn compare(a: &Answer, b: &Answer) -> Ordering {
    let key = |answer: &Answer| {
        (
            answer.does_not_fit.is_some(),
            answer.unmet.len(),
            answer.cards,
            Reverse(step(answer.throughput, SAME_THROUGHPUT)),
            Reverse(answer.isolation),
            step(answer.p99_ns, SAME_P99),
        )
    };
    key(a)
        .cmp(&key(b))
        .then(trouble(a).cmp(&trouble(b)))
        .then(a.p99_ns.total_cmp(&b.p99_ns))
        .then(b.throughput.total_cmp(&a.throughput))
        .then_with(|| a.title.cmp(&b.title))
}

/// What an answer asks of its user beside programs and cards: MIG, or another program.
fn trouble(answer: &Answer) -> (bool, bool) {
    (answer.geometry.is_some(), answer.mode == Mode::Streams)
}

/// Puts the best first. Of answers that differ by less than what counts as equal, that is the one
/// with most isolation, then with the least trouble: a step of a scale may lie between them.
pub(super) fn order(answers: &mut [Answer]) {
    answers.sort_by(compare);
    let Some(best) = answers.first().filter(|best| best.is_good()) else { return };
    let (cards, isolation, least_trouble) = (best.cards, best.isolation, trouble(best));
    let is_rival = |answer: &&Answer| answer.is_good() && answer.cards == cards && answer.isolation >= isolation;
    let throughput = answers.iter().filter(is_rival).map(|answer| answer.throughput).fold(0.0, f64::max);
    let p99_ns = answers.iter().filter(is_rival).map(|answer| answer.p99_ns).fold(f64::INFINITY, f64::min);
    let is_equal = |answer: &Answer| is_rival(&answer) && answer.throughput * SAME_THROUGHPUT >= throughput && answer.p99_ns <= p99_ns * SAME_P99;
    let equals = answers.iter().enumerate().filter(|(_, answer)| is_equal(answer));
    let simplest = equals.min_by_key(|(at, answer)| (Reverse(answer.isolation), trouble(answer), *at));
    if let Some((at, _)) = simplest.filter(|(_, answer)| answer.isolation > isolation || trouble(answer) < least_trouble) {
        answers[..=at].rotate_right(1);
    }
}

fn cards(count: u32) -> String {
    if count == 1 { "1 card".to_owned() } else { format!("{count} cards") }
}

/// Writes down what speaks against each answer, and returns why the first is recommended, or why
/// none is.
pub(super) fn explain(answers: &mut [Answer], programs: &[Program], wishes: Wishes) -> Vec<String> {
    let Some((first, others)) = answers.split_first_mut() else { return Vec::new() };
    let copies: u32 = programs.iter().map(|program| program.count).sum();
    for other in others {
        other.against = against(other, first, copies);
    }
    if !first.is_good() {
        let nearest = first.does_not_fit.clone().unwrap_or_else(|| first.unmet.join("; "));
        first.against.clone_from(&nearest);
        return vec![format!("Nothing meets all wishes with the cards there are. The nearest is {}: {nearest}.", first.title)];
    }
    let mut reasons = vec![format!("It takes {}; no other way that meets the wishes takes fewer.", cards(first.cards))];
    if let Some(wished) = wishes.p99_ns {
        reasons.push(format!("99 of 100 requests take at most {:.1} ms, {:.1} were wished.", first.p99_ns / 1e6, wished / 1e6));
    } else {
        reasons.push(format!("99 of 100 requests take at most {:.1} ms.", first.p99_ns / 1e6));
    }
    reasons.push(match (programs.iter().all(|program| program.rate.is_some()), programs.len()) {
        (true, _) => format!("It does all {:.0} requests a second that come.", first.throughput),
        (false, _) => format!("It does {:.0} requests a second.", first.throughput),
    });
    reasons.push(match first.isolation {
        Isolation::Hard => "No program takes memory, bandwidth or time from another.".to_owned(),
        Isolation::Faults => format!("A fault takes down {}.", first.fault),
        Isolation::None => format!("A fault takes down {}: nothing better was wished.", first.fault),
    });
    reasons.push(format!("What it costs where it is the wrong choice: {}.", breaks(first)));
    reasons
}

/// What breaks with an answer.
fn breaks(answer: &Answer) -> String {
    match answer.geometry {
        None => answer.mode.breaks().to_owned(),
        Some(_) => {
            let fixed =
                "memory and multiprocessors of an instance cannot be lent to another, and the geometry changes only while the card's instances are empty";
            if answer.mode == Mode::Exclusive { fixed.to_owned() } else { format!("{fixed}; inside an instance {}", answer.mode.breaks()) }
        }
    }
}

/// What speaks against `answer`, beside the best one.
fn against(answer: &Answer, best: &Answer, copies: u32) -> String {
    if let Some(why) = &answer.does_not_fit {
        return format!("does not fit: {why}");
    }
    let mut words = answer.unmet.clone();
    if best.is_good() && answer.is_good() {
        if answer.cards > best.cards {
            words.push(format!("takes {} instead of {}", cards(answer.cards), best.cards));
        }
        if answer.throughput * SAME_THROUGHPUT < best.throughput {
            words.push(format!("{:.0} % less throughput", 100.0 * (1.0 - answer.throughput / best.throughput)));
        }
        if answer.p99_ns > best.p99_ns * SAME_P99 {
            words.push(format!("p99 {:.1} ms instead of {:.1}", answer.p99_ns / 1e6, best.p99_ns / 1e6));
        }
        if answer.isolation < best.isolation {
            words.push(format!("a fault takes down {}", answer.fault));
        }
    }
    if copies > 1 {
        words.push(breaks(answer));
    }
    words.join("; ")
}
