//! What a PTX module says, with every name resolved.
//!
//! Invariants the parser keeps for whoever walks the tree:
//! - every id ([`RegId`], [`LabelId`], [`VarId`], …) is an index into the table it names, in range;
//! - every label has a target, `target <= instructions.len()` (equal: just past the end);
//! - nothing has to be read from text again: text is left only in names, pragmas, cache hints and
//!   the modifiers of opcodes with [`Opcode::keeps_unknown_modifiers`].

mod access;
mod modifier;
mod opcode;
mod print;
mod special;
mod types;

pub use modifier::*;
pub use opcode::*;
pub use special::*;
pub use types::*;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index into its table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// Into [`Body::registers`]. Dense: only registers that the body mentions have one.
    RegId,
    /// Into [`Body::variables`].
    VarId,
    /// Into [`Body::labels`].
    LabelId,
    /// Into [`Body::branch_tables`].
    BranchTableId,
    /// Into [`Body::call_tables`].
    CallTableId,
    /// Into [`Body::call_prototypes`].
    CallPrototypeId,
    /// Into [`Module::globals`].
    GlobalId,
    /// Into [`Module::functions`].
    FuncId,
}

/// One PTX source.
#[derive(Debug, Clone, PartialEq)]
pub struct Module {
    /// `.version major.minor`.
    pub version: (u32, u32),
    pub target: Target,
    /// 32 or 64.
    pub address_size: u32,
    /// `.file` entries: number and name.
    pub files: Vec<(u32, Box<str>)>,
    /// Module-level variables, extern ones included.
    pub globals: Vec<Variable>,
    /// Kernels and functions, also those only declared (`body` is `None`: vprintf, malloc, …).
    /// A forward declaration and its definition are one entry.
    pub functions: Vec<Function>,
    /// `.alias name, target`.
    pub aliases: Vec<(FuncId, FuncId)>,
    /// Module-level `.pragma` strings.
    pub pragmas: Vec<Box<str>>,
}

/// `.target sm_90a, debug`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// As written, for example `sm_90a`.
    pub name: Box<str>,
    /// 90 for `sm_90a`.
    pub arch: u32,
    /// `a` (this architecture only) or `f` (this family).
    pub suffix: Option<char>,
    /// What follows the first name: `debug`, `texmode_unified`, …
    pub options: Vec<Box<str>>,
}

/// A variable of a module or of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    pub pos: Pos,
    /// Unique within its table; `unique_name` of a nested scope's variable differs from `name`.
    pub name: Box<str>,
    /// `name`, with `$n` appended where the name was used before in the same body.
    pub unique_name: Box<str>,
    pub linkage: Linkage,
    pub space: StateSpace,
    pub ty: ScalarType,
    /// 1, or 2/4/8 for `.v2 .f32` and so on.
    pub vector: u8,
    /// In bytes: as written, else that of the (vector) type.
    pub align: u32,
    /// Array dimensions; empty for a scalar. `[]` is 0 (see `unsized_array`).
    pub dims: Vec<u64>,
    /// `.extern .shared .b8 smem[];`: the size comes from elsewhere.
    pub unsized_array: bool,
    /// Size in bytes, 0 for an unsized array.
    pub size: u64,
    /// What is written; bytes that no entry covers are zero. Ordered by offset.
    pub init: Vec<InitEntry>,
    /// `.attribute(.managed)`.
    pub managed: bool,
}

/// One initialised element of a variable.
#[derive(Debug, Clone, PartialEq)]
pub struct InitEntry {
    /// In bytes from the start of the variable.
    pub offset: u64,
    /// In bytes: 1, 2, 4 or 8.
    pub size: u8,
    pub value: InitValue,
}

#[derive(Debug, Clone, PartialEq)]
pub enum InitValue {
    /// The low `size` bytes, little endian; already converted to the variable's type.
    Bits(u64),
    /// The address of a name plus `offset`.
    Address {
        symbol: SymbolRef,
        offset: i64,
        /// `generic(symbol)`: the address in the generic space, else in the symbol's own.
        generic: bool,
        /// `0xff00(symbol)`: only these bits, shifted down to bit 0.
        mask: Option<u64>,
    },
}

/// What a name stands for. Parameters are by position in the function that mentions them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SymbolRef {
    Global(GlobalId),
    Function(FuncId),
    /// A variable of the body: .local, .shared, or a .param block around a call.
    Local(VarId),
    Param(u32),
    ReturnParam(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// `.entry`: a kernel.
    Entry,
    /// `.func`.
    Func,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    pub pos: Pos,
    pub kind: FunctionKind,
    pub linkage: Linkage,
    pub name: Box<str>,
    pub returns: Vec<Param>,
    pub params: Vec<Param>,
    /// Bytes of all `params` in a parameter block (see [`Param::offset`]).
    pub params_size: u64,
    pub directives: Directives,
    pub body: Option<Body>,
}

/// A parameter or return value.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    pub pos: Pos,
    pub name: Box<str>,
    pub ty: ScalarType,
    /// 1, or 2/4 for a vector type.
    pub vector: u8,
    pub align: u32,
    /// Elements of an array parameter; `Some(0)` is `[]`, the variadic tail.
    pub array: Option<u64>,
    /// Size in bytes.
    pub size: u64,
    /// Where it lies when all parameters are packed in order, each aligned to `align`.
    pub offset: u64,
    /// `.ptr`: the kernel receives a pointer into this space (`None`: generic) of this alignment.
    pub pointer: Option<(Option<StateSpace>, u32)>,
    /// `.reg` parameter of a `.func`: the register that holds it in the body (`None` in
    /// prototypes, and in declarations).
    pub register: Option<RegId>,
    /// Declared as `.reg` rather than `.param`.
    pub in_register: bool,
}

/// Performance and other directives of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directives {
    pub maxntid: Option<[u32; 3]>,
    pub reqntid: Option<[u32; 3]>,
    pub minnctapersm: Option<u32>,
    pub maxnctapersm: Option<u32>,
    pub maxnreg: Option<u32>,
    pub reqnctapercluster: Option<[u32; 3]>,
    pub maxclusterrank: Option<u32>,
    pub explicit_cluster: bool,
    pub blocks_are_clusters: bool,
    pub noreturn: bool,
    pub pragmas: Vec<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Body {
    pub registers: Vec<Register>,
    pub variables: Vec<Variable>,
    pub labels: Vec<Label>,
    /// `.branchtargets`, for `brx.idx`.
    pub branch_tables: Vec<BranchTable>,
    /// `.calltargets`.
    pub call_tables: Vec<CallTable>,
    /// `.callprototype`.
    pub call_prototypes: Vec<CallPrototype>,
    pub instructions: Vec<Instruction>,
    /// `.loc` marks, ordered by instruction.
    pub lines: Vec<LineMark>,
    /// Position of the closing brace.
    pub end: Pos,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    pub name: Box<str>,
    pub ty: ScalarType,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub pos: Pos,
    pub name: Box<str>,
    /// Index into [`Body::instructions`].
    pub target: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchTable {
    pub name: Box<str>,
    pub targets: Vec<LabelId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTable {
    pub name: Box<str>,
    pub targets: Vec<FuncId>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallPrototype {
    pub name: Box<str>,
    pub returns: Vec<Param>,
    pub params: Vec<Param>,
    pub noreturn: bool,
}

/// The source line of the instructions from `instruction` to the next mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineMark {
    pub instruction: u32,
    pub file: u32,
    pub line: u32,
    pub column: u32,
}

/// `@%p1` or `@!%p1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guard {
    pub register: RegId,
    pub negated: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    pub pos: Pos,
    pub guard: Option<Guard>,
    pub opcode: Opcode,
    pub modifiers: Vec<Modifier>,
    pub operands: Vec<Operand>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    Reg(RegId),
    /// `!%p`.
    NotReg(RegId),
    Imm(Imm),
    Special(SpecialReg),
    /// The address of a name plus an offset, as a value; or the name of a `.param` in a call.
    Symbol {
        symbol: SymbolRef,
        offset: i64,
    },
    /// `[base + offset]`.
    Address {
        base: AddressBase,
        offset: i64,
    },
    /// `{a, b, c, d}`.
    Vector(Vec<Operand>),
    /// `[a, {x, y}]`: the brackets of texture, surface and tensor copies.
    Bracket(Vec<Operand>),
    Label(LabelId),
    /// The table of `brx.idx`.
    BranchTable(BranchTableId),
    /// `p|q`.
    Pair(Box<(Operand, Operand)>),
    /// `_`.
    Sink,
    /// `%r1.b0`: part of a register, in video instructions. Negation is `-%r1`.
    Selected {
        register: RegId,
        selector: Option<Selector>,
        negated: bool,
    },
    /// The one operand of `call`.
    Call(Box<Call>),
}

/// Which part of a 32-bit register; the mixes of the two- and four-way video instructions name a
/// source (0 to 7) for each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Selector {
    Byte(u8),
    Half(u8),
    /// `.h10`: two halfwords, in the order written.
    Halves([u8; 2]),
    /// `.b3210`: four bytes, in the order written.
    Bytes([u8; 4]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressBase {
    Reg(RegId),
    Symbol(SymbolRef),
    /// An absolute address; the offset is 0.
    Absolute(u64),
}

/// A literal. Integers keep 64 bits (large unsigned ones wrap).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Imm {
    Int(i64),
    /// `0f…`: the bits of a single.
    F32(u32),
    /// `0d…` or a decimal fraction: the bits of a double.
    F64(u64),
}

/// `call (ret), target, (args), prototype;`
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub returns: Vec<Operand>,
    pub target: CallTarget,
    pub args: Vec<Operand>,
    pub via: Option<CallVia>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallTarget {
    Function(FuncId),
    Register(RegId),
}

/// What an indirect call may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallVia {
    Prototype(CallPrototypeId),
    Targets(CallTableId),
}
