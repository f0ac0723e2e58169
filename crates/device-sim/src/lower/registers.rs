//! Registers of a function to slots.

use crate::exec::lanes::Slot;
use cumux_ptx::ast::{Body, FuncId, Module, ScalarType};

/// The bank of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Predicate,
    /// 8 to 32 bits.
    Narrow,
    Wide,
    /// 128 bits: two 64-bit slots in a row.
    Double,
}

impl Class {
    pub fn of(ty: ScalarType) -> Class {
        match ty {
            ScalarType::Pred => Class::Predicate,
            _ if ty.bits() <= 32 => Class::Narrow,
            _ if ty.bits() <= 64 => Class::Wide,
            _ => Class::Double,
        }
    }
}

pub(super) struct Allocation {
    pub slots: Vec<(Class, Slot)>,
    /// Slots used: 32-bit, 64-bit, predicates.
    pub used: [u32; 3],
}

/// A slot for each register.
pub(super) fn allocate(_module: &Module, _function: FuncId, body: &Body) -> Allocation {
    let mut used = [0; 3];
    let slots = body
        .registers
        .iter()
        .map(|register| {
            let class = Class::of(register.ty);
            let (bank, count) = match class {
                Class::Narrow => (0, 1),
                Class::Wide => (1, 1),
                Class::Double => (1, 2),
                Class::Predicate => (2, 1),
            };
            let slot = used[bank] as Slot;
            used[bank] += count;
            (class, slot)
        })
        .collect();
    Allocation { slots, used }
}
