//! The accounts of a group: how much memory of each device every client of the group has, and how
//! much all of them may have together. One file for each group, made by the server, and charged by
//! every executor that has clients of the group.
//!
//! The clients of a group may be in several executors. So what one of them charges is decided under
//! a lock on the file, which the kernel releases when its holder ends. Invariants:
//!
//! - A client's line is written by the executor that has the client, and cleared by the server when
//!   no executor has anything of it. A client that is between two executors keeps its line, so
//!   nobody else takes its memory meanwhile.
//! - A line is one number, written at once: a process that dies leaves the one before or the new
//!   one.
//! - The sum of a device's lines is at most its limit, unless the limit was lowered below it.
//!
//! ```text
//! limits   [u64; DEVICES]           bytes, 0 = no limit
//! lines    [[u64; WINDOWS]; DEVICES] bytes, by the slot of the client's window
//! ```
//!
//! The file is read and written, not mapped: it needs no atomics.

use crate::file::{self, FileError};
use cumux_wire::layout::{DEVICES, DeviceIndex, WINDOWS};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

const WORD: usize = size_of::<u64>();
const LINES: usize = WINDOWS as usize;
/// Bytes of the file.
pub const BYTES: u64 = ((DEVICES + DEVICES * LINES) * WORD) as u64;
/// How long a charge waits for the lock. A holder has it for microseconds; one that is stopped by a
/// signal keeps it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a group was not charged.
#[derive(Debug, thiserror::Error)]
pub enum ChargeError {
    /// The group would have more than its limit.
    #[error("the group has {used} of {limit} bytes")]
    Limit {
        /// Bytes that all its clients have.
        used: u64,
        /// Bytes that they may have.
        limit: u64,
    },
    /// The file cannot be read or written, or another process holds its lock.
    #[error("the accounts of the group cannot be used: {0}")]
    System(#[from] Errno),
}

/// What a group has of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupUse {
    /// Bytes that its clients may have together; 0 = no limit.
    pub limit: u64,
    /// Bytes that they have.
    pub used: u64,
}

/// The accounts of one group, as one process has them open.
#[derive(Debug)]
pub struct GroupAccounts {
    /// An open file of this process alone: locks belong to open files.
    file: OwnedFd,
}

/// Makes the file of a group without limits and without clients.
///
/// # Errors
/// [`FileError::System`].
pub fn create() -> Result<OwnedFd, FileError> {
    file::create("cumux-group", BYTES)
}

impl GroupAccounts {
    /// Opens the accounts behind a descriptor that may be another process's.
    ///
    /// # Errors
    /// [`FileError`]: it is no such file, or the kernel refuses.
    pub fn open(shared: impl AsFd) -> Result<Self, FileError> {
        file::check(&shared, BYTES)?;
        let path = format!("/proc/self/fd/{}", shared.as_fd().as_raw_fd());
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        file::check(&file, BYTES)?;
        Ok(Self { file })
    }

    /// Sets what all clients may have of a device; 0 = no limit. They keep what they have.
    ///
    /// # Errors
    /// [`ChargeError::System`].
    pub fn set_limit(&self, device: DeviceIndex, bytes: u64) -> Result<(), ChargeError> {
        let _locked = self.lock()?;
        Ok(self.write(limit_at(device)?, bytes)?)
    }

    /// Writes that the client of this slot has `total` bytes of a device, if `total` is less than
    /// it has, or the limit allows it.
    ///
    /// # Errors
    /// [`ChargeError`]; the line is then as it was.
    pub fn charge(&self, device: DeviceIndex, slot: u32, total: u64) -> Result<(), ChargeError> {
        let _locked = self.lock()?;
        let (limit, lines) = self.read(device)?;
        let at = line_at(device, slot)?;
        let own = lines.get(slot as usize).copied().unwrap_or(0);
        let used = sum(&lines);
        let after = used.saturating_sub(own).saturating_add(total);
        if total > own && limit != 0 && after > limit {
            return Err(ChargeError::Limit { used, limit });
        }
        Ok(self.write(at, total)?)
    }

    /// Writes what the client of this slot has, whatever the limit is.
    ///
    /// # Errors
    /// [`ChargeError::System`].
    pub fn set(&self, device: DeviceIndex, slot: u32, total: u64) -> Result<(), ChargeError> {
        let _locked = self.lock()?;
        Ok(self.write(line_at(device, slot)?, total)?)
    }

    /// The client of this slot has nothing any more.
    ///
    /// # Errors
    /// [`ChargeError::System`].
    pub fn clear(&self, slot: u32) -> Result<(), ChargeError> {
        let _locked = self.lock()?;
        (0..DEVICES as u32).try_for_each(|device| Ok(self.write(line_at(device, slot)?, 0)?))
    }

    /// What the group has of a device.
    ///
    /// # Errors
    /// [`ChargeError::System`].
    pub fn usage(&self, device: DeviceIndex) -> Result<GroupUse, ChargeError> {
        let _locked = self.lock()?;
        let (limit, lines) = self.read(device)?;
        Ok(GroupUse { limit, used: sum(&lines) })
    }

    fn lock(&self) -> Result<Locked<'_>, Errno> {
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Locked(self)),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::yield_now(),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The limit of a device and all its lines.
    fn read(&self, device: DeviceIndex) -> Result<(u64, Vec<u64>), Errno> {
        let words = |at: u64, count: usize| -> Result<Vec<u64>, Errno> {
            let mut bytes = vec![0; count * WORD];
            let mut done = 0;
            while done < bytes.len() {
                match rustix::io::pread(&self.file, &mut bytes[done..], at + done as u64)? {
                    0 => return Err(Errno::IO),
                    read => done += read,
                }
            }
            Ok(bytes.as_chunks::<WORD>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
        };
        let limit = words(limit_at(device)?, 1)?.first().copied().unwrap_or(0);
        Ok((limit, words(line_at(device, 0)?, LINES)?))
    }

    fn write(&self, at: u64, value: u64) -> Result<(), Errno> {
        // Eight bytes of a file in memory are written whole.
        let written = rustix::io::pwrite(&self.file, &value.to_ne_bytes(), at)?;
        if written == WORD { Ok(()) } else { Err(Errno::IO) }
    }
}

/// The lock of a file, while it is held.
struct Locked<'a>(&'a GroupAccounts);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = flock(&self.0.file, FlockOperation::Unlock);
    }
}

fn limit_at(device: DeviceIndex) -> Result<u64, Errno> {
    let device = usize::try_from(device).ok().filter(|device| *device < DEVICES).ok_or(Errno::INVAL)?;
    Ok((device * WORD) as u64)
}

fn line_at(device: DeviceIndex, slot: u32) -> Result<u64, Errno> {
    let before = limit_at(device)? * LINES as u64;
    if slot as usize >= LINES {
        return Err(Errno::INVAL);
    }
    Ok((DEVICES * WORD) as u64 + before + u64::from(slot) * WORD as u64)
}

fn sum(lines: &[u64]) -> u64 {
    lines.iter().fold(0, |sum, line| sum.saturating_add(*line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(accounts: &GroupAccounts, device: u32) -> u64 {
        accounts.usage(device).unwrap().used
    }

    #[test]
    fn clients_have_together_what_the_group_may_have() {
        let file = create().unwrap();
        let (one, other) = (GroupAccounts::open(&file).unwrap(), GroupAccounts::open(&file).unwrap());
        one.charge(3, 0, 1000).unwrap();
        assert_eq!(other.usage(3).unwrap(), GroupUse { limit: 0, used: 1000 }, "without a limit it is only counted");
        other.set_limit(3, 1500).unwrap();
        assert!(matches!(other.charge(3, 511, 501), Err(ChargeError::Limit { used: 1000, limit: 1500 })));
        other.charge(3, 511, 500).unwrap();
        assert!(one.charge(3, 0, 1001).is_err());
        one.charge(3, 0, 400).unwrap();
        other.charge(3, 511, 1100).unwrap();
        assert_eq!((used(&one, 3), used(&one, 2)), (1500, 0), "devices have limits of their own");
        one.set_limit(3, 100).unwrap();
        one.charge(3, 0, 399).unwrap();
        assert!(one.charge(3, 0, 400).is_err(), "what there is stays, and may shrink");
        one.clear(511).unwrap();
        assert_eq!(used(&one, 3), 399);
        one.set(3, 7, 5000).unwrap();
        assert_eq!(used(&other, 3), 5399);
        assert!(one.charge(16, 0, 1).is_err() && one.charge(0, 512, 1).is_err());
    }

    /// Many threads, each with the file open for itself, as executors have it: the sum never
    /// exceeds the limit, and everything that fits is granted.
    #[test]
    fn races_never_exceed_the_limit() {
        let file = create().unwrap();
        GroupAccounts::open(&file).unwrap().set_limit(0, 64).unwrap();
        std::thread::scope(|scope| {
            for slot in 0..8 {
                let accounts = GroupAccounts::open(&file).unwrap();
                scope.spawn(move || {
                    let mut own = 0;
                    for round in 0..400 {
                        if round % 5 == 4 {
                            own /= 2;
                            accounts.charge(0, slot, own).unwrap();
                        } else if accounts.charge(0, slot, own + 3).is_ok() {
                            own += 3;
                        }
                        assert!(accounts.usage(0).unwrap().used <= 64);
                    }
                    accounts.charge(0, slot, 8).unwrap_or_else(|_| accounts.charge(0, slot, 0).unwrap());
                });
            }
        });
        assert!(used(&GroupAccounts::open(&file).unwrap(), 0) <= 64);
    }

    #[test]
    fn a_file_that_is_none_is_refused_and_a_dead_holder_blocks_nobody() {
        let other = file::create("other", BYTES - 8).unwrap();
        assert!(matches!(GroupAccounts::open(&other), Err(FileError::Size { .. })));
        let file = create().unwrap();
        let holder = GroupAccounts::open(&file).unwrap();
        std::mem::forget(holder.lock().unwrap());
        let accounts = GroupAccounts::open(&file).unwrap();
        assert!(matches!(accounts.charge(0, 0, 1), Err(ChargeError::System(_))), "it is told, not waited for without end");
        drop(holder);
        accounts.charge(0, 0, 1).unwrap();
    }
}
