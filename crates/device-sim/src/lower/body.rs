//! Lowers one function: registers to slots, operands to slots and constants, instructions one after
//! another.
//!
//! The files beside this one say what an instruction means. This one holds what they share.

use super::error::{Lowered, Trouble, reject};
use super::plan::{FunctionPlan, ModulePlan, SharedPlace};
use super::registers::{self, Class};
use crate::program::code::{Code, Inst, Op, Origin, PredicateHow, PredicateOp, Special};
use crate::program::window;
use crate::simd::alu::{Alu, AluFunction};
use crate::simd::lanes::{CONSTANT, NO_SLOT, PerLane32, PerLane64, RegisterSlot};
use crate::simd::{alu, ops};
use cumux_ptx::ast::{Body as Tree, FuncId, Instruction, LabelId, Modifier, Operand, RegId, ScalarType, SpecialReg, SymbolRef, Word};
use std::collections::HashMap;

/// A function whose branches do not have targets yet. A branch is the index of an instruction, and
/// its label.
pub(super) struct Finished {
    pub code: Code,
    pub branches: Vec<(usize, LabelId)>,
    pub tables: Vec<(usize, Vec<LabelId>)>,
}

/// State while one function is lowered.
pub(super) struct Lowerer<'a> {
    pub plan: &'a ModulePlan<'a>,
    pub function: FuncId,
    pub own: &'a FunctionPlan,
    pub tree: &'a Tree,
    slots: Vec<(Class, RegisterSlot)>,
    next32: u32,
    next64: u32,
    next_p: u32,
    most: [u32; 3],
    base: [u32; 3],
    constants32: HashMap<u32, RegisterSlot>,
    constants64: HashMap<u64, RegisterSlot>,
    symbols: HashMap<(u32, i64), RegisterSlot>,
    out: Code,
    guard: RegisterSlot,
    negated: bool,
    pub insts: &'a mut Vec<Inst>,
    pub origins: &'a mut Vec<Origin>,
    origin: Origin,
    /// Branches without a target: index of the instruction, and its label.
    pub fixups: Vec<(usize, LabelId)>,
    pub table_fixups: Vec<(usize, Vec<LabelId>)>,
    /// Predicate that holds the condition code of the carry instructions.
    pub carry: RegisterSlot,
}

impl<'a> Lowerer<'a> {
    pub fn new(plan: &'a ModulePlan<'a>, function: FuncId, tree: &'a Tree, insts: &'a mut Vec<Inst>, origins: &'a mut Vec<Origin>) -> Self {
        let allocation = registers::allocate_registers(plan.module.function(function), tree);
        let mut it = Lowerer {
            plan,
            function,
            own: &plan.functions[function.index()],
            tree,
            slots: allocation.slots,
            next32: allocation.used[0],
            next64: allocation.used[1],
            next_p: allocation.used[2],
            most: allocation.used,
            base: allocation.used,
            constants32: HashMap::new(),
            constants64: HashMap::new(),
            symbols: HashMap::new(),
            out: Code::default(),
            guard: NO_SLOT,
            negated: false,
            insts,
            origins,
            origin: Origin::default(),
            fixups: Vec::new(),
            table_fixups: Vec::new(),
            carry: NO_SLOT,
        };
        // The condition code lives from one instruction to another.
        it.carry = it.next_p as RegisterSlot;
        it.base[2] += 1;
        it.next_p += 1;
        it.most[2] = it.next_p;
        it
    }

    /// Starts a PTX instruction: notes its guard and where it comes from, and frees all
    /// temporaries.
    pub fn begin_instruction(&mut self, instruction: &Instruction, mnemonic: u32) -> Lowered {
        [self.next32, self.next64, self.next_p] = self.base;
        self.origin = Origin { line: instruction.pos.line, mnemonic };
        (self.guard, self.negated) = (NO_SLOT, false);
        if let Some(guard) = instruction.guard {
            self.guard = self.expect_register(guard.register, Class::Predicate)?;
            self.negated = guard.negated;
            let mut overwritten = false;
            registers::visit_targets(instruction, &mut |register| overwritten |= register == guard.register);
            if overwritten {
                // The instruction may become several, of which a later one still needs the guard.
                let d = self.new_temporary_p();
                self.emit_always(Op::Predicate(PredicateOp { how: PredicateHow::Move, d, a: self.guard, b: NO_SLOT }));
                self.guard = d;
            }
        }
        Ok(())
    }

    /// Appends an instruction with the guard. Returns its index.
    pub fn emit(&mut self, op: Op) -> usize {
        self.insts.push(Inst { guard: self.guard, negated: self.negated, op });
        self.origins.push(self.origin);
        self.insts.len() - 1
    }

    /// Appends an instruction without the guard, for values that only this PTX instruction uses.
    pub fn emit_always(&mut self, op: Op) {
        self.insts.push(Inst { guard: NO_SLOT, negated: false, op });
        self.origins.push(self.origin);
    }

    /// Ends the function.
    pub fn finish(mut self, name: &str) -> Lowered<Finished> {
        // A slot has 15 bits, and the last value means "none".
        if self.most.iter().any(|n| *n >= u32::from(CONSTANT) - 1) || self.out.constants32.len().max(self.out.constants64.len()) >= usize::from(CONSTANT) - 1 {
            return reject("the function needs more registers or constants than this device has");
        }
        self.out.name = name.to_owned();
        self.out.slots32 = self.most[0];
        self.out.slots64 = self.most[1];
        self.out.predicates = self.most[2];
        Ok(Finished { code: self.out, branches: self.fixups, tables: self.table_fixups })
    }

    // ---- registers

    /// The bank of a register.
    pub fn class_of(&self, register: RegId) -> Class {
        self.slots[register.index()].0
    }

    /// The slot of a register.
    pub fn slot_of(&self, register: RegId) -> RegisterSlot {
        self.slots[register.index()].1
    }

    /// The slot of a register, which must be of this bank.
    pub fn expect_register(&self, register: RegId, class: Class) -> Lowered<RegisterSlot> {
        let (has, slot) = self.slots[register.index()];
        if has == class { Ok(slot) } else { reject(format!("register {} has the wrong width here", self.tree.register(register).name)) }
    }

    /// A slot that is free until the next PTX instruction.
    fn new_temporary(&mut self, class: usize) -> RegisterSlot {
        let next = match class {
            0 => &mut self.next32,
            1 => &mut self.next64,
            _ => &mut self.next_p,
        };
        let slot = *next;
        *next += 1;
        self.most[class] = self.most[class].max(*next);
        slot as RegisterSlot
    }

    pub fn new_temporary32(&mut self) -> RegisterSlot {
        self.new_temporary(0)
    }

    pub fn new_temporary64(&mut self) -> RegisterSlot {
        self.new_temporary(1)
    }

    pub fn new_temporary_p(&mut self) -> RegisterSlot {
        self.new_temporary(2)
    }

    // ---- constants

    /// The slot of a constant.
    pub fn intern_constant32(&mut self, value: u32) -> RegisterSlot {
        let constants = &mut self.out.constants32;
        *self.constants32.entry(value).or_insert_with(|| {
            constants.push(PerLane32::splat(value));
            CONSTANT | (constants.len() - 1) as RegisterSlot
        })
    }

    /// The slot of a constant.
    pub fn intern_constant64(&mut self, value: u64) -> RegisterSlot {
        let constants = &mut self.out.constants64;
        *self.constants64.entry(value).or_insert_with(|| {
            constants.push(PerLane64::splat(value));
            CONSTANT | (constants.len() - 1) as RegisterSlot
        })
    }

    /// The slot of the address of a variable of the module, which is known when the program is
    /// linked.
    pub fn intern_variable(&mut self, variable: u32, addend: i64) -> RegisterSlot {
        let out = &mut self.out;
        *self.symbols.entry((variable, addend)).or_insert_with(|| {
            out.constants64.push(PerLane64::splat(0));
            let at = (out.constants64.len() - 1) as u32;
            out.symbols.push((at, variable, addend));
            CONSTANT | at as RegisterSlot
        })
    }

    // ---- operands

    /// A source in a 32-bit slot.
    pub fn lower_source32(&mut self, operand: &Operand, ty: ScalarType) -> Lowered<RegisterSlot> {
        match operand {
            Operand::Reg(register) => match self.slots[register.index()] {
                (Class::Narrow, slot) => Ok(slot),
                // A wider register stands for its low part.
                (Class::Wide | Class::Double, slot) => {
                    let d = self.new_temporary32();
                    let zero = self.intern_constant32(0);
                    self.emit_always(Op::Alu(Alu { d, a: slot, b: zero, ..Alu::new(alu::op2::<ops::bits::Part32>()) }));
                    Ok(d)
                }
                (Class::Predicate, _) => reject("a predicate cannot be an operand here"),
            },
            Operand::Sum { register, offset } => {
                let a = self.lower_source32(&Operand::Reg(*register), ty)?;
                let (d, b) = (self.new_temporary32(), self.intern_constant32(*offset as u32));
                // A register of 16 bits has zeros above them.
                let f = if ty.bits() <= 16 { alu::op2::<ops::integer::Add<u16>>() } else { alu::op2::<ops::integer::Add<u32>>() };
                self.emit_always(Op::Alu(Alu { d, a, b, ..Alu::new(f) }));
                Ok(d)
            }
            Operand::Imm(imm) => {
                let bits = imm.bits(ty) as u32;
                // Literals of narrow types are zero-extended, as registers are.
                Ok(self.intern_constant32(bits))
            }
            Operand::Special(special) => {
                let d = self.new_temporary32();
                let (what, _) = special_of(*special)?;
                if what.is_wide() {
                    let wide = self.new_temporary64();
                    self.emit_always(Op::Special { d: wide, what });
                    let zero = self.intern_constant32(0);
                    self.emit_always(Op::Alu(Alu { d, a: wide, b: zero, ..Alu::new(alu::op2::<ops::bits::Part32>()) }));
                } else {
                    self.emit_always(Op::Special { d, what });
                }
                Ok(d)
            }
            Operand::Symbol { symbol, offset } => match self.own.shared_place(self.plan, *symbol) {
                Some(place) => Ok(self.lower_shared_address(place, *offset)),
                None => match self.frame_offset(*symbol) {
                    Some(at) => {
                        let d = self.new_temporary32();
                        self.emit_always(Op::Frame { d, offset: at.wrapping_add(*offset as u32), wide: false });
                        Ok(d)
                    }
                    None => reject("the address of this name does not fit in 32 bits"),
                },
            },
            _ => reject("this operand cannot be a source here"),
        }
    }

    /// An address in shared memory, as a 32-bit value.
    fn lower_shared_address(&mut self, place: SharedPlace, offset: i64) -> RegisterSlot {
        let what = match place {
            SharedPlace::At(at) => return self.intern_constant32(at.wrapping_add(offset as u32)),
            SharedPlace::Dynamic => Special::DynamicBase,
            SharedPlace::OfKernel(row) => Special::SharedBase(row),
        };
        let d = self.new_temporary32();
        self.emit_always(Op::Special { d, what });
        if offset != 0 {
            let offset = self.intern_constant32(offset as u32);
            self.emit_always(Op::Alu(Alu { d, a: d, b: offset, ..Alu::new(alu::op2::<ops::integer::Add<u32>>()) }));
        }
        d
    }

    /// A source in a 64-bit slot.
    pub fn lower_source64(&mut self, operand: &Operand, ty: ScalarType) -> Lowered<RegisterSlot> {
        match operand {
            Operand::Reg(register) => match self.slots[register.index()] {
                (Class::Wide | Class::Double, slot) => Ok(slot),
                _ => reject(format!("register {} is too narrow here", self.tree.register(*register).name)),
            },
            Operand::Sum { register, offset } => {
                let a = self.lower_source64(&Operand::Reg(*register), ty)?;
                let (d, b) = (self.new_temporary64(), self.intern_constant64(*offset as u64));
                self.emit_always(Op::Alu(Alu { d, a, b, ..Alu::new(alu::op2::<ops::integer::Add<u64>>()) }));
                Ok(d)
            }
            Operand::Imm(imm) => Ok(self.intern_constant64(imm.bits(ty))),
            Operand::Special(special) => {
                let (what, _) = special_of(*special)?;
                let d = self.new_temporary64();
                if what.is_wide() {
                    self.emit_always(Op::Special { d, what });
                } else {
                    let narrow = self.new_temporary32();
                    self.emit_always(Op::Special { d: narrow, what });
                    self.emit_always(Op::Alu(Alu { d, a: narrow, ..Alu::new(alu::op1::<ops::convert::Cut<u32, u64>>()) }));
                }
                Ok(d)
            }
            Operand::Symbol { symbol, offset } => self.lower_address_value(*symbol, *offset),
            _ => reject("this operand cannot be a source here"),
        }
    }

    /// The address of a name in its own state space, as a 64-bit value.
    pub fn lower_address_value(&mut self, symbol: SymbolRef, offset: i64) -> Lowered<RegisterSlot> {
        if let Some(place) = self.own.shared_place(self.plan, symbol) {
            if let SharedPlace::At(at) = place {
                return Ok(self.intern_constant64(u64::from(at).wrapping_add_signed(offset)));
            }
            let (d, narrow) = (self.new_temporary64(), self.lower_shared_address(place, offset));
            self.emit_always(Op::Alu(Alu { d, a: narrow, ..Alu::new(alu::op1::<ops::convert::Cut<u32, u64>>()) }));
            return Ok(d);
        }
        if let Some(at) = self.frame_offset(symbol) {
            let d = self.new_temporary64();
            self.emit_always(Op::Frame { d, offset: at.wrapping_add(offset as u32), wide: true });
            return Ok(d);
        }
        match symbol {
            SymbolRef::Global(id) => match self.plan.variable_of[id.index()] {
                Some(variable) => Ok(self.intern_variable(variable, offset)),
                None => Err(Trouble::Refused),
            },
            SymbolRef::Function(id) => Ok(self.intern_constant64(window::function_pointer(self.plan.target(id).0.into()))),
            // A kernel's parameter: its offset in the parameter space.
            SymbolRef::Param(n) => {
                let at = self.plan.module.function(self.function).params.get(n as usize).map_or(0, |p| p.offset);
                Ok(self.intern_constant64(at.wrapping_add_signed(offset)))
            }
            SymbolRef::Local(_) | SymbolRef::ReturnParam(_) => reject("this name has no address"),
        }
    }

    /// Where a name lies in the function's frame; `None` if it does not.
    pub fn frame_offset(&self, symbol: SymbolRef) -> Option<u32> {
        self.own.frame_offset(symbol)
    }

    /// A source in the bank of its type.
    pub fn lower_source(&mut self, operand: &Operand, ty: ScalarType) -> Lowered<RegisterSlot> {
        if ty.bits() > 32 { self.lower_source64(operand, ty) } else { self.lower_source32(operand, ty) }
    }

    /// A predicate source, and true if it is negated.
    pub fn lower_predicate(&mut self, operand: &Operand) -> Lowered<(RegisterSlot, bool)> {
        match operand {
            Operand::Reg(register) => Ok((self.expect_register(*register, Class::Predicate)?, false)),
            Operand::NotReg(register) => Ok((self.expect_register(*register, Class::Predicate)?, true)),
            Operand::Imm(imm) => {
                let d = self.new_temporary_p();
                let how = if imm.bits(ScalarType::U32) != 0 { PredicateHow::True } else { PredicateHow::False };
                self.emit_always(Op::Predicate(PredicateOp { how, d, a: NO_SLOT, b: NO_SLOT }));
                Ok((d, false))
            }
            Operand::Special(special) if special.bits() == 1 => {
                let (d, a, zero) = (self.new_temporary_p(), self.new_temporary32(), self.intern_constant32(0));
                self.emit_always(Op::Special { d: a, what: special_of(*special)?.0 });
                self.emit_always(Op::Alu(Alu { d, a, b: zero, ..Alu::new(alu::test2::<ops::integer::Ne<u32>>()) }));
                Ok((d, false))
            }
            _ => reject("a predicate is expected here"),
        }
    }

    /// A predicate source that cannot be negated.
    pub fn lower_plain_predicate(&mut self, operand: &Operand) -> Lowered<RegisterSlot> {
        let (slot, negated) = self.lower_predicate(operand)?;
        if !negated {
            return Ok(slot);
        }
        let d = self.new_temporary_p();
        self.emit_always(Op::Predicate(PredicateOp { how: PredicateHow::Not, d, a: slot, b: NO_SLOT }));
        Ok(d)
    }

    /// A predicate destination; [`NO_SLOT`] for `_`.
    pub fn lower_predicate_target(&mut self, operand: &Operand) -> Lowered<RegisterSlot> {
        match operand {
            Operand::Reg(register) => self.expect_register(*register, Class::Predicate),
            Operand::Sink => Ok(NO_SLOT),
            _ => reject("a predicate register is expected here"),
        }
    }

    /// A destination in a 32-bit slot.
    pub fn lower_target32(&mut self, operand: &Operand) -> Lowered<RegisterSlot> {
        match operand {
            Operand::Reg(register) => self.expect_register(*register, Class::Narrow),
            Operand::Sink => Ok(self.new_temporary32()),
            _ => reject("a 32-bit register is expected here"),
        }
    }

    /// A destination in a 64-bit slot.
    pub fn lower_target64(&mut self, operand: &Operand) -> Lowered<RegisterSlot> {
        match operand {
            Operand::Reg(register) if self.class_of(*register) == Class::Double => Ok(self.slot_of(*register)),
            Operand::Reg(register) => self.expect_register(*register, Class::Wide),
            Operand::Sink => Ok(self.new_temporary64()),
            _ => reject("a 64-bit register is expected here"),
        }
    }

    /// A destination in the bank of its type.
    pub fn lower_target(&mut self, operand: &Operand, ty: ScalarType) -> Lowered<RegisterSlot> {
        if ty.bits() > 32 { self.lower_target64(operand) } else { self.lower_target32(operand) }
    }

    // ---- instructions of ordinary shape

    /// Appends an arithmetic instruction.
    pub fn emit_alu(&mut self, alu: Alu) {
        self.emit(Op::Alu(alu));
    }

    /// Appends `d = f(a, …)`, whose operands all have the same type.
    pub fn emit_uniform(&mut self, function: AluFunction, operands: &[Operand], ty: ScalarType) -> Lowered {
        let mut alu = Alu::new(function);
        for (n, operand) in operands.iter().enumerate().skip(1) {
            let slot = self.lower_source(operand, ty)?;
            match n {
                1 => alu.a = slot,
                2 => alu.b = slot,
                3 => alu.c = slot,
                _ => alu.e = slot,
            }
        }
        let Some(first) = operands.first() else { return reject("operands are missing") };
        alu.d = self.lower_target(first, ty)?;
        self.emit_alu(alu);
        Ok(())
    }
}

/// The modifiers that are words, in their order.
pub(super) fn words_of(instruction: &Instruction) -> Vec<&str> {
    let words = instruction.modifiers.iter().filter_map(|modifier| match modifier {
        Modifier::Other(word) => Some(&**word),
        Modifier::Word(word) => Some(word.name()),
        _ => None,
    });
    words.collect()
}

/// The operands, of which there must be `N`.
pub(super) fn exact_operands<const N: usize>(instruction: &Instruction) -> Lowered<&[Operand; N]> {
    match instruction.operands.as_slice().try_into() {
        Ok(operands) => Ok(operands),
        Err(_) => reject(format!("{} takes {N} operands", instruction.mnemonic())),
    }
}

/// The instruction's first or only type.
pub(super) fn first_type(instruction: &Instruction) -> Lowered<ScalarType> {
    match instruction.ty(0) {
        Some(ty) => Ok(ty),
        None => reject(format!("{} needs a type", instruction.mnemonic())),
    }
}

/// Refuses an instruction with a modifier that the parser does not know.
pub(super) fn refuse_other_modifiers(instruction: &Instruction) -> Lowered {
    let unknown = instruction.modifiers.iter().any(|m| matches!(m, Modifier::Other(_)));
    if unknown || instruction.has(Word::Oob) { Err(Trouble::Refused) } else { Ok(()) }
}

/// A special register, and the bits of its value.
pub(super) fn special_of(special: SpecialReg) -> Lowered<(Special, u32)> {
    use SpecialReg as S;
    let what = match special {
        S::Tid(a) => Special::Tid(a as u8),
        S::Ntid(a) => Special::Ntid(a as u8),
        S::Ctaid(a) => Special::Ctaid(a as u8),
        S::Nctaid(a) => Special::Nctaid(a as u8),
        S::ClusterId(a) => Special::ClusterId(a as u8),
        S::NclusterId(a) => Special::NclusterId(a as u8),
        S::ClusterCtaid(a) => Special::ClusterCtaid(a as u8),
        S::ClusterNctaid(a) => Special::ClusterNctaid(a as u8),
        S::ClusterCtarank => Special::ClusterCtarank,
        S::ClusterNctarank => Special::ClusterNctarank,
        S::Laneid => Special::Laneid,
        S::Warpid => Special::Warpid,
        S::Nwarpid => Special::Nwarpid,
        S::Smid => Special::Smid,
        S::Nsmid => Special::Nsmid,
        S::Gridid => Special::Gridid,
        S::LanemaskEq => Special::LanemaskEq,
        S::LanemaskLe => Special::LanemaskLe,
        S::LanemaskLt => Special::LanemaskLt,
        S::LanemaskGe => Special::LanemaskGe,
        S::LanemaskGt => Special::LanemaskGt,
        S::Clock => Special::Clock,
        S::ClockHi => Special::ClockHigh,
        S::Clock64 => Special::Clock64,
        S::Envreg(n) => Special::Envreg(n),
        S::Globaltimer => Special::Globaltimer,
        S::GlobaltimerLo => Special::GlobaltimerLow,
        S::GlobaltimerHi => Special::GlobaltimerHigh,
        S::DynamicSmemSize => Special::DynamicShared,
        S::TotalSmemSize | S::AggrSmemSize => Special::TotalShared,
        S::IsExplicitCluster => Special::IsExplicitCluster,
        S::Pm(_) | S::ReservedSmemOffsetBegin | S::ReservedSmemOffsetEnd | S::ReservedSmemOffsetCap | S::ReservedSmemOffset(_) => Special::Zero,
        S::Pm64(_) | S::CurrentGraphExec => Special::Zero64,
    };
    Ok((what, special.bits()))
}
