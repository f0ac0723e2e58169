//! The opcodes: the first word of each mnemonic of the PTX ISA up to version 9.0.
//!
//! `bar.warp.sync` is the opcode `bar` with the modifiers `warp` and `sync`, and so on.

use std::fmt;

macro_rules! opcodes {
    ($($variant:ident $text:literal,)*) => {
        /// The first word of an instruction's mnemonic.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Opcode {
            $(
                #[doc = concat!("`", $text, "`")]
                $variant,
            )*
        }

        impl Opcode {
            /// All opcodes, in alphabetical order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The opcode with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }

            /// The name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

opcodes! {
    Abs "abs", Activemask "activemask", Add "add", Addc "addc", Alloca "alloca", And "and",
    Applypriority "applypriority", Atom "atom",
    Bar "bar", Barrier "barrier", Bfe "bfe", Bfi "bfi", Bfind "bfind", Bmsk "bmsk", Bra "bra",
    Brev "brev", Brkpt "brkpt", Brx "brx",
    Call "call", Clusterlaunchcontrol "clusterlaunchcontrol", Clz "clz", Cnot "cnot",
    Copysign "copysign", Cos "cos", Cp "cp", Createpolicy "createpolicy", Cvt "cvt", Cvta "cvta",
    Discard "discard", Div "div", Dp2a "dp2a", Dp4a "dp4a",
    Elect "elect", Ex2 "ex2", Exit "exit",
    Fabric "fabric", Fence "fence", Fma "fma", Fns "fns",
    Getctarank "getctarank", Griddepcontrol "griddepcontrol",
    Isspacep "isspacep", Istypep "istypep",
    Ld "ld", Ldmatrix "ldmatrix", Ldu "ldu", Lg2 "lg2", Lop3 "lop3",
    Mad "mad", Mad24 "mad24", Madc "madc", Mapa "mapa", Match "match", Max "max",
    Mbarrier "mbarrier", Membar "membar", Min "min", Mma "mma", Mov "mov", Movmatrix "movmatrix",
    Mul "mul", Mul24 "mul24", Multimem "multimem",
    Nanosleep "nanosleep", Neg "neg", Not "not",
    Or "or",
    Pmevent "pmevent", Popc "popc", Prefetch "prefetch", Prefetchu "prefetchu", Prmt "prmt",
    Rcp "rcp", Red "red", Redux "redux", Rem "rem", Ret "ret", Rsqrt "rsqrt",
    Sad "sad", Selp "selp", Set "set", Setmaxnreg "setmaxnreg", Setp "setp", Shf "shf",
    Shfl "shfl", Shl "shl", Shr "shr", Sin "sin", Slct "slct", Sqrt "sqrt", St "st",
    Stackrestore "stackrestore", Stacksave "stacksave", Stmatrix "stmatrix", Sub "sub",
    Subc "subc", Suld "suld", Suq "suq", Sured "sured", Sust "sust", Szext "szext",
    Tanh "tanh", Tcgen05 "tcgen05", Tensormap "tensormap", Testp "testp", Tex "tex",
    Tld4 "tld4", Trap "trap", Txq "txq",
    Vabsdiff "vabsdiff", Vabsdiff2 "vabsdiff2", Vabsdiff4 "vabsdiff4", Vadd "vadd",
    Vadd2 "vadd2", Vadd4 "vadd4", Vavrg2 "vavrg2", Vavrg4 "vavrg4", Vmad "vmad", Vmax "vmax",
    Vmax2 "vmax2", Vmax4 "vmax4", Vmin "vmin", Vmin2 "vmin2", Vmin4 "vmin4", Vote "vote",
    Vset "vset", Vset2 "vset2", Vset4 "vset4", Vshl "vshl", Vshr "vshr", Vsub "vsub",
    Vsub2 "vsub2", Vsub4 "vsub4",
    Wgmma "wgmma", Wmma "wmma",
    Xor "xor",
}

impl Opcode {
    /// Opcodes whose modifiers are kept as text where we do not know them: textures and surfaces,
    /// tensor cores, asynchronous copies, clusters, cache policies. Whoever runs the program
    /// decides what to refuse.
    pub const fn keeps_unknown_modifiers(self) -> bool {
        matches!(
            self,
            Self::Applypriority
                | Self::Clusterlaunchcontrol
                | Self::Cp
                | Self::Createpolicy
                | Self::Discard
                | Self::Elect
                | Self::Fabric
                | Self::Fence
                | Self::Getctarank
                | Self::Griddepcontrol
                | Self::Istypep
                | Self::Ldmatrix
                | Self::Mapa
                | Self::Mbarrier
                | Self::Mma
                | Self::Movmatrix
                | Self::Multimem
                | Self::Prefetch
                | Self::Prefetchu
                | Self::Setmaxnreg
                | Self::Stmatrix
                | Self::Suld
                | Self::Suq
                | Self::Sured
                | Self::Sust
                | Self::Tcgen05
                | Self::Tensormap
                | Self::Tex
                | Self::Tld4
                | Self::Txq
                | Self::Wgmma
                | Self::Wmma
        )
    }

    /// The SIMD video instructions, whose operands may carry selectors such as `.b0`.
    pub const fn is_video(self) -> bool {
        matches!(
            self,
            Self::Vabsdiff
                | Self::Vabsdiff2
                | Self::Vabsdiff4
                | Self::Vadd
                | Self::Vadd2
                | Self::Vadd4
                | Self::Vavrg2
                | Self::Vavrg4
                | Self::Vmad
                | Self::Vmax
                | Self::Vmax2
                | Self::Vmax4
                | Self::Vmin
                | Self::Vmin2
                | Self::Vmin4
                | Self::Vset
                | Self::Vset2
                | Self::Vset4
                | Self::Vshl
                | Self::Vshr
                | Self::Vsub
                | Self::Vsub2
                | Self::Vsub4
        )
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
