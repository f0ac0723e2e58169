//! Any bytes are a module or complaints, and complaints point into the text. A module that links is
//! a module again.
#![no_main]

use cumux_ptx::link::{Input, link};
use cumux_ptx::{MAX_DIAGNOSTICS, parse, parse_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match parse_bytes(data) {
        Ok(module) => {
            for function in &module.functions {
                for instruction in function.body.iter().flat_map(|body| &body.instructions) {
                    // Walks every operand, so an id out of range shows.
                    module.instruction_text(function, instruction);
                }
            }
            let text = String::from_utf8_lossy(data);
            if let Ok(linked) = link(&[Input { name: "one", text: text.trim_end_matches('\0'), optional: false }]) {
                assert!(parse(&linked).is_ok(), "{linked}");
            }
        }
        Err(error) => {
            assert!((1..=MAX_DIAGNOSTICS).contains(&error.diagnostics.len()));
            error.render(&String::from_utf8_lossy(data));
        }
    }
});
