//! Runs a program one thread after another, statement by statement.

use super::program::{Bank, COMPARISONS, Carry, Function, PIECE, Program, Source, Space, Statement, THREADS, Values};
use super::tables::{CONVERSIONS, DOUBLE, INT, LONG, SINGLE, WIDE};
use super::{BYTES, PIECE_AT, at_double, at_int, at_long, at_predicate, at_single};

/// How a block of statements ended.
#[derive(PartialEq, Eq)]
enum End {
    Next,
    Break,
    Return,
}

/// What one thread has: the memory that is its own.
struct Thread<'a> {
    program: &'a Program,
    /// Its bytes of the functions' shared variables, and of the module's.
    shared: Vec<u8>,
    module: u8,
    /// Its piece of the buffer.
    global: &'a mut [u8],
}

/// The registers and the local memory of a function that runs.
#[derive(Default)]
struct Frame {
    function: usize,
    r: [u32; 6],
    d: [u64; 4],
    f: [f32; 5],
    g: [f64; 4],
    p: [bool; 4],
    local: [u8; PIECE as usize],
}

/// Runs the program for every thread on its piece of the buffer.
pub fn run(program: &Program, buffer: &mut [u8]) {
    for (n, global) in buffer.chunks_exact_mut(BYTES).enumerate() {
        assert!(n < 2 * THREADS as usize);
        let mut thread = Thread { program, shared: vec![0; program.functions.len()], module: 0, global };
        thread.kernel();
    }
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("its length")
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn compare<T: PartialOrd>(op: usize, a: &T, b: &T, unordered: bool) -> bool {
    match COMPARISONS[op] {
        "eq" => a == b,
        "ne" => a != b && !unordered,
        "lt" => a < b,
        "le" => a <= b,
        "gt" => a > b,
        "ge" => a >= b,
        "equ" => a == b || unordered,
        "neu" => a != b,
        "ltu" => a < b || unordered,
        _ => unordered,
    }
}

impl Thread<'_> {
    fn kernel(&mut self) {
        let mut frame = Frame::default();
        for k in 0..6 {
            frame.r[k] = u32::from_le_bytes(word(self.global, at_int(k as u16)));
        }
        for k in 0..4 {
            frame.d[k] = u64::from_le_bytes(word(self.global, at_long(k as u16)));
            frame.g[k] = f64::from_le_bytes(word(self.global, at_double(k as u16)));
        }
        for k in 0..5 {
            frame.f[k] = f32::from_le_bytes(word(self.global, at_single(k as u16)));
        }
        frame.start(0);
        let program = self.program;
        self.block(&mut frame, &program.functions[0].body);
        for k in 0..6 {
            put(self.global, at_int(k as u16), &frame.r[k].to_le_bytes());
        }
        for k in 0..4 {
            put(self.global, at_long(k as u16), &frame.d[k].to_le_bytes());
            put(self.global, at_double(k as u16), &frame.g[k].to_le_bytes());
            put(self.global, at_predicate(k as u16), &u32::from(frame.p[k]).to_le_bytes());
        }
        for k in 0..5 {
            put(self.global, at_single(k as u16), &frame.f[k].to_le_bytes());
        }
    }

    fn call(&mut self, caller: &mut Frame, function: usize, (r, p, f): Values, (dr, dp, df): Values) {
        let mut frame = Frame { function, ..Frame::default() };
        frame.r[0] = caller.r[usize::from(r)];
        frame.p[0] = caller.p[usize::from(p)];
        frame.f[0] = caller.f[usize::from(f)];
        for k in 1..6 {
            frame.r[k] = frame.r[0].wrapping_add(k as u32 * 77);
        }
        for k in 0..4 {
            frame.d[k] = frame.r[k].into();
            frame.g[k] = f64::from(frame.r[k] as i32);
        }
        for k in 1..5 {
            frame.f[k] = frame.r[k] as i32 as f32;
        }
        frame.start(1);
        let program = self.program;
        let Function { body, .. } = &program.functions[function];
        self.block(&mut frame, body);
        caller.r[usize::from(dr)] = frame.r[1];
        caller.p[usize::from(dp)] = frame.p[1];
        caller.f[usize::from(df)] = frame.f[1];
    }

    fn block(&mut self, frame: &mut Frame, block: &[Statement]) -> End {
        for statement in block {
            let end = self.statement(frame, statement);
            if end != End::Next {
                return end;
            }
        }
        End::Next
    }

    fn statement(&mut self, frame: &mut Frame, statement: &Statement) -> End {
        let runs = |frame: &Frame, guard: &Option<(u16, bool)>| guard.is_none_or(|(p, negated)| frame.p[usize::from(p)] != negated);
        match statement {
            Statement::Arithmetic { bank, op, d, s, guard } if runs(frame, guard) => {
                let d = usize::from(*d);
                match bank {
                    Bank::Int => frame.r[d] = INT[*op].2(s.map(|s| frame.int(s))),
                    Bank::Long => frame.d[d] = LONG[*op].2(s.map(|s| frame.long(s))),
                    Bank::Single => frame.f[d] = SINGLE[*op].2(s.map(|s| frame.single(s))),
                    Bank::Double => frame.g[d] = DOUBLE[*op].2(s.map(|s| frame.double(s))),
                }
            }
            Statement::Widen { op, d, s, c, guard } if runs(frame, guard) => {
                frame.d[usize::from(*d)] = WIDE[*op].2(frame.int(s[0]), frame.int(s[1]), frame.d[usize::from(*c)]);
            }
            Statement::Convert { op, d, s, guard } if runs(frame, guard) => {
                let conversion = &CONVERSIONS[*op];
                let s = usize::from(*s);
                let from = match conversion.from {
                    Bank::Int => frame.r[s].into(),
                    Bank::Long => frame.d[s],
                    Bank::Single => frame.f[s].to_bits().into(),
                    Bank::Double => frame.g[s].to_bits(),
                };
                let (to, d) = ((conversion.meaning)(from), usize::from(*d));
                match conversion.to {
                    Bank::Int => frame.r[d] = to as u32,
                    Bank::Long => frame.d[d] = to,
                    Bank::Single => frame.f[d] = f32::from_bits(to as u32),
                    Bank::Double => frame.g[d] = f64::from_bits(to),
                }
            }
            Statement::Compare { bank, op, combine, d, q, a, b, guard } if runs(frame, guard) => {
                let (a, b) = (usize::from(*a), usize::from(*b));
                let holds = match bank {
                    Bank::Int if *op < 6 => compare(*op, &(frame.r[a] as i32), &(frame.r[b] as i32), false),
                    Bank::Int => compare(*op, &frame.r[a], &frame.r[b], false),
                    Bank::Long if *op < 6 => compare(*op, &(frame.d[a] as i64), &(frame.d[b] as i64), false),
                    Bank::Long => compare(*op, &frame.d[a], &frame.d[b], false),
                    Bank::Single => compare(*op, &frame.f[a], &frame.f[b], frame.f[a].is_nan() || frame.f[b].is_nan()),
                    Bank::Double => compare(*op, &frame.g[a], &frame.g[b], frame.g[a].is_nan() || frame.g[b].is_nan()),
                };
                let with = |holds: bool| match combine {
                    None => holds,
                    Some((0, c)) => holds & frame.p[usize::from(*c)],
                    Some((1, c)) => holds | frame.p[usize::from(*c)],
                    Some((_, c)) => holds ^ frame.p[usize::from(*c)],
                };
                let (first, second) = (with(holds), with(!holds));
                frame.p[usize::from(*d)] = first;
                if let Some(q) = q {
                    frame.p[usize::from(*q)] = second;
                }
            }
            Statement::Select { bank, d, a, b, p } => {
                let from = usize::from(if frame.p[usize::from(*p)] { *a } else { *b });
                let d = usize::from(*d);
                match bank {
                    Bank::Int => frame.r[d] = frame.r[from],
                    Bank::Long => frame.d[d] = frame.d[from],
                    Bank::Single => frame.f[d] = frame.f[from],
                    Bank::Double => frame.g[d] = frame.g[from],
                }
            }
            Statement::Logic { op, d, a, b, guard } if runs(frame, guard) => {
                let (a, b) = (frame.p[usize::from(*a)], frame.p[usize::from(*b)]);
                frame.p[usize::from(*d)] = [a & b, a | b, a ^ b, !a, a][*op];
            }
            Statement::Contracted { double, form, d, a, b, c, guard } if runs(frame, guard) => {
                frame.contracted(*double, *form, [*d, *a, *b, *c]);
            }
            Statement::Kept { double, form, d, e, a, b, c } => frame.kept(*double, *form, [*d, *e, *a, *b, *c]),
            Statement::Carries { long, steps } => frame.carries(*long, steps),
            Statement::Shared { own, store, register, .. } => {
                let byte = if *own { &mut self.shared[frame.function] } else { &mut self.module };
                let register = &mut frame.r[usize::from(*register)];
                if *store { *byte = *register as u8 } else { *register = (*byte).into() }
            }
            Statement::Memory { space, store, signed, bytes, at, register } => {
                let (memory, at) = match space {
                    Space::Local => (&mut frame.local[..], usize::from(*at)),
                    Space::Global => (&mut *self.global, PIECE_AT + usize::from(*at)),
                };
                let (place, register) = (&mut memory[at..at + usize::from(*bytes)], &mut frame.r[usize::from(*register)]);
                if *store {
                    let length = place.len();
                    place.copy_from_slice(&register.to_le_bytes()[..length]);
                } else {
                    let value = place.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
                    let unused = 32 - 8 * u32::from(*bytes);
                    *register = if *signed { ((value << unused) as i32 >> unused) as u32 } else { value };
                }
            }
            Statement::Call { function, arguments, results, guard, .. } if runs(frame, guard) => self.call(frame, *function, *arguments, *results),
            Statement::If { p, negated, yes, no } => {
                return self.block(frame, if frame.p[usize::from(*p)] == *negated { no } else { yes });
            }
            Statement::Loop { count, body } => {
                for _ in 0..frame.r[usize::from(*count)] & 3 {
                    match self.block(frame, body) {
                        End::Next => {}
                        End::Break => break,
                        End::Return => return End::Return,
                    }
                }
            }
            Statement::BreakIf { p, negated } if frame.p[usize::from(*p)] != *negated => return End::Break,
            Statement::Switch { on, cases } => return self.block(frame, &cases[(frame.r[usize::from(*on)] & 3) as usize]),
            Statement::ReturnIf { p, negated } if frame.p[usize::from(*p)] != *negated => return End::Return,
            // Guards that do not hold, and barriers: threads share nothing.
            _ => {}
        }
        End::Next
    }
}

impl Frame {
    /// Predicates from `first` on, and local memory.
    fn start(&mut self, first: usize) {
        for k in first..4 {
            self.p[k] = (self.r[k] as i32) < k as i32 * 3;
        }
        for k in 0..usize::from(PIECE) / 4 {
            put(&mut self.local, k * 4, &self.r[k].to_le_bytes());
        }
    }

    fn int(&self, source: Source) -> u32 {
        match source {
            Source::Register(n) => self.r[usize::from(n)],
            Source::Literal(n) => n,
        }
    }

    fn long(&self, source: Source) -> u64 {
        match source {
            Source::Register(n) => self.d[usize::from(n)],
            Source::Literal(n) => n.into(),
        }
    }

    fn single(&self, source: Source) -> f32 {
        let Source::Register(n) = source else { unreachable!("no literals") };
        self.f[usize::from(n)]
    }

    fn double(&self, source: Source) -> f64 {
        let Source::Register(n) = source else { unreachable!("no literals") };
        self.g[usize::from(n)]
    }

    /// A product and a sum that are rounded once.
    fn contracted(&mut self, double: bool, form: u16, registers: [u16; 4]) {
        let [d, a, b, c] = registers.map(usize::from);
        // The sign of the product, and of the other operand.
        let (minus, right, negated) = (form & 1 != 0, form & 2 != 0, form & 4 != 0);
        let product = if negated ^ (minus && right) { -1.0 } else { 1.0 };
        let other = if minus && !right { -1.0 } else { 1.0 };
        if double {
            self.g[d] = (product * self.g[a]).mul_add(self.g[b], other * self.g[c]);
        } else {
            let value = (product as f32 * self.f[a]).mul_add(self.f[b], other as f32 * self.f[c]);
            self.f[d] = if form & 8 == 0 { value } else { saturated(value) };
        }
    }

    /// A product and a sum that are rounded both, and the product's absolute value.
    fn kept(&mut self, double: bool, form: u16, registers: [u16; 5]) {
        let [d, e, a, b, c] = registers.map(usize::from);
        let (minus, right, negated) = (form & 1 != 0, form & 2 != 0, form & 4 != 0);
        if double {
            let product = self.g[a] * self.g[b];
            let (p, c) = (if negated { -product } else { product }, self.g[c]);
            let (x, y) = if right { (c, p) } else { (p, c) };
            self.g[d] = if minus { x - y } else { x + y };
            self.g[e] = product.abs();
        } else {
            let product = self.f[a] * self.f[b];
            let (p, c) = (if negated { -product } else { product }, self.f[c]);
            let (x, y) = if right { (c, p) } else { (p, c) };
            let value = if minus { x - y } else { x + y };
            self.f[d] = if form & 8 == 0 { value } else { saturated(value) };
            self.f[e] = product.abs();
        }
    }

    fn carries(&mut self, long: bool, steps: &[(Carry, u16, u16, u16)]) {
        let bits = if long { 64 } else { 32 };
        let all = if long { u64::MAX } else { u32::MAX.into() };
        let mut carry = 0;
        for (n, (kind, d, a, b)) in steps.iter().enumerate() {
            let read = |n: u16| if long { self.d[usize::from(n)] } else { self.r[usize::from(n)].into() };
            let (a, b) = (read(*a), read(*b));
            let product = u128::from(a) * u128::from(b);
            let (x, y, first) = match kind {
                Carry::Add => (a, b, 0),
                // The complement, and 1 where nothing is borrowed.
                Carry::Sub => (a, !b & all, 1),
                Carry::MadLow => ((product as u64) & all, read(0), 0),
                Carry::MadHigh => ((product >> bits) as u64, read(0), 0),
            };
            let sum = u128::from(x) + u128::from(y) + if n == 0 { first } else { carry };
            carry = sum >> bits;
            let value = sum as u64 & all;
            if long { self.d[usize::from(*d)] = value } else { self.r[usize::from(*d)] = value as u32 }
        }
    }
}

fn saturated(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}
