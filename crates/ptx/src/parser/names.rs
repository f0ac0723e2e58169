//! Which name means what, scope by scope.
//!
//! One table holds what is visible now; leaving a scope undoes its entries, so a look-up costs the
//! same at every depth. `.reg .b32 %r<1000000>` is kept as a range and costs nothing until one of
//! its registers is mentioned; only mentioned registers get an id.

use crate::ast::{BranchTableId, CallPrototypeId, CallTableId, FuncId, GlobalId, Pos, RegId, Register, ScalarType, SymbolRef};
use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Register(RegId),
    /// First of `count` registers that make up a vector register.
    VectorRegister(RegId, u8),
    Symbol(SymbolRef),
    BranchTable(BranchTableId),
    CallTable(CallTableId),
    CallPrototype(CallPrototypeId),
}

impl Meaning {
    /// The meaning of a register of `vector` components, of which `first` is the first.
    pub(super) fn of_register(first: RegId, vector: u8) -> Self {
        if vector > 1 { Self::VectorRegister(first, vector) } else { Self::Register(first) }
    }
}

impl From<GlobalId> for Meaning {
    fn from(id: GlobalId) -> Self {
        Self::Symbol(SymbolRef::Global(id))
    }
}

impl From<FuncId> for Meaning {
    fn from(id: FuncId) -> Self {
        Self::Symbol(SymbolRef::Function(id))
    }
}

#[derive(Debug, Clone, Copy)]
struct NameEntry {
    meaning: Meaning,
    depth: u32,
    pos: Pos,
}

#[derive(Debug, Clone, Copy)]
struct RegisterRange {
    id: u32,
    count: u32,
    ty: ScalarType,
    /// Components of each register; 1 if they are no vectors.
    vector: u8,
    depth: u32,
    pos: Pos,
}

enum Undo<'s> {
    Entry(&'s str, Option<NameEntry>),
    Range(&'s str, Option<RegisterRange>),
}

#[derive(Default)]
pub(super) struct Names<'s> {
    entries: HashMap<&'s str, NameEntry>,
    ranges: HashMap<&'s str, RegisterRange>,
    range_members: HashMap<(u32, u32), RegId>,
    next_range: u32,
    undo: Vec<Undo<'s>>,
    scope_starts: Vec<usize>,
}

impl<'s> Names<'s> {
    /// 0 at module level.
    pub(super) fn depth(&self) -> usize {
        self.scope_starts.len()
    }

    fn depth_u32(&self) -> u32 {
        self.scope_starts.len() as u32
    }

    pub(super) fn enter_scope(&mut self) {
        self.scope_starts.push(self.undo.len());
    }

    pub(super) fn leave_scope(&mut self) {
        let Some(start) = self.scope_starts.pop() else {
            return;
        };
        for undo in self.undo.drain(start..).rev() {
            match undo {
                Undo::Entry(name, Some(old)) => drop(self.entries.insert(name, old)),
                Undo::Entry(name, None) => drop(self.entries.remove(name)),
                Undo::Range(name, Some(old)) => drop(self.ranges.insert(name, old)),
                Undo::Range(name, None) => drop(self.ranges.remove(name)),
            }
        }
        if self.scope_starts.is_empty() {
            // A new map, not a cleared one: clearing costs what the largest body so far cost.
            self.range_members = HashMap::new();
        }
    }

    /// Declares a name in the current scope; the place of the first declaration if it is taken.
    pub(super) fn declare(&mut self, name: &'s str, meaning: Meaning, pos: Pos) -> Result<(), Pos> {
        let depth = self.depth_u32();
        if let Some(old) = self.entries.get(name)
            && old.depth == depth
        {
            return Err(old.pos);
        }
        if let Some((range, _)) = self.find_in_range(name)
            && range.depth == depth
        {
            return Err(range.pos);
        }
        let entry = NameEntry { meaning, depth, pos };
        let old = self.entries.insert(name, entry);
        if depth > 0 {
            self.undo.push(Undo::Entry(name, old));
        }
        Ok(())
    }

    pub(super) fn declare_range(&mut self, prefix: &'s str, count: u32, (ty, vector): (ScalarType, u8), pos: Pos) -> Result<(), Pos> {
        let depth = self.depth_u32();
        if let Some(old) = self.ranges.get(prefix)
            && old.depth == depth
        {
            return Err(old.pos);
        }
        let range = RegisterRange { id: self.next_range, count, ty, vector, depth, pos };
        self.next_range += 1;
        let old = self.ranges.insert(prefix, range);
        self.undo.push(Undo::Range(prefix, old));
        Ok(())
    }

    /// What `name` means here. A register of a range gets its id on first use, in `registers`.
    pub(super) fn find(&mut self, name: &'s str, registers: &mut Vec<Register>) -> Option<Meaning> {
        let exact = self.entries.get(name).copied();
        let Some((range, number)) = self.find_in_range(name) else {
            return exact.map(|entry| entry.meaning);
        };
        if let Some(entry) = exact
            && entry.depth >= range.depth
        {
            return Some(entry.meaning);
        }
        let id = *self.range_members.entry((range.id, number)).or_insert_with(|| add_register(registers, name, range.ty, range.vector));
        Some(Meaning::of_register(id, range.vector))
    }

    /// The range that has `name` as a member: `%r12` is number 12 of `%r`, or 2 of `%r1`.
    fn find_in_range(&self, name: &'s str) -> Option<(RegisterRange, u32)> {
        let bytes = name.as_bytes();
        let mut split = bytes.len();
        // A count has at most ten digits, so longer tails cannot be members.
        while split > 1 && bytes.len() - split < 10 && bytes[split - 1].is_ascii_digit() {
            split -= 1;
        }
        for at in split..bytes.len() {
            let digits = &name[at..];
            if digits.len() > 1 && digits.starts_with('0') {
                continue;
            }
            let Some(range) = self.ranges.get(&name[..at]) else {
                continue;
            };
            if let Ok(number) = digits.parse::<u32>()
                && number < range.count
            {
                return Some((*range, number));
            }
        }
        None
    }

    /// What a name means at module level, for references that may come before the declaration.
    pub(super) fn find_symbol(&self, name: &str) -> Option<SymbolRef> {
        match self.entries.get(name)?.meaning {
            Meaning::Symbol(symbol) => Some(symbol),
            _ => None,
        }
    }
}

/// Adds a register, or the components of a vector register, to a body's; the id of the first.
pub(super) fn add_register(registers: &mut Vec<Register>, name: &str, ty: ScalarType, vector: u8) -> RegId {
    let first = RegId(registers.len() as u32);
    if vector > 1 {
        let component = |n: u8| ["x", "y", "z", "w"][usize::from(n % 4)];
        registers.extend((0..vector).map(|n| Register { name: format!("{name}.{}", component(n)).into(), ty }));
    } else {
        registers.push(Register { name: name.into(), ty });
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    const POS: Pos = Pos { line: 1, col: 1 };

    #[test]
    fn inner_scopes_hide_and_give_back() {
        let mut names = Names::default();
        let mut registers = Vec::new();
        names.enter_scope();
        names.declare_range("%r", 5, (ScalarType::B32, 1), POS).unwrap();
        let outer = names.find("%r4", &mut registers);
        assert_eq!(outer, Some(Meaning::Register(RegId(0))));
        names.enter_scope();
        names.declare_range("%r", 9, (ScalarType::B64, 1), POS).unwrap();
        assert_eq!(names.find("%r4", &mut registers), Some(Meaning::Register(RegId(1))));
        names.leave_scope();
        assert_eq!(names.find("%r4", &mut registers), outer);
        assert_eq!(names.find("%r5", &mut registers), None);
        assert_eq!(names.find("%r04", &mut registers), None);
        assert_eq!(registers.len(), 2);
    }

    #[test]
    fn a_name_in_a_deeper_scope_beats_a_range() {
        let mut names = Names::default();
        let mut registers = Vec::new();
        names.enter_scope();
        names.declare_range("x", 5, (ScalarType::B32, 1), POS).unwrap();
        names.enter_scope();
        let own = Meaning::Register(RegId(77));
        names.declare("x1", own, POS).unwrap();
        assert_eq!(names.declare("x1", own, POS), Err(POS));
        assert_eq!(names.find("x1", &mut registers), Some(own));
        names.leave_scope();
        assert_eq!(names.find("x1", &mut registers), Some(Meaning::Register(RegId(0))));
    }
}
