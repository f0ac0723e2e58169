//! How a card is served, as far as environment variables can change it.

use crate::polling::PollPolicy;
use cumux_device::DeviceError;
use cumux_ring::polling;
use cumux_wire::threads::ServiceThreads;
use std::time::Duration;

/// Most engines that a user may ask for.
const MOST_ENGINES: usize = 16;
/// Seconds for which the kernels of a closed client may go on.
const DEFAULT_DRAIN_SECONDS: u64 = 2;

/// Milliseconds for which the work of others is waited for after a fault.
const DEFAULT_FAULT_WAIT_MS: u64 = 5_000;

/// Milliseconds for which an engine may be in a call of the driver: longer than any work is waited
/// for after a fault.
const DEFAULT_ENGINE_LIMIT_MS: u64 = 60_000;

/// Milliseconds for which a quiet card is waited for before clients are moved.
const DEFAULT_LONG_KERNEL_MS: u64 = 250;

/// How a card is served.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Engine threads, 1 to 16 (`CUMUX_DISPATCHERS`; by default 3 for a process's only card on 16
    /// cores or more, 2 on 8 or more, else 1).
    pub engines: usize,
    /// True if the executor's intake threads may carry engines (`CUMUX_CARRY=0` turns this off).
    pub carried: bool,
    /// True if engines read the driver's locks without writing to them (`crates/locks`;
    /// `CUMUX_BIASED_LOCKS=1` turns this on).
    pub(crate) biased_locks: bool,
    /// True if kernels are coalesced: batches of them are launched as graphs (`CUMUX_COALESCE=0`
    /// turns this off).
    pub coalesce: bool,
    /// True if small copies between kernels are kernels of cumux's own (`CUMUX_SMALL_COPIES=0`
    /// turns this off).
    pub small_copies: bool,
    /// For how long an engine polls before it pauses (`CUMUX_ENGINE_SPIN_US`).
    pub(crate) polling: PollPolicy,
    /// How long the kernels of a closed client may go on before the device is given up
    /// (`CUMUX_DRAIN_SECONDS`). A card cannot stop the kernels of one client alone.
    pub drain: Duration,
    /// True if the driver writes a core dump at a fault, and announces faults early
    /// (`CUMUX_CORE_DUMPS=0` turns this off). Without it, a fault ends all work on the card.
    pub core_dumps: bool,
    /// True if the kernels of large images are loaded one by one, when clients launch them
    /// (`CUMUX_KERNELS_ON_DEMAND=0` turns this off).
    pub kernels_on_demand: bool,
    /// True if a process that stands by makes the chains of clients before they come
    /// (`CUMUX_CHAINS_AHEAD=0` turns this off).
    pub chains_ahead: bool,
    /// How long the work of others is waited for after a fault (`CUMUX_FAULT_WAIT_MS`). Clients
    /// whose kernels run longer get an error.
    pub fault_wait: Duration,
    /// How long an engine may be in a call of the driver until the device is given up
    /// (`CUMUX_ENGINE_LIMIT_MS`).
    pub engine_limit: Duration,
    /// How long a call that needs a quiet card waits until the clients whose kernels run are left
    /// alone in this process, and all others go on in another (`CUMUX_LONG_KERNEL_MS`).
    pub long_kernel: Duration,
}

/// Engine threads of a card. With one each, W1 on both of two cards was twice that on one, with two
/// 1.93 times: the cores that they polled were the clients' (decision 0122).
fn default_engines(cards: usize, cores: usize) -> usize {
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    if cards > 1 { 1 } else { ServiceThreads::on(cores).engines as usize }
}

impl Settings {
    /// The defaults for this machine and a process with so many cards, changed by the variables
    /// named above.
    ///
    /// # Errors
    /// A sentence that names the variable whose value is not a number.
    pub fn from_environment(cards: usize) -> Result<Self, DeviceError> {
        let number = |name| cumux_environment::number(name).map_err(|error| DeviceError::Invalid(error.to_string()));
        let cores = polling::cores();
        let engines = number("CUMUX_DISPATCHERS")?.map_or(default_engines(cards, cores), |n| usize::try_from(n).unwrap_or(1));
        // With several cards a lane's clients have work on all of them.
        let carried = cards == 1 && number("CUMUX_CARRY")? != Some(0);
        let biased_locks = number("CUMUX_BIASED_LOCKS")? == Some(1);
        let coalesce = number("CUMUX_COALESCE")? != Some(0);
        let small_copies = number("CUMUX_SMALL_COPIES")? != Some(0);
        let polling = number("CUMUX_ENGINE_SPIN_US")?.map_or_else(|| PollPolicy::of_machine(cores), PollPolicy::of_user);
        let drain = number("CUMUX_DRAIN_SECONDS")?.unwrap_or(DEFAULT_DRAIN_SECONDS);
        let core_dumps = number("CUMUX_CORE_DUMPS")? != Some(0);
        let kernels_on_demand = number("CUMUX_KERNELS_ON_DEMAND")? != Some(0);
        let chains_ahead = coalesce && number("CUMUX_CHAINS_AHEAD")? != Some(0);
        let fault_wait = number("CUMUX_FAULT_WAIT_MS")?.unwrap_or(DEFAULT_FAULT_WAIT_MS);
        let long_kernel = number("CUMUX_LONG_KERNEL_MS")?.unwrap_or(DEFAULT_LONG_KERNEL_MS);
        let engine_limit = number("CUMUX_ENGINE_LIMIT_MS")?.unwrap_or(DEFAULT_ENGINE_LIMIT_MS);
        Ok(Settings {
            engines: engines.clamp(1, MOST_ENGINES),
            carried,
            biased_locks,
            coalesce,
            small_copies,
            polling,
            drain: Duration::from_secs(drain),
            core_dumps,
            kernels_on_demand,
            chains_ahead,
            fault_wait: Duration::from_millis(fault_wait),
            engine_limit: Duration::from_millis(engine_limit.max(1)),
            long_kernel: Duration::from_millis(long_kernel),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_one_process_have_an_engine_each() {
        assert_eq!([default_engines(1, 64), default_engines(2, 64)], [3, 1]);
    }
}
