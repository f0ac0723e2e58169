//! Programs, times, sizes and parts as people write them.

use anyhow::{Context as _, bail};
use cumux_planner::card::CardModel;
use cumux_planner::plan::Program;
use cumux_planner::profile::by_hand::ByHand;
use cumux_wire::share::Share;

/// A number above 0 with one of these units behind it; without a unit, the first one's.
fn with_unit(text: &str, units: &[(&str, f64)]) -> anyhow::Result<f64> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit.trim() {
        "" => units.first().map(|(_, factor)| *factor),
        unit => units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor),
    };
    match (number.parse::<f64>(), factor) {
        (Ok(value), Some(factor)) if value > 0.0 && value.is_finite() => Ok(value * factor),
        _ => bail!("\"{text}\" is no number above 0 with one of {}", units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")),
    }
}

/// `8ms` in nanoseconds; milliseconds without a unit.
pub fn time_ns(text: &str) -> anyhow::Result<f64> {
    let ns = with_unit(text, &[("ms", 1e6), ("ns", 1.0), ("us", 1e3), ("s", 1e9)])?;
    // A day is longer than any request.
    if ns > 86_400e9 { bail!("{text} is more than a day") } else { Ok(ns) }
}

fn bytes(text: &str) -> anyhow::Result<u64> {
    let (kib, mib, gib) = (1024.0, 1_048_576.0, 1_073_741_824.0);
    let units = [("M", mib), ("MiB", mib), ("G", gib), ("GiB", gib), ("K", kib), ("KiB", kib), ("T", gib * 1024.0)];
    let bytes = with_unit(text, &units)?;
    if bytes > 1e15 { bail!("{text} is more than any card has") } else { Ok(bytes as u64) }
}

/// `25%` or `0.25`.
fn part(text: &str) -> anyhow::Result<f64> {
    let part = match text.strip_suffix('%') {
        Some(percent) => with_unit(percent, &[("%", 0.01)])?,
        None => with_unit(text, &[("", 1.0)])?,
    };
    if part > 1.0 { bail!("{text} is more than all") } else { Ok(part) }
}

/// Requests a second.
pub fn rate(text: &str) -> anyhow::Result<f64> {
    let rate = with_unit(text, &[("/s", 1.0)])?;
    if rate > 1e6 { bail!("rate={text}: more than a million requests a second are not planned") } else { Ok(rate) }
}

/// Percent of the multiprocessors.
pub fn percentage(text: &str) -> anyhow::Result<Share> {
    Share::parse(text.trim().trim_end_matches('%')).with_context(|| format!("percentage={text}: above 0 and at most 100"))
}

/// `NAME*COPIES`, also with `×`. One copy if none is said.
pub fn copies(text: &str) -> anyhow::Result<(&str, u32)> {
    let Some((name, count)) = text.rsplit_once(['*', '×']) else { return Ok((text, 1)) };
    match count.trim().parse() {
        Ok(count) if count > 0 => Ok((name.trim(), count)),
        _ => bail!("\"{count}\" is no number of copies: write, for example, {name}*40"),
    }
}

/// A program by hand.
pub fn program(card: &CardModel, spec: &str) -> anyhow::Result<Program> {
    let mut parts = spec.split(',');
    let (name, count) = copies(parts.next().unwrap_or_default())?;
    if name.is_empty() || name.contains('=') || name.chars().count() > 60 || name.chars().any(char::is_control) {
        bail!("a program begins with its name: small*40,memory=1.2G,time=8ms");
    }
    let mut hand = ByHand { name: name.to_owned(), ..ByHand::default() };
    let (mut wanted, mut share) = (None, None);
    for option in parts {
        let Some((key, value)) = option.split_once('=') else { bail!("\"{option}\" is no key=value") };
        let what = || format!("{key}={value}");
        match key.trim() {
            "memory" => hand.memory = bytes(value).with_context(what)?,
            "time" => hand.busy_ns = time_ns(value).with_context(what)?,
            "host" => hand.host_ns = time_ns(value).with_context(what)?,
            "percentage" => share = Some(percentage(value)?),
            "rate" => wanted = Some(rate(value).with_context(what)?),
            "fill" => hand.fill = part(value).with_context(what)?,
            "bandwidth" => hand.bandwidth = part(value).with_context(what)?,
            "kernels" => {
                hand.kernels = value.parse().ok().filter(|kernels| (1..=100_000).contains(kernels)).with_context(|| format!("{}: 1 to 100,000", what()))?;
            }
            _ => bail!("\"{key}\" is unknown: memory, time, host, rate, percentage, kernels, fill and bandwidth are"),
        }
    }
    if hand.memory == 0 || hand.busy_ns == 0.0 {
        bail!("memory= and time= are needed: what it takes of the card, and how long the card works for one request");
    }
    Ok(Program { name: name.to_owned(), profile: hand.profile(card), count, rate: wanted, share })
}

/// A time for people.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.0} us", ns / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_planner::card;

    #[test]
    fn people_write_sizes_times_and_parts() {
        assert_eq!((time_ns("8ms").unwrap(), time_ns("8").unwrap(), time_ns("1.5 s").unwrap()), (8e6, 8e6, 1.5e9));
        assert_eq!((bytes("1.5G").unwrap(), bytes("512M").unwrap(), bytes("2GiB").unwrap()), (3 << 29, 512 << 20, 2 << 30));
        assert_eq!((part("25%").unwrap(), part("0.5").unwrap()), (0.25, 0.5));
        assert_eq!((copies("a.json*40").unwrap(), copies("a.json×4").unwrap(), copies("a.json").unwrap()), (("a.json", 40), ("a.json", 4), ("a.json", 1)));
        for wrong in ["0ms", "-1ms", "8 weeks", "", "nan", "2000000s"] {
            assert!(time_ns(wrong).is_err(), "{wrong}");
        }
        assert!(part("120%").is_err() && copies("a*x").is_err() && copies("a*0").is_err() && rate("0").is_err());
    }

    #[test]
    fn what_is_missing_or_unknown_in_a_program_is_said() {
        let card = card::find("l4").unwrap();
        let error = |spec: &str| format!("{:#}", program(card, spec).unwrap_err());
        assert!(error("small*4,memory=1G").contains("time="));
        assert!(error("small,memory=1G,time=1ms,size=3").contains("\"size\" is unknown"));
        assert!(error("memory=1G,time=1ms").contains("begins with its name"));
        assert!(error("small,memory=lots,time=1ms").contains("memory=lots"));
        assert!(error("small,memory").contains("key=value"));
        let read = program(card, "small*40,memory=1G,time=8ms,rate=20,fill=50%").unwrap();
        assert_eq!((read.count, read.rate, read.profile.kernels[0].blocks), (40, Some(20.0), 29));
    }
}
