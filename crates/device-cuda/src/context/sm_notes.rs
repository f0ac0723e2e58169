//! What one executor has found out about the SMs of a card, for those that come after it. To find
//! it out takes 0.2 s, and a standby that comes so much later is missed where one fault follows
//! another.
//!
//! The server has a memory file for it, which it names in `CUMUX_CARD_NOTES`. Each line is about
//! one card: its UUID, then the groups of SMs of both splits, as the card numbers them. A line that
//! cannot be right is passed over. If the groups are not those of the card, the card is asked.

use super::sm_layout::SmNumbers;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const VARIABLE: &str = "CUMUX_CARD_NOTES";
/// What the server's file is: its number may be another process's by now, and name anything.
const MEMORY_FILE: &str = "/memfd:card-notes";
/// Bytes that are read of the file.
const MOST_BYTES: u64 = 1 << 20;

/// The notes of a server.
pub(super) struct Notes(File);

impl Notes {
    /// The notes of this process's server, if it has any.
    pub(super) fn open() -> Option<Notes> {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        // What is no file must not keep this process waiting.
        let file = OpenOptions::new().read(true).append(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let file = file.inspect_err(|error| tracing::debug!(%error, "there are no notes about cards")).ok()?;
        (is_notes(&file, Path::new(&path)) && file.metadata().is_ok_and(|facts| facts.is_file())).then_some(Notes(file))
    }

    /// What is noted of the card with this UUID.
    pub(super) fn find(&mut self, uuid: [u8; 16]) -> Option<SmNumbers> {
        let mut text = String::new();
        self.0.seek(SeekFrom::Start(0)).ok()?;
        (&self.0).take(MOST_BYTES).read_to_string(&mut text).ok()?;
        find_in(&text, uuid)
    }

    /// Notes what was found out about the card with this UUID. Without a note the next one asks.
    pub(super) fn add(&mut self, uuid: [u8; 16], found: &SmNumbers) {
        // In one call: several may note something at the same time.
        if let Err(error) = self.0.write_all(line_of(uuid, found).as_bytes()) {
            tracing::debug!(%error, "what was found out about a card is not noted");
        }
    }
}

/// True if a file that another process was said to have is the one that is meant.
fn is_notes(file: &File, path: &Path) -> bool {
    let link = || std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    !path.starts_with("/proc") || link().is_ok_and(|link| link.to_string_lossy().starts_with(MEMORY_FILE))
}

fn line_of(uuid: [u8; 16], found: &SmNumbers) -> String {
    let groups = |groups: &[Vec<u32>]| {
        let group = |group: &Vec<u32>| group.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        groups.iter().map(group).collect::<Vec<_>>().join(";")
    };
    let mut line = String::new();
    let _ = writeln!(line, "{:032x} {}|{}", u128::from_be_bytes(uuid), groups(&found.pairs), groups(&found.coscheduled));
    line
}

fn find_in(text: &str, uuid: [u8; 16]) -> Option<SmNumbers> {
    // A card whose UUID the driver does not tell.
    if uuid == [0; 16] {
        return None;
    }
    let name = format!("{:032x}", u128::from_be_bytes(uuid));
    text.lines().filter_map(|line| line.split_once(' ')).filter(|(card, _)| *card == name).find_map(|(_, found)| read_groups(found))
}

fn read_groups(text: &str) -> Option<SmNumbers> {
    let groups = |text: &str| -> Option<Vec<Vec<u32>>> {
        if text.is_empty() {
            return Some(Vec::new());
        }
        text.split(';').map(|group| group.split(',').map(|sm| sm.parse().ok()).collect()).collect()
    };
    let (pairs, coscheduled) = text.split_once('|')?;
    let found = SmNumbers { pairs: groups(pairs)?, coscheduled: groups(coscheduled)? };
    found.is_sound().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CARD: [u8; 16] = [0xab; 16];

    #[test]
    fn what_is_noted_is_found_and_what_cannot_be_is_not() {
        let found = SmNumbers { pairs: vec![vec![0, 1], vec![16, 17]], coscheduled: vec![vec![0, 1, 16, 17]] };
        let line = line_of(CARD, &found);
        assert_eq!(find_in(&line, CARD), Some(found));
        assert_eq!(find_in(&line, [0xcd; 16]), None, "another card");
        assert_eq!(find_in(&line_of([0; 16], &SmNumbers { pairs: vec![vec![0]], coscheduled: Vec::new() }), [0; 16]), None, "no card in particular");
        let name = "ab".repeat(16);
        let bad = ["", "0,1", "0,1;1,2|", "0,x|", "0,1|0,2", "0,4000000|", "|"].map(|groups| format!("{name} {groups}\n"));
        for text in &bad {
            assert_eq!(find_in(text, CARD), None, "{text}");
        }
        assert!(find_in(&(bad.concat() + &line), CARD).is_some(), "a good line behind bad ones");
        assert_eq!(find_in(&format!("{name} 4,5;6|\n"), CARD), Some(SmNumbers { pairs: vec![vec![4, 5], vec![6]], coscheduled: Vec::new() }));
    }

    #[test]
    fn another_file_that_has_the_number_is_not_taken() {
        let stranger = tempfile::tempfile().unwrap();
        let notes = File::from(rustix::fs::memfd_create("card-notes", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        let path = Path::new("/proc/7/fd/8");
        assert!(is_notes(&notes, path) && !is_notes(&stranger, path) && is_notes(&stranger, Path::new("/tmp/notes")));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_passed_over(text in "[0-9a-b,;| x]{0,200}") {
            if let Some(found) = find_in(&format!("{} {text}", "ab".repeat(16)), CARD) {
                prop_assert!(found.is_sound());
            }
        }
    }
}
