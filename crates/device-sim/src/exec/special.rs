//! Values of the special registers.

use super::interface::{Launch, Place, Services};
use crate::program::code::Special;
use crate::simd::lanes::{LANES, V32};

fn lanes(f: impl Fn(u32) -> u32) -> V32 {
    let mut out = V32::splat(0);
    for lane in 0..LANES {
        out.0[lane] = f(lane as u32);
    }
    out
}

fn axis(values: [u32; 3], n: u8, otherwise: u32) -> u32 {
    values.get(n as usize).copied().unwrap_or(otherwise)
}

/// Rank of a block in its cluster and the cluster's size.
fn cluster_rank(launch: &Launch, place: Place) -> (u32, u32) {
    let size = launch.cluster.map(|n| n.max(1));
    let [x, y, z] = [0, 1, 2].map(|n| place.ctaid[n] % size[n]);
    (x + size[0] * (y + size[1] * z), size.iter().product())
}

/// A 32-bit special register.
pub(super) fn narrow<S: Services>(what: Special, launch: &Launch, place: Place, services: &mut S, tid: &[V32; 3], warp: u32) -> V32 {
    let cluster = launch.cluster.map(|n| n.max(1));
    V32::splat(match what {
        Special::Tid(n) => return tid.get(n as usize).copied().unwrap_or(V32::splat(0)),
        Special::Laneid => return lanes(|lane| lane),
        Special::LanemaskEq => return lanes(|lane| 1 << lane),
        Special::LanemaskLt => return lanes(|lane| (1 << lane) - 1),
        Special::LanemaskLe => return lanes(|lane| u32::MAX >> (31 - lane)),
        Special::LanemaskGe => return lanes(|lane| u32::MAX << lane),
        Special::LanemaskGt => return lanes(|lane| u32::MAX.checked_shl(lane + 1).unwrap_or(0)),
        Special::Ntid(n) => axis(launch.block, n, 0),
        Special::Ctaid(n) => axis(place.ctaid, n, 0),
        Special::Nctaid(n) => axis(launch.grid, n, 0),
        Special::ClusterId(n) => axis([0, 1, 2].map(|n| place.ctaid[n] / cluster[n]), n, 0),
        Special::NclusterId(n) => axis([0, 1, 2].map(|n| launch.grid[n].div_ceil(cluster[n])), n, 0),
        Special::ClusterCtaid(n) => axis([0, 1, 2].map(|n| place.ctaid[n] % cluster[n]), n, 0),
        Special::ClusterNctaid(n) => axis(cluster, n, 0),
        Special::ClusterCtarank => cluster_rank(launch, place).0,
        Special::ClusterNctarank => cluster_rank(launch, place).1,
        Special::Warpid => place.first_warp + warp,
        Special::Nwarpid => launch.warps_per_multiprocessor,
        Special::Smid => place.multiprocessor,
        Special::Nsmid => launch.multiprocessors,
        Special::Clock => services.clock() as u32,
        Special::ClockHigh => (services.clock() >> 32) as u32,
        Special::GlobaltimerLow => services.globaltimer() as u32,
        Special::GlobaltimerHigh => (services.globaltimer() >> 32) as u32,
        // Where a cooperative launch finds its workspace.
        Special::Envreg(1) => (launch.grid_workspace >> 32) as u32,
        Special::Envreg(2) => launch.grid_workspace as u32,
        Special::DynamicShared => launch.dynamic_shared,
        Special::DynamicBase => dynamic_base(launch),
        Special::TotalShared => dynamic_base(launch) + launch.dynamic_shared,
        Special::Envreg(_) | Special::Zero => 0,
        Special::Clock64 | Special::Globaltimer | Special::Gridid | Special::Zero64 | Special::DynamicBase64 => 0,
    })
}

/// A 64-bit special register.
pub(super) fn wide<S: Services>(what: Special, launch: &Launch, services: &mut S) -> u64 {
    match what {
        Special::Clock64 => services.clock(),
        Special::Globaltimer => services.globaltimer(),
        Special::Gridid => launch.grid_id,
        Special::DynamicBase64 => dynamic_base(launch).into(),
        _ => 0,
    }
}

fn dynamic_base(launch: &Launch) -> u32 {
    launch.image.program().kernels.get(launch.kernel).map_or(0, |kernel| kernel.dynamic_base())
}
