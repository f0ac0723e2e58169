//! Selects the Rust type that computes with a PTX integer type.

/// `$make`, in which `$t` is the Rust type that the list has for a PTX type. Other types are
/// refused.
macro_rules! by_type {
    ($ty:expr, $t:ident => $make:expr; $($($ptx:ident)|+ => $rust:ident,)*) => {
        match $ty {
            $(
                $(cumux_ptx::ast::ScalarType::$ptx)|+ => {
                    type $t = $rust;
                    $make
                }
            )*
            _ => return Err($crate::lower::error::Trouble::Refused),
        }
    };
}
pub(super) use by_type;

/// `$make`, in which `$t` is the Rust type of an integer type. Bit types are unsigned.
macro_rules! by_integer {
    ($ty:expr, $t:ident => $make:expr) => {
        $crate::lower::by_type::by_type!($ty, $t => $make;
            U16 | B16 => u16, S16 => i16, U32 | B32 => u32, S32 => i32, U64 | B64 => u64, S64 => i64,)
    };
}
pub(super) use by_integer;

/// As `by_integer`, if the sign makes no difference.
macro_rules! by_width {
    ($ty:expr, $t:ident => $make:expr) => {
        $crate::lower::by_type::by_type!($ty, $t => $make; U16 | B16 | S16 => u16, U32 | B32 | S32 => u32, U64 | B64 | S64 => u64,)
    };
}
pub(super) use by_width;
