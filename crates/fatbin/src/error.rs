//! Why module data cannot be read.

/// What is wrong with module data, and where. Offsets count from the start of the data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first bytes are those of no known format.
    #[error("unknown module data at byte {at} (it begins {begins}): expected a fatbin container, an ELF image or PTX text")]
    UnknownFormat {
        /// Offset of the bytes.
        at: u64,
        /// The first bytes, in hexadecimal.
        begins: String,
    },
    /// The data is a wrapper, which points to a container.
    #[error("this is a fatbin wrapper: follow its data pointer and pass the container")]
    IsWrapper,
    /// The data ends too early.
    #[error("truncated {what} at byte {at}: {needed} bytes are needed, {have} are there; was the file cut off?")]
    Truncated {
        /// The part that is not complete.
        what: &'static str,
        /// Offset of the part.
        at: u64,
        /// Bytes that the part has.
        needed: u64,
        /// Bytes that are there.
        have: u64,
    },
    /// A number in the data makes no sense.
    #[error("{what} at byte {at} is {found}, expected {expected}; the data is corrupt")]
    Corrupt {
        /// What the number means.
        what: &'static str,
        /// Offset of the number.
        at: u64,
        /// The number.
        found: u64,
        /// Which numbers would make sense.
        expected: &'static str,
    },
    /// Packed data does not unpack.
    #[error("fatbin entry at byte {at}: {algorithm} data does not unpack: {reason}")]
    Unpack {
        /// Offset of the entry.
        at: u64,
        /// How the data is packed.
        algorithm: &'static str,
        /// What the unpacker says.
        reason: String,
    },
    /// The unpacked data would be larger than the caller allows.
    #[error("fatbin entry at byte {at} unpacks to {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Offset of the entry.
        at: u64,
        /// Bytes after unpacking.
        size: u64,
        /// Bytes that the caller allows.
        limit: u64,
    },
    /// A file has no sections to search.
    #[error("this is not an ELF file that can be searched for device code: {reason}")]
    NotAnExecutable {
        /// What the reader of ELF files says.
        reason: String,
    },
}

/// The result of reading module data.
pub type Result<T> = std::result::Result<T, Error>;
