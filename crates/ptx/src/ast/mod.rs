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
    /// `.target`.
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
    /// Where it is declared.
    pub pos: Pos,
    /// Unique within its table; `unique_name` of a nested scope's variable differs from `name`.
    pub name: Box<str>,
    /// `name`, with `$n` appended where the name was used before in the same body.
    pub unique_name: Box<str>,
    /// Who can see the variable.
    pub linkage: Linkage,
    /// Where the variable lies.
    pub space: StateSpace,
    /// The type of an element, or of a component of a vector.
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
    /// The element's value.
    pub value: InitValue,
}

/// The value of an initialised element.
#[derive(Debug, Clone, PartialEq)]
pub enum InitValue {
    /// The low `size` bytes, little endian; already converted to the variable's type.
    Bits(u64),
    /// The address of a name plus `offset`.
    Address {
        /// The name.
        symbol: SymbolRef,
        /// Bytes that are added to the address.
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
    /// A module-level variable.
    Global(GlobalId),
    /// A kernel or function.
    Function(FuncId),
    /// A variable of the body: .local, .shared, or a .param block around a call.
    Local(VarId),
    /// A parameter of the function.
    Param(u32),
    /// A return value of the function.
    ReturnParam(u32),
}

/// Kernel or function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// `.entry`: a kernel.
    Entry,
    /// `.func`.
    Func,
}

/// A kernel or function.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Where it is declared.
    pub pos: Pos,
    /// Kernel or function.
    pub kind: FunctionKind,
    /// Who can see the function.
    pub linkage: Linkage,
    /// The name.
    pub name: Box<str>,
    /// The return values.
    pub returns: Vec<Param>,
    /// The parameters.
    pub params: Vec<Param>,
    /// Bytes of all `params` in a parameter block (see [`Param::offset`]).
    pub params_size: u64,
    /// Directives between header and body.
    pub directives: Directives,
    /// The body; `None` if the function is only declared.
    pub body: Option<Body>,
}

/// A parameter or return value.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// Where it is declared.
    pub pos: Pos,
    /// The name; `_` without one.
    pub name: Box<str>,
    /// The type of an element, or of a component of a vector.
    pub ty: ScalarType,
    /// 1, or 2/4 for a vector type.
    pub vector: u8,
    /// In bytes: as written, else that of the (vector) type.
    pub align: u32,
    /// Elements of an array parameter; `Some(0)` is `[]`, the variadic tail.
    pub array: Option<u64>,
    /// Size in bytes.
    pub size: u64,
    /// Where it lies when all parameters are packed in order, each aligned to `align`.
    pub offset: u64,
    /// `.ptr`: the kernel receives a pointer into this space (`None`: generic) of this alignment.
    pub pointer: Option<(Option<StateSpace>, u32)>,
    /// `.reg` parameter of a `.func`: the register that holds it in the body, or its first
    /// component (`None` in prototypes, and in declarations).
    pub register: Option<RegId>,
    /// Declared as `.reg` rather than `.param`.
    pub in_register: bool,
}

impl Param {
    /// The registers that hold it in the body: one for each component, or none.
    pub fn registers(&self) -> impl Iterator<Item = RegId> + use<> {
        let components = u32::from(self.vector);
        self.register.into_iter().flat_map(move |first| (0..components).map(move |n| RegId(first.0 + n)))
    }
}

/// Performance and other directives of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directives {
    /// `.maxntid`: threads of a block at most, by dimension.
    pub maxntid: Option<[u32; 3]>,
    /// `.reqntid`: threads of a block exactly, by dimension.
    pub reqntid: Option<[u32; 3]>,
    /// `.minnctapersm`: blocks of an SM at least.
    pub minnctapersm: Option<u32>,
    /// `.maxnctapersm`: blocks of an SM at most.
    pub maxnctapersm: Option<u32>,
    /// `.maxnreg`: registers of a thread at most.
    pub maxnreg: Option<u32>,
    /// `.reqnctapercluster`: blocks of a cluster exactly, by dimension.
    pub reqnctapercluster: Option<[u32; 3]>,
    /// `.maxclusterrank`: blocks of a cluster at most.
    pub maxclusterrank: Option<u32>,
    /// `.explicitcluster`: the launch must say the size of a cluster.
    pub explicit_cluster: bool,
    /// `.blocksareclusters`: the launch counts clusters, not blocks.
    pub blocks_are_clusters: bool,
    /// `.noreturn`: the function does not return.
    pub noreturn: bool,
    /// `.pragma` strings.
    pub pragmas: Vec<Box<str>>,
}

/// What is between the braces of a kernel or function.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Body {
    /// The registers that the body mentions.
    pub registers: Vec<Register>,
    /// Variables of the body and of its scopes.
    pub variables: Vec<Variable>,
    /// Labels of the body and of its scopes.
    pub labels: Vec<Label>,
    /// `.branchtargets`, for `brx.idx`.
    pub branch_tables: Vec<BranchTable>,
    /// `.calltargets`.
    pub call_tables: Vec<CallTable>,
    /// `.callprototype`.
    pub call_prototypes: Vec<CallPrototype>,
    /// The instructions, in order.
    pub instructions: Vec<Instruction>,
    /// `.loc` marks, ordered by instruction. Of several before one instruction, the last counts.
    pub lines: Vec<LineMark>,
    /// Position of the closing brace.
    pub end: Pos,
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// The name, with its `%`.
    pub name: Box<str>,
    /// The type; one component's for a vector register.
    pub ty: ScalarType,
}

/// A label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Where it is defined.
    pub pos: Pos,
    /// The name.
    pub name: Box<str>,
    /// Index into [`Body::instructions`].
    pub target: u32,
}

/// `name: .branchtargets a, b;`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchTable {
    /// The name.
    pub name: Box<str>,
    /// The labels, in order.
    pub targets: Vec<LabelId>,
}

/// `name: .calltargets f, g;`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTable {
    /// The name.
    pub name: Box<str>,
    /// The functions, in order.
    pub targets: Vec<FuncId>,
}

/// `name: .callprototype (…) _ (…);`
#[derive(Debug, Clone, PartialEq)]
pub struct CallPrototype {
    /// The name.
    pub name: Box<str>,
    /// The return values.
    pub returns: Vec<Param>,
    /// The parameters.
    pub params: Vec<Param>,
    /// Whether the function does not return.
    pub noreturn: bool,
}

/// The source line of the instructions from `instruction` to the next mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineMark {
    /// Index into [`Body::instructions`].
    pub instruction: u32,
    /// Number of the file, as in [`Module::files`].
    pub file: u32,
    /// Line in that file.
    pub line: u32,
    /// Column in that line.
    pub column: u32,
    /// If the line is of an inlined function: file, line and column of its call.
    pub inlined_at: Option<[u32; 3]>,
}

/// `@%p1` or `@!%p1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The predicate.
    pub register: RegId,
    /// Whether the instruction runs where the predicate is false.
    pub negated: bool,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    /// Where it begins.
    pub pos: Pos,
    /// The guard, if there is one.
    pub guard: Option<Guard>,
    /// What it does.
    pub opcode: Opcode,
    /// What follows the opcode, in the order written.
    pub modifiers: Vec<Modifier>,
    /// The operands, in the order written.
    pub operands: Vec<Operand>,
}

/// An operand.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register.
    Reg(RegId),
    /// `!%p`.
    NotReg(RegId),
    /// `%r1+4`: the value of a register plus a constant.
    Sum {
        /// The register.
        register: RegId,
        /// What is added.
        offset: i64,
    },
    /// A literal.
    Imm(Imm),
    /// A special register.
    Special(SpecialReg),
    /// The address of a name plus an offset, as a value; or the name of a `.param` in a call.
    Symbol {
        /// The name.
        symbol: SymbolRef,
        /// Bytes, or elements' bytes for `name[3]`.
        offset: i64,
    },
    /// `[base + offset]`.
    Address {
        /// The base.
        base: AddressBase,
        /// Bytes that are added to the base.
        offset: i64,
    },
    /// `{a, b, c, d}`.
    Vector(Vec<Operand>),
    /// `[a, {x, y}]`: the brackets of texture, surface and tensor copies.
    Bracket(Vec<Operand>),
    /// A label.
    Label(LabelId),
    /// The table of `brx.idx`.
    BranchTable(BranchTableId),
    /// `p|q`.
    Pair(Box<(Operand, Operand)>),
    /// `_`.
    Sink,
    /// `%r1.b0`: part of a register, in video instructions. Negation is `-%r1`.
    Selected {
        /// The register.
        register: RegId,
        /// The part; `None` for the whole register.
        selector: Option<Selector>,
        /// Whether the value is negated.
        negated: bool,
    },
    /// The one operand of `call`.
    Call(Box<Call>),
}

/// Which part of a 32-bit register; the mixes of the two- and four-way video instructions name a
/// source (0 to 7) for each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Selector {
    /// `.b0` to `.b3`.
    Byte(u8),
    /// `.h0` or `.h1`.
    Half(u8),
    /// `.h10`: two halfwords, in the order written.
    Halves([u8; 2]),
    /// `.b3210`: four bytes, in the order written.
    Bytes([u8; 4]),
}

/// The base of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressBase {
    /// The value of a register.
    Reg(RegId),
    /// The address of a name.
    Symbol(SymbolRef),
    /// An absolute address; the offset is 0.
    Absolute(u64),
}

/// A literal. Integers keep 64 bits (large unsigned ones wrap).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Imm {
    /// An integer.
    Int(i64),
    /// `0f…`: the bits of a single.
    F32(u32),
    /// `0d…` or a decimal fraction: the bits of a double.
    F64(u64),
}

/// `call (ret), target, (args), prototype;`
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Where the return values go.
    pub returns: Vec<Operand>,
    /// What is called.
    pub target: CallTarget,
    /// The arguments.
    pub args: Vec<Operand>,
    /// What an indirect call may reach; `None` for a direct one.
    pub via: Option<CallVia>,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallTarget {
    /// A function by its name.
    Function(FuncId),
    /// The function to which a register points.
    Register(RegId),
}

/// What an indirect call may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallVia {
    /// A function of this prototype.
    Prototype(CallPrototypeId),
    /// A function of this list.
    Targets(CallTableId),
}
