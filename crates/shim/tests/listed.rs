//! The list of the surface against the code that answers: what always refuses is listed as refused,
//! who can come to a refusal says so, and what is listed as local waits for nobody.
//!
//! Read from the sources, since no call with harmless arguments reaches every refusal. That the
//! parts that are listed are refused in truth is what the story
//! `programs::every_exported_function_answers_as_it_is_listed` shows.

use cumux_abi::surface::{self, Answer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// How a refusal is written.
const REFUSALS: [&str; 2] = ["unsupported", "NOT_SUPPORTED"];

/// Functions that come by a refusal and never get it, and why.
const NEVER: [(&str, &str); 3] = [
    ("cuGraphInstantiate_v2", "it has no flags, and a flag is what is refused"),
    ("cuGreenCtxWaitEvent", "what it cannot do beside a capture it has refused as the manual says before"),
    ("cuTensorMapReplaceAddress", "where no map can be made there is none whose address could be replaced"),
];

/// Ways to the executor that wait for its answer, and those that only give it work.
const TRIPS: [&str; 3] = ["ask", "wait", "wait_until"];
const WORK: [&str; 6] = ["push", "push_launch", "control", "point", "new_timeline", "free_timeline"];

/// Functions that are local and come by a way that waits, and why.
const LOCAL: [(&str, &str); 2] = [
    ("cuDevicePrimaryCtxGetState", "the executor is asked once, if the primary context is new and has a share of its own"),
    ("cuDevicePrimaryCtxSetFlags_v2", "as above"),
];

/// Where a function is: its module, the type it belongs to if it does, and its name.
type FunctionPath = (String, Option<String>, String);

/// One function of the shim.
#[derive(Default)]
struct Function {
    /// It can answer NOT_SUPPORTED by itself.
    refuses: bool,
    /// And it answers nothing else.
    always: bool,
    calls: BTreeSet<Call>,
}

/// A call as it is written.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    /// With what stands before the name: a module, a type, or nothing.
    Path(Option<String>, String),
    Method(String),
    /// A method of the connection, by what its variable is called everywhere.
    Session(String),
}

/// What a call that cannot be followed for sure counts for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// For nothing: what is found is there.
    Nowhere,
    /// For every function of its name: what is not found is not there.
    Everywhere,
}

/// All functions. Those of one name and type in one file are one here.
#[derive(Default)]
struct Functions(BTreeMap<FunctionPath, Function>);

impl Functions {
    fn read(folder: &Path, into: &mut Self) {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("an entry").path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                Self::read(&path, into);
                continue;
            }
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
            // The files of a folder are one module to others.
            let own = if folder.ends_with("src") { stem } else { folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned() };
            let text = std::fs::read_to_string(&path).expect("a source");
            let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Items { module: &own, owner: None, all: into }.visit_file(&file);
        }
    }

    /// Where a call leads. A name that several could have leads nowhere.
    fn callee(&self, (module, owner, _): &FunctionPath, call: &Call) -> Option<FunctionPath> {
        let free = |module: &str, name: &str| self.only(|place| place.0 == module && place.1.is_none() && place.2 == name);
        match call {
            Call::Path(Some(before), name) if before == "Self" => self.only(|place| place.0 == *module && place.1 == *owner && place.2 == *name),
            Call::Path(Some(before), name) if before.starts_with(char::is_uppercase) => self.only(|place| place.1.as_ref() == Some(before) && place.2 == *name),
            Call::Path(Some(before), name) if !["crate", "super", "self"].contains(&before.as_str()) => free(before, name),
            Call::Path(_, name) => free(module, name).or_else(|| self.only(|place| place.1.is_none() && place.2 == *name)),
            // The session's `drain` is not a list's.
            Call::Method(name) => self.only(|place| place.1.is_some() && !is_session(place) && place.2 == *name),
            Call::Session(name) => self.only(|place| is_session(place) && place.2 == *name),
        }
    }

    /// Every place that a call can lead to.
    fn callees(&self, from: &FunctionPath, call: &Call, doubt: Doubt) -> Vec<FunctionPath> {
        let known: Vec<FunctionPath> = self.callee(from, call).into_iter().collect();
        if !known.is_empty() || doubt == Doubt::Nowhere {
            return known;
        }
        let (Call::Path(_, name) | Call::Method(name) | Call::Session(name)) = call;
        // A call on the session is known as one, and is followed.
        self.0.keys().filter(|place| place.2 == *name && !is_session(place)).cloned().collect()
    }

    fn only(&self, wanted: impl Fn(&FunctionPath) -> bool) -> Option<FunctionPath> {
        let mut found = self.0.keys().filter(|place| wanted(place));
        let first = found.next()?;
        found.next().is_none().then(|| first.clone())
    }

    /// The names on the way from a function to the first one that `is_there`.
    fn way(&self, start: &FunctionPath, doubt: Doubt, is_there: impl Fn(&FunctionPath, &Function) -> bool) -> Option<String> {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![(start.clone(), start.2.clone())]);
        while let Some((next, way)) = todo.pop() {
            let Some(function) = self.0.get(&next).filter(|_| seen.insert(next.clone())) else { continue };
            if is_there(&next, function) {
                return Some(way);
            }
            let callees = function.calls.iter().flat_map(|call| self.callees(&next, call, doubt));
            todo.extend(callees.map(|callee| (callee.clone(), format!("{way} > {}", callee.2))));
        }
        None
    }

    /// Whether a call of this function can end in a refusal.
    fn reaches_a_refusal(&self, start: &FunctionPath) -> bool {
        self.way(start, Doubt::Nowhere, |_, function| function.refuses).is_some()
    }
}

fn is_session(place: &FunctionPath) -> bool {
    place.1.as_deref() == Some("Connection")
}

/// Goes through the items of a file.
struct Items<'a> {
    module: &'a str,
    owner: Option<String>,
    all: &'a mut Functions,
}

impl Items<'_> {
    fn add(&mut self, name: &syn::Ident, block: &syn::Block) {
        let mut body = Body { of_session: self.owner.as_deref() == Some("Connection"), ..Body::default() };
        body.visit_block(block);
        let last = match block.stmts.last() {
            Some(syn::Stmt::Expr(expression, None)) => is_refusal(expression),
            _ => false,
        };
        let function = self.all.0.entry((self.module.to_owned(), self.owner.clone(), name.to_string())).or_default();
        function.refuses |= body.refuses;
        function.always |= last && !body.succeeds;
        function.calls.extend(body.calls);
    }
}

impl<'ast> Visit<'ast> for Items<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig.ident, &function.block);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        self.owner = match &*block.self_ty {
            syn::Type::Path(path) => Some(last_two(&path.path).1),
            _ => Some(String::new()),
        };
        visit::visit_item_impl(self, block);
        self.owner = None;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig.ident, &function.block);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }
}

/// Goes through one body.
#[derive(Default)]
struct Body {
    /// It is a method of the session.
    of_session: bool,
    refuses: bool,
    succeeds: bool,
    calls: BTreeSet<Call>,
}

fn last_two(path: &syn::Path) -> (Option<String>, String) {
    let mut names = path.segments.iter().rev().map(|segment| segment.ident.to_string());
    let name = names.next().unwrap_or_default();
    (names.next(), name)
}

/// `Err(error::NOT_SUPPORTED)` or `Err(unsupported(…))`.
fn is_refusal(expression: &syn::Expr) -> bool {
    let syn::Expr::Call(call) = expression else { return false };
    let is_err = matches!(&*call.func, syn::Expr::Path(path) if path.path.is_ident("Err"));
    is_err && call.args.first().is_some_and(names_a_refusal)
}

fn names_a_refusal(expression: &syn::Expr) -> bool {
    let path = match expression {
        syn::Expr::Path(path) => &path.path,
        syn::Expr::Call(call) => match &*call.func {
            syn::Expr::Path(path) => &path.path,
            _ => return false,
        },
        _ => return false,
    };
    REFUSALS.contains(&last_two(path).1.as_str())
}

impl Body {
    /// Whether this is the session, by its name or by where it comes from.
    fn is_session(&self, expression: &syn::Expr) -> bool {
        match expression {
            syn::Expr::Path(path) => path.path.is_ident("session") || (self.of_session && path.path.is_ident("self")),
            syn::Expr::Field(field) => matches!(&field.member, syn::Member::Named(name) if name == "session"),
            syn::Expr::Try(inner) => self.is_session(&inner.expr),
            syn::Expr::Paren(inner) => self.is_session(&inner.expr),
            syn::Expr::Call(call) => matches!(&*call.func, syn::Expr::Path(path) if ["enter", "find_connection"].contains(&last_two(&path.path).1.as_str())),
            _ => false,
        }
    }
}

impl<'ast> Visit<'ast> for Body {
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func {
            let called = last_two(&path.path);
            self.refuses |= called.1 == "unsupported" || (called.1 == "Err" && call.args.first().is_some_and(names_a_refusal));
            self.succeeds |= called.1 == "Ok";
            self.calls.insert(Call::Path(called.0, called.1));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        self.calls.insert(if self.is_session(&call.receiver) { Call::Session(name) } else { Call::Method(name) });
        visit::visit_expr_method_call(self, call);
    }

    /// The border's macros hold ordinary expressions.
    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        let expressions = found.parse_body_with(syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated);
        for expression in expressions.into_iter().flatten() {
            let mut inner = Body { of_session: self.of_session, ..Self::default() };
            inner.visit_expr(&expression);
            self.refuses |= inner.refuses;
            self.calls.extend(inner.calls);
        }
    }
}

/// What the code of a function has against its entry: that it can refuse, or cannot, or does
/// nothing else.
fn complaint(functions: &Functions, name: &str, but_not: &str) -> Option<String> {
    let Some(place) = functions.only(|place| place.1.is_none() && place.2 == name) else {
        return Some(format!("{name} is not among the sources"));
    };
    if functions.0[&place].always {
        return Some(format!("{name} refuses whatever it is given: list it as refused, and take its function out"));
    }
    let never = NEVER.iter().any(|(known, _)| *known == name);
    match (functions.reaches_a_refusal(&place) != never, but_not.is_empty()) {
        (true, true) => Some(format!("{name} can answer NOT_SUPPORTED: the list must say to what (`but not …`)")),
        (false, false) => Some(format!("{name} is listed with `but not {but_not}`, and nothing in its code refuses")),
        _ => None,
    }
}

#[test]
fn the_list_says_what_the_code_refuses() {
    let mut functions = Functions::default();
    Functions::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut functions);
    let mut wrong = Vec::new();
    for (name, answer) in surface::functions() {
        let Answer::Function { name: own, but_not } = answer else { continue };
        if own != name {
            continue;
        }
        wrong.extend(complaint(&functions, name, but_not));
        // And the opposite is noticed.
        let opposite = if but_not.is_empty() { "on Sundays" } else { "" };
        if complaint(&functions, name, opposite).is_none() {
            wrong.push(format!("{name} could as well be listed with {opposite:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_local_waits_for_nobody_and_what_is_served_is_given_to_the_executor() {
    let mut functions = Functions::default();
    Functions::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut functions);
    let is = |names: &[&str], place: &FunctionPath| is_session(place) && names.contains(&place.2.as_str());
    let mut wrong = Vec::new();
    for line in surface::SURFACE.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(listed)) = (words.next(), words.next()) else { continue };
        let Some(place) = functions.only(|place| place.1.is_none() && place.2 == name) else { continue };
        let (trip, work) = (|place: &FunctionPath, _: &Function| is(&TRIPS, place), |place: &FunctionPath, _: &Function| is(&TRIPS, place) || is(&WORK, place));
        match listed {
            "local" | "always" if !LOCAL.iter().any(|(known, _)| *known == name) => {
                wrong.extend(functions.way(&place, Doubt::Nowhere, trip).map(|way| format!("{name} is listed as {listed} and waits for the executor: {way}")));
            }
            "served" if functions.way(&place, Doubt::Everywhere, work).is_none() => {
                wrong.push(format!("{name} is listed as served, and its code gives the executor nothing"));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
