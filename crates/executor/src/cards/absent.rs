//! A device that could not be opened while others could: its clients hear why, the rest is served.

use cumux_device::{
    Begun, ClientId, ClientSpec, Clients, Device, DeviceError, DeviceFacts, Fault, GlobalsAllocator, Image, Interrupted, Memory, ModuleId, ModuleInfo, Modules,
    Partitions, Queues, StreamId, Takeover, Textures, Work,
};
use cumux_wire::cuda::{FunctionAttribute, Limit};
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// A device that is not there. Clients may be opened on it, and do nothing there.
#[derive(Debug)]
pub struct Absent {
    facts: DeviceFacts,
    why: String,
}

impl Absent {
    /// In place of the device with these facts.
    #[must_use]
    pub fn new(mut facts: DeviceFacts, why: String) -> Self {
        facts.capabilities.unavailable = Some(why.clone());
        // Nothing of it is in use.
        facts.capabilities.exclusive = None;
        Self { facts, why }
    }

    fn refuse<T>(&self) -> Result<T, DeviceError> {
        Err(DeviceError::Unavailable(self.why.clone()))
    }
}

impl Device for Absent {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }
}

impl Clients for Absent {
    fn open_client(&self, _: ClientId, _: &ClientSpec, _: Option<BorrowedFd<'_>>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn close_client(&self, _: ClientId) {}

    fn stop_client(&self, _: ClientId, _: Fault) {}

    fn leave(&self, _: &BTreeSet<ClientId>, _: Duration) -> Begun {
        Begun::Only(Vec::new())
    }

    fn set_limit(&self, _: ClientId, _: Limit, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Partitions for Absent {
    fn set_share(&self, _: ClientId, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }

    fn set_share_beside(&self, _: ClientId, _: ClientId) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Memory for Absent {
    fn capacity(&self) -> u64 {
        self.facts.memory
    }

    fn granule(&self) -> u64 {
        2 << 20
    }

    fn create_extent(&self, _: u64) -> Result<OwnedFd, DeviceError> {
        self.refuse()
    }

    fn map(&self, _: u64, _: BorrowedFd<'_>, _: u64, _: u64) -> Result<(), DeviceError> {
        self.refuse()
    }

    fn unmap(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn map_window(&self, _: ClientId, _: BorrowedFd<'_>, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn alias(&self, _: ClientId, _: u64, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn unalias(&self, _: ClientId, _: u64) {}

    fn allow(&self, _: ClientId, _: u64, _: u64, _: bool) {}

    fn revoke(&self, _: ClientId, _: u64) {}

    fn write(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        self.refuse()
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
        self.refuse()
    }
}

impl Modules for Absent {
    fn load_module(&self, _: ClientId, _: ModuleId, _: Image<'_>, _: &mut dyn GlobalsAllocator) -> Result<ModuleInfo, DeviceError> {
        self.refuse()
    }

    fn unload_module(&self, _: ClientId, _: ModuleId) {}

    fn set_function(&self, _: ClientId, _: ModuleId, _: u32, _: FunctionAttribute, _: i32) -> Result<(), DeviceError> {
        self.refuse()
    }
}

impl Queues for Absent {
    fn create_stream(&self, _: ClientId, _: i32) -> Result<StreamId, DeviceError> {
        self.refuse()
    }

    fn destroy_stream(&self, _: StreamId) {}

    fn submit(&self, _: StreamId, _: u64, _: Work) -> Result<(), DeviceError> {
        self.refuse()
    }
}

impl Textures for Absent {}

impl Takeover for Absent {
    fn marks_bytes(&self) -> usize {
        0
    }

    fn recover(&self, _: ClientId) -> Vec<Interrupted> {
        Vec::new()
    }
}
