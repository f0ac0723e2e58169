//! The line format that readers of MPS logs expect: `[2026-11-21 00:08:11.353 Control  1093] text`,
//! in local time (`TZ`, `/etc/localtime`) as NVIDIA's daemon writes it.

use crate::foreign::escape_foreign;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::SystemTime;

/// Characters of foreign text in a line; longer text is cut.
const LONGEST: usize = 8192;

/// One log line by process `pid` in `role` (`Control`, `Server`, `Other`), stamped with the present
/// time. Foreign text in it cannot forge lines.
#[must_use]
pub fn line(role: &str, pid: u32, text: &str) -> String {
    line_at(SystemTime::now(), &TimeZone::system(), role, pid, text)
}

/// Checks and escapes a line that another process has stamped itself. Returns its role, and the
/// line with the time it had. `None` if the line names another process or a role outside `roles`,
/// or has another form.
#[must_use]
pub fn of_process<'a>(text: &str, roles: &[&'a str], pid: u32) -> Option<(&'a str, String)> {
    let time = text.strip_prefix('[')?.get(..STAMP.len())?;
    if !time.bytes().zip(STAMP.bytes()).all(|(byte, form)| if form == b'0' { byte.is_ascii_digit() } else { byte == form }) {
        return None;
    }
    let rest = text.get(STAMP.len() + 1..)?;
    let (role, words) = roles.iter().find_map(|role| Some((*role, rest.strip_prefix(&format!(" {role} {pid:>5}] "))?)))?;
    let fresh = line(role, pid, words);
    Some((role, format!("[{time}{}", fresh.get(STAMP.len() + 1..)?)))
}

/// The form of a time.
const STAMP: &str = "0000-00-00 00:00:00.000";

fn line_at(time: SystemTime, zone: &TimeZone, role: &str, pid: u32, text: &str) -> String {
    let text = escape_foreign(text, LONGEST);
    format!("[{} {role} {pid:>5}] {text}\n", stamp(time, zone))
}

/// `YYYY-MM-DD HH:MM:SS.mmm`.
fn stamp(time: SystemTime, zone: &TimeZone) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(zone.clone());
    let (date, clock) = (time.date(), time.time());
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}",
        date.year(),
        date.month(),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second(),
        clock.millisecond()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn lines_look_as_recorded() {
        let time = UNIX_EPOCH + Duration::from_millis(1_795_219_691_353);
        let at = |role, pid, text| line_at(time, &TimeZone::UTC, role, pid, text);
        assert_eq!(at("Control", 1093, "NEW UI"), "[2026-11-21 00:08:11.353 Control  1093] NEW UI\n");
        assert_eq!(at("Server", 690, "a\nb"), "[2026-11-21 00:08:11.353 Server   690] a\\nb\n", "no line can be forged");
    }

    #[test]
    fn a_process_stamps_its_own_lines_and_no_others() {
        let of = |text: &str| of_process(text, &["Server", "Other"], 690);
        let given = "[2026-11-21 00:08:11.353 Server   690] text";
        assert_eq!(of(given), Some(("Server", format!("{given}\n"))));
        assert_eq!(of("[2026-11-21 00:08:11.353 Other   690] a\tb").map(|(role, line)| (role, line.matches('\t').count())), Some(("Other", 0)));
        for text in [
            "",
            "text",
            "[",
            "[2026-11-21 00:08:11.353 Server   691] another",
            "[2026-11-21 00:08:11.353 Control   690] another role",
            "[2026-11-21 00:08:11,353 Server   690] another form",
            "[\u{661}026-11-21 00:08:11.353 Server   690] other digits",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn local_time_with_its_summer() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = |seconds| stamp(UNIX_EPOCH + Duration::from_secs(seconds), &zone);
        assert_eq!(at(0), "1970-01-01 01:00:00.000");
        assert_eq!(at(1_795_219_691), "2026-11-21 01:08:11.000");
        assert_eq!(at(1_785_542_400), "2026-08-01 02:00:00.000");
    }
}
