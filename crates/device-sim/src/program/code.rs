//! The executable form: compact instructions over register slots, one array for all functions of a module.
//!
//! Invariants: every slot is in range of its function's banks or constants; every target is in range of the code; a function's last
//! instruction never falls through.

use crate::simd::alu::Alu;
use crate::simd::lanes::{PerLane32, PerLane64, Slot};

/// One warp instruction.
#[derive(Debug, Clone)]
pub struct Inst {
    /// Predicate that switches lanes on, `NO_SLOT` for none.
    pub guard: Slot,
    /// WarpRegisters whose guard is false run instead.
    pub negated: bool,
    pub op: Op,
}

#[derive(Debug, Clone)]
pub enum Op {
    Alu(Alu),
    Predicate(PredicateOp),
    Special {
        d: Slot,
        what: Special,
    },
    /// Address of the frame's byte `offset` in local memory; 64-bit if `wide`.
    Frame {
        d: Slot,
        offset: u32,
        wide: bool,
    },
    Branch(u32),
    BranchTable {
        index: Slot,
        table: u32,
    },
    Call(u32),
    CallIndirect {
        target: Slot,
        returns_to: u32,
    },
    Intrinsic(Box<Intrinsic>),
    Return,
    Exit,
    Trap,
    Breakpoint,
    Load(Box<MemoryOp>),
    Store(Box<MemoryOp>),
    Atomic(Box<AtomicOp>),
    Barrier(Box<BarrierOp>),
    /// The rest need lanes of a warp to meet.
    Warp(Box<WarpOp>),
    Activemask {
        d: Slot,
    },
    IsSpace {
        d: Slot,
        a: Slot,
        wide: bool,
        space: Space,
    },
    Fence,
    /// Lets others run.
    Pause,
    Mbarrier(Box<MbarrierOp>),
    Nothing,
    Refused,
}

#[derive(Debug, Clone, Copy)]
pub struct PredicateOp {
    pub how: PredicateHow,
    pub d: Slot,
    pub a: Slot,
    pub b: Slot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredicateHow {
    And,
    Or,
    Xor,
    Move,
    Not,
    False,
    True,
    /// `a` is chosen where predicate `c` is set.
    Select(Slot),
}

/// Registers the hardware sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    ClusterId(u8),
    NclusterId(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    Clock,
    ClockHigh,
    Envreg(u8),
    GlobaltimerLow,
    GlobaltimerHigh,
    DynamicShared,
    TotalShared,
    /// Offset of the dynamic shared memory.
    DynamicBase,
    Zero,
    // 64-bit ones.
    Clock64,
    Globaltimer,
    Gridid,
    Zero64,
    DynamicBase64,
}

impl Special {
    pub fn is_wide(self) -> bool {
        matches!(self, Special::Clock64 | Special::Globaltimer | Special::Gridid | Special::Zero64 | Special::DynamicBase64)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Generic,
    /// Also constants, which lie in global memory.
    Global,
    Shared,
    /// Addresses of the thread's local memory.
    Local,
    /// Offsets in the running function's frame.
    Frame,
    /// The kernel's parameters.
    Param,
}

/// Where an address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    None,
    Wide(Slot),
    Narrow(Slot),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Weak,
    Relaxed,
    Acquire,
    Release,
}

/// A load or a store of one to eight elements.
#[derive(Debug, Clone)]
pub struct MemoryOp {
    pub space: Space,
    pub base: Base,
    pub offset: i64,
    /// Bytes of an element: 1, 2, 4, 8 or 16 (two 64-bit slots).
    pub bytes: u8,
    pub count: u8,
    pub data: [Slot; 8],
    /// The registers are 64-bit ones.
    pub wide: bool,
    /// Loads: extend the sign to this many bits of the register (0: do not).
    pub sign: u8,
    pub order: Order,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicHow {
    Add,
    And,
    Or,
    Xor,
    Exchange,
    Compare,
    Increment,
    Decrement,
    MinUnsigned,
    MaxUnsigned,
    MinSigned,
    MaxSigned,
    AddF32 { flush: bool },
    AddF64,
    AddHalf,
    AddHalfTwo,
    AddBrain,
    AddBrainTwo,
    MinHalf,
    MaxHalf,
    MinHalfTwo,
    MaxHalfTwo,
    MinBrain,
    MaxBrain,
    MinBrainTwo,
    MaxBrainTwo,
}

#[derive(Debug, Clone)]
pub struct AtomicOp {
    pub space: Space,
    pub base: Base,
    pub offset: i64,
    /// 2, 4 or 8.
    pub bytes: u8,
    pub how: AtomicHow,
    /// `NO_SLOT` for a reduction.
    pub d: Slot,
    pub a: Slot,
    /// The new value of compare-and-swap.
    pub b: Slot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierKind {
    Sync,
    Arrive,
    /// Result in a 32-bit register.
    Count,
    And,
    Or,
}

#[derive(Debug, Clone)]
pub struct BarrierOp {
    pub kind: BarrierKind,
    /// 32-bit register or constant.
    pub id: Slot,
    /// Threads; `NO_SLOT` for all of the block.
    pub threads: Slot,
    pub d: Slot,
    pub source: Slot,
    pub source_negated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShuffleKind {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceKind {
    Add,
    MinU,
    MaxU,
    MinS,
    MaxS,
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarpKind {
    Sync,
    VoteAll,
    VoteAny,
    VoteUniform,
    Ballot,
    Shuffle(ShuffleKind),
    MatchAny { wide: bool },
    MatchAll { wide: bool },
    Reduce(ReduceKind),
    Elect,
}

/// What lanes of one warp do together.
#[derive(Debug, Clone)]
pub struct WarpOp {
    pub kind: WarpKind,
    /// The lanes that must meet; `NO_SLOT`: whoever is here.
    pub members: Slot,
    pub d: Slot,
    /// Predicate result.
    pub p: Slot,
    pub a: Slot,
    pub b: Slot,
    pub c: Slot,
    pub negated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntrinsicKind {
    Printf,
    AssertFail,
    Malloc,
    Free,
    /// Functions of the device runtime that this device has not: the result is cudaErrorNotSupported.
    NotSupported,
}

/// A call of something the device provides. Arguments lie in the frame at `arguments`, like those of any call.
#[derive(Debug, Clone)]
pub struct Intrinsic {
    pub kind: IntrinsicKind,
    /// Frame offsets.
    pub arguments: Vec<u32>,
    pub result: u32,
    pub result_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MbarrierKind {
    Init,
    Invalidate,
    Arrive,
    ArriveDrop,
    Test,
    TestParity,
    PendingCount,
}

/// Barriers in shared memory.
#[derive(Debug, Clone)]
pub struct MbarrierOp {
    pub kind: MbarrierKind,
    pub space: Space,
    pub base: Base,
    pub offset: i64,
    pub d: Slot,
    /// Count, state or parity.
    pub a: Slot,
}

/// A function or kernel.
#[derive(Debug, Clone, Default)]
pub struct Code {
    pub name: String,
    /// Index of its first instruction; `u32::MAX` if it has no body.
    pub entry: u32,
    pub end: u32,
    pub slots32: u32,
    pub slots64: u32,
    pub predicates: u32,
    /// Bytes of the frame in local memory, a multiple of 16.
    pub frame: u32,
    pub constants32: Vec<PerLane32>,
    pub constants64: Vec<PerLane64>,
    /// Entries of `constants64` that are addresses: index, variable, addend.
    pub symbols: Vec<(u32, u32, i64)>,
}

/// Where an instruction came from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin {
    pub line: u32,
    /// Index into the module's mnemonics.
    pub mnemonic: u32,
}
