//! The contract between the executor and a device, real or software.
//!
//! One executor process opens one [`Device`] for each card. The executor owns order, handles and
//! limits; the device owns execution.
//!
//! Rules every device keeps, tested by [`conformance`] (feature `conformance`):
//!
//! - **Threads.** All methods may be called from any thread. None of them waits for work on the
//!   device, except [`Clients::close_client`] and [`Memory::revoke`], which return when no running
//!   block can touch the memory any more.
//! - **Streams are queues.** Work submitted to one device stream runs in order, each piece after
//!   the one before is done; streams run at the same time.
//! - **Exactly one report.** For each accepted submission the device calls [`Sink::retired`]
//!   exactly once, in stream order, from a thread of its own or one that carries its work
//!   ([`Queues::carry`]), without holding a lock that any method takes.
//! - **Reports come before successors**, where the device says so
//!   ([`Capabilities::waits_for_reports`]): work that follows in the stream begins only when
//!   [`Sink::retired`] has returned for the work before it. So what the sink records there is never
//!   behind what the device has done. A sink must not call [`Clients::close_client`] or
//!   [`Memory::revoke`]: they wait for the thread that calls the sink.
//! - **A fault ends the client, not the device**, where the hardware allows it
//!   ([`Capabilities::contains_faults`]): the faulting work is reported with its error, everything
//!   else of that client with the same error, and no memory of other clients was touched.
//! - **The caller validates** handles and dimensions; the device checks addresses at run time.
//! - **Memory is made of extents**: files whose descriptors outlive the process. A successor maps
//!   the same extents at the same addresses and sees the same bytes.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

use std::sync::Arc;

pub use cumux_wire::facts::{Capabilities, DeviceFacts, Peer};
pub use cumux_wire::module::{FunctionInfo, GlobalInfo, ModuleInfo};
pub use cumux_wire::record::{ArrayWish, CopyEnd, CopyExtent, Launch, ObjectWish, Parameters, Resource, TensorWish, TextureWish, ViewWish};
pub use cumux_wire::text::Channel;

pub use clients::{ClientCounters, ClientSpec, Clients, Lane};
pub use error::DeviceError;
pub use ids::{ClientId, ModuleId, StreamId};
pub use memory::Memory;
pub use modules::{GlobalsAllocator, Image, ImageHash, Modules, PreloadedModule, ReadImage};
pub use partitions::Partitions;
pub use queues::{Carried, Queues};
pub use recipes::{ChainRecipe, MOST_OF_RECIPE, MOST_RECIPE_KERNELS, MOST_RECIPES, RecipeKernel};
pub use report::{Begun, Fault, InDoubt, Outcome, Report, Sink};
pub use takeover::{Interrupted, Resume, Takeover};
pub use textures::Textures;
pub use work::{Kernel, Rows, Work};

mod clients;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod ids;
mod memory;
mod modules;
mod partitions;
mod queues;
mod recipes;
mod report;
pub mod sm_allocator;
mod takeover;
mod textures;
mod work;

/// One card. See the crate's documentation for the rules.
pub trait Device: Clients + Partitions + Memory + Modules + Queues + Takeover + Textures + Send + Sync {
    /// The device's properties.
    fn facts(&self) -> &DeviceFacts;

    /// What the device can do, and what it needs.
    fn capabilities(&self) -> &Capabilities {
        &self.facts().capabilities
    }

    /// How this device reaches the memory of another one of this process; `None` if it does not.
    fn reach(&self, other: &DeviceFacts) -> Option<Peer> {
        let _ = other;
        None
    }
}

/// Opens devices by name. One registry in the binary knows all kinds.
pub trait Open: Send + Sync {
    /// Opens the device `id`, named as in `--device`; it reports to `sink`.
    ///
    /// # Errors
    /// A sentence that names the devices there are.
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError>;

    /// Facts of these devices without opening them; `None` for one of which nothing is known.
    fn look_at_all(&self, ids: &[&str]) -> Vec<Option<DeviceFacts>> {
        ids.iter().map(|_| None).collect()
    }

    /// Opens several devices side by side, as [`Open::open`] each, and returns them in this order.
    fn open_all(&self, wanted: Vec<(&str, Arc<dyn Sink>)>) -> Vec<Result<Arc<dyn Device>, DeviceError>> {
        open_side_by_side(wanted, |(id, sink)| self.open(id, sink))
    }
}

/// Opens devices side by side, each on a thread of its own, and returns them in this order.
pub fn open_side_by_side<T: Send>(
    wanted: Vec<T>,
    open: impl Fn(T) -> Result<Arc<dyn Device>, DeviceError> + Sync,
) -> Vec<Result<Arc<dyn Device>, DeviceError>> {
    let open = &open;
    std::thread::scope(|scope| {
        let last = wanted.len().saturating_sub(1);
        let mut threads = Vec::new();
        let mut here = None;
        for (place, wish) in wanted.into_iter().enumerate() {
            // The last one needs no thread beside this.
            if place == last {
                here = Some(open(wish));
            } else {
                threads.push(std::thread::Builder::new().name("opening".into()).spawn_scoped(scope, move || open(wish)));
            }
        }
        let opened = threads.into_iter().map(|thread| {
            let thread = thread.map_err(|error| DeviceError::System(format!("no thread to open a device: {error}")))?;
            thread.join().unwrap_or_else(|_| Err(DeviceError::System("opening a device has panicked".into())))
        });
        opened.chain(here).collect()
    })
}
