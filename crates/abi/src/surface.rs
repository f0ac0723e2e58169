//! The exported names (recorded from driver 580) and how the shim answers each, as one list:
//! `surface.txt`.
//!
//! The list is text so that one line is one decision. The shim's build script turns it into the
//! jump table, and `cargo xtask compatibility` into COMPATIBILITY.md. Likewise `procaddress.txt`
//! records what `cuGetProcAddress` of driver 580 answers for every name, flag and version.

/// One line per exported name: see the head of the file for the columns.
pub const SURFACE: &str = include_str!("../surface/surface.txt");

/// One line per name that `cuGetProcAddress` knows: see the head of the file for the columns.
pub const PROC_ADDRESS: &str = include_str!("../surface/procaddress.txt");

/// How the shim answers a function, after older names and variants were resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// With an implementation.
    Function {
        /// The function's name: for an older name or a variant, that of the present function.
        name: &'static str,
        /// What of it is not supported; empty where all of it is.
        but_not: &'static str,
    },
    /// With `CUDA_ERROR_NOT_SUPPORTED`, whatever the arguments.
    Refused {
        /// The reason, as COMPATIBILITY.md gives it.
        why: &'static str,
    },
}

/// Every exported function in the order of the list.
pub fn functions() -> impl Iterator<Item = (&'static str, Answer)> {
    lines().filter_map(|line| Some((line[0], answer(line)?)))
}

/// Name, answer, third word and all the rest of each line.
fn lines() -> impl Iterator<Item = [&'static str; 4]> {
    SURFACE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut rest = line.trim();
        let mut next = || {
            let (word, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            rest = behind.trim_start();
            (!word.is_empty()).then_some(word)
        };
        let (name, answer, third) = (next()?, next()?, next()?);
        Some([name, answer, third, rest])
    })
}

/// `None` for a variable.
fn answer([name, answered, third, rest]: [&'static str; 4]) -> Option<Answer> {
    match answered {
        "refused" => Some(Answer::Refused { why: rest }),
        "alias" | "variant" => lines().find(|line| line[0] == third).and_then(answer),
        "data" => None,
        _ => Some(Answer::Function { name, but_not: rest.strip_prefix("but not ").unwrap_or("") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_names_are_answered_like_the_newest() {
        let find = |wanted: &str| functions().find(|(name, _)| *name == wanted).map(|(_, answer)| answer);
        assert_eq!(functions().count(), 682);
        assert_eq!(find("cuStreamBatchMemOp_ptsz"), find("cuStreamBatchMemOp_v2"));
        assert!(
            matches!(find("cuMemCreate"), Some(Answer::Function { name: "cuMemCreate", but_not }) if but_not.starts_with("handles other than file descriptors"))
        );
        assert!(matches!(find("cuDeviceGetLuid"), Some(Answer::Refused { why }) if why.starts_with("a notion of Windows")));
        assert_eq!(find("cudbgRpcEnabled"), None, "a variable is no function");
    }
}
