//! What a program hands to the driver as "module data", taken apart.
//!
//! CUDA programs carry their device code in *containers* (several may follow one another), each
//! with entries for some architectures: PTX text or a compiled image, plain or compressed. A
//! program may also pass a bare compiled image or bare PTX. [`images`] reads all three;
//! [`total_len`] says how many bytes belong to a pointer of which only the start is known;
//! [`sections`] finds what is embedded in an executable file.
//!
//! All input is hostile: nothing here panics, every length is checked before it is used, and
//! unpacking is bounded by the announced size and by a limit of the caller's.
#![forbid(unsafe_code)]

mod container;
mod embedded;
mod image;
mod length;
mod relocatable;
mod unpack;

pub use embedded::{EmbeddedSection, sections};
pub use image::{Compression, Image, ImageKind, Variant, best_compiled, best_ptx};
pub use length::{Length, total_len};
pub use relocatable::Relocatable;

use std::fmt;

/// First bytes of a container, as a little-endian number.
pub const CONTAINER_MAGIC: u32 = 0xBA55_ED50;

/// First bytes of the wrapper in an executable that points to a container. The one who holds the
/// wrapper follows its pointer; this crate begins at the container.
pub const WRAPPER_MAGIC: u32 = 0x4662_43B1;

/// What a run of bytes is, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Container,
    /// A compiled image ("cubin"), or any other ELF file.
    Elf,
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

/// What is wrong with module data, and where. Offsets count from the start of the data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unknown module data at byte {at} (it begins {begins}): expected a fatbin container, an ELF image or PTX text")]
    UnknownFormat { at: u64, begins: String },
    #[error("this is a fatbin wrapper: follow its data pointer and pass the container")]
    IsWrapper,
    #[error("truncated {what} at byte {at}: {needed} bytes are needed, {have} are there; was the file cut off?")]
    Truncated { what: &'static str, at: u64, needed: u64, have: u64 },
    #[error("{what} at byte {at} is {found}, expected {expected}; the data is corrupt")]
    Corrupt { what: &'static str, at: u64, found: u64, expected: &'static str },
    #[error("fatbin entry at byte {at}: {algorithm} data does not unpack: {reason}")]
    Unpack { at: u64, algorithm: &'static str, reason: String },
    #[error("fatbin entry at byte {at} unpacks to {size} bytes, more than the limit of {limit}")]
    TooLarge { at: u64, size: u64, limit: u64 },
    #[error("this is not an ELF file that can be searched for device code: {reason}")]
    NotAnExecutable { reason: String },
}

pub type Result<T> = std::result::Result<T, Error>;

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

/// All images in module data, in order. Nothing is unpacked yet: see [`Image::bytes`].
pub fn images(bytes: &[u8]) -> Result<Vec<Image<'_>>> {
    match identify(bytes)? {
        Format::Container => container::images(bytes),
        Format::Elf => Ok(vec![image::bare_elf(bytes)?]),
        Format::Ptx => Ok(vec![image::bare_ptx(bytes)]),
        Format::Wrapper => Err(Error::IsWrapper),
    }
}
