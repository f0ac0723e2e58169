//! What is known of a device.

use crate::cuda::DeviceAttribute;
use serde::{Deserialize, Serialize};

/// The properties of a device. A client receives them at its hello, so that the shim answers
/// property queries without a round trip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The device's name in `--device`: `sim:h200`, `cuda:0`.
    pub id: String,
    /// The name that `cuDeviceGetName` answers.
    pub name: String,
    /// The bytes that `cuDeviceGetUuid` answers.
    pub uuid: [u8; 16],
    /// PCI domain, bus, device.
    pub pci: [u32; 3],
    /// Bytes of device memory.
    pub memory: u64,
    /// The device's attributes. The shim answers INVALID_VALUE for one that is missing here.
    pub attributes: Attributes,
    /// What the device can do and what it needs, for executor, server and shim.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// `GPU-` and the five groups of a UUID.
#[must_use]
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// What a device can do, and what it needs of those who use it. Each field is a question of its
/// own: nobody concludes one from another, or from the device's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The device keeps marks, by which a successor goes on in the middle of a kernel. Where it
    /// keeps none, work that was with the device when the executor died is in doubt.
    pub resumes_kernels: bool,
    /// Work that follows in a stream begins only when the report of the work before it has been
    /// taken. So a report has to be recorded before the call that brings it returns.
    pub waits_for_reports: bool,
    /// A fault of one client leaves the device usable for the others.
    pub contains_faults: bool,
    /// The device pins memory of windows: it reaches only what it was told of, and a page that the
    /// client gives back to the system is no longer the page that the device has.
    pub pins_windows: bool,
    /// The device computes on the processors of this machine. Who waits for it sleeps at once: a
    /// thread that looks again and again would take a processor from the work that it waits for.
    pub needs_cores: bool,
    /// The device runs PTX, and machine code means nothing to it: what compilers make while a
    /// program runs has to be PTX.
    #[serde(default)]
    pub runs_ptx_alone: bool,
    /// The device executes texture and surface instructions on what objects say in the client's own
    /// memory ([`crate::texture`]): arrays are memory like any other there.
    #[serde(default)]
    pub has_textures: bool,
    /// The device's driver makes arrays, texture objects and surface objects, and what it has made
    /// is of use in its process alone: they do not outlive the executor.
    #[serde(default)]
    pub makes_textures: bool,
    /// `cudaGraphSetConditional` in a kernel writes to the address that its handle is, or the
    /// kernel is refused. Without that nobody but the driver knows what a kernel has said.
    #[serde(default)]
    pub sets_conditions: bool,
    /// Why no other process can use the device while one has it, and what to do about it; `None`
    /// where another one can.
    #[serde(default)]
    pub exclusive: Option<String>,
    /// Why nobody can use the device at the moment; `None` where it can be used.
    #[serde(default)]
    pub unavailable: Option<String>,
    /// The other devices of its executor whose memory it reaches.
    #[serde(default)]
    pub peers: Vec<Peer>,
}

/// Another device whose memory a device reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// How fast the way to it is beside those to others; lower is faster.
    pub rank: i32,
    /// Atomic operations work across.
    pub atomics: bool,
    /// Arrays can be reached, too.
    pub arrays: bool,
}

impl Capabilities {
    /// The capabilities of several devices that one process serves together: what all of them can
    /// do, and what any of them needs. Only kernels of some of them may resume.
    #[must_use]
    pub fn of_all<'a>(all: impl IntoIterator<Item = &'a Capabilities>) -> Capabilities {
        let mut all = all.into_iter();
        let Some(first) = all.next().cloned() else { return Capabilities::default() };
        all.fold(first, |sum, next| Capabilities {
            resumes_kernels: sum.resumes_kernels || next.resumes_kernels,
            waits_for_reports: sum.waits_for_reports || next.waits_for_reports,
            contains_faults: sum.contains_faults && next.contains_faults,
            pins_windows: sum.pins_windows || next.pins_windows,
            needs_cores: sum.needs_cores || next.needs_cores,
            runs_ptx_alone: sum.runs_ptx_alone || next.runs_ptx_alone,
            has_textures: sum.has_textures && next.has_textures,
            makes_textures: sum.makes_textures && next.makes_textures,
            sets_conditions: sum.sets_conditions && next.sets_conditions,
            exclusive: match (sum.exclusive, next.exclusive.clone()) {
                (Some(sum), Some(next)) => Some(format!("{sum}; {next}")),
                (sum, next) => sum.or(next),
            },
            // Both are a single device's.
            unavailable: None,
            peers: Vec::new(),
        })
    }
}

impl DeviceFacts {
    /// The value of an attribute, 0 where the device does not have it.
    #[must_use]
    pub fn attribute(&self, attribute: DeviceAttribute) -> i32 {
        self.attributes.get(attribute).unwrap_or(0)
    }

    /// The device's SMs.
    #[must_use]
    pub fn multiprocessors(&self) -> u32 {
        self.attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).max(0).cast_unsigned()
    }
}

/// Values of device attributes. On the wire each is a pair of `CUdevice_attribute` number and
/// value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attributes(Vec<(u32, i32)>);

impl Attributes {
    /// The value of an attribute; `None` where the device does not have it.
    #[must_use]
    pub fn get(&self, attribute: DeviceAttribute) -> Option<i32> {
        self.0.iter().find(|(number, _)| *number == attribute.0).map(|(_, value)| *value)
    }

    /// Gives an attribute this value, in place of any that it had.
    pub fn set(&mut self, attribute: DeviceAttribute, value: i32) {
        self.0.retain(|(number, _)| *number != attribute.0);
        self.0.push((attribute.0, value));
    }

    /// Keeps the first `most` attributes: for a list that another process has sent.
    pub fn truncate(&mut self, most: usize) {
        self.0.truncate(most);
    }

    /// All attributes with their values.
    pub fn iter(&self) -> impl Iterator<Item = (DeviceAttribute, i32)> {
        self.0.iter().map(|(number, value)| (DeviceAttribute(*number), *value))
    }
}

impl FromIterator<(DeviceAttribute, i32)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (DeviceAttribute, i32)>>(values: I) -> Self {
        Self(values.into_iter().map(|(attribute, value)| (attribute.0, value)).collect())
    }
}

impl<const N: usize> From<[(DeviceAttribute, i32); N]> for Attributes {
    fn from(values: [(DeviceAttribute, i32); N]) -> Self {
        values.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn together_devices_can_what_all_can_and_need_what_any_needs() {
        let exclusive = |why: &str| Capabilities { exclusive: Some(why.to_owned()), contains_faults: true, ..Capabilities::default() };
        let card = Capabilities { pins_windows: true, ..exclusive("one") };
        let other = Capabilities { needs_cores: true, resumes_kernels: true, waits_for_reports: true, runs_ptx_alone: true, ..exclusive("two") };
        let plain = Capabilities::default();
        let both = Capabilities::of_all([&card, &other]);
        assert_eq!(both.exclusive.as_deref(), Some("one; two"));
        assert!(both.contains_faults && both.pins_windows && both.needs_cores && both.resumes_kernels && both.waits_for_reports && both.runs_ptx_alone);
        let three = Capabilities::of_all([&plain, &card, &other]);
        assert_eq!(three, Capabilities { contains_faults: false, ..both });
        assert_eq!((Capabilities::of_all([&card]), Capabilities::of_all([])), (card, plain));
    }
}
