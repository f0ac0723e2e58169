//! The numbers by which executor and device name things to each other.

/// A client of the device: the session number.
pub type ClientId = u32;
/// A module of a client; the client chooses the number.
pub type ModuleId = u32;

/// A stream of the device; the device chooses the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);
