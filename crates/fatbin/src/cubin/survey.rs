//! Reading a compiled image: its blocks and variables, who refers to them, and what of its code's
//! state could not be placed.

use super::relocation::{self, Field, NONE};
use super::tables::{self, Elf, FUNCTION, OBJECT, RESERVED, Relocation, SYMBOLS, Symbol, Symbols, damaged};
use super::{Block, Cubin, Home, Obstacle, Reference, Variable};
use crate::elf::Section;
use std::collections::BTreeMap;
use std::ops::Range;

/// The largest alignment of a section that is believed.
const MOST_ALIGN: u64 = 1 << 16;
/// Functions of the driver's that allocate on the card.
const HEAP: [&[u8]; 2] = [b"malloc\0", b"free\0"];
/// Names of sections with a second form of the code, for cards of compute capability 10 and later.
const SECOND_FORM: [&[u8]; 2] = [b".nv.merc.", b".nv.capmerc"];
/// Most tables of functions that are believed.
const MOST_CALL_TABLES: usize = 4;
/// Most `__managed__` variables, each of which is a block of its own.
const MOST_MANAGED: usize = 4096;
/// Names of text constants that the compiler makes.
const LITERALS: [&[u8]; 5] = [b"$str", b"__unnamed_", b"__func__", b"__PRETTY_FUNCTION__", b"_$_str"];

/// True for the name of a text constant that the compiler makes, whatever follows it. No code
/// writes it.
#[must_use]
pub fn is_literal(name: &[u8]) -> bool {
    LITERALS.iter().any(|known| name.starts_with(known))
}

/// Tables of functions that kernels read to call them, and for nothing else, by parts of their
/// names: that of NCCL (`src/device/generate.py` in its sources). The driver's copy of such a table
/// serves: a successor's has the addresses there.
const CALL_TABLES: [&[u8]; 1] = [b"ncclDevFuncTable"];

/// True for the name of a table of functions of which nobody keeps an address.
fn is_call_table(name: &[u8]) -> bool {
    CALL_TABLES.iter().any(|known| name.windows(known.len()).any(|part| part == *known))
}

/// What a section is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Variables: the block with this index.
    Block(usize),
    /// `__constant__` variables.
    Constants,
    /// Something with variables in it that is not known.
    Strange,
    Code,
    /// Whatever else is in memory.
    Loaded,
    /// Nothing that code sees, such as what is there for debuggers.
    Aside,
}

/// The blocks of `__managed__` variables: by the block that is their section and their place there,
/// their sizes and the indices of their own blocks.
#[derive(Default)]
struct Managed(BTreeMap<(usize, u64), (u64, usize)>);

impl Managed {
    /// The block of the variable that has this byte of a section, and where the variable begins.
    fn find(&self, section: usize, offset: u64) -> Option<(usize, u64)> {
        let ((block, start), (bytes, own)) = self.0.range(..=(section, offset)).next_back()?;
        (*block == section && offset - start < *bytes).then_some((*own, *start))
    }
}

/// Where tables of functions are ([`CALL_TABLES`]): the block, and the bytes of it.
#[derive(Default)]
struct CallTables(Vec<(usize, Range<u64>)>);

impl CallTables {
    fn have(&self, block: usize, offset: u64) -> bool {
        self.0.iter().any(|(home, bytes)| *home == block && bytes.contains(&offset))
    }
}

struct Survey<'a> {
    elf: Elf<'a>,
    image: &'a [u8],
    roles: Vec<Role>,
    found: Cubin,
    second_form: Option<String>,
    managed: Managed,
    call_tables: CallTables,
    /// Bytes of tables and names that may still be read. A file in which they are longer than the
    /// file itself, because they overlap, was made to take time.
    budget: u64,
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(super) fn read(image: &[u8]) -> Result<Cubin, Obstacle> {
    let mut survey = Survey {
        elf: Elf::read(image)?,
        image,
        roles: Vec::new(),
        found: Cubin::default(),
        second_form: None,
        managed: Managed::default(),
        call_tables: CallTables::default(),
        budget: image.len() as u64,
    };
    survey.read_sections()?;
    survey.read_symbols()?;
    survey.read_relocations()?;
    survey.empty_what_nobody_uses();
    if let Some(section) = survey.second_form.filter(|_| !survey.found.blocks.is_empty()) {
        survey.found.obstacle.get_or_insert(Obstacle::SecondForm { section });
    }
    Ok(survey.found)
}

impl Survey<'_> {
    fn obstruct(&mut self, obstacle: Obstacle) {
        self.found.obstacle.get_or_insert(obstacle);
    }

    fn spend(&mut self, bytes: u64) -> Result<(), Obstacle> {
        self.budget = self.left(self.budget, bytes)?;
        Ok(())
    }

    fn left(&self, budget: u64, bytes: u64) -> Result<u64, Obstacle> {
        budget.checked_sub(bytes).ok_or_else(|| damaged("a table that is longer than the file", self.image.len()))
    }

    fn read_sections(&mut self) -> Result<(), Obstacle> {
        for index in 0..self.elf.sections().len() {
            self.spend(self.elf.name(&self.elf.sections()[index]).len() as u64)?;
            let role = self.role(index)?;
            self.roles.push(role);
        }
        Ok(())
    }

    /// The role of a section. Variables' sections become blocks.
    fn role(&mut self, index: usize) -> Result<Role, Obstacle> {
        let section = &self.elf.sections()[index];
        let name = self.elf.name(section);
        if self.second_form.is_none() && SECOND_FORM.iter().any(|form| name.starts_with(form)) {
            self.second_form = Some(text(name));
        }
        if !tables::is_loaded(section) || SECOND_FORM.iter().any(|form| name.starts_with(form)) {
            return Ok(Role::Aside);
        }
        if tables::is_code(section) {
            return Ok(Role::Code);
        }
        match name {
            b".nv.global" | b".nv.global.init" if section.size.get() == 0 => Ok(Role::Loaded),
            b".nv.global" | b".nv.global.init" => self.block(index),
            b".nv.constant3" => {
                self.found.constant_bytes = self.found.constant_bytes.max(section.size.get());
                Ok(Role::Constants)
            }
            _ if name.starts_with(b".nv.global") => Ok(Role::Strange),
            _ => Ok(Role::Loaded),
        }
    }

    fn block(&mut self, index: usize) -> Result<Role, Obstacle> {
        let section = &self.elf.sections()[index];
        let at = usize::try_from(section.offset.get()).unwrap_or(usize::MAX);
        let align = section.align.get().max(1);
        if !align.is_power_of_two() || align > MOST_ALIGN || section.address.get() != 0 {
            return Err(damaged("a section of variables", at));
        }
        let contents = if section.kind.get() == tables::NO_BITS { None } else { Some(self.elf.bytes(section)?) };
        let name = text(self.elf.name(section));
        // A second section of the same name would be a surprise. Names of blocks tell them apart.
        let name = if self.found.blocks.iter().any(|block| block.name == name) { format!("{name}#{index}") } else { name };
        self.found.blocks.push(Block { name, bytes: section.size.get(), align, managed: false, contents });
        Ok(Role::Block(self.found.blocks.len() - 1))
    }

    fn role_of(&self, symbol: &Symbol) -> Option<Role> {
        match symbol.section() {
            0 | RESERVED.. => None,
            section => self.roles.get(usize::from(section)).copied(),
        }
    }

    fn read_symbols(&mut self) -> Result<(), Obstacle> {
        for index in 0..self.elf.sections().len() {
            if self.elf.sections()[index].kind.get() != SYMBOLS {
                continue;
            }
            self.spend(self.elf.sections()[index].size.get())?;
            let symbols = self.elf.symbols(&self.elf.sections()[index])?;
            let (mut variables, mut obstacle, mut allocates, mut managed) = (Vec::new(), None, false, Vec::new());
            let mut budget = self.budget;
            for symbol in symbols.all() {
                let begins = |name: &&[u8]| symbols.name_onwards(&symbol).starts_with(name);
                allocates |= symbol.kind() == FUNCTION && symbol.section() == 0 && HEAP.iter().any(begins);
                if symbol.kind() != OBJECT || symbol.section() == 0 {
                    continue;
                }
                match self.variable(&symbols, &symbol) {
                    Ok(variable) => {
                        budget = self.left(budget, variable.as_ref().map_or(0, |variable| variable.name.len() as u64))?;
                        if variable.is_some() && symbol.is_managed() {
                            managed.push(variables.len());
                        }
                        variables.extend(variable);
                    }
                    Err(error) => obstacle = obstacle.or(Some(error)),
                }
            }
            self.budget = budget;
            for index in managed {
                self.set_apart(&mut variables[index])?;
            }
            // Nobody but code sees these.
            for table in variables.extract_if(.., |variable| is_call_table(variable.name.as_bytes())) {
                if let Home::Block(block) = table.home
                    && self.call_tables.0.len() < MOST_CALL_TABLES
                {
                    self.call_tables.0.push((block, table.offset..table.offset + table.bytes));
                }
            }
            self.found.variables.append(&mut variables);
            self.found.allocates |= allocates;
            if let Some(obstacle) = obstacle {
                self.obstruct(obstacle);
            }
        }
        Ok(())
    }

    /// Gives a `__managed__` variable a block of its own.
    fn set_apart(&mut self, variable: &mut Variable) -> Result<(), Obstacle> {
        let Home::Block(section) = variable.home else { return Ok(()) };
        if variable.bytes == 0 {
            return Ok(());
        }
        if self.managed.0.len() >= MOST_MANAGED && !self.managed.0.contains_key(&(section, variable.offset)) {
            self.obstruct(Obstacle::Managed { most: MOST_MANAGED });
            return Ok(());
        }
        let next = self.found.blocks.len();
        let known = *self.managed.0.entry((section, variable.offset)).or_insert((variable.bytes, next));
        if known.0 != variable.bytes {
            return Err(damaged("two variables in one place", self.image.len()));
        }
        if known.1 == next {
            let block = &self.found.blocks[section];
            let name = format!("{}+{:#x}", block.name, variable.offset);
            let part = |contents: &Range<usize>| {
                let start = contents.start.checked_add(usize::try_from(variable.offset).ok()?)?;
                let end = start.checked_add(usize::try_from(variable.bytes).ok()?)?;
                (end <= contents.end).then_some(start..end)
            };
            let contents = match &block.contents {
                Some(contents) => Some(part(contents).ok_or_else(|| damaged("a variable", contents.start))?),
                None => None,
            };
            self.found.blocks.push(Block { name, bytes: variable.bytes, align: block.align, managed: true, contents });
        }
        (variable.home, variable.offset) = (Home::Block(known.1), 0);
        Ok(())
    }

    /// Of a section that has managed variables alone nothing is left, and nothing is placed.
    fn empty_what_nobody_uses(&mut self) {
        let Cubin { blocks, variables, references, .. } = &mut self.found;
        let mut used = vec![self.managed.0.is_empty(); blocks.len()];
        let homes = variables.iter().filter_map(|variable| if let Home::Block(block) = variable.home { Some(block) } else { None });
        homes.chain(references.iter().map(|reference| reference.block)).for_each(|block| used[block] = true);
        for (block, _) in blocks.iter_mut().zip(used).filter(|(_, is_used)| !is_used) {
            (block.bytes, block.contents) = (0, None);
        }
    }

    /// The variable that a symbol is the name of, if it is one.
    fn variable(&self, symbols: &Symbols<'_, '_>, symbol: &Symbol) -> Result<Option<Variable>, Obstacle> {
        let (home, size) = match self.role_of(symbol) {
            Some(Role::Block(block)) => (Home::Block(block), self.found.blocks[block].bytes),
            Some(Role::Constants) => (Home::Constants, self.found.constant_bytes),
            Some(Role::Strange) => {
                let section = &self.elf.sections()[usize::from(symbol.section())];
                return Err(Obstacle::Section { section: text(self.elf.name(section)) });
            }
            None => return Err(Obstacle::Section { section: format!("number {:#x}", symbol.section()) }),
            Some(Role::Code | Role::Loaded | Role::Aside) => return Ok(None),
        };
        let (offset, bytes) = (symbol.value(), symbol.bytes());
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(damaged("a variable", self.image.len()));
        }
        let name = symbols.name(symbol);
        if name.is_empty() {
            return Ok(None);
        }
        Ok(Some(Variable { name: text(name), home, offset, bytes, literal: is_literal(name) }))
    }

    fn read_relocations(&mut self) -> Result<(), Obstacle> {
        for index in 0..self.elf.sections().len() {
            let section = &self.elf.sections()[index];
            let target = section.info.get() as usize;
            let role = self.roles.get(target).copied().unwrap_or(Role::Aside);
            if !tables::has_relocations(section) || role == Role::Aside || section.size.get() == 0 {
                continue;
            }
            self.spend(section.size.get())?;
            let section = &self.elf.sections()[index];
            let table = self.elf.sections().get(section.link.get() as usize).filter(|table| table.kind.get() == SYMBOLS);
            let table = table.ok_or_else(|| damaged("a table of relocations", usize::try_from(section.offset.get()).unwrap_or(usize::MAX)))?;
            let symbols = self.elf.symbols(table)?;
            let target = Target { index: target, role, section: &self.elf.sections()[target] };
            let mut sum = Sum::default();
            for relocation in self.elf.relocations(section)? {
                self.read_relocation(&relocation, &symbols, &target, &mut sum)?;
                if sum.obstacle.is_some() {
                    break;
                }
            }
            let Sum { references, obstacle, address_taken } = sum;
            self.found.references.extend(references);
            self.found.address_taken = self.found.address_taken.take().or(address_taken);
            if let Some(obstacle) = obstacle {
                self.obstruct(obstacle);
            }
        }
        Ok(())
    }

    fn read_relocation(&self, relocation: &Relocation, symbols: &Symbols<'_, '_>, target: &Target<'_>, sum: &mut Sum) -> Result<(), Obstacle> {
        if relocation.kind == NONE {
            return Ok(());
        }
        let symbol = symbols.get(relocation.symbol)?;
        let name = || text(symbols.name(&symbol));
        let reference = match self.role_of(&symbol) {
            Some(Role::Block(block)) => {
                let in_code = !matches!(target.role, Role::Block(_));
                let literal = in_code && is_literal(symbols.name_onwards(&symbol));
                match self.reference(relocation, &symbol, target, block, literal) {
                    // Code reads the driver's table.
                    Ok(reference) if in_code && self.call_tables.have(reference.block, reference.offset) => return Ok(()),
                    Ok(reference) if !self.call_tables.have(reference.block, reference.offset) => Ok(reference),
                    _ => Err(Obstacle::Relocation { section: text(self.elf.name(target.section)), symbol: name(), kind: relocation.kind }),
                }
            }
            Some(Role::Strange) => Err(Obstacle::Section { section: text(self.elf.name(&self.elf.sections()[usize::from(symbol.section())])) }),
            Some(Role::Code) if matches!(target.role, Role::Block(block) if self.call_tables.have(block, relocation.offset)) => return Ok(()),
            Some(Role::Code) if matches!(target.role, Role::Block(_)) => Err(Obstacle::CodeAddress { function: name() }),
            Some(Role::Code) => {
                if takes_address(relocation, &symbol, target) && sum.address_taken.is_none() {
                    sum.address_taken = Some(name());
                }
                return Ok(());
            }
            // The driver's own functions, and what it puts elsewhere. In code that is its business;
            // in a variable it would have to stay the same.
            _ if !matches!(target.role, Role::Block(_)) => return Ok(()),
            _ if symbol.kind() == FUNCTION => Err(Obstacle::CodeAddress { function: name() }),
            _ => Err(Obstacle::Relocation { section: text(self.elf.name(target.section)), symbol: name(), kind: relocation.kind }),
        };
        match reference {
            Ok(reference) => sum.references.push(reference),
            Err(obstacle) => sum.obstacle = Some(obstacle),
        }
        Ok(())
    }

    /// The reference that a relocation makes to a block; an error if it is none that is known.
    fn reference(&self, relocation: &Relocation, symbol: &Symbol, target: &Target<'_>, block: usize, literal: bool) -> Result<Reference, ()> {
        let field = Field::of(relocation.kind, target.role == Role::Code).ok_or(())?;
        let bytes = self.elf.bytes(target.section).map_err(|_| ())?;
        let offset = usize::try_from(relocation.offset).map_err(|_| ())?;
        let end = offset.checked_add(field.span()).ok_or(())?;
        if end > bytes.len() {
            return Err(());
        }
        let at = bytes.start + offset;
        let present = field.read(self.image, at).ok_or(())?;
        let addend = match (relocation.addend, field) {
            // Only a whole address can be both the addend and its place.
            (None, Field::Word) => present.cast_signed(),
            (addend, _) if present == 0 => addend.unwrap_or(0),
            _ => return Err(()),
        };
        let whole = symbol.value().wrapping_add_signed(addend);
        // By its name where it has one: the address behind its end is part of it, too.
        let own = if symbol.is_managed() { self.managed.find(block, symbol.value()) } else { self.managed.find(block, whole) };
        let (block, offset) = own.map_or((block, whole), |(own, start)| (own, whole.wrapping_sub(start)));
        Ok(Reference { info_at: relocation.info_at, at, field, block, offset, literal })
    }
}

/// The section in which relocations write.
struct Target<'a> {
    index: usize,
    role: Role,
    section: &'a Section,
}

/// What the relocations of a section have brought.
#[derive(Default)]
struct Sum {
    references: Vec<Reference>,
    obstacle: Option<Obstacle>,
    address_taken: Option<String>,
}

/// True if code can learn by this relocation where a function lies. Calls do not tell it, and an
/// address inside the function itself is where a call returns to.
fn takes_address(relocation: &Relocation, symbol: &Symbol, target: &Target<'_>) -> bool {
    if target.role != Role::Code {
        return true;
    }
    let returns = relocation::is_half(relocation.kind) && usize::from(symbol.section()) == target.index && relocation.addend.is_some_and(|addend| addend != 0);
    !relocation::is_branch(relocation.kind) && !returns
}
