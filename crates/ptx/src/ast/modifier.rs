//! What follows an opcode: `.rn.ftz.f32` and the like, as structure.
//!
//! The same word can mean different things (`.lo` compares in `setp`, selects a half in `mul`;
//! `.and` joins predicates in `setp`, reduces in `atom`). The parser decides by the opcode, so a
//! [`Modifier`] has one meaning.

use super::{Opcode, ScalarType, StateSpace};

/// One modifier, in the order written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Modifier {
    /// A type.
    Type(ScalarType),
    /// `.v2`, `.v4`, `.v8`.
    Vector(u8),
    /// A state space.
    Space(StateSpace),
    /// A rounding.
    Round(Rounding),
    /// A comparison.
    Cmp(CmpOp),
    /// How a result is joined with a predicate.
    Bool(BoolOp),
    /// The operation of atom, red, redux, bar.red and of the video instructions.
    Reduce(ReduceOp),
    /// A memory ordering.
    Order(MemoryOrder),
    /// The scope of a memory ordering.
    Scope(Scope),
    /// A cache operator.
    Cache(CacheOp),
    /// Any other word that is known.
    Word(Word),
    /// Cache hints: whatever begins with `L1::` or `L2::`, without the dot. `L2::cache_hint`
    /// brings one more operand with it.
    Hint(Box<str>),
    /// A modifier known to nobody here, only for opcodes with
    /// [`Opcode::keeps_unknown_modifiers`].
    Other(Box<str>),
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(
                #[doc = concat!("`.", $text, "`")]
                $variant,
            )*
        }

        impl $name {
            /// The value with this name, written without the dot.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }

            /// The name without the dot.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

words! {
    /// Rounding; the names ending in `i` round to an integral value.
    Rounding {
        Rn "rn", Rz "rz", Rm "rm", Rp "rp", Rna "rna", Rs "rs",
        Rni "rni", Rzi "rzi", Rmi "rmi", Rpi "rpi",
    }
}

words! {
    /// Comparisons of set, setp and vset; `Lo Ls Hi Hs` are the unsigned ones, the names ending
    /// in `u` are true if an operand is NaN.
    CmpOp {
        Eq "eq", Ne "ne", Lt "lt", Le "le", Gt "gt", Ge "ge",
        Lo "lo", Ls "ls", Hi "hi", Hs "hs",
        Equ "equ", Neu "neu", Ltu "ltu", Leu "leu", Gtu "gtu", Geu "geu",
        Num "num", Nan "nan",
    }
}

words! {
    /// How set and setp join their result with a predicate.
    BoolOp { And "and", Or "or", Xor "xor", }
}

words! {
    /// Operations on memory, across a warp or across a barrier.
    ReduceOp {
        And "and", Or "or", Xor "xor", Add "add", Inc "inc", Dec "dec", Min "min", Max "max",
        Exch "exch", Cas "cas", Popc "popc",
    }
}

words! {
    /// Memory ordering of ld, st, atom, red and fence.
    MemoryOrder {
        Weak "weak", Volatile "volatile", Relaxed "relaxed", Acquire "acquire",
        Release "release", AcqRel "acq_rel", SeqCst "sc", Mmio "mmio",
    }
}

words! {
    /// Whom an ordering concerns. `membar.gl` is the scope `Gpu`.
    Scope { Cta "cta", Cluster "cluster", Gpu "gpu", Sys "sys", }
}

words! {
    /// Cache operators of ld and st.
    CacheOp { Ca "ca", Cg "cg", Cs "cs", Lu "lu", Cv "cv", Wb "wb", Wt "wt", }
}

words! {
    /// Modifiers that are one word with one meaning.
    Word {
        // Arithmetic
        Ftz "ftz", Noftz "noftz", Sat "sat", Satfinite "satfinite", Relu "relu", Approx "approx",
        Full "full", Wide "wide", Hi "hi", Lo "lo", Cc "cc", Nan "NaN", Xorsign "xorsign",
        Abs "abs", Oob "oob", Scaled "scaled", Po "po", Shiftamt "shiftamt",
        // Shifts and permutations
        Left "l", Right "r", Clamp "clamp", Wrap "wrap",
        F4e "f4e", B4e "b4e", Rc8 "rc8", Ecl "ecl", Ecr "ecr", Rc16 "rc16",
        Shr7 "shr7", Shr15 "shr15",
        // testp
        Finite "finite", Infinite "infinite", Number "number", Notanumber "notanumber",
        Normal "normal", Subnormal "subnormal",
        // Warps, barriers, control
        Sync "sync", Aligned "aligned", Arrive "arrive", Red "red", Warp "warp", Wait "wait",
        Up "up", Down "down", Bfly "bfly", Idx "idx",
        All "all", Any "any", Uni "uni", Ballot "ballot", Tail "tail",
        // Memory
        Nc "nc", Bulk "bulk", Mask "mask", To "to", Unified "unified", Async "async", Proxy "proxy", Alias "alias",
        Noinc "noinc", Pack "pack", Trunc "trunc", Uniform "u",
    }
}

/// Reads a modifier (without its dot) as `opcode` understands it; nothing if it is unknown.
pub fn modifier_from_name(opcode: Opcode, text: &str) -> Option<Modifier> {
    use Opcode as O;
    match opcode {
        O::Set | O::Setp | O::Vset | O::Vset2 | O::Vset4 => {
            if let Some(op) = CmpOp::from_name(text) {
                return Some(Modifier::Cmp(op));
            }
            if matches!(opcode, O::Set | O::Setp)
                && let Some(op) = BoolOp::from_name(text)
            {
                return Some(Modifier::Bool(op));
            }
        }
        _ => {}
    }
    if opcode == O::Lop3
        && let Some(op) = BoolOp::from_name(text)
    {
        return Some(Modifier::Bool(op));
    }
    let reduces = matches!(opcode, O::Atom | O::Red | O::Redux | O::Bar | O::Barrier | O::Multimem | O::Cp | O::Sured) || opcode.is_video();
    if reduces && let Some(op) = ReduceOp::from_name(text) {
        return Some(Modifier::Reduce(op));
    }
    if opcode == O::Membar && text == "gl" {
        return Some(Modifier::Scope(Scope::Gpu));
    }
    if let Some(ty) = ScalarType::from_name(text) {
        return Some(Modifier::Type(ty));
    }
    match text {
        "v2" => return Some(Modifier::Vector(2)),
        "v4" => return Some(Modifier::Vector(4)),
        "v8" => return Some(Modifier::Vector(8)),
        _ => {}
    }
    if let Some(word) = Word::from_name(text) {
        return Some(Modifier::Word(word));
    }
    if let Some(rounding) = Rounding::from_name(text) {
        return Some(Modifier::Round(rounding));
    }
    if let Some(space) = StateSpace::from_name(text) {
        return Some(Modifier::Space(space));
    }
    if let Some(order) = MemoryOrder::from_name(text) {
        return Some(Modifier::Order(order));
    }
    if let Some(scope) = Scope::from_name(text) {
        return Some(Modifier::Scope(scope));
    }
    if let Some(cache) = CacheOp::from_name(text) {
        return Some(Modifier::Cache(cache));
    }
    if text.starts_with("L1::") || text.starts_with("L2::") {
        return Some(Modifier::Hint(text.into()));
    }
    None
}
