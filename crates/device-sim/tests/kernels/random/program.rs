//! Random programs, and their PTX text.
//!
//! Numbers from outside decide everything, so that fewer and smaller numbers make a smaller
//! program.
//!
//! One file, although long: what is drawn and how it is written down are read side by side.

use super::tables::{CONVERSIONS, DOUBLE, INT, LONG, SINGLE, WIDE};
use std::fmt::Write as _;

/// Registers of each bank.
pub const INTS: u16 = 6;
pub const LONGS: u16 = 4;
pub const SINGLES: u16 = 5;
pub const DOUBLES: u16 = 4;
pub const PREDICATES: u16 = 4;

/// Threads of a block: two warps, of which one is not full.
pub const THREADS: u32 = 37;
/// Bytes of each thread's own piece of local and of global memory.
pub const PIECE: u16 = 16;

/// Where most numbers come from.
const INTERESTING: [u32; 8] = [0, 1, u32::MAX, 0x8000_0000, 0x7fff_ffff, 31, 0x0001_0000, 0xdead_beef];

/// The predicate under which a statement runs, and whether it is negated.
pub type Guard = Option<(u16, bool)>;

/// An operand: a register or a literal.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    Register(u16),
    Literal(u32),
}

/// A bank of registers that arithmetic works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bank {
    Int,
    Long,
    Single,
    Double,
}

impl Bank {
    pub fn prefix(self) -> &'static str {
        match self {
            Bank::Int => "%r",
            Bank::Long => "%d",
            Bank::Single => "%f",
            Bank::Double => "%g",
        }
    }

    fn count(self) -> u16 {
        match self {
            Bank::Int => INTS,
            Bank::Long => LONGS,
            Bank::Single => SINGLES,
            Bank::Double => DOUBLES,
        }
    }
}

/// A step of a chain of carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carry {
    Add,
    Sub,
    MadLow,
    MadHigh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Local,
    Global,
}

/// The values that go into a call or come out of it: an integer, a predicate, a single.
pub type Values = (u16, u16, u16);

#[derive(Debug, Clone)]
pub enum Statement {
    Arithmetic {
        bank: Bank,
        op: usize,
        d: u16,
        s: [Source; 3],
        guard: Guard,
    },
    /// From integers to a 64-bit integer.
    Widen {
        op: usize,
        d: u16,
        s: [Source; 2],
        c: u16,
        guard: Guard,
    },
    Convert {
        op: usize,
        d: u16,
        s: u16,
        guard: Guard,
    },
    /// `setp`, whose result may be combined with a predicate; `q` gets the opposite.
    Compare {
        bank: Bank,
        op: usize,
        combine: Option<(usize, u16)>,
        d: u16,
        q: Option<u16>,
        a: u16,
        b: u16,
        guard: Guard,
    },
    Select {
        bank: Bank,
        d: u16,
        a: u16,
        b: u16,
        p: u16,
    },
    Logic {
        op: usize,
        d: u16,
        a: u16,
        b: u16,
        guard: Guard,
    },
    /// A product without rounding, and a sum or difference of it. `form`: which of them is negated,
    /// and on which side the product is.
    Contracted {
        double: bool,
        form: u16,
        d: u16,
        a: u16,
        b: u16,
        c: u16,
        guard: Guard,
    },
    /// The same, where something else uses the product.
    Kept {
        double: bool,
        form: u16,
        d: u16,
        e: u16,
        a: u16,
        b: u16,
        c: u16,
    },
    Carries {
        long: bool,
        steps: Vec<(Carry, u16, u16, u16)>,
    },
    /// Writes or reads this thread's byte of a shared variable: the function's own, or the
    /// module's.
    Shared {
        own: bool,
        generic: bool,
        store: bool,
        register: u16,
    },
    /// Writes or reads bytes of this thread's piece of memory.
    Memory {
        space: Space,
        store: bool,
        signed: bool,
        bytes: u16,
        at: u16,
        register: u16,
    },
    Call {
        function: usize,
        pointer: bool,
        arguments: Values,
        results: Values,
        guard: Guard,
    },
    If {
        p: u16,
        negated: bool,
        yes: Vec<Statement>,
        no: Vec<Statement>,
    },
    /// As often as the low bits of a register say.
    Loop {
        count: u16,
        body: Vec<Statement>,
    },
    BreakIf {
        p: u16,
        negated: bool,
    },
    Switch {
        on: u16,
        cases: Vec<Vec<Statement>>,
    },
    ReturnIf {
        p: u16,
        negated: bool,
    },
    Barrier,
}

/// A device function, or the kernel.
#[derive(Debug, Clone)]
pub struct Function {
    /// Parameters and results are registers, not memory.
    pub in_registers: bool,
    /// Bytes of its shared variable in front of and behind those of the threads.
    pub padding: (u16, u16),
    pub body: Vec<Statement>,
}

/// Function 0 is the kernel. A function calls only later ones.
#[derive(Debug, Clone)]
pub struct Program {
    pub functions: Vec<Function>,
}

/// Makes a program of numbers.
pub struct Maker<'a> {
    numbers: std::slice::Iter<'a, u16>,
    functions: usize,
}

impl<'a> Maker<'a> {
    pub fn program(numbers: &'a [u16]) -> Program {
        let mut maker = Maker { numbers: numbers.iter(), functions: 0 };
        maker.functions = 1 + usize::from(maker.pick(4));
        let functions = (0..maker.functions).map(|n| maker.function(n)).collect();
        Program { functions }
    }

    /// The next number below `n`; 0 when there are no more.
    fn pick(&mut self, n: u16) -> u16 {
        self.numbers.next().map_or(0, |number| number % n)
    }

    fn flag(&mut self) -> bool {
        self.pick(2) == 1
    }

    fn index(&mut self, n: usize) -> usize {
        usize::from(self.pick(n as u16))
    }

    fn function(&mut self, n: usize) -> Function {
        let (in_registers, padding) = (self.flag(), (self.pick(9), self.pick(9)));
        Function { in_registers, padding, body: self.block(n, 3, false) }
    }

    fn guard(&mut self) -> Guard {
        (self.pick(4) == 3).then(|| (self.pick(PREDICATES), self.flag()))
    }

    fn source(&mut self, bank: Bank) -> Source {
        if matches!(bank, Bank::Int | Bank::Long) && self.pick(4) == 3 {
            let known = self.pick(12);
            return Source::Literal(INTERESTING.get(usize::from(known)).copied().unwrap_or_else(|| u32::from(self.pick(u16::MAX))));
        }
        Source::Register(self.pick(bank.count()))
    }

    fn bank(&mut self) -> Bank {
        [Bank::Int, Bank::Int, Bank::Long, Bank::Single, Bank::Double][self.index(5)]
    }

    fn values(&mut self) -> Values {
        (self.pick(INTS), self.pick(PREDICATES), self.pick(SINGLES))
    }

    fn block(&mut self, function: usize, depth: u16, in_loop: bool) -> Vec<Statement> {
        let count = self.pick(if depth == 3 { 24 } else { 6 });
        (0..count).map(|_| self.statement(function, depth, in_loop)).collect()
    }

    fn statement(&mut self, function: usize, depth: u16, in_loop: bool) -> Statement {
        let nested = depth > 0;
        match self.pick(24) {
            0..=5 => {
                let bank = self.bank();
                let ops = match bank {
                    Bank::Int => INT.len(),
                    Bank::Long => LONG.len(),
                    Bank::Single => SINGLE.len(),
                    Bank::Double => DOUBLE.len(),
                };
                let op = self.index(ops);
                let (d, s) = (self.pick(bank.count()), [self.source(bank), self.source(bank), self.source(bank)]);
                Statement::Arithmetic { bank, op, d, s, guard: self.guard() }
            }
            6 => Statement::Widen {
                op: self.index(WIDE.len()),
                d: self.pick(LONGS),
                s: [self.source(Bank::Int), self.source(Bank::Int)],
                c: self.pick(LONGS),
                guard: self.guard(),
            },
            7 => {
                let op = self.index(CONVERSIONS.len());
                let (to, from) = (CONVERSIONS[op].to, CONVERSIONS[op].from);
                Statement::Convert { op, d: self.pick(to.count()), s: self.pick(from.count()), guard: self.guard() }
            }
            8 | 9 => {
                let bank = self.bank();
                let op = self.index(if matches!(bank, Bank::Int | Bank::Long) { 10 } else { 14 });
                let combine = self.flag().then(|| (self.index(3), self.pick(PREDICATES)));
                let d = self.pick(PREDICATES);
                let q = Some(self.pick(PREDICATES)).filter(|q| *q != d && self.flag());
                Statement::Compare { bank, op, combine, d, q, a: self.pick(bank.count()), b: self.pick(bank.count()), guard: self.guard() }
            }
            10 => {
                let bank = self.bank();
                let n = bank.count();
                Statement::Select { bank, d: self.pick(n), a: self.pick(n), b: self.pick(n), p: self.pick(PREDICATES) }
            }
            11 => {
                let n = PREDICATES;
                Statement::Logic { op: self.index(5), d: self.pick(n), a: self.pick(n), b: self.pick(n), guard: self.guard() }
            }
            12 | 13 => {
                let double = self.flag();
                let n = if double { DOUBLES } else { SINGLES };
                let (form, d, a, b, c) = (self.pick(16), self.pick(n), self.pick(n), self.pick(n), self.pick(n));
                Statement::Contracted { double, form, d, a, b, c, guard: self.guard() }
            }
            14 => {
                let double = self.flag();
                let n = if double { DOUBLES } else { SINGLES };
                let (d, e) = (self.pick(n), self.pick(n));
                let e = if e == d { (d + 1) % n } else { e };
                Statement::Kept { double, form: self.pick(16), d, e, a: self.pick(n), b: self.pick(n), c: self.pick(n) }
            }
            15 => {
                let long = self.flag();
                let n = if long { LONGS } else { INTS };
                let count = 2 + self.pick(3);
                let kinds = [Carry::Add, Carry::Sub, Carry::MadLow, Carry::MadHigh];
                let steps = (0..count).map(|_| (kinds[self.index(4)], self.pick(n), self.pick(n), self.pick(n))).collect();
                Statement::Carries { long, steps }
            }
            16 | 17 => Statement::Shared { own: self.pick(4) != 3, generic: self.flag(), store: self.flag(), register: self.pick(INTS) },
            18 => {
                let bytes = [1, 2, 4][self.index(3)];
                let space = if self.flag() { Space::Local } else { Space::Global };
                let (store, signed, at) = (self.flag(), self.flag(), self.pick(PIECE / bytes) * bytes);
                Statement::Memory { space, store, signed, bytes, at, register: self.pick(INTS) }
            }
            19 | 20 if function + 1 < self.functions => {
                let function = function + 1 + self.index(self.functions - function - 1);
                Statement::Call { function, pointer: self.pick(4) == 3, arguments: self.values(), results: self.values(), guard: self.guard() }
            }
            21 if nested => {
                let (p, negated) = (self.pick(PREDICATES), self.flag());
                Statement::If { p, negated, yes: self.block(function, depth - 1, in_loop), no: self.block(function, depth - 1, in_loop) }
            }
            22 if nested => Statement::Loop { count: self.pick(INTS), body: self.block(function, depth - 1, true) },
            23 if nested && self.flag() => {
                let on = self.pick(INTS);
                Statement::Switch { on, cases: (0..4).map(|_| self.block(function, depth - 1, in_loop)).collect() }
            }
            _ if in_loop && self.flag() => Statement::BreakIf { p: self.pick(PREDICATES), negated: self.flag() },
            _ if function > 0 => Statement::ReturnIf { p: self.pick(PREDICATES), negated: self.flag() },
            _ if depth == 3 => Statement::Barrier,
            _ => Statement::Logic { op: 3, d: self.pick(PREDICATES), a: self.pick(PREDICATES), b: 0, guard: None },
        }
    }
}

/// The PTX text of a program.
pub fn print(program: &Program) -> String {
    let mut text = String::from(".version 8.0\n.target sm_80\n.address_size 64\n");
    let _ = writeln!(text, ".shared .align 1 .b8 module_bytes[{THREADS}];");
    for n in (0..program.functions.len()).rev() {
        Printer { program, function: n, text: &mut text, labels: 0, ends: Vec::new() }.function();
    }
    text
}

struct Printer<'a> {
    program: &'a Program,
    function: usize,
    text: &'a mut String,
    labels: u32,
    /// Where the loops around end.
    ends: Vec<u32>,
}

fn guard_text(guard: Guard) -> String {
    guard.map_or(String::new(), |(p, negated)| format!("@{}%p{p} ", if negated { "!" } else { "" }))
}

/// Comparisons: first those of integers, then those that also take NaN.
pub const COMPARISONS: [&str; 14] = ["eq", "ne", "lt", "le", "gt", "ge", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "nan"];
pub const COMBINATIONS: [&str; 3] = ["and", "or", "xor"];

/// The type of a comparison: unsigned for the later of the integer ones.
fn comparison(bank: Bank, op: usize) -> String {
    let ty = match bank {
        Bank::Int if op < 6 => "s32",
        Bank::Int => "u32",
        Bank::Long if op < 6 => "s64",
        Bank::Long => "u64",
        Bank::Single => "f32",
        Bank::Double => "f64",
    };
    format!("{}.{{}}{ty}", COMPARISONS[op])
}

impl Printer<'_> {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "\t{line}");
    }

    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    fn function(&mut self) {
        let n = self.function;
        let function = &self.program.functions[n];
        let bytes = THREADS + u32::from(function.padding.0) + u32::from(function.padding.1);
        if n == 0 {
            self.text.push_str(".visible .entry kernel(.param .u64 buffer)\n{\n");
        } else if function.in_registers {
            let _ = writeln!(self.text, ".func (.reg .b32 or, .reg .pred op, .reg .f32 of) f{n}(.reg .b32 ir, .reg .pred ip, .reg .f32 if, .reg .b64 ib)\n{{");
        } else {
            let _ = writeln!(
                self.text,
                ".func (.param .b32 or, .param .b32 op, .param .f32 of) f{n}(.param .b32 ir, .param .b32 ip, .param .f32 if, .param .b64 ib)\n{{"
            );
        }
        self.line(&format!(".shared .align 1 .b8 own[{bytes}];"));
        self.line(&format!(".local .align 16 .b8 piece[{PIECE}];"));
        self.line(".reg .b32 %r<6>, %t<8>, %lane, %c<4000>;\n\t.reg .b64 %d<4>, %w<8>, %base;\n\t.reg .f32 %f<5>, %h<4>;\n\t.reg .f64 %g<4>, %k<4>;\n\t.reg .pred %p<4>, %q<4>;");
        self.line("mov.u32 %lane, %tid.x;");
        self.entry(n, function.in_registers);
        let body = &function.body;
        self.block(body);
        self.exit(n, function.in_registers);
        self.text.push_str("}\n");
    }

    /// Gives every register a value, and the local memory, too.
    fn entry(&mut self, n: usize, in_registers: bool) {
        if n == 0 {
            // The thread's inputs, which its results overwrite.
            self.line("ld.param.u64 %base, [buffer];");
            self.line("mov.u32 %t0, %ctaid.x;");
            self.line(&format!("mad.lo.u32 %t0, %t0, {THREADS}, %lane;"));
            self.line(&format!("mad.wide.u32 %base, %t0, {}, %base;", super::BYTES));
            for k in 0..INTS {
                self.line(&format!("ld.global.u32 %r{k}, [%base+{}];", super::at_int(k)));
            }
            for k in 0..LONGS {
                self.line(&format!("ld.global.u64 %d{k}, [%base+{}];", super::at_long(k)));
            }
            for k in 0..SINGLES {
                self.line(&format!("ld.global.f32 %f{k}, [%base+{}];", super::at_single(k)));
            }
            for k in 0..DOUBLES {
                self.line(&format!("ld.global.f64 %g{k}, [%base+{}];", super::at_double(k)));
            }
        } else {
            if in_registers {
                self.line("mov.b32 %r0, ir;\n\tmov.pred %p0, ip;\n\tmov.f32 %f0, if;\n\tmov.b64 %base, ib;");
            } else {
                self.line(
                    "ld.param.b32 %r0, [ir];\n\tld.param.b32 %t0, [ip];\n\tsetp.ne.u32 %p0, %t0, 0;\n\tld.param.f32 %f0, [if];\n\tld.param.b64 %base, [ib];",
                );
            }
            for k in 1..INTS {
                self.line(&format!("add.u32 %r{k}, %r0, {};", k * 77));
            }
            for k in 0..LONGS {
                self.line(&format!("cvt.u64.u32 %d{k}, %r{k};"));
            }
            for k in 1..SINGLES {
                self.line(&format!("cvt.rn.f32.s32 %f{k}, %r{k};"));
            }
            for k in 0..DOUBLES {
                self.line(&format!("cvt.rn.f64.s32 %g{k}, %r{k};"));
            }
        }
        for k in u16::from(n != 0)..PREDICATES {
            self.line(&format!("setp.lt.s32 %p{k}, %r{k}, {};", k * 3));
        }
        for k in 0..PIECE / 4 {
            self.line(&format!("st.local.u32 [piece+{}], %r{k};", k * 4));
        }
    }

    fn exit(&mut self, n: usize, in_registers: bool) {
        self.line("$return:");
        if n == 0 {
            for k in 0..INTS {
                self.line(&format!("st.global.u32 [%base+{}], %r{k};", super::at_int(k)));
            }
            for k in 0..LONGS {
                self.line(&format!("st.global.u64 [%base+{}], %d{k};", super::at_long(k)));
            }
            for k in 0..SINGLES {
                self.line(&format!("st.global.f32 [%base+{}], %f{k};", super::at_single(k)));
            }
            for k in 0..DOUBLES {
                self.line(&format!("st.global.f64 [%base+{}], %g{k};", super::at_double(k)));
            }
            for k in 0..PREDICATES {
                self.line(&format!("selp.u32 %t0, 1, 0, %p{k};\n\tst.global.u32 [%base+{}], %t0;", super::at_predicate(k)));
            }
            self.line("ret;");
        } else if in_registers {
            self.line("mov.b32 or, %r1;\n\tmov.pred op, %p1;\n\tmov.f32 of, %f1;\n\tret;");
        } else {
            self.line("st.param.b32 [or], %r1;\n\tselp.u32 %t0, 1, 0, %p1;\n\tst.param.b32 [op], %t0;\n\tst.param.f32 [of], %f1;\n\tret;");
        }
    }

    fn block(&mut self, block: &[Statement]) {
        block.iter().for_each(|statement| self.statement(statement));
    }

    fn source(bank: Bank, source: Source) -> String {
        match source {
            Source::Register(n) => format!("{}{n}", bank.prefix()),
            Source::Literal(n) => n.to_string(),
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Arithmetic { bank, op, d, s, guard } => {
                let (name, count) = match bank {
                    Bank::Int => (INT[*op].0, INT[*op].1),
                    Bank::Long => (LONG[*op].0, LONG[*op].1),
                    Bank::Single => (SINGLE[*op].0, SINGLE[*op].1),
                    Bank::Double => (DOUBLE[*op].0, DOUBLE[*op].1),
                };
                let mut sources: Vec<String> = s.iter().take(count).map(|s| Self::source(*bank, *s)).collect();
                if name.starts_with("div.") || name.starts_with("rem.") {
                    if matches!(bank, Bank::Int) {
                        self.line(&format!("or.b32 %t0, {}, 1;", sources[1]));
                        sources[1] = "%t0".into();
                    } else if matches!(bank, Bank::Long) {
                        self.line(&format!("or.b64 %w0, {}, 1;", sources[1]));
                        sources[1] = "%w0".into();
                    }
                } else if *bank == Bank::Long && (name.starts_with("shl.") || name.starts_with("shr.")) {
                    self.line(&format!("mov.b64 %w0, {};\n\tcvt.u32.u64 %t0, %w0;", sources[1]));
                    sources[1] = "%t0".into();
                }
                let (name, rest) = name.split_once('|').unwrap_or((name, ""));
                self.line(&format!("{}{name} {}{d}, {}{rest};", guard_text(*guard), bank.prefix(), sources.join(", ")));
            }
            Statement::Widen { op, d, s, c, guard } => {
                let (name, adds) = (WIDE[*op].0, WIDE[*op].1);
                let c = if adds { format!(", %d{c}") } else { String::new() };
                let sources: Vec<String> = s.iter().map(|s| Self::source(Bank::Int, *s)).collect();
                self.line(&format!("{}{name} %d{d}, {}{c};", guard_text(*guard), sources.join(", ")));
            }
            Statement::Convert { op, d, s, guard } => {
                let c = &CONVERSIONS[*op];
                self.line(&format!("{}{} {}{d}, {}{s};", guard_text(*guard), c.name, c.to.prefix(), c.from.prefix()));
            }
            Statement::Compare { bank, op, combine, d, q, a, b, guard } => {
                let with = combine.map_or(String::new(), |(how, _)| format!("{}.", COMBINATIONS[how]));
                let name = comparison(*bank, *op).replace("{}", &with);
                let q = q.map_or(String::new(), |q| format!("|%p{q}"));
                let c = combine.map_or(String::new(), |(_, c)| format!(", %p{c}"));
                let bank = bank.prefix();
                self.line(&format!("{}setp.{name} %p{d}{q}, {bank}{a}, {bank}{b}{c};", guard_text(*guard)));
            }
            Statement::Select { bank, d, a, b, p } => {
                let ty = ["b32", "b64", "f32", "f64"][*bank as usize];
                let bank = bank.prefix();
                self.line(&format!("selp.{ty} {bank}{d}, {bank}{a}, {bank}{b}, %p{p};"));
            }
            Statement::Logic { op, d, a, b, guard } => {
                let b = if *op < 3 { format!(", %p{b}") } else { String::new() };
                self.line(&format!("{}{}.pred %p{d}, %p{a}{b};", guard_text(*guard), ["and", "or", "xor", "not", "mov"][*op]));
            }
            Statement::Contracted { double, form, d, a, b, c, guard } => {
                let product = self.product(*double, *form, *a, *b);
                let sum = self.sum(*double, *form, &product, *c);
                let bank = if *double { "%g" } else { "%f" };
                let (name, operands) = sum;
                self.line(&format!("{}{name} {bank}{d}, {operands};", guard_text(*guard)));
            }
            Statement::Kept { double, form, d, e, a, b, c } => {
                let product = self.product(*double, *form, *a, *b);
                let (name, operands) = self.sum(*double, *form, &product, *c);
                let (bank, ty) = if *double { ("%g", "f64") } else { ("%f", "f32") };
                // Of the product itself, which `neg` may have followed.
                self.line(&format!("{name} {bank}{d}, {operands};"));
                self.line(&format!("abs.{ty} {bank}{e}, {};", if *double { "%k0" } else { "%h0" }));
            }
            Statement::Carries { long, steps } => self.carries(*long, steps),
            Statement::Shared { own, generic, store, register } => {
                let padding = self.program.functions[self.function].padding.0;
                let (name, padding) = if *own { ("own", padding) } else { ("module_bytes", 0) };
                let (address, space) = if *generic {
                    self.line(&format!("mov.u64 %w0, {name};\n\tcvta.shared.u64 %w0, %w0;\n\tcvt.u64.u32 %w1, %lane;\n\tadd.u64 %w0, %w0, %w1;"));
                    ("%w0", "")
                } else {
                    self.line(&format!("mov.u32 %t0, {name};\n\tadd.u32 %t0, %t0, %lane;"));
                    ("%t0", ".shared")
                };
                if *store {
                    self.line(&format!("st{space}.u8 [{address}+{padding}], %r{register};"));
                } else {
                    self.line(&format!("ld{space}.u8 %r{register}, [{address}+{padding}];"));
                }
            }
            Statement::Memory { space, store, signed, bytes, at, register } => {
                let (space, address) = match space {
                    Space::Local => ("local", format!("piece+{at}")),
                    Space::Global => ("global", format!("%base+{}", super::PIECE_AT + usize::from(*at))),
                };
                let ty = format!("{}{}", if *signed && !store { "s" } else { "u" }, bytes * 8);
                if *store {
                    self.line(&format!("st.{space}.{ty} [{address}], %r{register};"));
                } else {
                    self.line(&format!("ld.{space}.{ty} %r{register}, [{address}];"));
                }
            }
            Statement::Call { function, pointer, arguments, results, guard } => self.call(*function, *pointer, *arguments, *results, *guard),
            Statement::If { p, negated, yes, no } => {
                let (other, end) = (self.label(), self.label());
                self.line(&format!("@{}%p{p} bra $l{other};", if *negated { "" } else { "!" }));
                self.block(yes);
                self.line(&format!("bra $l{end};\n$l{other}:"));
                self.block(no);
                self.line(&format!("\n$l{end}:"));
            }
            Statement::Loop { count, body } => {
                let (again, end) = (self.label(), self.label());
                self.line(&format!(
                    "and.b32 %c{again}, %r{count}, 3;\n$l{again}:\n\tsetp.eq.u32 %q0, %c{again}, 0;\n\t@%q0 bra $l{end};\n\tsub.u32 %c{again}, %c{again}, 1;"
                ));
                self.ends.push(end);
                self.block(body);
                self.ends.pop();
                self.line(&format!("bra $l{again};\n$l{end}:"));
            }
            Statement::BreakIf { p, negated } => {
                let end = self.ends.last().copied().expect("in a loop");
                self.line(&format!("@{}%p{p} bra $l{end};", if *negated { "!" } else { "" }));
            }
            Statement::Switch { on, cases } => {
                let (table, end) = (self.label(), self.label());
                let labels: Vec<u32> = cases.iter().map(|_| self.label()).collect();
                let names: Vec<String> = labels.iter().map(|label| format!("$l{label}")).collect();
                self.line(&format!("and.b32 %t0, %r{on}, 3;\n$t{table}: .branchtargets {};\n\tbrx.idx %t0, $t{table};", names.join(", ")));
                for (label, case) in labels.iter().zip(cases) {
                    self.line(&format!("\n$l{label}:"));
                    self.block(case);
                    self.line(&format!("bra $l{end};"));
                }
                self.line(&format!("\n$l{end}:"));
            }
            Statement::ReturnIf { p, negated } => self.line(&format!("@{}%p{p} bra $return;", if *negated { "!" } else { "" })),
            Statement::Barrier => self.line("bar.sync 0;"),
        }
    }

    /// A product in a register of its own, perhaps negated or moved; returns that register.
    fn product(&mut self, double: bool, form: u16, a: u16, b: u16) -> String {
        let (bank, temporary, ty) = if double { ("%g", "%k", "f64") } else { ("%f", "%h", "f32") };
        self.line(&format!("mul.{ty} {temporary}0, {bank}{a}, {bank}{b};"));
        if form & 4 == 0 {
            return format!("{temporary}0");
        }
        self.line(&format!("neg.{ty} {temporary}1, {temporary}0;\n\tmov.{ty} {temporary}2, {temporary}1;"));
        format!("{temporary}2")
    }

    /// A sum with a product: the instruction and its operands.
    fn sum(&mut self, double: bool, form: u16, product: &str, c: u16) -> (String, String) {
        let (bank, ty) = if double { ("%g", "f64") } else { ("%f", "f32") };
        let name = format!("{}{}.{ty}", if form & 1 == 0 { "add" } else { "sub" }, if form & 8 != 0 && !double { ".sat" } else { "" });
        (name, if form & 2 == 0 { format!("{product}, {bank}{c}") } else { format!("{bank}{c}, {product}") })
    }

    fn carries(&mut self, long: bool, steps: &[(Carry, u16, u16, u16)]) {
        let (bank, ty) = if long { ("%d", "u64") } else { ("%r", "u32") };
        for (n, (kind, d, a, b)) in steps.iter().enumerate() {
            let (first, last) = (n == 0, n + 1 == steps.len());
            let (name, low) = match kind {
                Carry::Add => ("add", ""),
                Carry::Sub => ("sub", ""),
                Carry::MadLow => ("mad", ".lo"),
                Carry::MadHigh => ("mad", ".hi"),
            };
            let c = if low.is_empty() { String::new() } else { format!(", {bank}0") };
            let (reads, writes) = (if first { "" } else { "c" }, if last { "" } else { ".cc" });
            self.line(&format!("{name}{reads}{low}{writes}.{ty} {bank}{d}, {bank}{a}, {bank}{b}{c};"));
        }
    }

    fn call(&mut self, function: usize, pointer: bool, arguments: Values, results: Values, guard: Guard) {
        let n = self.label();
        let (guard, in_registers) = (guard_text(guard), self.program.functions[function].in_registers);
        let ((r, p, f), (dr, dp, df)) = (arguments, results);
        let (target, by) = if pointer { ("%w2".to_owned(), format!(", $k{n}")) } else { (format!("f{function}"), String::new()) };
        if pointer {
            let prototype = if in_registers {
                "(.reg .b32 _, .reg .pred _, .reg .f32 _) _ (.reg .b32 _, .reg .pred _, .reg .f32 _, .reg .b64 _)"
            } else {
                "(.param .b32 _, .param .b32 _, .param .f32 _) _ (.param .b32 _, .param .b32 _, .param .f32 _, .param .b64 _)"
            };
            self.line(&format!("mov.u64 %w2, f{function};\n$k{n}: .callprototype {prototype};"));
        }
        if in_registers {
            self.line(&format!("{guard}call (%r{dr}, %p{dp}, %f{df}), {target}, (%r{r}, %p{p}, %f{f}, %base){by};"));
            return;
        }
        self.line("{\n\t.param .b32 ar;\n\t.param .b32 ap;\n\t.param .f32 af;\n\t.param .b64 ab;\n\t.param .b32 zr;\n\t.param .b32 zp;\n\t.param .f32 zf;");
        self.line(&format!(
            "selp.u32 %t0, 1, 0, %p{p};\n\tst.param.b32 [ar], %r{r};\n\tst.param.b32 [ap], %t0;\n\tst.param.f32 [af], %f{f};\n\tst.param.b64 [ab], %base;"
        ));
        self.line(&format!("{guard}call (zr, zp, zf), {target}, (ar, ap, af, ab){by};"));
        // What comes back from a call that was not made is not looked at.
        self.line(&format!(
            "{guard}ld.param.b32 %r{dr}, [zr];\n\t{guard}ld.param.f32 %f{df}, [zf];\n\tld.param.b32 %t0, [zp];\n\t{guard}setp.ne.u32 %p{dp}, %t0, 0;\n\t}}"
        ));
    }
}
