//! What tests and people set in the environment. [`steps`]: where a test has a process killed.
//!
//! Numbers in environment variables: one reader for all, so that the same text means the same
//! everywhere: blanks around a number are allowed, a unit is not, and a variable whose text is not
//! Unicode counts as not set.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod steps;

/// A variable that should be a number and is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={text:?} is not a number; unset it or give a whole number")]
pub struct NotANumber {
    /// The variable.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The number in an environment variable; `None` where the variable is not set.
///
/// # Errors
/// [`NotANumber`]: a sentence for the person who has set the variable.
pub fn number(name: &str) -> Result<Option<u64>, NotANumber> {
    std::env::var(name).map_or(Ok(None), |text| read(name, &text).map(Some))
}

/// The number in an environment variable; `None` where the variable is not set or is no number. For
/// processes that have nobody to tell.
#[must_use]
pub fn number_or_none(name: &str) -> Option<u64> {
    number(name).unwrap_or(None)
}

fn read(name: &str, text: &str) -> Result<u64, NotANumber> {
    text.trim().parse().map_err(|_| NotANumber { name: name.to_owned(), text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_number_or_a_sentence() {
        assert_eq!((read("X", "12"), read("X", " 0\n")), (Ok(12), Ok(0)));
        for wrong in ["", "12ms", "-1", "1.5", "18446744073709551616"] {
            let said = read("CUMUX_X", wrong).unwrap_err().to_string();
            assert!(said.starts_with("CUMUX_X=") && said.contains("unset it"), "{said}");
        }
        assert_eq!((number("CUMUX_NOBODY_SETS_THIS"), number_or_none("CUMUX_NOBODY_SETS_THIS")), (Ok(None), None));
    }
}
