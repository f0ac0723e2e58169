//! Files of a crate use each other downward only: no circles, but between a file and its own
//! submodules.
//!
//! Every `crate::…`, `self::…`, `super::…` path and every path that begins with a submodule counts
//! as a use of the file that defines the named item; a re-export is followed to where it leads.
//! Code under `#[cfg(test)]` does not count: a test may look from above. What one file adds to
//! another's type (`impl Session` in several files) is not seen here.

use anyhow::{Context as _, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// A module path below the crate's root, `[]` for the root itself.
type Room = Vec<String>;

/// The names and paths of one file.
#[derive(Debug, Default)]
struct File {
    /// Submodules that are files of their own.
    children: BTreeSet<String>,
    /// Names that the file re-exports, and the paths they stand for.
    exports: BTreeMap<String, Vec<String>>,
    /// Paths in the file, as written, each with the inline modules around it.
    paths: BTreeSet<(usize, Vec<String>)>,
}

/// Checks every crate of the workspace.
///
/// # Errors
/// A file cannot be read, or files use each other in a circle.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let mut faults = Vec::new();
    let mut count = 0;
    for source in sources(root)? {
        let name = source.parent().and_then(|folder| folder.strip_prefix(root).ok()).unwrap_or(&source).display().to_string();
        let files = read_crate(&source)?;
        count += files.len();
        for circle in circles(&files) {
            let rooms: Vec<String> = circle.iter().map(|room| if room.is_empty() { "(root)".to_owned() } else { room.join("::") }).collect();
            faults.push(format!("{name}: {} files use each other in a circle: {}", rooms.len(), rooms.join(", ")));
        }
    }
    if !faults.is_empty() {
        bail!("{}\nFiles use each other downward only: hand down what a lower file needs, or move what both need below them", faults.join("\n"));
    }
    println!("rooms: {count} files, no circles");
    Ok(())
}

/// The `src` folders of all crates.
fn sources(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for group in ["crates", "bin"] {
        let folder = root.join(group);
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            found.push(entry?.path().join("src"));
        }
    }
    found.push(root.join("xtask/src"));
    found.sort();
    Ok(found)
}

fn read_crate(source: &Path) -> anyhow::Result<BTreeMap<Room, File>> {
    let mut files = BTreeMap::new();
    for main in ["lib.rs", "main.rs"] {
        let path = source.join(main);
        if path.exists() {
            read_file(&path, source, Vec::new(), &mut files)?;
        }
    }
    Ok(files)
}

/// Reads a file and, from its `mod` lines, the files below it. `folder` is where those lie.
fn read_file(path: &Path, folder: &Path, room: Room, files: &mut BTreeMap<Room, File>) -> anyhow::Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let syntax = syn::parse_file(&text).with_context(|| format!("{} is no Rust", path.display()))?;
    let mut reader = Reader::default();
    reader.visit_file(&syntax);
    let mut below = Vec::new();
    for (name, other) in &reader.modules {
        let candidates = match other {
            Some(other) => vec![path.with_file_name(other)],
            None => vec![folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")],
        };
        if let Some(found) = candidates.into_iter().find(|candidate| candidate.exists()) {
            reader.file.children.insert(name.clone());
            below.push((name.clone(), found));
        }
    }
    files.insert(room.clone(), reader.file);
    for (name, found) in below {
        let mut child = room.clone();
        child.push(name.clone());
        read_file(&found, &folder.join(&name), child, files)?;
    }
    Ok(())
}

#[derive(Default)]
struct Reader {
    file: File,
    /// `mod name;`, with the file that a `path` attribute names.
    modules: Vec<(String, Option<String>)>,
    /// Inline modules around the present place.
    depth: usize,
}

impl Reader {
    fn use_tree(&mut self, tree: &syn::UseTree, before: &[String], handed_on: bool) {
        let mut path = before.to_vec();
        match tree {
            syn::UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.use_tree(&step.tree, &path, handed_on);
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.use_tree(item, before, handed_on)),
            syn::UseTree::Glob(_) => self.note(path),
            syn::UseTree::Name(name) => {
                if name.ident != "self" {
                    path.push(name.ident.to_string());
                }
                self.import(path.last().cloned().unwrap_or_default(), path, handed_on);
            }
            syn::UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.import(name.rename.to_string(), path, handed_on);
            }
        }
    }

    fn import(&mut self, name: String, path: Vec<String>, handed_on: bool) {
        if handed_on && self.depth == 0 {
            self.file.exports.insert(name, path.clone());
        }
        self.note(path);
    }

    fn note(&mut self, path: Vec<String>) {
        self.file.paths.insert((self.depth, path));
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        if item.content.is_some() {
            self.depth += 1;
            visit::visit_item_mod(self, item);
            self.depth -= 1;
        } else {
            let other = item.attrs.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| match &attribute.meta {
                syn::Meta::NameValue(syn::MetaNameValue { value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }), .. }) => Some(text.value()),
                _ => None,
            });
            self.modules.push((item.ident.to_string(), other));
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            let handed_on = !matches!(item.vis, syn::Visibility::Inherited);
            self.use_tree(&item.tree, &[], handed_on);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            self.note(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        visit::visit_macro(self, invocation);
        // The contents of a macro are not parsed; words with `::` between them count as paths.
        let text = invocation.tokens.to_string();
        for piece in text.replace(" :: ", "::").split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            let words: Vec<String> = piece.split("::").map(str::to_owned).collect();
            if words.len() > 1 && words.iter().all(|word| !word.is_empty()) {
                self.note(words);
            }
        }
    }
}

/// Whether an item exists in tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test"),
        syn::Meta::Path(path) => path.is_ident("test"),
        _ => false,
    })
}

/// The file that defines what a path names, if it is one of this crate's.
fn resolve(files: &BTreeMap<Room, File>, from: &Room, depth: usize, path: &[String]) -> Option<Room> {
    let mut depth = depth;
    let mut at = from.clone();
    let mut words = path.iter();
    let first = words.next()?;
    match first.as_str() {
        "crate" => at = Vec::new(),
        "self" => {}
        "super" => {
            step_up(&mut at, &mut depth)?;
        }
        name if depth == 0 && files.get(from)?.children.contains(name) => at.push(name.to_owned()),
        _ => return None,
    }
    for word in words {
        if word == "super" {
            step_up(&mut at, &mut depth)?;
            continue;
        }
        let file = files.get(&at)?;
        if file.children.contains(word) {
            at.push(word.clone());
        } else if let Some(export) = file.exports.get(word).filter(|export| export.as_slice() != path) {
            return resolve(files, &at, 0, export).or(Some(at));
        } else {
            break;
        }
    }
    Some(at)
}

/// One `super`: out of an inline module first, then to the file above.
fn step_up(at: &mut Room, depth: &mut usize) -> Option<()> {
    if *depth > 0 {
        *depth -= 1;
        return Some(());
    }
    at.pop().map(|_| ())
}

/// Groups of files that reach each other, each in the order of the tree. A file and its own
/// submodules may use each other.
fn circles(files: &BTreeMap<Room, File>) -> Vec<Vec<Room>> {
    let is_family = |a: &Room, b: &Room| a.starts_with(b) || b.starts_with(a);
    let mut uses: BTreeMap<&Room, BTreeSet<Room>> = BTreeMap::new();
    for (room, file) in files {
        let found = file.paths.iter().filter_map(|(depth, path)| resolve(files, room, *depth, path));
        uses.insert(room, found.filter(|other| !is_family(room, other)).collect());
    }
    let reach: BTreeMap<&Room, BTreeSet<&Room>> = files.keys().map(|room| (room, reachable(&uses, room))).collect();
    let mut done: BTreeSet<&Room> = BTreeSet::new();
    let mut found = Vec::new();
    for room in files.keys() {
        if done.contains(room) || !reach[room].contains(room) {
            continue;
        }
        let circle: Vec<&Room> = files.keys().filter(|other| reach[room].contains(other) && reach[other].contains(room)).collect();
        done.extend(&circle);
        found.push(circle.into_iter().cloned().collect());
    }
    found
}

fn reachable<'a>(uses: &'a BTreeMap<&'a Room, BTreeSet<Room>>, from: &Room) -> BTreeSet<&'a Room> {
    let mut found: BTreeSet<&Room> = BTreeSet::new();
    let mut open: Vec<&Room> = uses.get(from).into_iter().flatten().collect();
    while let Some(room) = open.pop() {
        if found.insert(room) {
            open.extend(uses.get(room).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(children: &[&str], text: &str) -> File {
        let mut reader = Reader::default();
        reader.visit_file(&syn::parse_file(text).unwrap());
        reader.file.children = children.iter().map(|name| (*name).to_owned()).collect();
        reader.file
    }

    fn room(path: &str) -> Room {
        path.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    fn house(files: &[(&str, &[&str], &str)]) -> BTreeMap<Room, File> {
        files.iter().map(|(path, children, text)| (room(path), file(children, text))).collect()
    }

    #[test]
    fn a_circle_is_found_through_imports_paths_macros_and_re_exports() {
        for text in ["use crate::b::B;", "fn f() { crate::b::g(); }", "fn f() { print!(\"{}\", crate::b::G); }", "use crate::B;", "use super::b::{self, B};"] {
            let files = house(&[("", &["a", "b"], "mod a; mod b; pub use b::B;"), ("a", &[], text), ("b", &[], "use crate::a::A;")]);
            assert_eq!(circles(&files), [vec![room("a"), room("b")]], "{text}");
        }
    }

    #[test]
    fn families_tests_and_downward_uses_are_no_circles() {
        let files = house(&[
            ("", &["a", "b"], "mod a; mod b; pub use a::A;"),
            ("a", &["inner"], "mod inner; use inner::I; #[cfg(test)] mod tests { use crate::b::B; }"),
            ("a::inner", &[], "use super::A; use crate::Root;"),
            ("b", &[], "use crate::a::A; use std::fmt; mod small { use super::C; }"),
        ]);
        assert_eq!(circles(&files), Vec::<Vec<Room>>::new());
    }
}
