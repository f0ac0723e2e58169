//! How many bytes belong to a pointer.
//!
//! The driver's module calls take a pointer without a length. [`total_len`] computes it from the
//! first bytes, and says how many it needs if those given are too few.

use crate::error::{Error, Result};
use crate::format::{Format, identify};
use crate::{container, elf};

/// What [`total_len`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// The data has this many bytes.
    Known(u64),
    /// Ask again with this many bytes from the start.
    NeedPrefix(u64),
    /// Text: it ends at its first zero byte.
    ToZeroByte,
}

/// Length of the module data that begins with `prefix`. A container's is that of the first one.
pub fn total_len(prefix: &[u8]) -> Result<Length> {
    if prefix.len() < 4 {
        return Ok(Length::NeedPrefix(4));
    }
    match identify(prefix)? {
        Format::Container if prefix.len() < container::HEADER_SIZE => Ok(Length::NeedPrefix(container::HEADER_SIZE as u64)),
        Format::Container => container::container_len(prefix, 0).map(Length::Known),
        Format::Elf if prefix.len() < elf::HEADER_SIZE => Ok(Length::NeedPrefix(elf::HEADER_SIZE as u64)),
        Format::Elf => {
            let needed = elf::needed_prefix(prefix)?;
            if (prefix.len() as u64) < needed {
                return Ok(Length::NeedPrefix(needed));
            }
            elf::file_length(prefix).map(Length::Known)
        }
        Format::Ptx => Ok(Length::ToZeroByte),
        Format::Wrapper => Err(Error::IsWrapper),
    }
}
