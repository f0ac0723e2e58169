//! The linked text: header, declarations of what several inputs name, then what each input says.

use super::scan::{Kind, LinkInput};
use super::{Read, Winner, needed, renamed};
use crate::ast::{Linkage, Target};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// Writes the text.
pub(super) fn join(parts: &[Read<'_>], winners: &BTreeMap<&str, Winner>, target: &Target) -> String {
    let mut out = String::with_capacity(parts.iter().map(|read| read.input.text.len() + 64).sum());
    let version = parts.iter().map(|read| read.module.version).max().unwrap_or((8, 0));
    let size = parts.first().map_or(64, |read| read.module.address_size);
    let options: String = target.options.iter().map(|option| format!(", {option}")).collect();
    out.push_str(&format!(".version {}.{}\n.target {}{options}\n.address_size {size}\n", version.0, version.1, target.name));
    let edits = edits(parts, winners, &mut out);
    declare(parts, winners, &edits, &mut out);
    let mut pragmas = BTreeSet::new();
    for (at, (read, edits)) in parts.iter().zip(&edits).enumerate() {
        let (part, mut line) = (&read.part, |text: String| {
            out.push_str(&text);
            out.push('\n');
        });
        for range in &part.pragmas {
            if pragmas.insert(&part.source[range.clone()]) {
                line(edits.apply(part, range.clone()));
            }
        }
        for (n, item) in part.items.iter().enumerate() {
            let winner = winners.get(item.name).filter(|_| item.linkage != Linkage::Internal);
            // The name stands for another part's definition, or for nobody's; or this declares what
            // is declared above.
            let stays = match winner {
                Some(winner) => item.defines && *winner == Winner { part: at, item: Some(n) },
                None => item.linkage == Linkage::Internal,
            };
            if stays {
                line(edits.write(part, &item.text) + if item.kind == Kind::Variable { ";" } else { "" });
            }
        }
        for (name, range) in &part.aliases {
            if winners.get(name).is_none_or(|winner| *winner == Winner { part: at, item: None }) {
                line(edits.apply(part, range.clone()));
            }
        }
    }
    let strings: String =
        parts.iter().zip(&edits).flat_map(|(read, edits)| read.part.strings.iter().map(|range| edits.apply(&read.part, range.clone()) + "\n")).collect();
    if !strings.is_empty() {
        out.push_str(&format!(".section .debug_str\n{{\n{strings}}}\n"));
    }
    out
}

/// What is written in place of what a text says, ordered by place.
struct Edits(Vec<(usize, usize, String)>);

impl Edits {
    fn apply(&self, part: &LinkInput<'_>, range: Range<usize>) -> String {
        let mut out = String::with_capacity(range.len());
        let mut at = range.start;
        let first = self.0.partition_point(|(start, ..)| *start < range.start);
        for (start, length, new) in self.0[first..].iter().take_while(|(start, ..)| *start < range.end) {
            out.push_str(&part.source[at..*start]);
            out.push_str(new);
            at = start + length;
        }
        out.push_str(&part.source[at..range.end]);
        out
    }

    fn write(&self, part: &LinkInput<'_>, pieces: &[Range<usize>]) -> String {
        pieces.iter().map(|range| self.apply(part, range.clone())).collect::<Vec<_>>().join(" ")
    }
}

/// New names, and new numbers of files, whose lines are written here.
fn edits(parts: &[Read<'_>], winners: &BTreeMap<&str, Winner>, out: &mut String) -> Vec<Edits> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let names = renamed(parts, winners);
    parts
        .iter()
        .zip(names)
        .map(|(read, names)| {
            let part = &read.part;
            let mut edits = Vec::new();
            for (name, new) in &names {
                edits.extend(part.mentions.get(name).into_iter().flatten().map(|at| (*at, name.len(), new.clone())));
            }
            let mut files = HashMap::new();
            for (number, rest) in &part.files {
                let what = &part.source[rest.clone()];
                let next = numbers.len() + 1;
                let new = *numbers.entry(what).or_insert_with(|| {
                    out.push_str(&format!(".file {next} {what}\n"));
                    next
                });
                files.insert(*number, new.to_string());
            }
            edits.extend(part.file_numbers.iter().filter_map(|(at, number)| Some((*at, number.len(), files.get(number)?.clone()))));
            edits.sort();
            Edits(edits)
        })
        .collect()
}

/// Declares what several texts name, or one of them before it defines it.
fn declare(parts: &[Read<'_>], winners: &BTreeMap<&str, Winner>, edits: &[Edits], out: &mut String) {
    let mut done = HashSet::new();
    let used: HashSet<&str> = parts.iter().flat_map(needed).collect();
    for (at, read) in parts.iter().enumerate() {
        for item in &read.part.items {
            // What is the text's own is declared there.
            if item.linkage == Linkage::Internal || done.contains(item.name) {
                continue;
            }
            let of = |at: usize, pieces: &[Range<usize>]| edits[at].write(&parts[at].part, pieces);
            let text = match winners.get(item.name) {
                // Nobody defines it: the driver's functions, and dynamic shared memory.
                None if item.shared => format!(".extern {};", widest(parts, edits, item.name).unwrap_or_else(|| of(at, &item.head))),
                None if used.contains(item.name) => format!(".extern {};", of(at, &item.head)),
                None => continue,
                Some(Winner { part, item: Some(n) }) => {
                    let definition = &parts[*part].part.items[*n];
                    if std::ptr::eq(definition, item) {
                        // Declared where somebody needs it before.
                        continue;
                    }
                    let linkage = match (definition.kind, definition.linkage) {
                        (Kind::Variable, _) => ".extern",
                        (_, Linkage::Weak) => ".weak",
                        _ => ".visible",
                    };
                    format!("{linkage} {};", of(*part, &definition.head))
                }
                // The declaration belongs to the alias.
                Some(Winner { item: None, .. }) => format!(".visible {};", of(at, &item.head)),
            };
            done.insert(item.name);
            out.push_str(&text);
            out.push('\n');
        }
    }
}

/// The declaration of dynamic shared memory that asks for the largest alignment.
fn widest(parts: &[Read<'_>], edits: &[Edits], name: &str) -> Option<String> {
    let declared = parts.iter().enumerate().filter_map(|(at, read)| {
        let item = read.part.items.iter().find(|item| item.name == name && item.shared)?;
        let align = read.module.globals.iter().find(|variable| &*variable.name == name)?.align;
        Some((align, edits[at].write(&read.part, &item.head)))
    });
    declared.max_by_key(|(align, _)| *align).map(|(_, text)| text)
}
