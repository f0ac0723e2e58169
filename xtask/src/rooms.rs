//! Files of a crate use each other downward only: no circles, but between a file and its own
//! submodules.
//!
//! Every `crate::…`, `self::…`, `super::…` path and every path that begins with a submodule counts
//! as a use of the file that defines the named item; a re-export is followed to where it leads.
//! A file may list the floors of its submodules, highest first, in a text block of its
//! documentation under the sentence [`FLOORS`]: then each of them uses only those on later lines.
//!
//! Code under `#[cfg(test)]` does not count: a test may look from above.
//!
//! What one file adds to another's type (`impl Session` in several files) counts, too: a call of
//! `self.close()` inside such an `impl`, or of `session.close()` anywhere, is a use of the file in
//! which `impl Session` has `close`. A value that is named otherwise than its type is not seen.

use anyhow::{Context as _, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// What stands above a list of floors.
const FLOORS: &str = "uses only those below it";

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
    /// Types that the file defines.
    types: BTreeSet<String>,
    /// Methods that the file has, and those that it calls: type and name.
    methods: BTreeSet<(String, String)>,
    calls: BTreeSet<(String, String)>,
    /// The lines of the file's list of floors, highest first.
    floors: Vec<String>,
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
        let uses = uses(&files);
        for circle in circles(&uses) {
            let rooms: Vec<String> = circle.iter().map(label).collect();
            faults.push(format!("{name}: {} files use each other in a circle: {}", rooms.len(), rooms.join(", ")));
            for room in &circle {
                let inside = uses[room].iter().filter(|(other, _)| circle.contains(other));
                faults.extend(inside.map(|(other, words)| format!("    {} uses {} ({})", label(room), label(other), words.join(", "))));
            }
        }
        faults.extend(upward_uses(&files, &uses).into_iter().map(|fault| format!("{name}: {fault}")));
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
    reader.file.floors = listed_floors(&text);
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
    /// The type whose `impl` is around the present place.
    own_type: Option<String>,
    /// Whether that `impl` is a trait's: its methods are called through the trait, from anywhere.
    of_trait: bool,
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
        if is_test(&item.attrs) {
            return;
        }
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        let around = (self.own_type.take(), self.of_trait);
        (self.own_type, self.of_trait) = (name, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        (self.own_type, self.of_trait) = around;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_test(&item.attrs) {
            return;
        }
        if let Some(name) = self.own_type.as_ref().filter(|_| !self.of_trait) {
            self.file.methods.insert((name.clone(), item.sig.ident.to_string()));
        }
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.file.types.insert(item.ident.to_string());
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.file.types.insert(item.ident.to_string());
        visit::visit_item_enum(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let syn::Expr::Path(receiver) = &*call.receiver
            && let Some(receiver) = receiver.path.get_ident()
        {
            let name = if receiver == "self" { self.own_type.clone() } else { Some(type_name(&receiver.to_string())) };
            self.file.calls.extend(name.map(|name| (name, call.method.to_string())));
        }
        visit::visit_expr_method_call(self, call);
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

/// The type that a value is of which is named after its type.
fn type_name(value: &str) -> String {
    let word = |word: &str| word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default();
    value.split('_').map(word).collect()
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

/// The file that has a method of a type, where only one file does, and only one has such a type.
fn method_of<'a>(files: &'a BTreeMap<Room, File>, call: &(String, String)) -> Option<&'a Room> {
    let mut with_type = files.values().filter(|file| file.types.contains(&call.0));
    let mut with_method = files.iter().filter(|(_, file)| file.methods.contains(call));
    match (with_type.next(), with_type.next(), with_method.next(), with_method.next()) {
        (Some(_), None, Some((room, _)), None) => Some(room),
        _ => None,
    }
}

/// One `super`: out of an inline module first, then to the file above.
fn step_up(at: &mut Room, depth: &mut usize) -> Option<()> {
    if *depth > 0 {
        *depth -= 1;
        return Some(());
    }
    at.pop().map(|_| ())
}

/// For each file, the others that it uses, and by which words.
type Uses = BTreeMap<Room, BTreeMap<Room, Vec<String>>>;

/// Who uses whom. A file and its own submodules may use each other, and do not count.
fn uses(files: &BTreeMap<Room, File>) -> Uses {
    let is_family = |a: &Room, b: &Room| a.starts_with(b) || b.starts_with(a);
    let mut all = Uses::new();
    for (room, file) in files {
        let paths = file.paths.iter().filter_map(|(depth, path)| Some((resolve(files, room, *depth, path)?, path.join("::"))));
        let methods = file.calls.iter().filter_map(|call| Some((method_of(files, call)?.clone(), format!("{}::{}", call.0, call.1))));
        let own = all.entry(room.clone()).or_default();
        for (other, words) in paths.chain(methods).filter(|(other, _)| !is_family(room, other)) {
            own.entry(other).or_default().push(words);
        }
    }
    all
}

/// Groups of files that reach each other, each in the order of the tree.
fn circles(uses: &Uses) -> Vec<Vec<Room>> {
    let reach: BTreeMap<&Room, BTreeSet<&Room>> = uses.keys().map(|room| (room, reachable(uses, room))).collect();
    let mut done: BTreeSet<&Room> = BTreeSet::new();
    let mut found = Vec::new();
    for room in uses.keys() {
        if done.contains(room) || !reach[room].contains(room) {
            continue;
        }
        let circle: Vec<&Room> = uses.keys().filter(|other| reach[room].contains(other) && reach[other].contains(room)).collect();
        done.extend(&circle);
        found.push(circle.into_iter().cloned().collect());
    }
    found
}

fn reachable<'a>(uses: &'a Uses, from: &Room) -> BTreeSet<&'a Room> {
    let mut found: BTreeSet<&Room> = BTreeSet::new();
    let mut open: Vec<&Room> = uses.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(room) = open.pop() {
        if found.insert(room) {
            open.extend(uses.get(room).into_iter().flat_map(BTreeMap::keys));
        }
    }
    found
}

/// The lines of a list of floors in the documentation at the top of a file.
fn listed_floors(text: &str) -> Vec<String> {
    let mut lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    if !lines.any(|line| line.contains(FLOORS)) {
        return Vec::new();
    }
    lines.skip_while(|line| *line != "```text").skip(1).take_while(|line| *line != "```").map(str::to_owned).collect()
}

/// Uses that a list of floors does not allow. A line begins with one or more submodules.
fn upward_uses(files: &BTreeMap<Room, File>, uses: &Uses) -> Vec<String> {
    let mut faults = Vec::new();
    for (room, file) in files.iter().filter(|(_, file)| !file.floors.is_empty()) {
        let names = |line: &str| -> Vec<String> { line.split_whitespace().take_while(|word| file.children.contains(*word)).map(str::to_owned).collect() };
        let floors: Vec<Vec<String>> = file.floors.iter().map(|line| names(line)).collect();
        let floor_of = |other: &Room| {
            let child = other.strip_prefix(room.as_slice())?.first()?;
            floors.iter().position(|floor| floor.contains(child))
        };
        for (from, to) in uses.iter().flat_map(|(from, all)| all.keys().map(move |to| (from, to))) {
            if let (Some(upper), Some(lower)) = (floor_of(from), floor_of(to))
                && from.get(room.len()) != to.get(room.len())
                && upper >= lower
            {
                faults.push(format!("{} uses {}, which is not on a floor below it ({})", label(from), label(to), uses[from][to].join(", ")));
            }
        }
    }
    faults
}

fn label(room: &Room) -> String {
    if room.is_empty() { "(root)".to_owned() } else { room.join("::") }
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
            assert_eq!(circles(&uses(&files)), [vec![room("a"), room("b")]], "{text}");
        }
    }

    #[test]
    fn a_circle_is_found_through_methods_that_a_file_adds_to_a_type_below_it() {
        for text in ["impl Thing { fn low(&self) { self.high(); } }", "fn low(thing: &Thing) { thing.high(); }"] {
            let files = house(&[
                ("", &["a", "b", "c"], "mod a; mod b; mod c;"),
                ("a", &[], text),
                ("b", &[], "use crate::a; impl<'t> crate::c::Thing<'t> { fn high(&self) { self.state(); a::low(); } }"),
                ("c", &[], "pub struct Thing<'t>(&'t u8); impl Thing<'_> { fn state(&self) { self.other.high(); } }"),
            ]);
            assert_eq!(circles(&uses(&files)), [vec![room("a"), room("b")]], "{text}");
        }
    }

    #[test]
    fn a_list_of_floors_is_believed_only_if_it_is_true() {
        let list = "//! Each of them uses only those below it:\n//!\n//! ```text\n//! (top)  all\n//! b      first\n//! a  c   second b\n//! ```\nmod a;";
        let house = |a: &str| {
            let mut files = house(&[
                ("", &["a", "b", "c"], ""),
                ("a", &[], a),
                ("b", &["c"], "use super::a::A; use crate::c::C;"),
                ("c", &[], ""),
                ("b::c", &[], "use crate::a::A;"),
            ]);
            files.get_mut(&room("")).unwrap().floors = listed_floors(list);
            files
        };
        let faults = |a: &str| upward_uses(&house(a), &uses(&house(a)));
        assert_eq!(faults("use crate::Root;"), Vec::<String>::new());
        assert_eq!(faults("use crate::b::c::C;"), ["a uses b::c, which is not on a floor below it (crate::b::c::C)"]);
        assert_eq!(faults("use crate::c::C;"), ["a uses c, which is not on a floor below it (crate::c::C)"]);
        assert_eq!(listed_floors("//! ```text\n//! a\n//! ```"), Vec::<String>::new(), "another drawing");
    }

    #[test]
    fn families_tests_and_downward_uses_are_no_circles() {
        let files = house(&[
            ("", &["a", "b"], "mod a; mod b; pub use a::A;"),
            ("a", &["inner"], "mod inner; use inner::I; #[cfg(test)] mod tests { use crate::b::B; }"),
            ("a::inner", &[], "use super::A; use crate::Root;"),
            ("b", &[], "use crate::a::A; use std::fmt; mod small { use super::C; }"),
        ]);
        assert_eq!(circles(&uses(&files)), Vec::<Vec<Room>>::new());
    }
}
