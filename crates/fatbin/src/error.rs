//! Why module data cannot be read.

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
