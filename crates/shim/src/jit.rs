//! JIT options that change what is compiled. PTX text is the only thing that is compiled here: an
//! option for it becomes a directive in it.

use crate::ffi::Try;
use core::ffi::{c_uint, c_void};
use cumux_abi::CUjit_option;
use cumux_fatbin::Format;

/// `CU_JIT_MAX_REGISTERS` among the options of a call.
///
/// # Safety
/// The arrays are what a C caller passed to a load or link call.
///
/// # Errors
/// INVALID_VALUE if they are missing.
pub(crate) unsafe fn most_registers(count: c_uint, options: *const CUjit_option, values: *const *mut c_void) -> Try<Option<u32>> {
    if count == 0 || values.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches for the arrays.
    let (options, values) = unsafe { (crate::ffi::array(options, count as usize)?, crate::ffi::array(values, count as usize)?) };
    let given = options.iter().zip(values).find(|(option, _)| **option == CUjit_option::CU_JIT_MAX_REGISTERS);
    // The low half of the value is the number, as the manual has it.
    Ok(given.map(|(_, value)| (value.addr() & 0xFFFF_FFFF) as u32).filter(|number| *number > 0))
}

/// PTX whose kernels may use this many registers a thread, except those that say themselves how
/// many registers or threads they have. `None` for other images.
pub(crate) fn limit_registers(image: &[u8], most: Option<u32>) -> Option<Vec<u8>> {
    let most = most.filter(|_| cumux_fatbin::identify(image) == Ok(Format::Ptx))?;
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
