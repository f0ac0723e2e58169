//! Damaged PTX and arbitrary text give a tree, or a complaint with a place in the text, but never a
//! panic.

use cumux_ptx::{MAX_DIAGNOSTICS, parse, parse_bytes};

const SOURCES: [&str; 4] = [include_str!("data/halves.ptx"), include_str!("data/warps.ptx"), include_str!("data/calls.ptx"), include_str!("data/refused.ptx")];

/// Steps of a fixed pseudo-random sequence.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// Pieces that the grammar knows, to get far into the parser.
const PIECES: &[&str] = &[
    ";",
    ",",
    ":",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    "=",
    "+",
    "-",
    "@",
    "!",
    "|",
    "_",
    "\n",
    " ",
    "\"",
    "/*",
    "*/",
    "//",
    "0x",
    "0f",
    "0d3FF0000000000000",
    "4294967296",
    "99999999999999999999",
    "-1",
    "0",
    "1.5",
    "%r1",
    "%p1",
    "%rd1",
    "%tid.x",
    "%tid",
    "$L__BB0_1",
    ".reg",
    ".b32",
    ".v4",
    ".pred",
    ".param",
    ".global",
    ".shared",
    ".align",
    ".entry",
    ".func",
    ".visible",
    ".extern",
    ".loc",
    ".section",
    ".branchtargets",
    ".callprototype",
    ".u32",
    ".f16x2",
    "add",
    "ld",
    "st",
    "mov",
    "call",
    "bra",
    "brx.idx",
    "setp.lt.s32",
    "cvt",
    "atom",
    "tex",
    "generic(",
    "%r<",
    "é",
    "\0",
];

fn answered(text: &str) {
    let Err(error) = parse(text) else { return };
    assert!((1..=MAX_DIAGNOSTICS).contains(&error.diagnostics.len()));
    let lines = text.split('\n').count() as u32;
    for diagnostic in &error.diagnostics {
        assert!(!diagnostic.message.is_empty());
        assert!((1..=lines).contains(&diagnostic.pos.line), "{diagnostic}");
        assert!(diagnostic.pos.col >= 1);
    }
    assert!(!error.render(text).is_empty());
}

/// Some byte position in `text` where a character begins.
fn place(dice: &mut Dice, text: &str) -> usize {
    let mut at = dice.roll(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[test]
fn damaged_ptx_is_answered() {
    let mut dice = Dice(0xD1B5_4A32_D192_ED03);
    for round in 0..1500 {
        let mut text = SOURCES[round % SOURCES.len()].to_owned();
        for _ in 0..=dice.roll(4) {
            let at = place(&mut dice, &text);
            let near = (at + dice.roll(24)).min(text.len());
            let end = (at..=near).rev().find(|n| text.is_char_boundary(*n));
            let end = end.unwrap_or(at);
            match dice.roll(5) {
                0 => text.insert_str(at, dice.pick(PIECES)),
                1 => text.replace_range(at..end, ""),
                2 => text.replace_range(at..end, dice.pick(PIECES)),
                3 => {
                    let copy = text[at..end].to_owned();
                    let target = place(&mut dice, &text);
                    text.insert_str(target, &copy);
                }
                _ => text.truncate(text.len() - dice.roll(text.len() / 8)),
            }
        }
        answered(&text);
    }
}

#[test]
fn arbitrary_pieces_are_answered() {
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    for round in 0..3000 {
        let mut text = String::new();
        if round % 4 != 0 {
            text.push_str(".version 9.0\n.target sm_90\n.address_size 64\n");
        }
        if round % 4 > 1 {
            text.push_str(".visible .entry k(.param .u64 a)\n{\n.reg .b32 %r<9>; .reg .pred %p<9>;\n");
        }
        for _ in 0..dice.roll(60) {
            text.push_str(dice.pick(PIECES));
            if dice.roll(2) == 0 {
                text.push(' ');
            }
        }
        answered(&text);
    }
}

#[test]
fn arbitrary_bytes_are_answered() {
    let mut dice = Dice(0x0123_4567_89AB_CDEF);
    for _ in 0..500 {
        let bytes: Vec<u8> = (0..dice.roll(200)).map(|_| dice.roll(256) as u8).collect();
        assert!(parse_bytes(&bytes).is_err());
    }
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    let head = ".version 9.0\n.target sm_90\n.address_size 64\n";
    let body = |inner: &str| format!("{head}.entry k() {{ .reg .b32 %r<3>; {inner} ret; }}");
    for open in ["{", "[", "(", "-", "~", "{ .reg .b32 %r<2>; "] {
        answered(&body(&format!("mov.b32 %r1, {};", open.repeat(100_000))));
        answered(&body(&open.repeat(100_000)));
    }
    let scopes = format!("{}{}", "{".repeat(16), "}".repeat(16));
    assert!(parse(&body(&scopes)).is_ok());
    answered(&format!("{head}.global .u32 x[2] = {};", "{".repeat(100_000)));
    answered(&format!("{head}.global .u32 x{};", "[2]".repeat(100_000)));
    answered(&format!("{head}.section .debug {}", "{".repeat(100_000)));
}

#[test]
fn huge_declarations_cost_nothing() {
    let text = ".version 9.0\n.target sm_90\n.address_size 64\n\
        .global .align 8 .b8 large[281474976710655];\n\
        .entry k() { .reg .b32 %r<4294967295>; mov.b32 %r4294967294, %r0; ret; }";
    let module = parse(text).unwrap();
    let body = module.functions[0].body.as_ref().unwrap();
    assert_eq!(body.registers.len(), 2);
    assert_eq!(&*body.registers[0].name, "%r4294967294");
}
