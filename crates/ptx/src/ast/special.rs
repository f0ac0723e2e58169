//! Special registers.

/// One component of a three-dimensional special register; `W` always reads zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// `.x`.
    X,
    /// `.y`.
    Y,
    /// `.z`.
    Z,
    /// `.w`.
    W,
}

impl Axis {
    /// All components, in order.
    pub const ALL: [Self; 4] = [Self::X, Self::Y, Self::Z, Self::W];

    /// The component with this name, written without the dot.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "x" => Self::X,
            "y" => Self::Y,
            "z" => Self::Z,
            "w" => Self::W,
            _ => return None,
        })
    }
}

/// A special register. A whole vector such as `%tid` is parsed as an
/// [`Operand::Vector`](super::Operand::Vector) of its four components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpecialReg {
    /// `%tid`: the thread in its block.
    Tid(Axis),
    /// `%ntid`: threads of a block.
    Ntid(Axis),
    /// `%ctaid`: the block in the grid.
    Ctaid(Axis),
    /// `%nctaid`: blocks of the grid.
    Nctaid(Axis),
    /// `%clusterid`: the cluster in the grid.
    ClusterId(Axis),
    /// `%nclusterid`: clusters of the grid.
    NclusterId(Axis),
    /// `%cluster_ctaid`: the block in its cluster.
    ClusterCtaid(Axis),
    /// `%cluster_nctaid`: blocks of a cluster.
    ClusterNctaid(Axis),
    /// `%cluster_ctarank`: the block's number in its cluster.
    ClusterCtarank,
    /// `%cluster_nctarank`: the number of blocks of a cluster.
    ClusterNctarank,
    /// `%is_explicit_cluster`: whether the launch said the size of a cluster.
    IsExplicitCluster,
    /// `%laneid`: the thread in its warp.
    Laneid,
    /// `%warpid`: the warp in its block.
    Warpid,
    /// `%nwarpid`: warps of a block at most.
    Nwarpid,
    /// `%smid`: the SM.
    Smid,
    /// `%nsmid`: how many numbers of SMs there are.
    Nsmid,
    /// `%gridid`: the launch.
    Gridid,
    /// `%lanemask_eq`: the bit of this lane.
    LanemaskEq,
    /// `%lanemask_le`: the bits of this lane and lower ones.
    LanemaskLe,
    /// `%lanemask_lt`: the bits of lower lanes.
    LanemaskLt,
    /// `%lanemask_ge`: the bits of this lane and higher ones.
    LanemaskGe,
    /// `%lanemask_gt`: the bits of higher lanes.
    LanemaskGt,
    /// `%clock`: the low half of the cycle counter.
    Clock,
    /// `%clock_hi`: the high half of the cycle counter.
    ClockHi,
    /// `%clock64`: the cycle counter.
    Clock64,
    /// `%pm0` to `%pm7`.
    Pm(u8),
    /// `%pm0_64` to `%pm7_64`.
    Pm64(u8),
    /// `%envreg0` to `%envreg31`.
    Envreg(u8),
    /// `%globaltimer`: nanoseconds.
    Globaltimer,
    /// `%globaltimer_lo`: the low half of the nanoseconds.
    GlobaltimerLo,
    /// `%globaltimer_hi`: the high half of the nanoseconds.
    GlobaltimerHi,
    /// `%reserved_smem_offset_begin`: where the system's shared memory begins.
    ReservedSmemOffsetBegin,
    /// `%reserved_smem_offset_end`: where the system's shared memory ends.
    ReservedSmemOffsetEnd,
    /// `%reserved_smem_offset_cap`: bytes of the system's shared memory.
    ReservedSmemOffsetCap,
    /// `%reserved_smem_offset_<0..1>`.
    ReservedSmemOffset(u8),
    /// `%total_smem_size`: bytes of the block's shared memory, without the system's.
    TotalSmemSize,
    /// `%aggr_smem_size`: bytes of the block's shared memory, with the system's.
    AggrSmemSize,
    /// `%dynamic_smem_size`: bytes of shared memory that the launch adds.
    DynamicSmemSize,
    /// `%current_graph_exec`: the running graph, or 0.
    CurrentGraphExec,
}

impl SpecialReg {
    /// The register with this name, with its `%` and, for vectors, its component (`%tid.x`).
    pub fn from_name(name: &str) -> Option<Self> {
        let body = name.strip_prefix('%')?;
        if let Some((base, axis)) = body.split_once('.') {
            return Some(Self::vector(base)?(Axis::from_name(axis)?));
        }
        Some(match body {
            "cluster_ctarank" => Self::ClusterCtarank,
            "cluster_nctarank" => Self::ClusterNctarank,
            "is_explicit_cluster" => Self::IsExplicitCluster,
            "laneid" => Self::Laneid,
            "warpid" => Self::Warpid,
            "nwarpid" => Self::Nwarpid,
            "smid" => Self::Smid,
            "nsmid" => Self::Nsmid,
            "gridid" => Self::Gridid,
            "lanemask_eq" => Self::LanemaskEq,
            "lanemask_le" => Self::LanemaskLe,
            "lanemask_lt" => Self::LanemaskLt,
            "lanemask_ge" => Self::LanemaskGe,
            "lanemask_gt" => Self::LanemaskGt,
            "clock" => Self::Clock,
            "clock_hi" => Self::ClockHi,
            "clock64" => Self::Clock64,
            "globaltimer" => Self::Globaltimer,
            "globaltimer_lo" => Self::GlobaltimerLo,
            "globaltimer_hi" => Self::GlobaltimerHi,
            "reserved_smem_offset_begin" => Self::ReservedSmemOffsetBegin,
            "reserved_smem_offset_end" => Self::ReservedSmemOffsetEnd,
            "reserved_smem_offset_cap" => Self::ReservedSmemOffsetCap,
            "reserved_smem_offset_0" => Self::ReservedSmemOffset(0),
            "reserved_smem_offset_1" => Self::ReservedSmemOffset(1),
            "total_smem_size" => Self::TotalSmemSize,
            "aggr_smem_size" => Self::AggrSmemSize,
            "dynamic_smem_size" => Self::DynamicSmemSize,
            "current_graph_exec" => Self::CurrentGraphExec,
            _ => return Self::numbered(body),
        })
    }

    /// The constructor of a vector register's components, by its name without `%`.
    pub fn vector(base: &str) -> Option<fn(Axis) -> Self> {
        Some(match base {
            "tid" => Self::Tid,
            "ntid" => Self::Ntid,
            "ctaid" => Self::Ctaid,
            "nctaid" => Self::Nctaid,
            "clusterid" => Self::ClusterId,
            "nclusterid" => Self::NclusterId,
            "cluster_ctaid" => Self::ClusterCtaid,
            "cluster_nctaid" => Self::ClusterNctaid,
            _ => return None,
        })
    }

    fn numbered(body: &str) -> Option<Self> {
        let small = |text: &str, limit: u8| text.parse::<u8>().ok().filter(|n| *n < limit);
        if let Some(rest) = body.strip_prefix("envreg") {
            return small(rest, 32).map(Self::Envreg);
        }
        let rest = body.strip_prefix("pm")?;
        match rest.strip_suffix("_64") {
            Some(digits) => small(digits, 8).map(Self::Pm64),
            None => small(rest, 8).map(Self::Pm),
        }
    }

    /// Width in bits of the value read.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Clock64 | Self::Globaltimer | Self::Gridid | Self::Pm64(_) | Self::CurrentGraphExec => 64,
            Self::IsExplicitCluster => 1,
            _ => 32,
        }
    }
}
