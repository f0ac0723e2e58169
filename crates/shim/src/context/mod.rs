//! Contexts. To the executor a context is nothing; here it is a namespace: its objects live and die
//! with it.
//!
//! - A device's primary context is one object for the life of the process, with a use count;
//!   releasing or resetting it ends its objects.
//! - Each thread has a stack of contexts; the top is current.
//! - A context's NULL stream is a timeline of its own, made at first use.
//! - A green context is a context whose streams run on a part of the share. Everything else is its
//!   primary context's: the two have one id, by which objects know whose they are.
//! - What else ends with a context is known above: those files hand down hooks ([`prepare`]).

mod calls;
mod green;
mod per_thread;

pub use calls::*;
pub(crate) use green::Green;

use crate::changes;
use crate::connection::Connection;
use crate::connection::pipe::{Role, TimelineId};
use crate::ffi::{Try, error};
use crate::handle::{Kind, Table};
use crate::log::because;
use crate::stream::{Home, STREAMS, Stream};
use crate::sync::lock;
use crate::thread::{self, AtThreadEnd};
use crate::{default_stream, device, process, stream};
use core::ffi::{c_int, c_uint, c_void};
use core::mem::ManuallyDrop;
use cumux_abi::{CUcontext, CUdevice, CUfunc_cache, CUresult, CUstream};
use cumux_wire::record::Op;
use cumux_wire::share::Share;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock};

/// Stream priorities: least and greatest.
pub(crate) const PRIORITIES: (c_int, c_int) = (0, -5);

#[derive(Debug)]
struct Life {
    active: bool,
    /// Primary: how often retained. Explicit: attachments.
    uses: u32,
    flags: c_uint,
    cache: CUfunc_cache,
    limits: [usize; LIMITS],
}

impl Life {
    /// The context cannot be used any more, or not until it is retained again.
    fn deactivate(&mut self) {
        self.active = false;
        changes::note();
    }
}

const LIMITS: usize = 10;
/// By `CUlimit`: stack, printf buffer, heap, nested synchronisation (gone since compute capability
/// 9.0), pending launches, L2 fetch, L2 persistence, shared memory; as driver 580 answers on an
/// H200. The last two say that this is no context in graphics (cuBLAS asks).
const DEFAULT_LIMITS: [usize; LIMITS] = [1024, 8_650_752, 8 << 20, 0, 2048, 64, 11_796_480, 232_448, 0, 0];

/// Multiprocessors that a context has for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// All of the program's share.
    None,
    /// As the program's environment said when it was made.
    Percentage(u32),
    /// As the program asked for it.
    Affinity(u32),
}

/// A context.
#[derive(Debug)]
pub struct Context {
    /// The word that the program holds.
    pub handle: u64,
    /// The number by which objects know whose they are. A green context has its primary context's.
    pub id: u64,
    /// A number that no other context of this process ever has.
    pub number: u64,
    /// Ordinal of its device.
    pub device: u32,
    /// The group of its timelines.
    pub group: u32,
    /// The part of the client's share on which its streams run, 0 = all of it.
    partition: u32,
    /// Multiprocessors of its own share; 0 = it has none of its own.
    multiprocessors: u32,
    /// That share was asked for as an execution affinity.
    affine: bool,
    primary: bool,
    /// What makes it a green context.
    pub(crate) green: Option<Green>,
    /// The green contexts of a primary one.
    greens: Mutex<Vec<Arc<Context>>>,
    /// Points that streams made from now on wait for first.
    held: Mutex<Vec<(TimelineId, u64)>>,
    life: Mutex<Life>,
    legacy: OnceLock<Arc<Stream>>,
    /// Default streams of threads.
    per_thread: Mutex<Vec<Arc<Stream>>>,
}

/// What distinguishes a new context.
struct Kindred {
    device: u32,
    partition: u32,
    multiprocessors: u32,
    affine: bool,
    primary: bool,
    green: Option<Green>,
}

/// What a file above does when the objects of a context end.
pub(crate) type EndHook = fn(&'static Connection, &Context);

/// What is to be done when the objects of a context end, in this order: hooks of the files above.
static ENDING: OnceLock<&'static [EndHook]> = OnceLock::new();

/// Contexts have shares of their own
/// (`CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING`).
static OWN_SHARES: OnceLock<bool> = OnceLock::new();

/// All contexts.
pub(crate) static CONTEXTS: Table<Context> = Table::new(Kind::Context);

/// The primary contexts, by ordinal.
static PRIMARIES: OnceLock<Vec<OnceLock<Arc<Context>>>> = OnceLock::new();

/// The current contexts of a thread, the one on top last.
type Contexts = RefCell<Vec<Arc<Context>>>;

thread_local! {
    static STACK: ManuallyDrop<Contexts> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// A thread's stack goes with it.
static END: AtThreadEnd = AtThreadEnd::new(drop_stack);

extern "C" fn drop_stack(_: *mut c_void) {
    thread::finish(|| drop(STACK.with(|stack| stack.take())));
}

/// Makes a context the current one, above the others.
fn push(context: Arc<Context>) {
    END.ask();
    STACK.with(|stack| stack.borrow_mut().push(context));
}

/// The one below becomes the current one. Returns the one that was.
fn pop() -> Option<Arc<Context>> {
    STACK.with(|stack| stack.borrow_mut().pop())
}

impl Context {
    /// A new context; a primary one starts inactive.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when there are too many; when the device cannot be divided, for one with a
    /// share of its own.
    pub fn new(session: &Connection, device: u32, primary: bool, flags: c_uint, own: Own) -> Try<Arc<Self>> {
        let (multiprocessors, affine) = match own {
            Own::None => (0, false),
            Own::Percentage(count) => (count, false),
            Own::Affinity(count) => (count, true),
        };
        // All of the share needs no part of its own.
        let partition = if multiprocessors == 0 || multiprocessors >= device::share(session, device) {
            0
        } else {
            let partition = u32::try_from(process::new_number()).map_err(|_| error::OUT_OF_MEMORY)?;
            session.call(&Op::PartitionOpen { partition, device, multiprocessors })?;
            partition
        };
        Self::insert(session, Kindred { device, partition, multiprocessors, affine, primary, green: None }, flags)
    }

    fn insert(session: &Connection, kindred: Kindred, flags: c_uint) -> Try<Arc<Self>> {
        let Kindred { device, partition, multiprocessors, affine, primary, green } = kindred;
        let life = Life { active: !primary, uses: u32::from(!primary), flags, cache: CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE, limits: DEFAULT_LIMITS };
        let (number, group) = (process::new_number(), session.new_group(partition));
        let id = green.as_ref().map_or(number, |green| green.primary.id);
        let make = |handle| {
            Arc::new(Self {
                handle,
                id,
                number,
                device,
                group,
                partition,
                multiprocessors,
                affine,
                primary,
                green,
                greens: Mutex::new(Vec::new()),
                held: Mutex::new(Vec::new()),
                life: Mutex::new(life),
                legacy: OnceLock::new(),
                per_thread: Mutex::new(Vec::new()),
            })
        };
        CONTEXTS.insert(make).map(|(_, context)| context).ok_or(error::OUT_OF_MEMORY)
    }

    /// Multiprocessors on which its kernels run.
    #[must_use]
    pub fn multiprocessors(&self, session: &Connection) -> u32 {
        let share = device::share(session, self.device);
        match &self.green {
            Some(green) => green.positions.count_within(share),
            None if self.multiprocessors == 0 => share,
            None => self.multiprocessors.min(share),
        }
    }

    /// False for one that was destroyed, and for a primary one that nobody retains.
    #[must_use]
    pub fn is_active(&self) -> bool {
        lock(&self.life).active && self.green.as_ref().is_none_or(|green| green.primary.is_active())
    }

    /// The handle as C has it.
    #[must_use]
    pub fn as_c(&self) -> CUcontext {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// The NULL stream.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when all stream indices are in use.
    pub fn legacy(&self, session: &'static Connection) -> Try<Arc<Stream>> {
        if let Some(stream) = self.legacy.get() {
            return Ok(Arc::clone(stream));
        }
        // The lock makes the first use a single one.
        let _life = lock(&self.life);
        if let Some(stream) = self.legacy.get() {
            return Ok(Arc::clone(stream));
        }
        let stream = Stream::default_of(session, self.home(), Role::Legacy)?;
        self.hold_new(session, stream.timeline)?;
        Ok(Arc::clone(self.legacy.get_or_init(|| stream)))
    }

    /// What its streams must know of it.
    pub(crate) fn home(&self) -> Home {
        Home { context: self.id, handle: self.handle, device: self.device, group: self.group }
    }

    /// Remembers a thread's default stream, so that it ends with the context.
    pub(crate) fn adopt(&self, stream: Arc<Stream>) {
        lock(&self.per_thread).push(stream);
    }

    /// Forgets a thread's default stream: the thread has ended.
    pub(crate) fn disown(&self, stream: &Arc<Stream>) {
        lock(&self.per_thread).retain(|known| !Arc::ptr_eq(known, stream));
    }

    /// Waits for everything and ends every object of this context. The context's own streams stay
    /// with a primary one, for its next life.
    fn end_objects(&self, session: &'static Connection) {
        // A faulted client has nothing to wait for.
        let _ = self.drain_all_streams(session);
        for hook in ENDING.get().into_iter().copied().flatten() {
            hook(session, self);
        }
        if !self.primary {
            self.end_streams(session);
        }
    }

    /// Retains a primary context once more.
    fn retain(&self) {
        let mut life = lock(&self.life);
        life.uses += 1;
        life.active = true;
    }

    /// Releases a primary context; false if nobody retains it. Its objects end with the last use.
    pub(crate) fn release(&self, session: &'static Connection) -> bool {
        let last = {
            let mut life = lock(&self.life);
            let Some(uses) = life.uses.checked_sub(1) else { return false };
            life.uses = uses;
            uses == 0
        };
        if last {
            self.end_objects(session);
            let mut life = lock(&self.life);
            // Another thread may have retained it meanwhile.
            if life.uses == 0 {
                life.deactivate();
                life.limits = DEFAULT_LIMITS;
            }
        }
        true
    }

    /// Ends its default streams and its part of the share.
    fn end_streams(&self, session: &Connection) {
        for stream in lock(&self.per_thread).drain(..).chain(self.legacy.get().cloned()) {
            session.free_timeline(stream.timeline);
        }
        if self.partition != 0 {
            // A session that is lost has no parts.
            let _ = session.control(&Op::PartitionClose { partition: self.partition });
        }
    }
}

/// The current context of this thread, whatever its state.
pub(crate) fn top() -> Option<Arc<Context>> {
    STACK.with(|stack| stack.borrow().last().cloned())
}

/// The number of [`top`], 0 where there is none.
#[inline]
pub(crate) fn top_number() -> u64 {
    STACK.with(|stack| stack.borrow().last().map_or(0, |context| context.number))
}

/// Handle of [`top`], 0 where there is none.
fn top_handle() -> u64 {
    STACK.with(|stack| stack.borrow().last().map_or(0, |context| context.handle))
}

/// The current context.
///
/// # Errors
/// INVALID_CONTEXT when there is none, CONTEXT_IS_DESTROYED when it was destroyed or is a primary
/// context nobody retains.
pub fn current() -> Try<Arc<Context>> {
    let context = top().ok_or(error::INVALID_CONTEXT)?;
    if context.is_active() { Ok(context) } else { Err(error::CONTEXT_IS_DESTROYED) }
}

/// The context an argument names, null and -1 meaning the current one.
pub(crate) fn named(context: CUcontext) -> Try<Arc<Context>> {
    match context.addr() {
        0 | usize::MAX => current(),
        handle => find(handle as u64),
    }
}

/// Replaces the thread's current context.
pub(super) fn set_top(context: Option<Arc<Context>>) {
    pop();
    if let Some(context) = context {
        push(context);
    }
}

/// The context a handle names.
///
/// # Errors
/// INVALID_CONTEXT.
pub(crate) fn find(handle: u64) -> Try<Arc<Context>> {
    CONTEXTS.get(handle).ok_or(error::INVALID_CONTEXT)
}

/// The context with this id that is no green one, if there is one still.
pub(crate) fn find_by_id(id: u64) -> Option<Arc<Context>> {
    CONTEXTS.all(|context| context.id == id && context.green.is_none()).into_iter().next()
}

/// Waits for all work of the context with this id; nothing to wait for where it has ended.
pub(crate) fn drain_by_id(session: &Connection, id: u64) -> Try {
    find_by_id(id).map_or(Ok(()), |context| context.drain_all_streams(session))
}

/// Refuses a context on a device that nobody can use at the moment.
///
/// # Errors
/// DEVICE_UNAVAILABLE, and why.
pub(crate) fn require_available(session: &Connection, device: CUdevice) -> Try {
    match &device::named(session, device)?.facts.capabilities.unavailable {
        Some(why) => Err(because(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE, why.clone())),
        None => Ok(()),
    }
}

/// The primary context of a device: one object for the life of the process, whether it is active or
/// not.
///
/// # Errors
/// INVALID_DEVICE; OUT_OF_MEMORY when there are too many contexts.
pub(crate) fn primary(session: &'static Connection, device: CUdevice) -> Try<&'static Arc<Context>> {
    let ordinal = u32::try_from(device).map_err(|_| error::INVALID_DEVICE)?;
    device::named(session, device)?;
    let all = PRIMARIES.get_or_init(|| device::all(session).iter().map(|_| OnceLock::new()).collect());
    let cell = all.get(ordinal as usize).ok_or(error::INVALID_DEVICE)?;
    if let Some(context) = cell.get() {
        return Ok(context);
    }
    let made = Context::new(session, ordinal, true, 0, own_share(session, ordinal))?;
    if let Err(late) = cell.set(made) {
        CONTEXTS.remove(late.handle);
    }
    cell.get().ok_or(error::UNKNOWN)
}

/// Handle of a device's primary context, without retaining it (for the runtime's private table).
pub(crate) fn primary_handle(device: CUdevice) -> Try<CUcontext> {
    Ok(primary(process::find_connection()?, device)?.as_c())
}

/// Hands down what the files above do when the objects of a context end, and remembers whether
/// contexts have shares of their own: the environment says it when the process is greeted. The
/// first call counts.
pub(crate) fn prepare(session: &Connection, ending: &'static [EndHook]) {
    let _ = ENDING.set(ending);
    let wanted = std::env::var("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING").is_ok_and(|text| text.trim() == "1");
    let _ = OWN_SHARES.set(!session.granted.fixed && wanted);
}

fn has_own_shares() -> bool {
    OWN_SHARES.get().is_some_and(|own| *own)
}

/// What a new context gets because the program's environment says so at this moment.
pub(crate) fn own_share(session: &Connection, ordinal: u32) -> Own {
    if has_own_shares() { Own::Percentage(stated_share(session, ordinal)) } else { Own::None }
}

fn stated_share(session: &Connection, ordinal: u32) -> u32 {
    let Some(device) = device::all(session).get(ordinal as usize) else { return 0 };
    let share = std::env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").ok().and_then(|text| Share::parse(&text)).unwrap_or(Share::ALL);
    share.multiprocessors(device.grain()).min(device::share(session, ordinal))
}

/// What `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT` says: the program's share, or, where contexts
/// have shares of their own, that of the current context (without one, what the next would get). An
/// execution affinity is asked for with `cuCtxGetExecAffinity` and does not show here, as recorded.
pub(crate) fn seen_multiprocessors(session: &Connection, ordinal: u32) -> u32 {
    if !has_own_shares() {
        return device::share(session, ordinal);
    }
    match top().filter(|context| context.device == ordinal && !context.affine) {
        Some(context) => context.multiprocessors(session),
        None => stated_share(session, ordinal),
    }
}

/// Multiprocessors on which kernels of the current context run.
pub(crate) fn multiprocessors(session: &Connection) -> u32 {
    top().map_or_else(|| device::share(session, 0), |context| context.multiprocessors(session))
}

/// Multiprocessors on which kernels of a stream run.
pub(crate) fn multiprocessors_of(session: &Connection, stream: &Stream) -> u32 {
    find(stream.context_handle).map_or_else(|_| multiprocessors(session), |context| context.multiprocessors(session))
}

fn destroy(session: &'static Connection, context: &Arc<Context>) {
    context.end_objects(session);
    forget(context);
}

/// A context has ended: nobody finds it any more.
fn forget(context: &Arc<Context>) {
    lock(&context.life).deactivate();
    CONTEXTS.remove(context.handle);
    let on_top = top().is_some_and(|top| Arc::ptr_eq(&top, context));
    if on_top {
        set_top(None);
    }
}

/// The stream an argument names, in the current context where it names a default stream.
pub(crate) fn stream(session: &'static Connection, stream: CUstream) -> Try<Arc<Stream>> {
    match default_stream::resolve(stream).addr() {
        1 => current()?.legacy(session),
        2 => per_thread::find_stream(session, &current()?),
        handle => STREAMS.get(handle as u64).ok_or_else(|| stream::missing(handle as u64)),
    }
}
