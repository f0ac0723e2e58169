//! Contracts products and sums into fused multiply-adds, as ptxas does (`-fmad=true`, its default).
//!
//! nvcc contracts only a part itself. It leaves `a - b * c` as a `mul` and a `sub` without rounding
//! modifiers, which leaves the choice to ptxas. The last bit of the result depends on that choice,
//! so this follows ptxas 13.0. Its rules, found with random programs:
//!
//! - A `mul` without rounding and `.sat` is contracted with an `add` or `sub` without rounding of
//!   the same type and `.ftz`, in the same basic block. The sum may have a guard and `.sat`, the
//!   product may not. Moves and negations between them are looked through.
//! - Every use of the product must be such a sum. Otherwise the product is kept for all.
//! - If both operands of a sum are products, those with one use go first, the first operand before
//!   the second. Then come the others in the order of the sums: the product with fewer uses, if
//!   none of its uses has been given another product.
//! - A module for a debugger is left as it is.

use super::registers::{self, Flow, LiveSets};
use cumux_ptx::ast::{Body, Function, Imm, Instruction, Modifier, Module, Opcode as O, Operand, Param, RegId, Register, Rounding, ScalarType as T, Word};
use std::collections::{HashMap, HashSet};

/// Contracts the functions of a module.
pub(super) fn contract(module: &mut Module) {
    if module.target.options.iter().any(|option| &**option == "debug") {
        return;
    }
    for function in &mut module.functions {
        let Some(body) = &function.body else { continue };
        let candidates = |is_one: fn(&Instruction) -> bool| body.instructions.iter().any(is_one);
        if !candidates(is_product) || !candidates(is_sum) {
            continue;
        }
        let fused = Search::new(function, body).run();
        if let Some(body) = function.body.as_mut().filter(|_| !fused.is_empty()) {
            rewrite(body, &fused);
        }
    }
}

/// The type of an instruction whose modifiers are one floating-point type and some of these words.
fn plain_type(i: &Instruction, words: &[Word]) -> Option<T> {
    let mut ty = None;
    for modifier in &i.modifiers {
        match modifier {
            Modifier::Type(one @ (T::F32 | T::F64 | T::F16 | T::F16x2 | T::Bf16 | T::Bf16x2)) if ty.is_none() => ty = Some(*one),
            Modifier::Word(word) if words.contains(word) => {}
            _ => return None,
        }
    }
    ty
}

/// True if the operand can be a factor or an addend.
fn is_value(operand: &Operand, ty: T) -> bool {
    matches!(operand, Operand::Reg(_)) || matches!(operand, Operand::Imm(_)) && matches!(ty, T::F32 | T::F64)
}

/// True for a product that may be contracted.
fn is_product(i: &Instruction) -> bool {
    let Some(ty) = plain_type(i, &[Word::Ftz]).filter(|_| i.opcode == O::Mul && i.guard.is_none()) else { return false };
    matches!(i.operands.as_slice(), [Operand::Reg(_), a, b] if is_value(a, ty) && is_value(b, ty))
}

/// True for a sum or difference that may be contracted.
fn is_sum(i: &Instruction) -> bool {
    let Some(ty) = plain_type(i, &[Word::Ftz, Word::Sat]).filter(|_| matches!(i.opcode, O::Add | O::Sub)) else { return false };
    matches!(i.operands.as_slice(), [Operand::Reg(_), a, b] if is_value(a, ty) && is_value(b, ty))
}

/// A product, and what becomes of it.
struct Product {
    /// Its instruction.
    at: usize,
    ty: Option<T>,
    flush: bool,
    /// Its place in the order of the search.
    order: usize,
    /// The piece of code without calls in which it is.
    piece: usize,
    uses: Vec<Use>,
    /// Something besides sums uses it.
    has_other_use: bool,
    /// Moves and negations of it.
    copies: Vec<usize>,
}

/// A use of a product in a sum.
#[derive(Clone, Copy)]
struct Use {
    /// The sum's instruction.
    sum: usize,
    /// The operand: 1 or 2.
    operand: usize,
    negated: bool,
    /// The product's factors that are overwritten before the sum.
    overwritten: [bool; 2],
}

/// What a register holds: a product or its negation.
#[derive(Clone, Copy)]
struct Held {
    product: usize,
    negated: bool,
    /// How often the register has been read since.
    reads: u32,
}

/// A product with the uses that become fused multiply-adds.
struct Fused {
    at: usize,
    uses: Vec<Use>,
    /// Something still needs the product itself.
    kept: bool,
    copies: Vec<usize>,
}

/// The search through one function.
struct Search<'a> {
    function: &'a Function,
    body: &'a Body,
    flow: Flow,
    /// How often each register is read, and how often it is written.
    reads: Vec<u32>,
    writes: Vec<u32>,
    live: Option<Option<LiveSets>>,
    /// Where each register was last overwritten, in the order of the search.
    overwritten: Vec<usize>,
    order: usize,
}

impl<'a> Search<'a> {
    fn new(function: &'a Function, body: &'a Body) -> Self {
        let registers = body.registers.len();
        let (mut reads, mut writes) = (vec![0; registers], vec![0; registers]);
        for i in &body.instructions {
            registers::visit_effects(i, &mut |r| reads[r.index()] += 1, &mut |r| writes[r.index()] += 1);
            if i.guard.is_some() {
                registers::visit_targets(i, &mut |r| writes[r.index()] += 1);
            }
        }
        // Parameters are written at the beginning, and results are read at the end.
        function.params.iter().flat_map(Param::registers).for_each(|r| writes[r.index()] += 1);
        function.returns.iter().flat_map(Param::registers).for_each(|r| reads[r.index()] += 1);
        Search { function, body, flow: registers::build_flow(body), reads, writes, live: None, overwritten: vec![0; registers], order: 0 }
    }

    fn run(mut self) -> Vec<Fused> {
        let chains = self.chains();
        chains.iter().flat_map(|chain| self.search(chain)).collect()
    }

    /// The instructions of a basic block.
    fn instructions_of(&self, block: usize) -> std::ops::Range<usize> {
        self.flow.starts[block]..self.flow.starts.get(block + 1).copied().unwrap_or(self.body.instructions.len())
    }

    /// Basic blocks that always follow one another, as one chain each.
    fn chains(&self) -> Vec<Vec<usize>> {
        let blocks = self.flow.starts.len();
        let mut reached = vec![false; blocks];
        let mut todo = vec![0];
        let mut comes_from = vec![0; blocks];
        while let Some(block) = todo.pop() {
            if block < blocks && !std::mem::replace(&mut reached[block], true) {
                self.flow.next[block].iter().for_each(|next| comes_from[*next] += 1);
                todo.extend(&self.flow.next[block]);
            }
        }
        // The block into which a block flows and no other does.
        let follower = |block: usize| {
            let last = &self.body.instructions[self.instructions_of(block).end - 1];
            let may_leave = last.guard.is_some() && registers::ends_block(last.opcode);
            match self.flow.next[block].as_slice() {
                [next] if !may_leave && comes_from[*next] == 1 && *next != 0 => Some(*next),
                _ => None,
            }
        };
        let followers: HashSet<usize> = (0..blocks).filter(|block| reached[*block]).filter_map(follower).collect();
        let heads = (0..blocks).filter(|block| reached[*block] && !followers.contains(block));
        heads.map(|head| std::iter::successors(Some(head), |block| follower(*block)).collect()).collect()
    }

    /// True if the register's value is still needed after a block.
    fn is_live_after(&mut self, block: usize, register: RegId, reads: u32) -> bool {
        if self.reads[register.index()] == reads {
            return false;
        }
        if self.writes[register.index()] == 1 {
            return true;
        }
        let live = self.live.get_or_insert_with(|| LiveSets::find(self.function, self.body, &self.flow, &mut |_, _| {}));
        live.as_ref().is_none_or(|live| live.lives_after(block, register))
    }

    /// Finds the products of one chain that are contracted.
    fn search(&mut self, chain: &[usize]) -> Vec<Fused> {
        let mut products: Vec<Product> = Vec::new();
        let mut sums: Vec<usize> = Vec::new();
        let mut held: HashMap<RegId, Held> = HashMap::new();
        let mut piece = 0;
        let instructions: Vec<usize> = chain.iter().flat_map(|block| self.instructions_of(*block)).collect();
        for n in instructions {
            let i = &self.body.instructions[n];
            self.order += 1;
            if !held.is_empty() {
                self.note_uses(n, i, piece, &mut held, &mut products);
            }
            let copy = copied_register(i).and_then(|(from, flips)| {
                let of = held.get(&from)?;
                let product = &products[of.product];
                let same = product.piece == piece && (!flips || product.ty == i.ty(0) && (product.flush || !i.has(Word::Ftz)));
                same.then_some(Held { product: of.product, negated: of.negated ^ flips, reads: 0 })
            });
            if !held.is_empty() {
                registers::visit_effects(i, &mut |_| {}, &mut |r| {
                    held.remove(&r);
                });
            }
            registers::visit_targets(i, &mut |r| self.overwritten[r.index()] = self.order);
            if is_sum(i) {
                sums.push(n);
            }
            piece += usize::from(i.opcode == O::Call);
            let Some(Operand::Reg(d)) = i.operands.first() else { continue };
            if let Some(copy) = copy {
                products[copy.product].copies.push(n);
                held.insert(*d, copy);
            }
            if is_product(i) {
                let product = products.len();
                let flush = i.has(Word::Ftz);
                products.push(Product { at: n, ty: i.ty(0), flush, order: self.order, piece, uses: Vec::new(), has_other_use: false, copies: Vec::new() });
                held.insert(*d, Held { product, negated: false, reads: 0 });
            }
        }
        let last = chain.last().copied().unwrap_or(0);
        for (register, held) in held {
            if !products[held.product].has_other_use && self.is_live_after(last, register, held.reads) {
                products[held.product].has_other_use = true;
            }
        }
        choose(&products, &sums)
    }

    /// Notes which products an instruction uses.
    fn note_uses(&self, n: usize, i: &Instruction, piece: usize, held: &mut HashMap<RegId, Held>, products: &mut [Product]) {
        let mut candidates: [Option<(RegId, Held)>; 2] = [None; 2];
        if is_sum(i) {
            for operand in [1, 2] {
                let Operand::Reg(register) = &i.operands[operand] else { continue };
                candidates[operand - 1] = held.get(register).map(|held| (*register, *held)).filter(|(_, held)| {
                    let product = &products[held.product];
                    product.piece == piece && product.ty == i.ty(0) && product.flush == i.has(Word::Ftz)
                });
            }
            // The product and itself.
            if let [Some((_, a)), Some((_, b))] = candidates
                && a.product == b.product
            {
                candidates = [None; 2];
            }
        }
        let is_copy = copied_register(i).is_some();
        let mut expected: Vec<RegId> = candidates.iter().flatten().map(|(register, _)| *register).collect();
        registers::visit_effects(
            i,
            &mut |register| {
                let Some(held) = held.get_mut(&register) else { return };
                held.reads += 1;
                if let Some(at) = expected.iter().position(|one| *one == register) {
                    expected.swap_remove(at);
                } else if !is_copy || self.copies_another(i, &products[held.product], piece) {
                    products[held.product].has_other_use = true;
                }
            },
            &mut |_| {},
        );
        for (operand, candidate) in candidates.iter().enumerate() {
            let Some((_, held)) = candidate else { continue };
            let product = &mut products[held.product];
            let factors = &self.body.instructions[product.at].operands[1..3];
            let overwritten = [0, 1].map(|n| matches!(&factors[n], Operand::Reg(r) if self.overwritten[r.index()] > product.order));
            product.uses.push(Use { sum: n, operand: operand + 1, negated: held.negated, overwritten });
        }
    }

    /// True if a move or negation changes more of the product than its sign.
    fn copies_another(&self, i: &Instruction, product: &Product, piece: usize) -> bool {
        product.piece != piece || i.opcode == O::Neg && (product.ty != i.ty(0) || i.has(Word::Ftz) && !product.flush)
    }
}

/// The register of which an instruction is a move, or a negation (true).
fn copied_register(i: &Instruction) -> Option<(RegId, bool)> {
    match (i.opcode, i.operands.as_slice(), i.guard) {
        (O::Mov, [Operand::Reg(_), Operand::Reg(from)], None) if i.ty(0) != Some(T::Pred) => Some((*from, false)),
        (O::Neg, [Operand::Reg(_), Operand::Reg(from)], None) if plain_type(i, &[Word::Ftz]).is_some() => Some((*from, true)),
        _ => None,
    }
}

/// Decides which sum is contracted with which product.
fn choose(products: &[Product], sums: &[usize]) -> Vec<Fused> {
    // The candidates of each sum, the first operand first.
    let mut candidates: HashMap<usize, Vec<usize>> = HashMap::new();
    for operand in [1, 2] {
        for (n, product) in products.iter().enumerate().filter(|(_, product)| !product.has_other_use) {
            for one in product.uses.iter().filter(|one| one.operand == operand) {
                candidates.entry(one.sum).or_default().push(n);
            }
        }
    }
    let mut decided: HashMap<usize, Option<usize>> = HashMap::new();
    for sum in sums {
        let single = candidates.get(sum).and_then(|of| of.iter().find(|n| products[**n].uses.len() == 1));
        if let Some(single) = single {
            decided.insert(*sum, Some(*single));
        }
    }
    for sum in sums {
        if decided.contains_key(sum) {
            continue;
        }
        let is_free = |n: &&usize| products[**n].uses.iter().all(|one| decided.get(&one.sum).is_none_or(|chosen| *chosen == Some(**n)));
        let chosen = candidates.get(sum).and_then(|of| of.iter().filter(is_free).min_by_key(|n| products[**n].uses.len()));
        decided.insert(*sum, chosen.copied());
    }
    let fuse = |(n, product): (usize, &Product)| {
        let uses: Vec<Use> = product.uses.iter().filter(|one| decided.get(&one.sum) == Some(&Some(n))).copied().collect();
        let kept = uses.len() < product.uses.len();
        (!uses.is_empty()).then(|| Fused { at: product.at, uses, kept, copies: product.copies.clone() })
    };
    products.iter().enumerate().filter_map(fuse).collect()
}

/// The operand with the other sign.
fn negate(operand: Operand) -> Operand {
    match operand {
        Operand::Reg(register) => Operand::Selected { register, selector: None, negated: true },
        Operand::Imm(Imm::F32(bits)) => Operand::Imm(Imm::F32(bits ^ 1 << 31)),
        Operand::Imm(Imm::F64(bits)) => Operand::Imm(Imm::F64(bits ^ 1 << 63)),
        Operand::Imm(Imm::Int(n)) => Operand::Imm(Imm::F64((-(n as f64)).to_bits())),
        other => other,
    }
}

/// Puts the fused multiply-adds in the place of the sums.
fn rewrite(body: &mut Body, fused: &[Fused]) {
    let mut gone: HashSet<usize> = HashSet::new();
    // Moves that keep a factor until the sum, before the product.
    let mut saves: HashMap<usize, Vec<Instruction>> = HashMap::new();
    for product in fused {
        let mul = body.instructions[product.at].clone();
        if !product.kept {
            gone.insert(product.at);
            gone.extend(&product.copies);
        }
        let mut saved: [Option<RegId>; 2] = [None; 2];
        for one in &product.uses {
            let mut factors = [mul.operands[1].clone(), mul.operands[2].clone()];
            for (n, factor) in factors.iter_mut().enumerate() {
                let Operand::Reg(register) = *factor else { continue };
                if one.overwritten[n] || product.kept && mul.operands[0] == *factor {
                    let save = saved[n].unwrap_or_else(|| {
                        let save = RegId(body.registers.len() as u32);
                        let ty = body.register(register).ty;
                        body.registers.push(Register { name: format!("{}$saved", body.register(register).name).into(), ty });
                        let bits = match ty.bits() {
                            16 => T::B16,
                            32 => T::B32,
                            _ => T::B64,
                        };
                        let operands = vec![Operand::Reg(save), Operand::Reg(register)];
                        let copy = Instruction { opcode: O::Mov, modifiers: vec![Modifier::Type(bits)], operands, ..mul.clone() };
                        saves.entry(product.at).or_default().push(copy);
                        save
                    });
                    saved[n] = Some(save);
                    *factor = Operand::Reg(save);
                }
            }
            let sum = &mut body.instructions[one.sum];
            let minus = sum.opcode == O::Sub;
            let [mut a, b] = factors;
            let mut c = sum.operands[3 - one.operand].clone();
            if one.negated ^ (minus && one.operand == 2) {
                a = negate(a);
            }
            if minus && one.operand == 1 {
                c = negate(c);
            }
            sum.opcode = O::Fma;
            sum.modifiers.insert(0, Modifier::Round(Rounding::Rn));
            sum.operands = vec![sum.operands[0].clone(), a, b, c];
        }
    }
    // Where each instruction has gone.
    let mut moved = Vec::with_capacity(body.instructions.len() + 1);
    let mut instructions = Vec::with_capacity(body.instructions.len());
    for (n, instruction) in std::mem::take(&mut body.instructions).into_iter().enumerate() {
        moved.push(instructions.len() as u32);
        instructions.extend(saves.remove(&n).into_iter().flatten());
        if !gone.contains(&n) {
            instructions.push(instruction);
        }
    }
    moved.push(instructions.len() as u32);
    body.instructions = instructions;
    for label in &mut body.labels {
        label.target = moved[label.target as usize];
    }
    for mark in &mut body.lines {
        mark.instruction = moved[mark.instruction as usize];
    }
}
