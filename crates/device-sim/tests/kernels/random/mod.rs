//! Random programs on the software GPU and in a reference that runs one thread after another.
//!
//! The programs have what nvcc emits: arithmetic of all widths, products and sums that ptxas
//! contracts, chains of carries, loops, branches and switches in which lanes part, calls of
//! functions and through pointers with predicates as arguments and results, and shared variables of
//! the kernel, of functions and of the module.
//!
//! More are tried by
//! `CUMUX_RANDOM_PROGRAMS=10000 cargo nextest run -p cumux-device-sim --test kernels random`.

mod program;
mod reference;
mod tables;

use crate::common::Loaded;
use program::{DOUBLES, INTS, LONGS, Maker, PIECE, PREDICATES, SINGLES, THREADS};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

/// Where a thread's registers lie in its part of the buffer, before and after.
pub const fn at_int(n: u16) -> usize {
    4 * n as usize
}
pub const fn at_single(n: u16) -> usize {
    at_int(INTS) + 4 * n as usize
}
pub const fn at_predicate(n: u16) -> usize {
    at_single(SINGLES) + 4 * n as usize
}
pub const fn at_long(n: u16) -> usize {
    at_predicate(PREDICATES).next_multiple_of(8) + 8 * n as usize
}
pub const fn at_double(n: u16) -> usize {
    at_long(LONGS) + 8 * n as usize
}
/// Memory that statements read and write.
pub const PIECE_AT: usize = at_double(DOUBLES);
/// Bytes of a thread's part.
pub const BYTES: usize = PIECE_AT + PIECE as usize;

/// Blocks of the grid.
const BLOCKS: u32 = 2;

/// Programs that are tried.
const PROGRAMS: u32 = 250;

/// The threads' inputs: what often goes wrong, and what a simple generator gives.
fn inputs(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let singles = [0.0, -0.0, 1.0, -1.5, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE / 2.0, 3.402e38, 1.000_244_1, 16_777_216.0];
    let doubles = [0.0, -0.0, 1.0, f64::NEG_INFINITY, f64::NAN, 1.000_000_007_450_580_6, 1e300, 5e-324, 4_294_967_296.5];
    let ints = [0, 1, 2, 3, u32::MAX, 0x8000_0000, 0x7fff_ffff];
    let mut buffer = vec![0; (BLOCKS * THREADS) as usize * BYTES];
    for part in buffer.chunks_exact_mut(BYTES) {
        for k in 0..INTS {
            let n = next();
            let value = ints.get((n % 14) as usize).copied().unwrap_or((n >> 32) as u32);
            part[at_int(k)..][..4].copy_from_slice(&value.to_le_bytes());
        }
        for k in 0..LONGS {
            let n = next();
            let value = if n % 3 == 0 { u64::from((n >> 40) as u8).wrapping_neg() } else { n };
            part[at_long(k)..][..8].copy_from_slice(&value.to_le_bytes());
        }
        for k in 0..SINGLES {
            let n = next();
            let value = singles.get((n % 24) as usize).copied().unwrap_or((n >> 40) as f32 / 65536.0 - 100.0);
            part[at_single(k)..][..4].copy_from_slice(&value.to_le_bytes());
        }
        for k in 0..DOUBLES {
            let n = next();
            let value = doubles.get((n % 24) as usize).copied().unwrap_or((n >> 20) as f64 / 65536.0 - 100.0);
            part[at_double(k)..][..8].copy_from_slice(&value.to_le_bytes());
        }
        for k in 0..PIECE as usize {
            part[PIECE_AT + k] = next() as u8;
        }
    }
    buffer
}

/// The first difference between two results; all NaN are one.
fn find_difference(got: &[u8], wanted: &[u8]) -> Option<String> {
    for (thread, (got, wanted)) in got.chunks_exact(BYTES).zip(wanted.chunks_exact(BYTES)).enumerate() {
        let word = |of: &[u8], at: usize| u32::from_le_bytes(of[at..at + 4].try_into().expect("a word"));
        let long = |of: &[u8], at: usize| u64::from_le_bytes(of[at..at + 8].try_into().expect("two words"));
        let mut found = Vec::new();
        for k in 0..INTS {
            let at = at_int(k);
            found.push((format!("%r{k}"), u64::from(word(got, at)), u64::from(word(wanted, at)), false));
        }
        for k in 0..SINGLES {
            let (a, b) = (word(got, at_single(k)), word(wanted, at_single(k)));
            found.push((format!("%f{k}"), a.into(), b.into(), f32::from_bits(a).is_nan() && f32::from_bits(b).is_nan()));
        }
        for k in 0..PREDICATES {
            let at = at_predicate(k);
            found.push((format!("%p{k}"), word(got, at).into(), word(wanted, at).into(), false));
        }
        for k in 0..LONGS {
            found.push((format!("%d{k}"), long(got, at_long(k)), long(wanted, at_long(k)), false));
        }
        for k in 0..DOUBLES {
            let (a, b) = (long(got, at_double(k)), long(wanted, at_double(k)));
            found.push((format!("%g{k}"), a, b, f64::from_bits(a).is_nan() && f64::from_bits(b).is_nan()));
        }
        for k in 0..PIECE as usize / 4 {
            let at = PIECE_AT + 4 * k;
            found.push((format!("memory at {}", 4 * k), word(got, at).into(), word(wanted, at).into(), false));
        }
        if let Some((name, a, b, _)) = found.into_iter().find(|(_, a, b, both_nan)| a != b && !both_nan) {
            return Some(format!("thread {thread}: {name} is {a:#x}, should be {b:#x}"));
        }
    }
    None
}

/// Runs a program on both, and says how they differ.
fn try_program(numbers: &[u16], seed: u64) -> Result<(), String> {
    let program = Maker::program(numbers);
    let text = program::print(&program);
    let mut wanted = inputs(seed);
    let mut loaded = Loaded::new(&text).map_err(|error| format!("{error}\n{text}"))?;
    let address = loaded.memory.allocate(&wanted);
    if let Some(refusal) = &loaded.linked.program().kernels[0].refused {
        return Err(format!("{refusal}\n{text}"));
    }
    reference::run(&program, &mut wanted);
    let run = loaded.run("kernel", [BLOCKS, 1, 1], [THREADS, 1, 1], 0, address.to_le_bytes().to_vec());
    run.map_err(|fault| format!("{fault}\n{text}"))?;
    match find_difference(&loaded.memory.read(address), &wanted) {
        Some(difference) => Err(format!("{difference}\n{text}")),
        None => Ok(()),
    }
}

#[test]
fn random_programs_do_what_the_reference_does() {
    let cases = std::env::var("CUMUX_RANDOM_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(PROGRAMS);
    let mut runner = TestRunner::new(Config { cases, max_shrink_iters: 20_000, failure_persistence: None, ..Config::default() });
    let numbers = proptest::collection::vec(any::<u16>(), 0..900);
    let outcome = runner.run(&(numbers, any::<u64>()), |(numbers, seed)| try_program(&numbers, seed).map_err(TestCaseError::fail));
    // The numbers say nothing that the text does not say.
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}
