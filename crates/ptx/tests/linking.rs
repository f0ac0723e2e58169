//! Texts of the compiler that are linked say what they said before.

use cumux_ptx::ast::{Function, Linkage, Module};
use cumux_ptx::link::{Input, link};
use cumux_ptx::parse;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Every text of the test data that is a module.
fn texts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut found: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap()))
        .filter(|(_, text)| parse(text).is_ok())
        .collect();
    found.sort();
    assert!(found.len() > 5, "{found:?}");
    found
}

/// What each function does, and what each variable is, without places and order.
fn said(module: &Module) -> BTreeMap<String, String> {
    let instructions = |function: &Function| -> Option<String> {
        let body = function.body.as_ref()?;
        let text = body.instructions.iter().map(|instruction| module.instruction_text(function, instruction)).collect::<Vec<_>>().join("\n");
        Some(format!("{:?} {:?} {:?}\n{text}", function.kind, function.linkage, function.directives))
    };
    let functions = module.functions.iter().filter_map(|function| Some((function.name.to_string(), instructions(function)?)));
    let variables = module.globals.iter().filter(|variable| variable.linkage != Linkage::Extern).map(|variable| {
        let init: Vec<(u64, u8)> = variable.init.iter().map(|entry| (entry.offset, entry.size)).collect();
        (variable.name.to_string(), format!("{:?} {:?} {} {} {init:?}", variable.linkage, variable.space, variable.size, variable.align))
    });
    functions.chain(variables).collect()
}

#[test]
fn a_text_that_is_linked_alone_says_the_same() {
    for (name, text) in texts() {
        let Ok(linked) = link(&[Input { name: &name, text: &text, optional: false }]) else { continue };
        let again = parse(&linked).unwrap_or_else(|error| panic!("{name}: {}", error.render(&linked)));
        let (before, after) = (said(&parse(&text).unwrap()), said(&again));
        assert_eq!(before, after, "{name}");
    }
}

#[test]
fn texts_that_are_linked_say_the_same_beside_each_other() {
    let texts = texts();
    let (mut pairs, mut linked_pairs) = (0, 0);
    for (at, (one, text)) in texts.iter().enumerate() {
        for (two, other) in &texts[at + 1..] {
            pairs += 1;
            let Ok(linked) = link(&[Input { name: one, text, optional: false }, Input { name: two, text: other, optional: false }]) else { continue };
            linked_pairs += 1;
            let both = said(&parse(&linked).unwrap_or_else(|error| panic!("{one} and {two}: {}", error.render(&linked))));
            let alone = [said(&parse(text).unwrap()), said(&parse(other).unwrap())];
            // The first keeps all its names; the second may have had to give up some.
            for (name, meaning) in &alone[0] {
                assert_eq!(both.get(name), Some(meaning), "{one} and {two}: {name}");
            }
            let of_both = alone[0].keys().filter(|name| alone[1].contains_key(*name)).count();
            assert!(both.len() + of_both >= alone[0].len() + alone[1].len(), "{one} and {two}");
        }
    }
    assert!(linked_pairs * 4 > pairs, "{linked_pairs} of {pairs} pairs link");
}
