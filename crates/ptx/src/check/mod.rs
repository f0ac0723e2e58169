//! Is an instruction well formed? Operand counts, kinds, and types against registers.
//!
//! The rules are PTX's, a little relaxed where ptxas itself is: nothing that ptxas accepts may be
//! refused here. What a few opcodes demand of their operands is written as a short pattern (see
//! [`shape`]); loads, stores, conversions, moves and calls have rules of their own.

mod call;
mod shape;
mod types;

use crate::ast::{AddressBase, Body, Function, Imm, Instruction, Modifier, Opcode, Operand, RegId, Register, ScalarType, SpecialReg, TypeKind, Word};
use crate::fail::{Fail, Result};

/// What an instruction may refer to.
pub(crate) struct Context<'a> {
    pub(crate) registers: &'a [Register],
    pub(crate) body: &'a Body,
    pub(crate) functions: &'a [Function],
    pub(crate) function: &'a Function,
}

pub(crate) fn check_instruction(instruction: &Instruction, context: &Context<'_>) -> Result<()> {
    let check = Check { instruction, context };
    if let Some(guard) = instruction.guard
        && context.registers[guard.register.index()].ty != ScalarType::Pred
    {
        let register = &context.registers[guard.register.index()];
        let problem = format!("the guard {} is a {} register", register.name, register.ty);
        return Err(Fail::new(instruction.pos, problem).with_help("a guard must be a .pred register"));
    }
    check.check_type_present()?;
    check.check_modifiers_present()?;
    check.check_type()?;
    match instruction.opcode {
        Opcode::Call => check.check_call(),
        Opcode::Ld | Opcode::Ldu => check.check_load(),
        Opcode::St if !instruction.has(Word::Async) && !instruction.has(Word::Bulk) => check.check_store(),
        Opcode::Mov => check.check_mov(),
        Opcode::Cvt => check.check_convert(),
        Opcode::Red if instruction.has(Word::Async) => Ok(()),
        _ => check.check_pattern(shape::pattern_of(instruction)),
    }
}

struct Check<'a> {
    instruction: &'a Instruction,
    context: &'a Context<'a>,
}

impl Check<'_> {
    fn fail(&self, message: String) -> Fail {
        Fail::new(self.instruction.pos, message)
    }

    fn register(&self, id: RegId) -> &Register {
        &self.context.registers[id.index()]
    }

    /// Opcodes that mean nothing without a type.
    fn check_type_present(&self) -> Result<()> {
        if shape::needs_type(self.instruction.opcode) && self.instruction.ty(0).is_none() && !self.instruction.has(Word::Bulk) {
            let problem = format!("'{}' needs a type", self.instruction.mnemonic());
            return Err(self.fail(problem).with_help("append one, such as .u32"));
        }
        Ok(())
    }

    /// Modifiers without which an opcode has no meaning.
    fn check_modifiers_present(&self) -> Result<()> {
        let i = self.instruction;
        let ty = i.ty(0).unwrap_or(ScalarType::B32);
        let rounds = i.rounding().is_some() || i.has(Word::Approx) || i.has(Word::Full);
        let halves = i.has(Word::Lo) || i.has(Word::Hi) || i.has(Word::Wide);
        let missing = match i.opcode {
            Opcode::Setp | Opcode::Set if i.cmp().is_none() => "a comparison such as .lt",
            Opcode::Fma if i.rounding().is_none() => "a rounding such as .rn",
            Opcode::Div | Opcode::Sqrt | Opcode::Rcp if ty.is_float() && !rounds => "a rounding such as .rn, or .approx",
            Opcode::Mul | Opcode::Mad if !ty.is_float() && !halves => ".lo, .hi or .wide",
            Opcode::Cvt if i.rounding().is_none() && rounds_without_saying(i) => "a rounding such as .rn or .rzi",
            Opcode::Cvta if i.space().is_none() => "a state space such as .global",
            Opcode::Atom | Opcode::Red | Opcode::Redux if i.reduce().is_none() && !i.has(Word::Async) => "an operation such as .add",
            _ => return Ok(()),
        };
        Err(self.fail(format!("'{}' needs {missing}", i.mnemonic())))
    }

    fn check_count(&self, least: usize, most: usize) -> Result<()> {
        let found = self.instruction.operands.len();
        if (least..=most).contains(&found) {
            return Ok(());
        }
        let wanted = if least == most { format!("{least}") } else { format!("{least} to {most}") };
        Err(self.fail(format!("'{}' takes {wanted} operands, found {found}", self.instruction.mnemonic())))
    }

    /// Complains about operand `at` (from 0).
    fn fail_operand<T>(&self, at: usize, wanted: &str) -> Result<T> {
        let found = self.instruction.operands.get(at).map_or_else(String::new, |operand| self.describe_operand(operand));
        Err(self.fail(format!("operand {} of '{}' must be {wanted}", at + 1, self.instruction.mnemonic())).with_help(format!("it is {found}")))
    }

    fn describe_operand(&self, operand: &Operand) -> String {
        match operand {
            Operand::Reg(id) | Operand::Selected { register: id, .. } => {
                let register = self.register(*id);
                format!("{}, a {} register", register.name, register.ty)
            }
            Operand::NotReg(id) => format!("the negation of {}", self.register(*id).name),
            Operand::Sum { register, offset } => format!("{}, a {} register, plus {offset}", self.register(*register).name, self.register(*register).ty),
            Operand::Imm(Imm::Int(n)) => format!("the integer {n}"),
            Operand::Imm(Imm::F32(bits)) => format!("the single {}", f32::from_bits(*bits)),
            Operand::Imm(Imm::F64(bits)) => format!("the double {}", f64::from_bits(*bits)),
            Operand::Special(_) => "a special register, which only mov can read".to_owned(),
            Operand::Symbol { .. } => "the address of a name".to_owned(),
            Operand::Address { .. } => "an address in brackets".to_owned(),
            Operand::Vector(elements) => format!("a vector of {}", elements.len()),
            Operand::Bracket(_) => "a list in brackets".to_owned(),
            Operand::Label(_) => "a label".to_owned(),
            Operand::BranchTable(_) => "a table of labels".to_owned(),
            Operand::Pair(_) => "a pair".to_owned(),
            Operand::Sink => "'_'".to_owned(),
            Operand::Call(_) => "a call".to_owned(),
        }
    }

    /// Can `operand` be read as a value of `ty`?
    fn is_source(&self, operand: &Operand, ty: ScalarType) -> bool {
        match operand {
            Operand::Reg(id) => agrees(self.register(*id).ty, ty),
            Operand::NotReg(id) => ty == ScalarType::Pred && self.register(*id).ty == ScalarType::Pred,
            Operand::Sum { register, .. } => self.is_sum(*register) && agrees(self.register(*register).ty, ty),
            Operand::Imm(imm) => imm_fits(*imm, ty),
            Operand::Special(special) => self.takes_special() && special_fits(*special, ty),
            Operand::Symbol { .. } => matches!(self.instruction.opcode, Opcode::Mov | Opcode::Cvta) && ty.is_integer() && matches!(ty.bits(), 32 | 64),
            _ => false,
        }
    }

    /// A constant can be added to integers and bits of 16 to 64 bits.
    fn is_sum(&self, register: RegId) -> bool {
        let ty = self.register(register).ty;
        ty.is_integer() && matches!(ty.bits(), 16 | 32 | 64)
    }

    /// Special registers can be read by `mov`, and by `cvt` between integers.
    fn takes_special(&self) -> bool {
        match self.instruction.opcode {
            Opcode::Mov => true,
            Opcode::Cvt => self.instruction.types().all(ScalarType::is_integer),
            _ => false,
        }
    }

    fn is_destination(&self, operand: &Operand, ty: ScalarType) -> bool {
        match operand {
            Operand::Reg(id) => agrees(self.register(*id).ty, ty),
            Operand::Sink => true,
            _ => false,
        }
    }

    /// A register at least as wide as `ty`, for loads, stores and conversions.
    fn is_wide_enough(&self, operand: &Operand, ty: ScalarType, reading: bool) -> bool {
        match operand {
            Operand::Reg(id) => {
                let register = self.register(*id).ty;
                register.bits() >= ty.bits() && same_meaning(register, ty)
            }
            Operand::Sum { register, .. } => reading && self.is_sum(*register) && self.is_wide_enough(&Operand::Reg(*register), ty, reading),
            Operand::Imm(imm) => reading && imm_fits(*imm, ty),
            Operand::Special(special) => reading && self.takes_special() && special_fits(*special, ty),
            _ => false,
        }
    }

    fn check_address(&self, at: usize) -> Result<()> {
        match &self.instruction.operands[at] {
            Operand::Address { base: AddressBase::Reg(id), .. } => {
                let ty = self.register(*id).ty;
                if ty.is_integer() && matches!(ty.bits(), 32 | 64) { Ok(()) } else { self.fail_operand(at, "an address with a 32-bit or 64-bit register") }
            }
            Operand::Address { .. } => Ok(()),
            _ => self.fail_operand(at, "an address in brackets"),
        }
    }

    /// The value of a load or store: a register, or as many as the vector has elements.
    fn check_value(&self, at: usize, ty: ScalarType, reading: bool) -> Result<()> {
        let width = usize::from(self.instruction.vector());
        let operand = &self.instruction.operands[at];
        match operand {
            Operand::Vector(elements) if width > 1 => {
                let fits = elements.len() == width
                    && elements.iter().all(|element| match element {
                        Operand::Sink => true,
                        _ => self.is_wide_enough(element, ty, reading),
                    });
                if fits {
                    return Ok(());
                }
            }
            _ if width > 1 => {}
            _ if self.is_wide_enough(operand, ty, reading) => return Ok(()),
            _ => {}
        }
        let wanted = match width {
            1 => format!("a register of at least {} bits", ty.bits()),
            n => format!("{n} registers of at least {} bits in braces", ty.bits()),
        };
        self.fail_operand(at, &wanted)
    }

    fn check_load(&self) -> Result<()> {
        self.check_count(2, 3)?;
        let ty = self.instruction.ty(0).unwrap_or(ScalarType::B32);
        self.check_value(0, ty, false)?;
        self.check_address(1)
    }

    fn check_store(&self) -> Result<()> {
        self.check_count(2, 3)?;
        let ty = self.instruction.ty(0).unwrap_or(ScalarType::B32);
        self.check_address(0)?;
        self.check_value(1, ty, true)
    }

    /// Bits that one side of a packing or unpacking `mov` has; `_` counts as `share`.
    fn packed_bits(&self, elements: &[Operand], share: u32) -> Option<u32> {
        elements.iter().try_fold(0u32, |sum, element| {
            let bits = match element {
                Operand::Reg(id) => self.register(*id).ty.bits(),
                Operand::Sink | Operand::Imm(_) | Operand::Special(_) => share,
                _ => return None,
            };
            sum.checked_add(bits)
        })
    }

    fn check_mov(&self) -> Result<()> {
        self.check_count(2, 2)?;
        let ty = self.instruction.ty(0).unwrap_or(ScalarType::B32);
        let operands = &self.instruction.operands;
        let width = self.instruction.vector();
        for (at, operand) in operands.iter().enumerate() {
            let good = match operand {
                Operand::Vector(elements) if width > 1 => {
                    elements.len() == usize::from(width) || (width == 2 && elements.len() == 4) || matches!(elements[..], [Operand::Special(_), ..])
                }
                Operand::Vector(elements) => {
                    if ty.kind() != TypeKind::Bits {
                        let problem = format!("packing by 'mov' needs a type of bits, not {ty}");
                        return Err(self.fail(problem).with_help("write .b32, .b64 or .b128"));
                    }
                    let share = ty.bits() / (elements.len().max(1) as u32);
                    self.packed_bits(elements, share) == Some(ty.bits())
                }
                _ if at == 0 => self.is_destination(operand, ty),
                Operand::Special(special) => special_fits(*special, ty),
                _ => self.is_source(operand, ty),
            };
            if !good {
                let wanted = format!("{} bits for {ty}", ty.bits() * u32::from(width));
                return self.fail_operand(at, &wanted);
            }
        }
        Ok(())
    }

    fn check_convert(&self) -> Result<()> {
        self.check_count(2, 5)?;
        let packs = self.instruction.has(Word::Pack) || self.instruction.operands.len() > 2;
        let into = self.instruction.ty(0).unwrap_or(ScalarType::B32);
        let Some(from) = self.instruction.ty(1) else {
            let problem = format!("'{}' needs two types", self.instruction.mnemonic());
            return Err(self.fail(problem).with_help("write target and source, as in .u32.u16"));
        };
        let scaled = self.instruction.modifiers.iter().any(|m| matches!(m, Modifier::Word(Word::Scaled)));
        if packs || scaled {
            return Ok(());
        }
        if !self.is_wide_enough(&self.instruction.operands[0], into, false) {
            return self.fail_operand(0, &format!("a register of at least {} bits", into.bits()));
        }
        if !self.is_wide_enough(&self.instruction.operands[1], from, true) {
            return self.fail_operand(1, &format!("a register of at least {} bits", from.bits()));
        }
        Ok(())
    }
}

/// PTX's rule: same width, and the same meaning unless one side is plain bits. Signed and unsigned
/// agree; packed types live in registers of bits or integers of their width.
fn agrees(register: ScalarType, wanted: ScalarType) -> bool {
    register.bits() == wanted.bits() && same_meaning(register, wanted)
}

fn same_meaning(register: ScalarType, wanted: ScalarType) -> bool {
    let plain = matches!(wanted, ScalarType::F16 | ScalarType::F32 | ScalarType::F64);
    match (register.kind(), wanted.kind()) {
        (TypeKind::Predicate, want) => want == TypeKind::Predicate,
        (_, TypeKind::Predicate) => false,
        (TypeKind::Bits, _) | (_, TypeKind::Bits) => true,
        (TypeKind::Float, TypeKind::Float) => true,
        (TypeKind::Float, _) => false,
        (_, TypeKind::Float) => !plain,
        _ => true,
    }
}

fn imm_fits(imm: Imm, ty: ScalarType) -> bool {
    match (imm, ty.kind()) {
        (Imm::Int(_), TypeKind::Float) => !matches!(ty, ScalarType::F32 | ScalarType::F64),
        (Imm::Int(_), _) => true,
        (_, TypeKind::Float) => true,
        (Imm::F32(_), TypeKind::Bits) => ty.bits() == 32,
        (Imm::F64(_), TypeKind::Bits) => ty.bits() == 64,
        _ => false,
    }
}

/// A special register may be read by a narrower instruction, not by a wider one.
fn special_fits(special: SpecialReg, ty: ScalarType) -> bool {
    match ty {
        ScalarType::Pred => special.bits() == 1,
        _ => ty.is_integer() && special.bits() >= ty.bits() || special.bits() == ty.bits(),
    }
}

/// Does this conversion lose bits or cross between integers and floats?
fn rounds_without_saying(cvt: &Instruction) -> bool {
    let mut types = cvt.types();
    let (Some(into), Some(from)) = (types.next(), types.next()) else {
        return false;
    };
    let scalar = |ty| {
        use ScalarType as T;
        matches!(ty, T::F16 | T::Bf16 | T::F32 | T::F64)
    };
    match (scalar(into), scalar(from)) {
        (true, true) => into.bits() < from.bits(),
        (true, false) => matches!(from.kind(), TypeKind::Unsigned | TypeKind::Signed),
        (false, true) => matches!(into.kind(), TypeKind::Unsigned | TypeKind::Signed),
        (false, false) => false,
    }
}
