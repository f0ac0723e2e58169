//! The primary context of one card. All other calls need it.
#![expect(clippy::disallowed_types, reason = "numbers its contexts, from any thread")]

use super::device::DeviceHandle;
use super::green;
use super::handle::GreenContext;
use super::library::{engines_have_contexts, queue_count};
use super::made::MadeOnce;
use super::nested::{self, is_nested};
use super::submission::SubmissionLock;
use super::table::Table;
use crate::fault::{Call, CudaError, remedy};
use core::ffi::CStr;
use core::ptr::{null_mut, with_exposed_provenance_mut};
use cumux_abi::{CUctx_flags, CUdevice, CUlimit};
use cumux_device::DeviceError;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the next [`Driver`] of this process. 0 is no [`Driver`]'s.
static INSTANCES: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The number of the [`Driver`] whose context is current in this thread.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// One card with its primary context. Its methods for memory, streams, modules and so on are in the
/// files of those names.
pub(crate) struct Driver {
    device: DeviceHandle,
    /// The driver's handle for the context, as a number. [`Driver::open`] took a reference, which
    /// keeps the context alive.
    context: usize,
    /// This [`Driver`]'s number.
    instance: u64,
    /// Least and most urgent stream priority.
    priorities: (i32, i32),
    /// The green context of the whole card of each thread that submits work; none if there is a
    /// single one, or the driver refuses them.
    engines: Vec<GreenContext>,
    /// For calls that submit work.
    pub(super) submission: SubmissionLock,
    /// What the context has made so far that it makes once.
    pub(super) made: MadeOnce,
}

/// Whether the driver writes a core dump when a kernel faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dumps {
    /// It does, and announces faults early.
    On,
    /// It does not.
    Off,
}

impl Drop for Driver {
    fn drop(&mut self) {
        for context in std::mem::take(&mut self.engines) {
            green::destroy(self.device.table(), context);
        }
        // SAFETY: releases the reference that `open` took. No method can be called after this.
        let _ = unsafe { (self.device.table().cuDevicePrimaryCtxRelease_v2)(self.device.raw()) };
    }
}

impl Driver {
    /// True if the card is not to be divided among clients.
    pub(crate) fn is_whole() -> bool {
        nested::is_whole()
    }

    /// Opens card `ordinal` and makes its context. `dumps` holds for the whole process. So many
    /// threads will submit work.
    ///
    /// # Errors
    /// A sentence with a remedy: there is no driver or no such card, or the card cannot be shared.
    pub(crate) fn open(ordinal: u32, dumps: Dumps, submitters: usize) -> Result<Arc<Driver>, DeviceError> {
        let device = DeviceHandle::open(ordinal)?;
        let (table, mode) = (device.table(), device.compute_mode());
        remedy::require_shareable(ordinal, &device.name(), mode)?;
        if dumps == Dumps::On
            && let Err(error) = device.enable_dumps()
        {
            tracing::warn!(code = error.number(), "the driver refuses core dumps: when a kernel faults, all clients with work on the card will get an error");
        }
        // Growing the card's local memory stops the whole context for 0.2 s, so it is not shrunk.
        // SAFETY: the call takes no pointers.
        let _ = unsafe { (table.cuDevicePrimaryCtxSetFlags_v2)(device.raw(), CUctx_flags::CU_CTX_LMEM_RESIZE_TO_MAX.0) };
        let mut context = null_mut();
        // SAFETY: the call writes one pointer, a local.
        CudaError::check(unsafe { (table.cuDevicePrimaryCtxRetain)(&raw mut context, device.raw()) })
            .map_err(|error| DeviceError::System(remedy::no_context(ordinal, mode, error)))?;
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let mut driver = Driver {
            device,
            context: context.expose_provenance(),
            instance,
            priorities: (0, 0),
            engines: Vec::new(),
            submission: SubmissionLock::of_threads(1, false),
            made: MadeOnce::default(),
        };
        driver.priorities = driver.read_priorities();
        if submitters > 1 && engines_have_contexts()? {
            let made = driver.table().and_then(|table| green::create_for_engines(table, driver.raw_device(), submitters));
            driver.engines = made.unwrap_or_else(|error| {
                let why = driver.describe_numbered(error);
                tracing::warn!("the threads that submit work wait for one another: the driver refuses contexts for each: {why}");
                Vec::new()
            });
        }
        // Over a software GPU the thread that makes chains takes the lock, and all wait for it.
        let (threads, is_apart) = (submitters + usize::from(is_nested()), !driver.engines.is_empty() && !is_nested());
        driver.submission = SubmissionLock::of_threads(threads, is_apart);
        Ok(Arc::new(driver))
    }

    /// The driver's functions, with this context current in the calling thread.
    ///
    /// # Errors
    /// The driver's, if it cannot make the context current.
    pub(super) fn table(&self) -> Call<&'static Table> {
        let table = self.device.table();
        if CURRENT.get() != self.instance {
            // SAFETY: the context is retained as long as `self` lives.
            CudaError::check(unsafe { (table.cuCtxSetCurrent)(with_exposed_provenance_mut(self.context)) })?;
            CURRENT.set(self.instance);
        }
        Ok(table)
    }

    /// The driver's handle for the card.
    pub(super) fn raw_device(&self) -> CUdevice {
        self.device.raw()
    }

    /// The card without its context.
    pub(crate) fn device(&self) -> &DeviceHandle {
        &self.device
    }

    /// The driver's sentence for an error.
    pub(crate) fn describe(&self, error: CudaError) -> String {
        let mut text = core::ptr::null();
        // SAFETY: the call writes one pointer, a local; the text it points to lives in the library.
        let known = CudaError::check(unsafe { (self.device.table().cuGetErrorString)(error.result(), &raw mut text) });
        if known.is_err() || text.is_null() {
            return "unknown error".to_owned();
        }
        // SAFETY: the text that the driver just gave, ended by a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// The driver's sentence for an error, with the error's number.
    pub(crate) fn describe_numbered(&self, error: CudaError) -> String {
        format!("{} (CUDA error {})", self.describe(error), error.number())
    }

    /// How many queues of the card the context has. Streams that share one wait for each other.
    ///
    /// # Errors
    /// A sentence with a remedy: the user's value is no number.
    pub(crate) fn queues(&self) -> Result<usize, DeviceError> {
        queue_count()
    }

    /// The green contexts of the whole card that threads which submit work have for themselves.
    pub(super) fn engine_context(&self, engine: usize) -> Option<GreenContext> {
        self.engines.get(engine).copied()
    }

    /// How many of them there are.
    pub(super) fn engine_contexts(&self) -> usize {
        self.engines.len()
    }

    /// Nanoseconds that threads which submit have been in the driver, and have waited for one
    /// another; 0 if the log is not at debug.
    pub(crate) fn submission_times(&self) -> (u64, u64) {
        self.submission.times()
    }

    /// Least and most urgent stream priority.
    pub(crate) fn priorities(&self) -> (i32, i32) {
        self.priorities
    }

    fn read_priorities(&self) -> (i32, i32) {
        let (mut least, mut greatest) = (0, 0);
        if let Ok(table) = self.table() {
            // SAFETY: the call writes two numbers, locals.
            let _ = unsafe { (table.cuCtxGetStreamPriorityRange)(&raw mut least, &raw mut greatest) };
        }
        (least, greatest)
    }

    /// The value of a limit of the context.
    ///
    /// # Errors
    /// The driver's, for a limit that it does not have.
    pub(crate) fn limit(&self, limit: CUlimit) -> Call<u64> {
        let mut value = 0;
        // SAFETY: the call writes one number, a local.
        CudaError::check(unsafe { (self.table()?.cuCtxGetLimit)(&raw mut value, limit) })?;
        Ok(value as u64)
    }

    /// Sets a limit of the context.
    ///
    /// # Errors
    /// The driver's, for a limit that it does not have or a value that is too large.
    pub(crate) fn set_limit(&self, limit: CUlimit, value: u64) -> Call<()> {
        // SAFETY: the call takes no pointers.
        CudaError::check(unsafe { (self.table()?.cuCtxSetLimit)(limit, value as usize) })
    }
}
