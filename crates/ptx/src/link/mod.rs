//! Several texts made one, as a linker would join what they compile to.
//!
//! Names are resolved between the texts: `.extern` to what is `.visible`, `.weak` or `.common`
//! elsewhere. What a text keeps to itself stays its own, under another name if others use the name,
//! too. Bodies are copied as they are written, so that the linked text is one that every compiler
//! of PTX takes.
//!
//! Invariants: the result has each name once; nothing is left out but declarations, what a stronger
//! definition replaces, and the sections of debuggers; time is linear in the texts.

mod join;
mod scan;

use crate::ast::{Linkage, Module, Param, StateSpace, Target};
use crate::{ParseError, parse};
use scan::{Item, Kind, LinkInput, scan};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A text that is to be linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input<'a> {
    /// What complaints call it.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
    /// It belongs to a library: it is taken only if it defines what others lack.
    pub optional: bool,
}

/// What is wrong with the texts, each by itself or together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An input is no PTX.
    #[error("{input}, {error}")]
    NotPtx {
        /// The input.
        input: String,
        /// What is wrong with it.
        error: ParseError,
    },
    /// Nobody defines a name that an input uses.
    #[error("Undefined reference to '{name}' in '{input}'")]
    Undefined {
        /// The name.
        name: String,
        /// The input that uses it.
        input: String,
    },
    /// Two inputs define a name.
    #[error("Multiple definition of '{name}' in '{input}', first defined in '{first}'")]
    Multiple {
        /// The name.
        name: String,
        /// The second of them.
        input: String,
        /// The first of them.
        first: String,
    },
    /// A name is declared as one thing and defined as another.
    #[error("{what} doesn't match for '{name}' in '{input}', first specified in '{first}'")]
    Mismatch {
        /// `Size`, `Prototype`, …
        what: &'static str,
        /// The name.
        name: String,
        /// The input that declares it.
        input: String,
        /// The input that defines it.
        first: String,
    },
    /// Inputs that no device runs together.
    #[error("'{input}' is for {has} alone, '{first}' for {wants}")]
    Targets {
        /// An input for one architecture alone.
        input: String,
        /// That architecture.
        has: String,
        /// Another input.
        first: String,
        /// Its architecture.
        wants: String,
    },
    /// Some have addresses of 32 bits, some of 64.
    #[error("'{input}' has addresses of {bits} bits, the others do not")]
    AddressSize {
        /// An input that differs from the first.
        input: String,
        /// Its size.
        bits: u32,
    },
}

/// Functions that the driver provides, whatever is linked.
fn is_provided(name: &str) -> bool {
    // Of the runtime on the device's side: a kernel that calls it is refused by name, or answered
    // with an error.
    matches!(name, "vprintf" | "malloc" | "free" | "__assertfail") || name.starts_with("cuda") || name.starts_with("__cuda")
}

/// An input that has been read.
struct Read<'a> {
    input: Input<'a>,
    module: Module,
    part: LinkInput<'a>,
    /// The number of declarations and definitions of each name.
    declared: HashMap<&'a str, usize>,
}

impl<'a> Read<'a> {
    fn new(input: Input<'a>) -> Result<Self, Fault> {
        let module = parse(input.text).map_err(|error| Fault::NotPtx { input: input.name.to_owned(), error })?;
        let mut part = scan(input.text);
        // Who sees a function is said once, where it is declared or where it is defined.
        let said = |item: &&Item<'a>| !matches!(item.linkage, Linkage::Internal | Linkage::Extern);
        let seen: HashMap<&str, Linkage> = part.items.iter().filter(said).map(|item| (item.name, item.linkage)).collect();
        for item in part.items.iter_mut().filter(|item| item.linkage == Linkage::Internal) {
            item.linkage = seen.get(item.name).copied().unwrap_or(Linkage::Internal);
        }
        let mut declared = HashMap::new();
        part.items.iter().for_each(|item| *declared.entry(item.name).or_default() += 1);
        Ok(Self { input, module, part, declared })
    }
}

/// What is known of a name in a text, as far as two texts must agree about it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    Variable { space: StateSpace, size: u64, open: bool },
    Function { params: Vec<(u64, u32)>, returns: Vec<(u64, u32)> },
}

/// The shapes of all names of a text.
fn shapes<'r>(read: &'r Read<'_>) -> HashMap<&'r str, Shape> {
    let list = |params: &[Param]| params.iter().map(|param| (param.size, param.ty.bits())).collect();
    let variables = read.module.globals.iter().map(|variable| {
        let shape = Shape::Variable { space: variable.space, size: variable.size, open: variable.unsized_array };
        (&*variable.name, shape)
    });
    let functions = read.module.functions.iter().map(|function| {
        let shape = Shape::Function { params: list(&function.params), returns: list(&function.returns) };
        (&*function.name, shape)
    });
    variables.chain(functions).collect()
}

/// The definition of a name that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Winner {
    part: usize,
    /// Index of the item; `None` for an alias.
    item: Option<usize>,
}

/// Links texts.
///
/// # Errors
/// All that stands in the way.
pub fn link(inputs: &[Input<'_>]) -> Result<String, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut read = Vec::new();
    for input in inputs {
        match Read::new(*input) {
            Ok(one) => read.push(one),
            Err(fault) => faults.push(fault),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let parts = choose(read);
    let target = common_target(&parts, &mut faults);
    let shapes: Vec<_> = parts.iter().map(shapes).collect();
    let winners = resolve(&parts, &shapes, &mut faults);
    check_declarations(&parts, &shapes, &winners, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(join::join(&parts, &winners, &target))
}

/// Names that a text offers to others.
fn offered<'r>(read: &'r Read<'_>) -> impl Iterator<Item = &'r str> {
    let aliases = read.part.aliases.iter().map(|(name, _)| *name);
    read.part.items.iter().filter(|item| item.defines && item.linkage != Linkage::Internal).map(|item| item.name).chain(aliases)
}

/// Names that a text needs from others, and uses.
fn needed<'r>(read: &'r Read<'_>) -> impl Iterator<Item = &'r str> {
    let own: HashSet<&str> =
        read.part.items.iter().filter(|item| item.defines).map(|item| item.name).chain(read.part.aliases.iter().map(|(name, _)| *name)).collect();
    let mut seen = HashSet::new();
    read.part.items.iter().filter_map(move |item| {
        let used = || read.part.mentions.get(item.name).map_or(0, Vec::len) > read.declared.get(item.name).copied().unwrap_or(0);
        (!item.defines && !item.shared && !own.contains(item.name) && seen.insert(item.name) && used()).then_some(item.name)
    })
}

/// The inputs that are linked: all but those of libraries that nobody needs.
fn choose<'a>(read: Vec<Read<'a>>) -> Vec<Read<'a>> {
    let (mut waiting, mut chosen): (Vec<Read<'a>>, Vec<Read<'a>>) = read.into_iter().partition(|read| read.input.optional);
    let mut have: HashSet<String> = chosen.iter().flat_map(offered).map(str::to_owned).collect();
    let mut wanted: HashSet<String> = chosen.iter().flat_map(needed).map(str::to_owned).collect();
    // Of a library from the first to the last member, again and again: each turn takes one or ends.
    while let Some(at) = waiting.iter().position(|read| offered(read).any(|name| wanted.contains(name) && !have.contains(name))) {
        let taken = waiting.remove(at);
        have.extend(offered(&taken).map(str::to_owned));
        wanted.extend(needed(&taken).map(str::to_owned));
        chosen.push(taken);
    }
    chosen
}

/// The target that all inputs have in common.
fn common_target(parts: &[Read<'_>], faults: &mut Vec<Fault>) -> Target {
    let mut target = Target::default();
    let Some(newest) = parts.iter().max_by_key(|read| (read.module.target.arch, read.module.target.suffix.is_some())) else { return target };
    target.name = newest.module.target.name.clone();
    target.arch = newest.module.target.arch;
    for read in parts {
        let own = &read.module.target;
        if own.suffix == Some('a') && own.name != target.name {
            let fault = |first: &Read<'_>| Fault::Targets {
                input: read.input.name.to_owned(),
                has: own.name.to_string(),
                first: first.input.name.to_owned(),
                wants: target.name.to_string(),
            };
            faults.push(fault(newest));
        }
        if parts.first().is_some_and(|first| first.module.address_size != read.module.address_size) {
            faults.push(Fault::AddressSize { input: read.input.name.to_owned(), bits: read.module.address_size });
        }
        // The sections of debuggers are left out.
        for option in own.options.iter().filter(|option| &***option != "debug") {
            if !target.options.contains(option) {
                target.options.push(option.clone());
            }
        }
    }
    target
}

/// The definition of each name that counts.
fn resolve<'a>(parts: &[Read<'a>], shapes: &[HashMap<&str, Shape>], faults: &mut Vec<Fault>) -> BTreeMap<&'a str, Winner> {
    let mut winners: BTreeMap<&str, (Winner, Linkage)> = BTreeMap::new();
    for (at, read) in parts.iter().enumerate() {
        // What an alias is called was declared before: that says who sees it.
        let aliases = read.part.aliases.iter().map(|(name, _)| {
            let declared = read.part.items.iter().find(|item| item.name == *name).map_or(Linkage::Visible, |item| item.linkage);
            (*name, declared, None)
        });
        let items = read.part.items.iter().enumerate().filter(|(_, item)| item.defines).map(|(n, item)| (item.name, item.linkage, Some(n)));
        for (name, linkage, item) in items.chain(aliases) {
            if linkage == Linkage::Internal {
                continue;
            }
            let new = Winner { part: at, item };
            let Some((old, was)) = winners.get_mut(name) else {
                winners.insert(name, (new, linkage));
                continue;
            };
            let size = |part: usize| match shapes[part].get(name) {
                Some(Shape::Variable { size, .. }) => *size,
                _ => 0,
            };
            let larger = || size(at) > size(old.part);
            match (*was, linkage) {
                (Linkage::Visible, Linkage::Visible) => {
                    faults.push(Fault::Multiple { name: name.to_owned(), input: read.input.name.to_owned(), first: parts[old.part].input.name.to_owned() })
                }
                (Linkage::Weak | Linkage::Common, Linkage::Visible) => (*old, *was) = (new, linkage),
                (Linkage::Common, Linkage::Weak) => (*old, *was) = (new, linkage),
                (Linkage::Common, Linkage::Common) if larger() => *old = new,
                _ => {}
            }
        }
    }
    winners.into_iter().map(|(name, (winner, _))| (name, winner)).collect()
}

/// In what two texts disagree about a name.
fn disagreement(one: &Shape, other: &Shape, common: bool) -> Option<&'static str> {
    match (one, other) {
        (Shape::Variable { space, size, open }, Shape::Variable { space: other_space, size: other_size, open: other_open }) => {
            // Of common ones the larger counts.
            let sized = !open && !other_open && !common;
            (space != other_space).then_some("State space").or((sized && size != other_size).then_some("Size"))
        }
        (Shape::Function { .. }, Shape::Function { .. }) => (one != other).then_some("Prototype"),
        _ => Some("Type"),
    }
}

/// Whether all declarations are met by definitions, and agree with them.
fn check_declarations(parts: &[Read<'_>], shapes: &[HashMap<&str, Shape>], winners: &BTreeMap<&str, Winner>, faults: &mut Vec<Fault>) {
    for (at, read) in parts.iter().enumerate() {
        for name in needed(read).filter(|name| !winners.contains_key(name) && !is_provided(name)) {
            faults.push(Fault::Undefined { name: name.to_owned(), input: read.input.name.to_owned() });
        }
        let mut seen = HashSet::new();
        for item in read.part.items.iter().filter(|item| item.linkage != Linkage::Internal) {
            let Some(winner) = winners.get(item.name).filter(|winner| winner.part != at) else { continue };
            let first = &parts[winner.part];
            let (Some(one), Some(other)) = (shapes[at].get(item.name), shapes[winner.part].get(item.name)) else { continue };
            let kinds = winner.item.is_none_or(|n| first.part.items[n].kind == item.kind || item.kind == Kind::Variable);
            let what = if kinds { disagreement(one, other, item.linkage == Linkage::Common) } else { Some("Type") };
            if let Some(what) = what.filter(|_| seen.insert(item.name)) {
                faults.push(Fault::Mismatch { what, name: item.name.to_owned(), input: read.input.name.to_owned(), first: first.input.name.to_owned() });
            }
        }
    }
}

/// What the names of a text become that others use, too.
fn renamed<'a>(parts: &[Read<'a>], winners: &BTreeMap<&'a str, Winner>) -> Vec<HashMap<&'a str, String>> {
    let all: HashSet<&str> = parts.iter().flat_map(|read| read.part.mentions.keys().copied()).collect();
    let mut taken: HashSet<&str> = winners.keys().copied().collect();
    // What nobody defines keeps its name: printf, and dynamic shared memory.
    taken.extend(parts.iter().flat_map(|read| &read.part.items).filter(|item| item.linkage == Linkage::Extern).map(|item| item.name));
    let mut given: HashSet<String> = HashSet::new();
    parts
        .iter()
        .enumerate()
        .map(|(at, read)| {
            let outer: HashSet<&str> = read.part.items.iter().filter(|item| item.linkage != Linkage::Internal).map(|item| item.name).collect();
            let aliases = read.part.aliases.iter().map(|(name, _)| *name);
            let own = read.part.items.iter().filter(|item| item.linkage == Linkage::Internal).map(|item| item.name).chain(aliases);
            let mut new = HashMap::new();
            // A function that is declared before it is defined is one.
            let mut seen = HashSet::new();
            for name in own.chain(read.part.labels.iter().copied()).filter(|name| !outer.contains(name)) {
                if !seen.insert(name) || winners.get(name).is_some_and(|winner| winner.part == at) {
                    continue;
                }
                if taken.insert(name) {
                    continue;
                }
                let free = (0u32..).map(|n| format!("{name}$part{}", at as u32 + n)).find(|free| !all.contains(free.as_str()) && !given.contains(free));
                if let Some(free) = free {
                    given.insert(free.clone());
                    new.insert(name, free);
                }
            }
            new
        })
        .collect()
}

#[cfg(test)]
mod tests;
