//! What a successor may do again of the work that its predecessor had given to a device which keeps
//! no marks (a real card).
//!
//! Whether such a piece has run, in part or not at all, nobody knows. A copy, a set or a value that
//! is written may be done again as long as nothing else in doubt has changed what it reads; a
//! kernel may not, because it may build on what it has written itself. Pure.

use cumux_wire::record::{CopyExtent, Op, span};
use std::ops::Range;

/// Bytes that a piece of work reads and writes. None where they cannot be told.
fn touched(op: &Op) -> Option<(Range<u64>, Range<u64>)> {
    let none = 0..0;
    let range = |address: u64, bytes: u64| Some(address..address.checked_add(bytes)?);
    match op {
        // Marks, and what never was with the device: it has its turn alone.
        Op::Nop | Op::EventTime { .. } | Op::Wait { .. } | Op::HostCall | Op::ValueWait { .. } | Op::FreeInStream { .. } => Some((none.clone(), none)),
        Op::Copy { target, target_pitch, target_slice, source, source_pitch, source_slice, extent } => Some((
            range(*source, span(*source, *source_pitch, *source_slice, *extent)?)?,
            range(*target, span(*target, *target_pitch, *target_slice, *extent)?)?,
        )),
        Op::Set { target, element, width, height, pitch, .. } => {
            let extent = CopyExtent { width: width.checked_mul(u64::from(*element))?, height: *height, depth: 1 };
            Some((none, range(*target, span(*target, *pitch, 0, extent)?)?))
        }
        Op::ValueWrite { address, bytes, .. } => Some((none, range(*address, u64::from(*bytes))?)),
        _ => None,
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Why this work, of all streams of a client, cannot be done again; none where it can.
pub(crate) fn why_not<'a>(work: impl Iterator<Item = &'a Op>) -> Option<String> {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let mut kernels = 0;
    let mut all = 0;
    for op in work {
        all += 1;
        match touched(op) {
            Some((read, written)) => {
                reads.push(read);
                writes.push(written);
            }
            None => kernels += 1,
        }
    }
    // What a copy writes over what it reads itself is in doubt like what others write there.
    let changed = reads.iter().any(|read| writes.iter().any(|written| overlap(read, written)));
    let what = match (kernels, changed) {
        (0, false) => return None,
        (0, true) => "copies of which one changes what another reads".to_owned(),
        (1, _) => "a kernel".to_owned(),
        (several, _) => format!("{several} kernels"),
    };
    Some(format!("{all} pieces of its work were with the card, {what} among them, and whether they had run is not known"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_wire::record::Launch;

    fn copy(target: u64, source: u64, width: u64) -> Op {
        Op::linear_copy(target, source, width)
    }

    #[test]
    fn what_does_not_build_on_itself_is_done_again() {
        let set = Op::Set { target: 1000, value: 0, element: 4, width: 10, height: 2, pitch: 100 };
        let write = Op::ValueWrite { address: 5000, value: 1, bytes: 8 };
        assert_eq!(why_not([].iter()), None);
        assert_eq!(why_not([copy(200, 100, 50), copy(300, 100, 50), set.clone(), write.clone(), Op::Nop].iter()), None);
        assert_eq!(why_not([copy(200, 100, 100), copy(300, 400, 100)].iter()), None, "side by side");
    }

    #[test]
    fn what_may_build_on_itself_is_not() {
        assert!(why_not([Op::Launch(Launch::default())].iter()).is_some_and(|why| why.contains("a kernel")));
        assert!(why_not([Op::Launch(Launch::default()), Op::Launch(Launch::default())].iter()).is_some_and(|why| why.contains("2 kernels")));
        assert!(why_not([copy(200, 100, 50), copy(100, 300, 10)].iter()).is_some(), "the source of the first");
        assert!(why_not([copy(120, 100, 50)].iter()).is_some(), "its own source");
        let set = Op::Set { target: 1000, value: 0, element: 4, width: 10, height: 3, pitch: 100 };
        assert!(why_not([copy(0, 1239, 1), set.clone()].iter()).is_some(), "the last byte of the last row");
        assert_eq!(why_not([copy(0, 1240, 1), set].iter()), None);
        assert!(why_not([copy(u64::MAX - 3, 0, 50)].iter()).is_some(), "nonsense");
    }
}
