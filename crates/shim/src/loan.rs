//! What this program lends to other programs and has open of theirs: the handles that they send
//! each other, and which of them are open here.
//!
//! A handle is 64 bytes and holds a token that the executor has made. What the token names, and who
//! may open it, only the executor knows.

use crate::connection::Connection;
use crate::ffi::{Try, error};
use crate::log::because;
use crate::sync::lock;
use cumux_abi::CUresult;
use cumux_wire::record::Op;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// The right to open something.
pub type Token = [u64; 2];

/// A handle as programs send it.
pub const HANDLE_BYTES: usize = 64;
/// What every handle begins with. The driver's own do not.
const MAGIC: [u8; 8] = *b"cumux-1\0";

/// What a handle names. The first three are those of [`cumux_wire::record::lent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    Memory = cumux_wire::record::lent::MEMORY,
    Event = cumux_wire::record::lent::EVENT,
    Block = cumux_wire::record::lent::POOL,
    /// Physical memory, of `cuMemCreate`.
    Physical = 16,
    /// A memory pool.
    Pool = 17,
}

/// A handle with this token, and 16 bytes of the caller's.
#[must_use]
pub fn encode(kind: Kind, token: Token, extra: [u8; 16]) -> [u8; HANDLE_BYTES] {
    let mut bytes = [0; HANDLE_BYTES];
    let fields: [&[u8]; 5] = [&MAGIC, &(kind as u64).to_le_bytes(), &token[0].to_le_bytes(), &token[1].to_le_bytes(), &extra];
    let mut rest = &mut bytes[..];
    for field in fields {
        let (head, tail) = rest.split_at_mut(field.len());
        head.copy_from_slice(field);
        rest = tail;
    }
    bytes
}

/// The token and the extra bytes of a handle of this kind.
#[must_use]
pub fn decode(kind: Kind, handle: &[u8]) -> Option<(Token, [u8; 16])> {
    let rest = handle.strip_prefix(&MAGIC)?;
    let (named, rest) = rest.split_first_chunk::<8>()?;
    let (first, rest) = rest.split_first_chunk::<8>()?;
    let (second, rest) = rest.split_first_chunk::<8>()?;
    let (extra, rest) = rest.split_first_chunk::<16>()?;
    let whole = handle.len() == HANDLE_BYTES && rest.iter().all(|byte| *byte == 0) && u64::from_le_bytes(*named) == kind as u64;
    whole.then(|| ([u64::from_le_bytes(*first), u64::from_le_bytes(*second)], *extra))
}

/// A file descriptor that stands for a handle: a file with the handle in it that nobody can change.
///
/// # Errors
/// OPERATING_SYSTEM when there can be no such file.
pub fn export(handle: &[u8; HANDLE_BYTES]) -> Try<OwnedFd> {
    let copy = |at: u64, piece: &mut [u8]| -> Result<(), cumux_ring::FileError> {
        let from = usize::try_from(at).unwrap_or(HANDLE_BYTES).min(HANDLE_BYTES);
        piece.copy_from_slice(handle.get(from..from + piece.len()).unwrap_or(&[0; HANDLE_BYTES][..piece.len()]));
        Ok(())
    };
    let file = cumux_ring::file::create_constant("cumux-handle", HANDLE_BYTES as u64, copy);
    file.map_err(|why| because(CUresult::CUDA_ERROR_OPERATING_SYSTEM, why.to_string()))
}

/// Knows whether a descriptor that [`export`] has made is still open, in any process: its copies
/// share a lock, which ends with the last of them.
#[derive(Debug)]
pub struct Witness(OwnedFd);

impl Witness {
    /// For a descriptor that the program does not have yet.
    ///
    /// # Errors
    /// OPERATING_SYSTEM when the system has no more descriptors or locks.
    pub fn of(file: &OwnedFd) -> Try<Self> {
        let lock = || -> Result<OwnedFd, Errno> {
            flock(file, FlockOperation::NonBlockingLockShared)?;
            rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        lock().map(Self).map_err(|why| because(CUresult::CUDA_ERROR_OPERATING_SYSTEM, why.to_string()))
    }

    /// Whether any process has the descriptor.
    #[must_use]
    pub fn is_open(&self) -> bool {
        flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_err()
    }
}

/// The handle behind a descriptor of the program.
///
/// # Errors
/// INVALID_VALUE when it is no such file.
pub fn import(descriptor: i32) -> Try<[u8; HANDLE_BYTES]> {
    let refused = || because(error::INVALID_VALUE, "the descriptor is not one that cuMemExportToShareableHandle or cuMemPoolExportToShareableHandle has made");
    if descriptor < 0 {
        return Err(refused());
    }
    // SAFETY: the program has this descriptor open during the call, and it is only read.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let content = cumux_ring::file::Constant::of(file.as_fd()).map_err(|_| refused())?;
    content.as_ref().try_into().map_err(|_| refused())
}

/// Something of another program that is open here.
#[derive(Debug, Clone, Copy)]
struct Opened {
    token: Token,
    /// How often.
    count: u32,
    bytes: u64,
    device: u32,
}

/// By its address.
static OPENED: Mutex<BTreeMap<u64, Opened>> = Mutex::new(BTreeMap::new());

/// Where something of another program lies, as it was lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BorrowedExtent {
    pub address: u64,
    pub bytes: u64,
    /// This program's ordinal of its device.
    pub device: u32,
    /// It was not open before.
    pub is_first: bool,
}

/// The token of an allocation of this program.
///
/// # Errors
/// INVALID_VALUE when it cannot be lent as this.
pub fn lend(session: &Connection, address: u64, kind: Kind) -> Try<Token> {
    let [first, second, ..] = session.call(&Op::Lend { address, kind: kind as u32 })?;
    Ok([first, second])
}

/// Opens what another program has lent, once more if it is open.
///
/// # Errors
/// INVALID_HANDLE, and INVALID_CONTEXT when it is this program's own.
pub fn open(session: &Connection, token: Token, kind: Kind) -> Try<BorrowedExtent> {
    let mut opened = lock(&OPENED);
    if let Some((address, known)) = opened.iter_mut().find(|(_, known)| known.token == token) {
        known.count += 1;
        return Ok(BorrowedExtent { address: *address, bytes: known.bytes, device: known.device, is_first: false });
    }
    let [address, bytes, device, ..] = session.call(&Op::Borrow { token, kind: kind as u32 }).map_err(explain)?;
    let device = u32::try_from(device).unwrap_or(0);
    opened.insert(address, Opened { token, count: 1, bytes, device });
    Ok(BorrowedExtent { address, bytes, device, is_first: true })
}

/// Says why something was not opened.
pub fn explain(code: CUresult) -> CUresult {
    match code {
        error::INVALID_HANDLE => because(
            code,
            "nobody lends what the handle names: its process has ended or has freed it, is served by another server (another user's, for example), \
             or has an executor of its own (CUMUX_ISOLATION=own)",
        ),
        error::INVALID_CONTEXT => because(code, "a process cannot open its own handle"),
        error::NOT_PERMITTED => because(code, "the handle was made by a program of another group"),
        error::INVALID_DEVICE => because(code, "it lies on a device that this program does not see"),
        _ => code,
    }
}

/// Closes it once. Whether that was the last time: it is not open any more when all work that was
/// pushed before is done.
///
/// # Errors
/// INVALID_VALUE when nothing is open there.
pub fn close(session: &Connection, address: u64) -> Try<bool> {
    let mut opened = lock(&OPENED);
    let known = opened.get_mut(&address).ok_or(error::INVALID_VALUE)?;
    known.count -= 1;
    if known.count > 0 {
        return Ok(false);
    }
    opened.remove(&address);
    session.control(&Op::Return { address })?;
    Ok(true)
}

/// Closes it however often it was opened.
///
/// # Errors
/// Those of a session that is lost.
pub fn close_all(session: &Connection, address: u64) -> Try {
    if lock(&OPENED).remove(&address).is_none() {
        return Ok(());
    }
    session.control(&Op::Return { address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_what_was_put_into_it_and_of_one_kind() {
        let handle = encode(Kind::Memory, [1, u64::MAX], [7; 16]);
        assert_eq!(decode(Kind::Memory, &handle), Some(([1, u64::MAX], [7; 16])));
        assert_eq!((decode(Kind::Event, &handle), decode(Kind::Memory, &[0; 64]), decode(Kind::Memory, &handle[..63])), (None, None, None));
        let mut damaged = handle;
        damaged[63] = 1;
        assert_eq!(decode(Kind::Memory, &damaged), None);
    }

    #[test]
    fn a_descriptor_carries_a_handle_and_others_are_refused() {
        let handle = encode(Kind::Physical, [3, 4], [0; 16]);
        let descriptor = export(&handle).expect("a file");
        assert_eq!(import(descriptor.as_raw_fd()), Ok(handle));
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!((import(-1), import(reader.as_raw_fd())), (Err(error::INVALID_VALUE), Err(error::INVALID_VALUE)));
    }

    #[test]
    fn a_witness_knows_whether_a_copy_is_open() {
        let descriptor = export(&encode(Kind::Physical, [3, 4], [0; 16])).expect("a file");
        let witness = Witness::of(&descriptor).expect("a witness");
        let copy = descriptor.try_clone().expect("a copy");
        assert!(witness.is_open());
        drop(descriptor);
        assert!(witness.is_open(), "of the copy");
        drop(copy);
        assert!(!witness.is_open());
    }
}
