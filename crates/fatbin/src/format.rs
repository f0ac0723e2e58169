//! What kind of module data a run of bytes is.

use crate::error::{Error, Result};
use std::fmt;

/// First bytes of a container, as a little-endian number.
pub const CONTAINER_MAGIC: u32 = 0xBA55_ED50;

/// First bytes of the wrapper in an executable that points to a container. The one who holds the
/// wrapper follows its pointer; this crate begins at the container.
pub const WRAPPER_MAGIC: u32 = 0x4662_43B1;

/// What a run of bytes is, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A container.
    Container,
    /// A compiled image ("cubin"), or any other ELF file.
    Elf,
    /// PTX text.
    Ptx,
    /// A wrapper: its pointer has to be followed first.
    Wrapper,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Container => "fatbin container",
            Self::Elf => "ELF image",
            Self::Ptx => "PTX text",
            Self::Wrapper => "fatbin wrapper",
        })
    }
}

/// What the bytes are. Four bytes are enough for all but PTX, which may begin with blank lines.
pub fn identify(bytes: &[u8]) -> Result<Format> {
    identify_at(bytes, 0)
}

fn identify_at(bytes: &[u8], at: u64) -> Result<Format> {
    match bytes.first_chunk::<4>() {
        Some(magic) if u32::from_le_bytes(*magic) == CONTAINER_MAGIC => {
            return Ok(Format::Container);
        }
        Some(magic) if u32::from_le_bytes(*magic) == WRAPPER_MAGIC => return Ok(Format::Wrapper),
        Some(b"\x7fELF") => return Ok(Format::Elf),
        _ => {}
    }
    let text = bytes.trim_ascii_start();
    if [&b"//"[..], b"/*", b".version"].iter().any(|start| text.starts_with(start)) {
        return Ok(Format::Ptx);
    }
    if bytes.is_empty() {
        return Err(Error::Truncated { what: "module data", at, needed: 4, have: 0 });
    }
    let begins = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    Err(Error::UnknownFormat { at, begins })
}
