//! Scalar types, state spaces, linkage and source positions.
//!
//! Every type the PTX manual names is here, also those only tensor instructions use, so that no
//! later stage reads a type from text.

use std::fmt;

/// A place in the source text; both numbers count from 1, columns count bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Pos {
    /// The line.
    pub line: u32,
    /// The column.
    pub col: u32,
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.col)
    }
}

/// What the bits of a type mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TypeKind {
    /// Any meaning.
    Bits,
    /// Unsigned integers.
    Unsigned,
    /// Signed integers.
    Signed,
    /// Floating-point numbers.
    Float,
    /// True or false.
    Predicate,
    /// Texture, sampler and surface references.
    Opaque,
}

macro_rules! scalar_types {
    ($($variant:ident $text:literal $bits:literal $kind:ident,)*) => {
        /// A fundamental, packed or alternative type such as `.u32`, `.f16x2`, `.e4m3`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ScalarType {
            $(
                #[doc = concat!("`.", $text, "`")]
                $variant,
            )*
        }

        impl ScalarType {
            /// The type with this name, written without the dot.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }

            /// The name without the dot.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Width in bits; predicates say 1.
            pub const fn bits(self) -> u32 {
                match self { $(Self::$variant => $bits,)* }
            }

            /// What the bits mean.
            pub const fn kind(self) -> TypeKind {
                match self { $(Self::$variant => TypeKind::$kind,)* }
            }
        }
    };
}

scalar_types! {
    B8 "b8" 8 Bits, B16 "b16" 16 Bits, B32 "b32" 32 Bits, B64 "b64" 64 Bits, B128 "b128" 128 Bits,
    U8 "u8" 8 Unsigned, U16 "u16" 16 Unsigned, U32 "u32" 32 Unsigned, U64 "u64" 64 Unsigned,
    S8 "s8" 8 Signed, S16 "s16" 16 Signed, S32 "s32" 32 Signed, S64 "s64" 64 Signed,
    F16 "f16" 16 Float, F32 "f32" 32 Float, F64 "f64" 64 Float,
    Bf16 "bf16" 16 Float, Tf32 "tf32" 32 Float,
    F16x2 "f16x2" 32 Float, Bf16x2 "bf16x2" 32 Float, F32x2 "f32x2" 64 Float,
    U16x2 "u16x2" 32 Unsigned, S16x2 "s16x2" 32 Signed,
    U8x4 "u8x4" 32 Unsigned, S8x4 "s8x4" 32 Signed,
    E4m3 "e4m3" 8 Float, E5m2 "e5m2" 8 Float, E3m2 "e3m2" 8 Float, E2m3 "e2m3" 8 Float,
    E2m1 "e2m1" 4 Float, Ue8m0 "ue8m0" 8 Float, Ue4m3 "ue4m3" 8 Float,
    E4m3x2 "e4m3x2" 16 Float, E5m2x2 "e5m2x2" 16 Float, E3m2x2 "e3m2x2" 16 Float,
    E2m3x2 "e2m3x2" 16 Float, E2m1x2 "e2m1x2" 8 Float, Ue8m0x2 "ue8m0x2" 16 Float,
    E4m3x4 "e4m3x4" 32 Float, E5m2x4 "e5m2x4" 32 Float, E3m2x4 "e3m2x4" 32 Float,
    E2m3x4 "e2m3x4" 32 Float, E2m1x4 "e2m1x4" 16 Float,
    S2f6x2 "s2f6x2" 16 Bits,
    B1 "b1" 1 Bits, U4 "u4" 4 Unsigned, S4 "s4" 4 Signed, U2 "u2" 2 Unsigned, S2 "s2" 2 Signed,
    B4 "b4" 4 Bits, B6 "b6" 6 Bits,
    B4x16 "b4x16" 64 Bits, B6x16P32 "b6x16_p32" 128 Bits, B4x16P64 "b4x16_p64" 128 Bits,
    B8x16 "b8x16" 128 Bits,
    Pred "pred" 1 Predicate,
    Texref "texref" 64 Opaque, Samplerref "samplerref" 64 Opaque, Surfref "surfref" 64 Opaque,
}

impl ScalarType {
    /// Width in memory, in bytes, rounded up.
    pub const fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether the bits are a floating-point number, or several.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), TypeKind::Float)
    }

    /// Whether the bits are a signed integer, or several.
    pub const fn is_signed(self) -> bool {
        matches!(self.kind(), TypeKind::Signed)
    }

    /// Bits, signed or unsigned: everything without a floating-point meaning.
    pub const fn is_integer(self) -> bool {
        matches!(self.kind(), TypeKind::Bits | TypeKind::Unsigned | TypeKind::Signed)
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.name())
    }
}

/// A state space, with the sub-qualifier where PTX has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateSpace {
    /// `.reg`.
    Reg,
    /// `.sreg`: special registers.
    Sreg,
    /// `.const`.
    Const,
    /// `.const[n]`, the banks of old PTX.
    ConstBank(u8),
    /// `.global`.
    Global,
    /// `.local`: of one thread.
    Local,
    /// `.param`.
    Param,
    /// `.param::entry`: the parameters of the kernel.
    ParamEntry,
    /// `.param::func`: the parameters of a function.
    ParamFunc,
    /// `.shared`: of one block.
    Shared,
    /// `.shared::cta`: of one block.
    SharedCta,
    /// `.shared::cluster`: of all blocks of the cluster.
    SharedCluster,
    /// `.tex`, of old PTX.
    Tex,
}

impl StateSpace {
    /// The space with this name, written without the dot.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "reg" => Self::Reg,
            "sreg" => Self::Sreg,
            "const" => Self::Const,
            "global" => Self::Global,
            "local" => Self::Local,
            "param" => Self::Param,
            "param::entry" => Self::ParamEntry,
            "param::func" => Self::ParamFunc,
            "shared" => Self::Shared,
            "shared::cta" => Self::SharedCta,
            "shared::cluster" => Self::SharedCluster,
            "tex" => Self::Tex,
            _ => return None,
        })
    }

    /// The name without the dot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reg => "reg",
            Self::Sreg => "sreg",
            Self::Const | Self::ConstBank(_) => "const",
            Self::Global => "global",
            Self::Local => "local",
            Self::Param => "param",
            Self::ParamEntry => "param::entry",
            Self::ParamFunc => "param::func",
            Self::Shared => "shared",
            Self::SharedCta => "shared::cta",
            Self::SharedCluster => "shared::cluster",
            Self::Tex => "tex",
        }
    }

    /// Whether it holds parameters.
    pub const fn is_param(self) -> bool {
        matches!(self, Self::Param | Self::ParamEntry | Self::ParamFunc)
    }

    /// Whether it is shared memory.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::SharedCta | Self::SharedCluster)
    }

    /// Whether it is constant memory.
    pub const fn is_const(self) -> bool {
        matches!(self, Self::Const | Self::ConstBank(_))
    }
}

/// Who can see a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Linkage {
    /// Nothing written: known in this module only.
    #[default]
    Internal,
    /// `.visible`: defined here, known everywhere.
    Visible,
    /// `.extern`: defined elsewhere.
    Extern,
    /// `.weak`: defined here, unless elsewhere too.
    Weak,
    /// `.common`: one variable out of all modules that declare it.
    Common,
}
