//! How many registers the kernels of a PTX text may use: what compilers and JIT options say becomes
//! a directive in the text.

use crate::{Format, identify};

/// PTX whose kernels may use this many registers a thread, except those that say themselves how
/// many registers or threads they have. `None` for other images.
#[must_use]
pub fn limit_registers(image: &[u8], most: Option<u32>) -> Option<Vec<u8>> {
    let most = most.filter(|_| identify(image) == Ok(Format::Ptx))?;
    let mut out = Vec::with_capacity(image.len() + 64);
    // Inside of a kernel's header: whether it says something itself.
    let mut header: Option<bool> = None;
    let mut rest = image;
    while !rest.is_empty() {
        let length = token_len(rest);
        let (token, after) = rest.split_at(length);
        match (token, header) {
            (b".entry", _) => header = Some(false),
            (b".maxnreg" | b".maxntid" | b".reqntid" | b".minnctapersm", Some(_)) => header = Some(true),
            (b"{", Some(says)) => {
                if !says {
                    out.extend_from_slice(format!("\n.maxnreg {most}\n").as_bytes());
                }
                header = None;
            }
            (b";", _) => header = None,
            _ => {}
        }
        out.extend_from_slice(token);
        rest = after;
    }
    Some(out)
}

/// How many bytes belong together at the beginning: a comment, a string, a word, or one byte.
fn token_len(rest: &[u8]) -> usize {
    let until = |end: &[u8], from: usize| {
        let found = rest.get(from..).and_then(|rest| rest.windows(end.len()).position(|part| part == end));
        found.map_or(rest.len(), |at| from + at + end.len())
    };
    let in_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%');
    match rest {
        [b'/', b'/', ..] => until(b"\n", 2),
        [b'/', b'*', ..] => until(b"*/", 2),
        [b'"', ..] => until(b"\"", 1),
        [first, tail @ ..] if *first == b'.' || in_word(first) => 1 + tail.iter().take_while(|byte| in_word(byte)).count(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_say_nothing_themselves_are_limited() {
        let text = "\
.version 8.0 // .entry { in a comment
.target sm_80
.address_size 64
/* .entry { */
.visible .entry plain(.param .u64 a, .param .align 8 .b8 b[16])
{ .reg .b32 %r<2>; { mov.u32 %r1, 1; } ret; }
.entry own(.param .u64 a) .maxnreg 40 { ret; }
.entry bounded() .maxntid 64, 1, 1 { .pragma \"nounroll {\"; ret; }
.visible .entry declared();
.func f() { ret; }
.entry\tlast(){ret;}
";
        let limited = String::from_utf8(limit_registers(text.as_bytes(), Some(32)).unwrap()).unwrap();
        let lines: Vec<&str> = limited.lines().filter(|line| line.starts_with(".maxnreg 32")).collect();
        assert_eq!(lines.len(), 2, "{limited}");
        assert!(limited.contains("b[16])\n\n.maxnreg 32\n{ .reg"), "{limited}");
        assert!(limited.contains(".entry\tlast()\n.maxnreg 32\n{ret;}"), "{limited}");
        assert_eq!(limited.replace("\n.maxnreg 32\n", ""), text, "nothing else has changed");
        assert_eq!(limit_registers(text.as_bytes(), None), None);
        assert_eq!(limit_registers(b"\x7fELF", Some(32)), None);
        // What ends in the middle stays as it is.
        for end in 0..text.len() {
            let cut = limit_registers(&text.as_bytes()[..end], Some(32));
            assert!(cut.is_none_or(|cut| String::from_utf8_lossy(&cut).replace("\n.maxnreg 32\n", "") == text[..end]));
        }
    }
}
