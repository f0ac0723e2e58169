//! Partitions of the card: splitting its SMs into groups, and green contexts on some groups.

use super::context::Driver;
use super::handle::{GreenContext, Stream};
use crate::fault::{Call, CudaError};
use core::ffi::c_uint;
use core::ptr::null_mut;
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
        let (table, all) = (self.table()?, self.whole_card()?.0);
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
        let table = self.table()?;
        let mut resources: Vec<t::CUdevResource> = sms.iter().map(|group| group.0).collect();
        let (mut description, mut green) = (null_mut(), null_mut());
        // SAFETY: the call reads as many resources as there are and writes one handle, a local.
        CudaError::check(unsafe { (table.cuDevResourceGenerateDesc)(&raw mut description, resources.as_mut_ptr(), resources.len() as c_uint) })?;
        let flags = t::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
        // SAFETY: the description just made; the call writes one handle, a local.
        CudaError::check(unsafe { (table.cuGreenCtxCreate)(&raw mut green, description, self.raw_device(), flags) })?;
        Ok(GreenContext::of(green))
    }

    /// Creates a green context of the whole card for each of so many threads that submit work; none
    /// if the driver refuses one. To be called before anything runs.
    ///
    /// A call that submits holds the lock of the context in which the stream is. Two threads that
    /// launch to streams of one context get fewer launches a second than one; in a context each they
    /// get twice as many (decision 0131).
    pub(super) fn create_engine_contexts(&self, count: usize) -> Vec<GreenContext> {
        let mut made = Vec::new();
        for _ in 0..count {
            match self.whole_card().and_then(|card| self.create_green_context(&[card])) {
                Ok(green) => made.push(green),
                Err(error) => {
                    tracing::warn!(
                        "the threads that submit work wait for one another: the driver refuses contexts for each: {}",
                        self.describe_numbered(error)
                    );
                    made.drain(..).for_each(|green| self.destroy_green_context(green));
                    break;
                }
            }
        }
        made
    }

    /// All SMs of the card.
    fn whole_card(&self) -> Call<SmResource> {
        let mut all = t::CUdevResource::default();
        let kind = t::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        // SAFETY: the call writes one resource, a local.
        CudaError::check(unsafe { (self.table()?.cuDeviceGetDevResource)(self.raw_device(), &raw mut all, kind) })?;
        SmResource::of(all).ok_or(CudaError::INVALID_VALUE)
    }

    /// Creates a driver stream of this priority (lower is more urgent) on the whole card, to which
    /// this engine alone submits.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn create_engine_stream(&self, engine: usize, priority: i32) -> Call<Stream> {
        let Some(green) = self.engine_context(engine) else { return self.create_stream(priority) };
        Ok(Stream::of_engine(self.create_green_stream(green, priority)?.raw()))
    }

    /// Destroys a green context. The caller is its owner and has destroyed its streams.
    pub(crate) fn destroy_green_context(&self, green: GreenContext) {
        if let Ok(table) = self.table() {
            // SAFETY: the owner's last use of a live context.
            let _ = unsafe { (table.cuGreenCtxDestroy)(green.raw()) };
        }
    }

    /// Creates a driver stream of this priority (lower is more urgent) on a green context's SMs.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn create_green_stream(&self, green: GreenContext, priority: i32) -> Call<Stream> {
        let mut stream = null_mut();
        let flags = t::CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        // SAFETY: a live context; the call writes one handle, a local.
        CudaError::check(unsafe { (self.table()?.cuGreenCtxStreamCreate)(&raw mut stream, green.raw(), flags, priority) })?;
        Ok(Stream::of(stream))
    }
}
