//! Whether a queue begins with the very kernels of a chain.
//!
//! A program that repeats itself brings the same launches again and again, with the same
//! parameters. Planning them takes ten times as long as comparing them with those of the chain that
//! came next in their stream the last time. What planning would find out is known of kernels that
//! are equal, but for three things, which are looked at again: whether the client still has the
//! module, whether memory is its own and pinned that is named in the work, and whether there is a
//! `__constant__` variable at an address that is named. Sets and copies are planned each time.

use super::chain::Chain;
use super::plan::{Asked, Plan, PlannedKernel, Planner};
use super::small_work::SmallWork;
use crate::track::{Estimates, TRANSFER_NS};
use cumux_device::{Launch, Work};

/// True if these pieces of work are all kernels of this chain, in order, or begin with them.
/// `copies`: small ones may be nodes.
pub(super) fn begins_with<'a>(chain: &Chain, work: impl Iterator<Item = &'a mut Work>, planner: &mut Planner<'_>, small: &SmallWork, copies: bool) -> bool {
    let mut count = 0;
    let is_same = |(planned, work): (&PlannedKernel, &mut Work)| {
        count += 1;
        match (&planned.asked, &*work) {
            (Asked::Launch { module }, Work::Kernel(kernel)) => {
                is_launched(planned, *module, &kernel.launch)
                    && planner.has_module(*module, &planned.module)
                    && !planner.names_window(&kernel.launch.parameters)
                    && !planner.names_constant(&kernel.launch.parameters)
            }
            // These are planned like any others: whether the client may read or write there may
            // have changed.
            (Asked::Other(before), Work::Set { .. }) => **before == *work && matches!(planner.plan(work), Ok(Plan::Set(set)) if small.does_set(&set, planned)),
            (Asked::Other(before), Work::Copy { .. }) if copies && **before == *work => match planner.plan(work) {
                Ok(Plan::Copies(pieces)) => small.does_copy(&pieces, work, planner, planned),
                _ => false,
            },
            _ => false,
        }
    };
    chain.kernels().iter().zip(work).all(is_same) && count == chain.kernels().len()
}

/// True if this launch from the client's module of that number was planned so.
fn is_launched(planned: &PlannedKernel, module: u32, launch: &Launch) -> bool {
    let shape = &planned.shape;
    launch.module == module
        && launch.function as usize == planned.function
        && launch.grid == shape.grid
        && launch.block == shape.block
        && launch.cluster == shape.cluster
        && launch.shared == shape.shared
        && launch.cooperative == shape.cooperative
        && launch.parameters == planned.parameters
}

/// True if each of these kernels is expected to take less than `longest_ns`, and all of them no
/// more than `most_ns`.
pub(super) fn are_short(kernels: &[PlannedKernel], small: &SmallWork, estimates: &Estimates, longest_ns: u64, most_ns: u64) -> bool {
    let (mut last, mut all_ns) = (None, 0);
    kernels.iter().all(|planned| {
        let kernel = planned.kernel();
        let expected_ns = match last {
            Some((id, expected_ns)) if id == kernel.id => expected_ns,
            _ if small.made(planned) => TRANSFER_NS,
            _ => estimates.kernel_ns(kernel),
        };
        last = Some((kernel.id, expected_ns));
        all_ns += expected_ns;
        expected_ns < longest_ns && all_ns <= most_ns
    })
}
