//! Values of the special registers (PTX ISA, *Special registers*).

use super::interface::{BlockCoordinates, Launch, Services};
use crate::program::code::Special;
use crate::simd::lanes::{LANES, PerLane32};

/// A value for each lane.
fn fill_lanes(f: impl Fn(u32) -> u32) -> PerLane32 {
    let mut out = PerLane32::splat(0);
    for lane in 0..LANES {
        out.0[lane] = f(lane as u32);
    }
    out
}

/// Component `n` of `values`; `otherwise` for the fourth component of a vector.
fn select_component(values: [u32; 3], n: u8, otherwise: u32) -> u32 {
    values.get(n as usize).copied().unwrap_or(otherwise)
}

/// Rank of a block in its cluster, and the cluster's blocks.
fn cluster_rank(launch: &Launch, coordinates: BlockCoordinates) -> (u32, u32) {
    let size = launch.cluster.map(|n| n.max(1));
    let [x, y, z] = [0, 1, 2].map(|n| coordinates.ctaid[n] % size[n]);
    (x + size[0] * (y + size[1] * z), size.iter().product())
}

/// The lanes' values of a 32-bit special register.
pub(super) fn read_narrow<S: Services>(
    what: Special,
    launch: &Launch,
    coordinates: BlockCoordinates,
    services: &mut S,
    tid: &[PerLane32; 3],
    warp: u32,
) -> PerLane32 {
    let cluster = launch.cluster.map(|n| n.max(1));
    PerLane32::splat(match what {
        Special::Tid(n) => return tid.get(n as usize).copied().unwrap_or(PerLane32::splat(0)),
        Special::Laneid => return fill_lanes(|lane| lane),
        Special::LanemaskEq => return fill_lanes(|lane| 1 << lane),
        Special::LanemaskLt => return fill_lanes(|lane| (1 << lane) - 1),
        Special::LanemaskLe => return fill_lanes(|lane| u32::MAX >> (31 - lane)),
        Special::LanemaskGe => return fill_lanes(|lane| u32::MAX << lane),
        Special::LanemaskGt => return fill_lanes(|lane| u32::MAX.checked_shl(lane + 1).unwrap_or(0)),
        Special::Ntid(n) => select_component(launch.block, n, 0),
        Special::Ctaid(n) => select_component(coordinates.ctaid, n, 0),
        Special::Nctaid(n) => select_component(launch.grid, n, 0),
        Special::ClusterId(n) => select_component([0, 1, 2].map(|n| coordinates.ctaid[n] / cluster[n]), n, 0),
        Special::NclusterId(n) => select_component([0, 1, 2].map(|n| launch.grid[n].div_ceil(cluster[n])), n, 0),
        Special::ClusterCtaid(n) => select_component([0, 1, 2].map(|n| coordinates.ctaid[n] % cluster[n]), n, 0),
        Special::ClusterNctaid(n) => select_component(cluster, n, 0),
        Special::ClusterCtarank => cluster_rank(launch, coordinates).0,
        Special::ClusterNctarank => cluster_rank(launch, coordinates).1,
        Special::IsExplicitCluster => launch.explicit_cluster.into(),
        Special::Warpid => coordinates.first_warp + warp,
        Special::Nwarpid => launch.warps_per_multiprocessor,
        Special::Smid => coordinates.multiprocessor,
        Special::Nsmid => launch.multiprocessors,
        Special::Clock => services.clock() as u32,
        Special::ClockHigh => (services.clock() >> 32) as u32,
        Special::GlobaltimerLow => services.globaltimer() as u32,
        Special::GlobaltimerHigh => (services.globaltimer() >> 32) as u32,
        // The C library's grid barrier finds its words through these two.
        Special::Envreg(1) => (launch.grid_workspace >> 32) as u32,
        Special::Envreg(2) => launch.grid_workspace as u32,
        Special::DynamicShared => launch.dynamic_shared,
        Special::DynamicBase => dynamic_base(launch),
        Special::SharedBase(row) => shared_base(launch, row),
        Special::TotalShared => dynamic_base(launch) + launch.dynamic_shared,
        Special::Envreg(_) | Special::Zero => 0,
        Special::Clock64 | Special::Globaltimer | Special::Gridid | Special::Zero64 => 0,
    })
}

/// The value of a 64-bit special register, the same in all lanes.
pub(super) fn read_wide<S: Services>(what: Special, launch: &Launch, services: &mut S) -> u64 {
    match what {
        Special::Clock64 => services.clock(),
        Special::Globaltimer => services.globaltimer(),
        Special::Gridid => launch.grid_id,
        _ => 0,
    }
}

/// Where the kernel's dynamic shared memory begins, in bytes of shared memory.
fn dynamic_base(launch: &Launch) -> u32 {
    launch.linked.program().kernels.get(launch.kernel).map_or(0, |kernel| kernel.dynamic_base())
}

/// Where a variable lies in the kernel's shared memory.
fn shared_base(launch: &Launch, row: u32) -> u32 {
    let kernel = launch.linked.program().kernels.get(launch.kernel);
    kernel.and_then(|kernel| kernel.shared_table.get(row as usize)).copied().unwrap_or(u32::MAX)
}
