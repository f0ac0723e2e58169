//! What each arithmetic instruction computes for one lane. [`super::alu`] makes instructions of it.

pub mod bits;
pub mod comparison;
pub mod convert;
pub mod float;
pub mod half;
pub mod integer;
pub mod narrow;
pub mod round;
pub mod soft;
#[cfg(test)]
mod tests;
pub mod video;

/// Defines types that implement one of the `Op` traits of [`crate::simd::alu`] from a function.
macro_rules! ops {
    () => {};
    ($name:ident $(<$($t:ident: $bound:path),*>)? ($a:ident: $ta:ty) -> $r:ty { $($body:tt)* } $($rest:tt)*) => {
        pub struct $name $(<$($t),*>(std::marker::PhantomData<($($t,)*)>))?;
        impl $(<$($t: $bound),*>)? $crate::simd::alu::Op1 for $name $(<$($t),*>)? {
            type A = $ta;
            type R = $r;
            #[inline(always)]
            fn compute($a: $ta) -> $r { $($body)* }
        }
        ops! { $($rest)* }
    };
    ($name:ident $(<$($t:ident: $bound:path),*>)? ($a:ident: $ta:ty, $b:ident: $tb:ty) -> $r:ty { $($body:tt)* } $($rest:tt)*) => {
        pub struct $name $(<$($t),*>(std::marker::PhantomData<($($t,)*)>))?;
        impl $(<$($t: $bound),*>)? $crate::simd::alu::Op2 for $name $(<$($t),*>)? {
            type A = $ta;
            type B = $tb;
            type R = $r;
            #[inline(always)]
            fn compute($a: $ta, $b: $tb) -> $r { $($body)* }
        }
        ops! { $($rest)* }
    };
    ($name:ident $(<$($t:ident: $bound:path),*>)? ($a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty) -> $r:ty { $($body:tt)* } $($rest:tt)*) => {
        pub struct $name $(<$($t),*>(std::marker::PhantomData<($($t,)*)>))?;
        impl $(<$($t: $bound),*>)? $crate::simd::alu::Op3 for $name $(<$($t),*>)? {
            type A = $ta;
            type B = $tb;
            type C = $tc;
            type R = $r;
            #[inline(always)]
            fn compute($a: $ta, $b: $tb, $c: $tc) -> $r { $($body)* }
        }
        ops! { $($rest)* }
    };
    ($name:ident $(<$($t:ident: $bound:path),*>)?
        ($a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty, $e:ident: $te:ty) -> $r:ty { $($body:tt)* } $($rest:tt)*) => {
        pub struct $name $(<$($t),*>(std::marker::PhantomData<($($t,)*)>))?;
        impl $(<$($t: $bound),*>)? $crate::simd::alu::Op4 for $name $(<$($t),*>)? {
            type A = $ta;
            type B = $tb;
            type C = $tc;
            type E = $te;
            type R = $r;
            #[inline(always)]
            fn compute($a: $ta, $b: $tb, $c: $tc, $e: $te) -> $r { $($body)* }
        }
        ops! { $($rest)* }
    };
}
pub(crate) use ops;
