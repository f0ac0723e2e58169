//! A resource as it lies in the program's `CUdevResource`: what CUDA says of it in the public part,
//! and which multiprocessors it is in the part that is the driver's.
//!
//! A program copies such structures as it likes. One that did not come from here has no mark, and
//! is not taken.

use super::division::Granularity;
use crate::connection::Connection;
use crate::device;
use crate::ffi::{Try, error};
use cumux_abi::{CUdevResource, CUdevResourceType, CUdevSmResource, CUdevice, CUdevice_attribute, CUresult};
use cumux_wire::positions::SmPositions;

/// Begins what is the driver's.
const MARK: [u8; 8] = *b"cumux SM";
/// Mark, device, whether it is fine, split, and four words of positions.
const BYTES: usize = 8 + 4 + 4 + 8 + 32;

/// Multiprocessors of a device, out of the program's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resource {
    /// Ordinal of the device.
    pub(super) device: u32,
    pub(super) positions: SmPositions,
    /// The number of the split that it came from; 0 for what a device or a context has.
    pub(super) split: u64,
    /// It was split without regard to which multiprocessors are scheduled together.
    pub(super) fine: bool,
}

impl Resource {
    /// What the program may use of a device.
    pub(super) fn of_device(session: &Connection, device: CUdevice) -> Try<Self> {
        device::named(session, device)?;
        let device = device.cast_unsigned();
        let positions = SmPositions::first(device::share(session, device).min(SmPositions::MOST)).unwrap_or_default();
        Ok(Self { device, positions, split: 0, fine: false })
    }

    /// The compute capability of its device.
    pub(super) fn major(&self, session: &Connection) -> Try<u32> {
        let device = device::named(session, self.device.cast_signed())?;
        let major = device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        // One that is not known counts as the newest.
        Ok(major.map_or(u32::MAX, i32::cast_unsigned))
    }

    /// The program's structure for it; one of no type where there are no multiprocessors.
    pub(super) fn to_c(self, major: u32) -> CUdevResource {
        let mut out = CUdevResource::default();
        if self.positions.is_empty() {
            return out;
        }
        let Granularity { least, step } = Granularity::of(major, self.fine);
        let count = self.positions.count();
        // Of a rest that is no multiple of the usual groups, single pairs are promised.
        let aligned = if self.split == 0 || count.is_multiple_of(step) { step } else { 2 - count % 2 };
        out.type_ = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        out.__bindgen_anon_1.sm = CUdevSmResource { smCount: count, minSmPartitionSize: least, smCoscheduledAlignment: aligned };
        let parts = [&MARK[..], &self.device.to_le_bytes(), &u32::from(self.fine).to_le_bytes(), &self.split.to_le_bytes()];
        let words = self.positions.words().map(u64::to_le_bytes);
        let bytes = parts.into_iter().flatten().chain(words.iter().flatten());
        out._internal_padding.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        out
    }

    /// What a structure of the program names.
    ///
    /// # Errors
    /// INVALID_RESOURCE_TYPE for another type, INVALID_VALUE for one that did not come from here.
    pub(super) fn from_c(session: &Connection, from: &CUdevResource) -> Try<Self> {
        if from.type_ != CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM {
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let read = Self::read(&from._internal_padding).ok_or(error::INVALID_VALUE)?;
        device::named(session, read.device.cast_signed())?;
        Ok(read)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.get(..BYTES)?.strip_prefix(&MARK)?;
        let (device, rest) = rest.split_first_chunk()?;
        let (fine, rest) = rest.split_first_chunk()?;
        let (split, rest) = rest.split_first_chunk()?;
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(rest.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let positions = SmPositions::from_words(words);
        let read = Self { device: u32::from_le_bytes(*device), positions, split: u64::from_le_bytes(*split), fine: u32::from_le_bytes(*fine) != 0 };
        (!positions.is_empty()).then_some(read)
    }
}

/// Several resources as one.
///
/// # Errors
/// INVALID_VALUE for none; INVALID_RESOURCE_CONFIGURATION for several that are not different ones
/// of one split.
pub(super) fn join(resources: &[Resource]) -> Try<Resource> {
    let (first, others) = resources.split_first().ok_or(error::INVALID_VALUE)?;
    let mut joined = *first;
    for other in others {
        if other.split == 0 || other.split != joined.split || other.device != joined.device || other.positions.overlaps(joined.positions) {
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        joined.positions = joined.positions.union(other.positions);
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(positions: impl IntoIterator<Item = u32>, split: u64) -> Resource {
        Resource { device: 1, positions: positions.into_iter().collect(), split, fine: false }
    }

    fn public(resource: Resource, major: u32) -> (u32, u32, u32) {
        // SAFETY: plain numbers, which every bytes are.
        let sm = unsafe { resource.to_c(major).__bindgen_anon_1.sm };
        (sm.smCount, sm.minSmPartitionSize, sm.smCoscheduledAlignment)
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        for resource in [resource(0..132, 0), resource([3, 200, 255], 7), Resource { fine: true, ..resource(4..6, u64::MAX) }] {
            let c = resource.to_c(9);
            assert_eq!(Resource::read(&c._internal_padding), Some(resource));
            let mut other = c;
            other._internal_padding[3] ^= 1;
            assert_eq!(Resource::read(&other._internal_padding), None);
        }
        assert_eq!(resource([], 3).to_c(9).type_, CUdevResourceType::CU_DEV_RESOURCE_TYPE_INVALID);
        assert_eq!(Resource::read(&CUdevResource::default()._internal_padding), None);
        assert_eq!(Resource::read(&MARK), None);
    }

    #[test]
    fn the_public_part_says_how_it_can_be_split() {
        assert_eq!(public(resource(0..132, 0), 9), (132, 8, 8));
        assert_eq!(public(resource(0..16, 3), 9), (16, 8, 8));
        assert_eq!(public(resource(0..100, 3), 9), (100, 8, 2));
        assert_eq!(public(resource(0..5, 3), 9), (5, 8, 1));
        assert_eq!(public(Resource { fine: true, ..resource(0..6, 3) }, 9), (6, 2, 2));
        assert_eq!(public(resource(0..108, 0), 8), (108, 4, 2));
        assert_eq!(public(resource(0..40, 0), 7), (40, 2, 2));
    }

    #[test]
    fn resources_of_one_split_are_joined() {
        let (low, high) = (resource(0..8, 5), resource(8..24, 5));
        assert_eq!(join(&[low, high]).map(|joined| joined.positions.count()), Ok(24));
        assert_eq!(join(&[low]), Ok(low));
        assert_eq!(join(&[]), Err(error::INVALID_VALUE));
        let wrong = Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        assert_eq!(join(&[low, resource(8..16, 6)]), wrong, "another split");
        assert_eq!(join(&[resource(0..8, 0), resource(8..16, 0)]), wrong, "no split");
        assert_eq!(join(&[low, low]), wrong, "twice the same");
        assert_eq!(join(&[low, Resource { device: 0, ..high }]), wrong, "another device");
    }
}
