//! The executable form of a module: compact instructions over register slots, one array for all
//! functions.
//!
//! Invariants: every slot is inside the banks or constants of its function; every branch target is
//! inside the code; the last instruction of a function never falls through.
//!
//! One file, although long: it is the list of what a warp can execute.

use crate::simd::alu::Alu;
use crate::simd::lanes::{PerLane32, PerLane64, RegisterSlot};
use crate::simd::ops::narrow::Narrow;

/// An instruction of a warp.
#[derive(Debug, Clone)]
pub struct Inst {
    /// The predicate whose lanes execute the instruction; [`NO_SLOT`] for all lanes.
    pub guard: RegisterSlot,
    /// Lanes whose guard is false execute it instead.
    pub negated: bool,
    /// What it does.
    pub op: Op,
}

#[derive(Debug, Clone)]
pub enum Op {
    /// Arithmetic.
    Alu(Alu),
    /// Logic of predicates.
    Predicate(PredicateOp),
    /// Reads a special register.
    Special { d: RegisterSlot, what: Special },
    /// The address of byte `offset` of the frame in local memory; 64 bits if `wide`.
    Frame { d: RegisterSlot, offset: u32, wide: bool },
    /// `bra`: the index of an instruction.
    Branch(u32),
    /// `brx.idx`: the index of a table in [`Program::tables`](super::Program::tables).
    BranchTable { index: RegisterSlot, table: u32 },
    /// Calls the function of this index.
    Call(u32),
    /// Calls through a function pointer.
    CallIndirect { target: RegisterSlot, returns_to: u32 },
    /// Calls a function that the device provides.
    Intrinsic(Box<Intrinsic>),
    /// `ret`.
    Return,
    /// `exit`.
    Exit,
    /// `trap`.
    Trap,
    /// `brkpt`.
    Breakpoint,
    /// Loads from any state space.
    Load(Box<MemoryOp>),
    /// Stores to any state space.
    Store(Box<MemoryOp>),
    /// Atomics and reductions.
    Atomic(Box<AtomicOp>),
    /// Barriers of the block.
    Barrier(Box<BarrierOp>),
    /// `barrier.cluster.arrive`, or `barrier.cluster.wait`.
    ClusterBarrier { waits: bool },
    /// `mapa`: the address `a` of the block's shared memory in the block of rank `b`.
    MapShared { d: RegisterSlot, a: RegisterSlot, b: RegisterSlot, wide: bool },
    /// `getctarank`: to which block of the cluster the shared address `a` belongs.
    SharedRank { d: RegisterSlot, a: RegisterSlot, wide: bool },
    /// What needs other lanes of the warp.
    Warp(Box<WarpOp>),
    /// `activemask`.
    Activemask { d: RegisterSlot },
    /// `isspacep`. `own`: of shared memory, the thread's own block's alone.
    IsSpace { d: RegisterSlot, a: RegisterSlot, wide: bool, space: Space, own: bool },
    /// `membar` and `fence`.
    Fence,
    /// `nanosleep`: lets other warps run.
    Pause,
    /// Barrier objects in shared memory.
    Mbarrier(Box<MbarrierOp>),
    /// What a whole warp does with matrices.
    Matrix(Box<MatrixOp>),
    /// Asynchronous copies, which are done at once here.
    Copy(Box<CopyOp>),
    /// Copies of boxes of tensors, which are done at once here.
    Tensor(Box<TensorOp>),
    /// Textures and surfaces.
    Texture(Box<TextureOp>),
    /// An instruction without effect here, for instance a prefetch.
    Nothing,
    /// An instruction that this device does not execute; a fault.
    Refused,
}

/// An operation on predicates: `d` becomes `how` of `a` and `b`.
#[derive(Debug, Clone, Copy)]
pub struct PredicateOp {
    pub how: PredicateHow,
    pub d: RegisterSlot,
    pub a: RegisterSlot,
    pub b: RegisterSlot,
}

/// How predicates are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredicateHow {
    And,
    Or,
    Xor,
    Move,
    Not,
    False,
    True,
    /// `a` where this predicate is set, else `b`.
    Select(RegisterSlot),
}

/// Special registers (PTX ISA, *Special registers*). The number is the component: x, y, z.
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
    IsExplicitCluster,
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
    /// Where dynamic shared memory begins, in bytes of shared memory.
    DynamicBase,
    /// Where a shared variable of a function lies in the running kernel, in bytes of shared memory:
    /// an index in [`Kernel::shared_table`](super::Kernel::shared_table).
    SharedBase(u32),
    Zero,
    // From here on: registers of 64 bits.
    Clock64,
    Globaltimer,
    Gridid,
    Zero64,
}

impl Special {
    /// True for registers of 64 bits.
    pub fn is_wide(self) -> bool {
        matches!(self, Special::Clock64 | Special::Globaltimer | Special::Gridid | Special::Zero64)
    }
}

/// Where an access goes (PTX ISA, *State Spaces*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Any of the others, by address.
    Generic,
    /// Global memory, and constants, which lie in it.
    Global,
    /// Shared memory of the block, or of its cluster.
    Shared,
    /// The thread's local memory.
    Local,
    /// The running function's frame: offsets in it.
    Frame,
    /// The kernel's parameters.
    Param,
}

/// The register of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The address is the offset alone.
    None,
    /// A 64-bit register.
    Wide(RegisterSlot),
    /// A 32-bit register.
    Narrow(RegisterSlot),
}

/// Memory order (PTX ISA, *Memory Consistency Model*).
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
    /// Where it goes.
    pub space: Space,
    /// The register of the address.
    pub base: Base,
    /// Added to the address.
    pub offset: i64,
    /// Bytes of an element: 1, 2, 4, 8 or 16. 16 bytes take two 64-bit slots.
    pub bytes: u8,
    /// The number of elements.
    pub count: u8,
    /// The registers of the elements.
    pub data: [RegisterSlot; 8],
    /// True if they are 64-bit registers.
    pub wide: bool,
    /// For loads: extend the sign to this many bits of the register; 0 extends with zeros.
    pub sign: u8,
    /// Its memory order.
    pub order: Order,
}

/// The operation of an atomic or reduction.
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

/// An atomic operation or a reduction.
#[derive(Debug, Clone)]
pub struct AtomicOp {
    /// Where it goes.
    pub space: Space,
    /// The register of the address.
    pub base: Base,
    /// Added to the address.
    pub offset: i64,
    /// Bytes of the value: 2, 4 or 8.
    pub bytes: u8,
    /// The operation.
    pub how: AtomicHow,
    /// The register of the old value; [`NO_SLOT`] for a reduction.
    pub d: RegisterSlot,
    /// The register of the operand; for a compare-and-swap, the value compared with.
    pub a: RegisterSlot,
    /// For a compare-and-swap: the new value.
    pub b: RegisterSlot,
}

/// What a barrier instruction does besides arriving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierKind {
    /// Waits.
    Sync,
    /// Continues without waiting.
    Arrive,
    /// Waits, and counts the predicates that are true.
    Count,
    /// Waits; true if all predicates are.
    And,
    /// Waits; true if a predicate is.
    Or,
}

/// A barrier of the block (PTX ISA, *barrier*).
#[derive(Debug, Clone)]
pub struct BarrierOp {
    /// What it does.
    pub kind: BarrierKind,
    /// The register of the barrier's number.
    pub id: RegisterSlot,
    /// The register of the number of threads; [`NO_SLOT`] for the whole block.
    pub threads: RegisterSlot,
    /// The register or predicate of the result.
    pub d: RegisterSlot,
    /// The predicate to combine.
    pub source: RegisterSlot,
    /// The predicate is negated first.
    pub source_negated: bool,
}

/// From which lane a shuffle reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShuffleKind {
    Up,
    Down,
    Butterfly,
    Index,
}

/// The operation of a reduction among lanes.
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

/// What lanes of a warp do together.
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

/// An instruction that lanes of one warp perform together.
#[derive(Debug, Clone)]
pub struct WarpOp {
    /// What they do.
    pub kind: WarpKind,
    /// The register of the mask of lanes that must come; [`NO_SLOT`] for the lanes that are here.
    pub members: RegisterSlot,
    /// The register of the result.
    pub d: RegisterSlot,
    /// The predicate of the result.
    pub p: RegisterSlot,
    /// The first source.
    pub a: RegisterSlot,
    /// The second source.
    pub b: RegisterSlot,
    /// The third source.
    pub c: RegisterSlot,
    /// The source predicate is negated first.
    pub negated: bool,
}

/// A function that the device provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntrinsicKind {
    Printf,
    AssertFail,
    Malloc,
    Free,
    /// A function of the device runtime.
    Runtime(RuntimeCall),
}

/// A function of the device runtime, as kernels call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeCall {
    GetParameterBuffer,
    GetParameterBufferV2,
    LaunchDevice,
    LaunchDeviceV2,
    StreamCreate,
    StreamDestroy,
    StreamWaitEvent,
    EventCreate,
    EventRecord,
    EventDestroy,
    GetLastError,
    PeekAtLastError,
    /// The name of an error, or its description.
    ErrorText {
        name: bool,
    },
    Malloc,
    Free,
    Memcpy,
    Memcpy2D,
    Memset,
    Memset2D,
    GetDevice,
    GetDeviceCount,
    DeviceGetAttribute,
    DeviceGetLimit,
    FuncGetAttributes,
    RuntimeGetVersion,
    Occupancy,
    /// Which of its cache and its shared memory a device prefers.
    CacheConfig,
    /// How wide the banks of its shared memory are.
    SharedMemoryConfig,
}

impl RuntimeCall {
    /// Whether work comes of it that outlives the block.
    pub fn starts_work(self) -> bool {
        use RuntimeCall as C;
        matches!(self, C::LaunchDevice | C::LaunchDeviceV2 | C::Memcpy | C::Memcpy2D | C::Memset | C::Memset2D)
    }
}

/// A call of a function that the device provides.
#[derive(Debug, Clone)]
pub struct Intrinsic {
    /// Which function.
    pub kind: IntrinsicKind,
    /// Where the arguments lie in the frame, in bytes.
    pub arguments: Vec<u32>,
    /// Where the result goes in the frame, in bytes.
    pub result: u32,
    /// Bytes of the result.
    pub result_bytes: u32,
}

/// An operation on a barrier object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MbarrierKind {
    Init,
    Invalidate,
    Arrive,
    ArriveDrop,
    Test,
    TestParity,
    PendingCount,
    /// More bytes of asynchronous copies belong to the phase.
    Expect,
    /// As `Expect`, and an arrival.
    ArriveExpect,
    /// Bytes of asynchronous copies are there.
    Complete,
}

/// An operation on a barrier object in shared memory (PTX ISA, *mbarrier*).
#[derive(Debug, Clone)]
pub struct MbarrierOp {
    /// Which operation.
    pub kind: MbarrierKind,
    /// Shared memory, or generic addresses of it.
    pub space: Space,
    /// The register of the address.
    pub base: Base,
    /// Added to the address.
    pub offset: i64,
    /// The register or predicate of the result.
    pub d: RegisterSlot,
    /// The register of the count, the state or the parity.
    pub a: RegisterSlot,
}

/// What an element of a matrix is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Half precision.
    Half,
    /// bfloat16.
    Brain,
    /// A single of which the upper 19 bits count.
    Tf32,
    /// Single precision.
    Single,
    /// Double precision.
    Double,
    /// A format of 8 bits.
    Narrow(Narrow),
    /// Integers of 8 bits, and of 4.
    U8,
    S8,
    U4,
    S4,
    /// One bit.
    Bit,
    /// A 32-bit integer: accumulators only.
    Word,
}

impl Element {
    /// Bits of an element.
    pub fn bits(self) -> u32 {
        match self {
            Element::Double => 64,
            Element::Single | Element::Tf32 | Element::Word => 32,
            Element::Half | Element::Brain => 16,
            Element::Narrow(_) | Element::U8 | Element::S8 => 8,
            Element::U4 | Element::S4 => 4,
            Element::Bit => 1,
        }
    }

    /// Elements in a register of 32 bits, or in one of 64 for doubles.
    pub fn per_register(self) -> u32 {
        (32 / self.bits()).max(1)
    }

    /// True for integers and bits.
    pub fn is_whole(self) -> bool {
        matches!(self, Element::U8 | Element::S8 | Element::U4 | Element::S4 | Element::Bit | Element::Word)
    }
}

/// The sizes of a product: `m` rows of A, `n` columns of B, and `k` columns of A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
}

/// Which matrix of a product a fragment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixPart {
    A,
    B,
    /// The accumulator or the result.
    C,
}

/// A product of a group of four warps (`wgmma.mma_async`): 64 rows of A, `n` columns of B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupProduct {
    pub n: u32,
    pub k: u32,
    /// The elements of A and B.
    pub elements: [Element; 2],
    /// The elements of D.
    pub into: Element,
    /// Whether A and B lie along M and N in shared memory, in place of along K.
    pub transposed: [bool; 2],
    /// A is in the registers `a`; otherwise the first of these has its descriptor. The first of `b`
    /// has that of B, and `stride` the warp's number.
    pub a_in_registers: bool,
    /// The products are subtracted.
    pub negates: bool,
    pub saturates: bool,
    /// The predicate that D is added to, and whether its opposite counts.
    pub keeps: (RegisterSlot, bool),
}

/// How the products of bits are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitProduct {
    And,
    Xor,
}

/// An operation on matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixKind {
    /// `mma` and `wmma.mma`: D = A B + C. The elements are those of A, B and C; D has those of
    /// `into`.
    Multiply { shape: MatrixShape, elements: [Element; 3], into: Element, saturates: bool, bits: BitProduct },
    /// `mma.m8n8k4` on half precision: four products, one for each two groups of four lanes.
    MultiplyQuads { a_by_column: bool, b_by_row: bool, accumulator: Element, into: Element },
    /// `wmma.load`: the registers `d`. The register `stride` counts elements.
    LoadFragment { shape: MatrixShape, part: MatrixPart, element: Element, by_column: bool },
    /// `wmma.store`: the registers `a`.
    StoreFragment { shape: MatrixShape, element: Element, by_column: bool },
    /// `ldmatrix`: the registers `d`, one for each matrix of 8 by 8 elements of 16 bits.
    LoadRows { transposed: bool },
    /// `stmatrix`: the registers `a`.
    StoreRows { transposed: bool },
    /// `movmatrix`: `a` transposed.
    Transpose,
    /// `wgmma.mma_async`: D = A B + D, the rows of one warp.
    MultiplyGroup(GroupProduct),
}

/// What all lanes of a warp do together with matrices whose elements their registers hold.
#[derive(Debug, Clone)]
pub struct MatrixOp {
    /// What they do.
    pub kind: MatrixKind,
    /// The registers of the result.
    pub d: Vec<RegisterSlot>,
    /// The registers of A, or of the only matrix.
    pub a: Vec<RegisterSlot>,
    /// The registers of B.
    pub b: Vec<RegisterSlot>,
    /// The registers of C.
    pub c: Vec<RegisterSlot>,
    /// Where a matrix in memory is.
    pub place: AddressOperand,
    /// The register of the distance of two rows or columns in memory, in elements.
    pub stride: RegisterSlot,
}

/// An address operand.
#[derive(Debug, Clone, Copy)]
pub struct AddressOperand {
    /// Where it goes.
    pub space: Space,
    /// The register of the address.
    pub base: Base,
    /// Added to the address.
    pub offset: i64,
}

/// An asynchronous copy of each lane (`cp.async`, `cp.async.bulk`).
#[derive(Debug, Clone)]
pub struct CopyOp {
    /// Where the bytes go.
    pub to: AddressOperand,
    /// Where they come from.
    pub from: AddressOperand,
    /// The register of their number.
    pub bytes: RegisterSlot,
    /// Both addresses and the number are multiples of this.
    pub align: u32,
    /// The register of the bytes that are read; zeros follow. [`NO_SLOT`] for all.
    pub read: RegisterSlot,
    /// Nothing is read where this predicate is set.
    pub ignore: RegisterSlot,
    /// The barrier object that counts the bytes.
    pub counted_by: Option<AddressOperand>,
}

/// A copy of a box of a tensor of each lane (`cp.async.bulk.tensor`).
#[derive(Debug, Clone)]
pub struct TensorOp {
    /// Where the tensor map is.
    pub map: AddressOperand,
    /// The registers of the box's first element, one for each dimension: signed numbers.
    pub coordinates: Vec<RegisterSlot>,
    /// Where the box is in shared memory.
    pub shared: AddressOperand,
    /// From shared to global memory, in place of the other way.
    pub stores: bool,
    /// The barrier object that counts the bytes.
    pub counted_by: Option<AddressOperand>,
}

/// Which geometry an instruction gives a texture or surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geometry {
    Line,
    Plane,
    Solid,
    Lines,
    Planes,
    Cube,
    Cubes,
}

impl Geometry {
    /// Coordinates besides the layer.
    pub fn dimensions(self) -> usize {
        match self {
            Geometry::Line | Geometry::Lines => 1,
            Geometry::Plane | Geometry::Planes => 2,
            Geometry::Solid | Geometry::Cube | Geometry::Cubes => 3,
        }
    }

    /// True if the first coordinate is a layer.
    pub fn has_layers(self) -> bool {
        matches!(self, Geometry::Lines | Geometry::Planes | Geometry::Cubes)
    }
}

/// Which level of a mipmapped texture is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelOf {
    /// The first one.
    First,
    /// The one in this register.
    Register(RegisterSlot),
    /// The one that fits the differences of coordinates along two axes, in these registers.
    Gradients([RegisterSlot; 3], [RegisterSlot; 3]),
}

/// What is outside of a surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// A fault.
    Trap,
    /// The nearest element inside.
    Clamp,
    /// Zero, and what is stored there is lost.
    Zero,
}

/// What is asked of a texture or surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextureQuery {
    Width,
    Height,
    Depth,
    Layers,
    Levels,
    Normalized,
}

/// What a texture or surface instruction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextureKind {
    /// `tex`: coordinates are whole numbers or singles.
    Sample { whole: bool, level: LevelOf },
    /// `tld4`: one component of four texels.
    Gather { component: u8 },
    /// `txq` and `suq`.
    Query(TextureQuery),
    /// `suld.b`: elements of this many bytes.
    Load { bytes: u8, outside: Outside },
    /// `sust.b`.
    Store { bytes: u8, outside: Outside },
    /// `sured.b`.
    Reduce { bytes: u8, how: AtomicHow, outside: Outside },
}

/// An instruction on textures or surfaces.
#[derive(Debug, Clone)]
pub struct TextureOp {
    /// What it does.
    pub kind: TextureKind,
    /// The geometry that it gives the object.
    pub geometry: Geometry,
    /// The 64-bit register of the object.
    pub object: RegisterSlot,
    /// The register of the layer; [`NO_SLOT`] without layers.
    pub layer: RegisterSlot,
    /// The registers of the coordinates.
    pub coordinates: [RegisterSlot; 3],
    /// The registers of the result, or of what is stored.
    pub data: Vec<RegisterSlot>,
}

/// A function or a kernel.
#[derive(Debug, Clone, Default)]
pub struct Code {
    /// Its name.
    pub name: String,
    /// Index of its first instruction; `u32::MAX` if it has no body.
    pub entry: u32,
    /// Index behind its last instruction.
    pub end: u32,
    /// 32-bit slots of its frame.
    pub slots32: u32,
    /// 64-bit slots of its frame.
    pub slots64: u32,
    /// Predicates of its frame.
    pub predicates: u32,
    /// Bytes of the frame in local memory, a multiple of 16.
    pub frame: u32,
    /// Its 32-bit constants.
    pub constants32: Vec<PerLane32>,
    /// Its 64-bit constants.
    pub constants64: Vec<PerLane64>,
    /// The entries of `constants64` that are addresses: index, variable, addend.
    pub symbols: Vec<(u32, u32, i64)>,
}

/// Where an instruction comes from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin {
    /// Line of the PTX text.
    pub line: u32,
    /// Index in [`Program::mnemonics`](super::Program::mnemonics).
    pub mnemonic: u32,
}
