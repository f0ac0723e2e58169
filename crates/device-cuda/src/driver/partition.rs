//! Partitions of the card: splitting its SMs into groups, and green contexts on some groups.

use super::context::Driver;
use super::green;
use super::handle::{GreenContext, Stream};
use crate::fault::{Call, CudaError};
use core::ffi::c_uint;
use cumux_abi::types as t;

/// Most groups that one split may give. No card has more pairs of SMs.
const MOST_GROUPS: usize = 128;

/// A group of SMs: one result of a split of the card.
#[derive(Clone, Copy)]
pub(crate) struct SmResource(t::CUdevResource);

impl SmResource {
    /// Keeps a resource if it is one of SMs.
    fn of(resource: t::CUdevResource) -> Option<SmResource> {
        (resource.type_ == t::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM).then_some(SmResource(resource))
    }

    /// The number of SMs in the group.
    pub(crate) fn count(&self) -> usize {
        // SAFETY: `of` has checked the kind, which says that this field of the union is the live
        // one.
        unsafe { self.0.__bindgen_anon_1.sm }.smCount as usize
    }
}

/// Whether the SMs of each group of a split must be scheduled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coscheduling {
    /// Thread block clusters of the group's size fit into a group.
    Required,
    /// Any SMs may make a group.
    Ignored,
}

impl Driver {
    /// Splits the card into groups of `each` SMs. The rest is a group, too.
    ///
    /// # Errors
    /// The driver's, for a card that cannot be split in this way.
    pub(crate) fn split_sms(&self, each: u32, coscheduling: Coscheduling) -> Call<Vec<SmResource>> {
        let table = self.table()?;
        let all = green::whole_card(table, self.raw_device())?;
        let mut groups = [t::CUdevResource::default(); MOST_GROUPS];
        let mut rest = t::CUdevResource::default();
        let mut count = groups.len() as c_uint;
        let flags = match coscheduling {
            Coscheduling::Required => 0,
            Coscheduling::Ignored => t::CUdevSmResourceSplit_flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING.0,
        };
        // SAFETY: the call writes at most `count` resources and one more, locals.
        CudaError::check(unsafe { (table.cuDevSmResourceSplitByCount)(groups.as_mut_ptr(), &raw mut count, &raw const all, &raw mut rest, flags, each) })?;
        Ok(groups.into_iter().take(count as usize).chain([rest]).filter_map(SmResource::of).collect())
    }

    /// Creates a context on these groups of SMs, which come from one split. Slow: it takes about a
    /// millisecond, and waits for running kernels.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn create_green_context(&self, sms: &[SmResource]) -> Call<GreenContext> {
        let mut resources: Vec<t::CUdevResource> = sms.iter().map(|group| group.0).collect();
        green::create(self.table()?, self.raw_device(), &mut resources)
    }

    /// Destroys a green context. The caller is its owner and has destroyed its streams.
    pub(crate) fn destroy_green_context(&self, green: GreenContext) {
        if let Ok(table) = self.table() {
            green::destroy(table, green);
        }
    }

    /// Creates a driver stream of this priority (lower is more urgent) on a green context's SMs.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn create_green_stream(&self, green: GreenContext, priority: i32) -> Call<Stream> {
        Ok(Stream::of(green::create_stream(self.table()?, green, priority)?))
    }
}
