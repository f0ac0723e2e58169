//! Runs one kernel of a PTX file without the service around it.
//!
//! `ptx_run FILE` prints the kernels of the file and what they need, or why they are refused.
//!
//! `ptx_run FILE KERNEL GRID BLOCK SHARED ARG…` runs a kernel. Sizes are `X,Y,Z`. Arguments are
//! `u32:5`, `u64:7`, `f32:1.5`, `f64:2`, `in:FILE` (a buffer with these bytes), `zero:BYTES`,
//! `check:FILE` (a zeroed buffer that must hold these bytes in the end), and `dump:BYTES` (a buffer
//! printed as 32-bit words).

#[path = "../tests/common/mod.rs"]
mod common;

use std::process::ExitCode;

fn three(text: &str) -> [u32; 3] {
    let mut out = [1; 3];
    for (into, word) in out.iter_mut().zip(text.split(',')) {
        *into = word.parse().unwrap_or(1);
    }
    out
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [file] = words.as_slice() {
        return list(file);
    }
    let [file, kernel, grid, block, shared, arguments @ ..] = words.as_slice() else {
        eprintln!("usage: ptx_run FILE KERNEL GRID BLOCK SHARED ARG...");
        return ExitCode::from(2);
    };
    match run(file, kernel, three(grid), three(block), shared.parse().unwrap_or(0), arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn list(file: &str) -> ExitCode {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{file}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let started = std::time::Instant::now();
    match cumux_device_sim::lower::compile(&text) {
        Ok(program) => {
            println!("lowered in {:?}", started.elapsed());
            for kernel in &program.kernels {
                let refused = kernel.refused.as_ref().map_or_else(String::new, |refusal| format!(": {refusal}"));
                let (registers, shared, local) = (kernel.registers, kernel.static_shared, kernel.local_bytes);
                println!("{}: {registers} registers, {shared} bytes shared, {local} local, repeatable {}{refused}", kernel.name, kernel.repeatable);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{file}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(file: &str, kernel: &str, grid: [u32; 3], block: [u32; 3], shared: u32, arguments: &[String]) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let mut loaded = common::Loaded::new(&text)?;
    let program = loaded.linked.program().clone();
    let index = program.kernel(kernel).ok_or_else(|| format!("no kernel {kernel}"))?;
    let info = &program.kernels[index];
    if let Some(refusal) = &info.refused {
        return Err(refusal.to_string());
    }
    let mut parameters = vec![0; info.parameter_bytes as usize];
    let mut checks = Vec::new();
    for (argument, parameter) in arguments.iter().zip(&info.parameters) {
        let (kind, rest) = argument.split_once(':').ok_or_else(|| format!("what is {argument}?"))?;
        let read = |path: &str| std::fs::read(path).map_err(|error| format!("{path}: {error}"));
        let number = || rest.parse::<i128>().map_err(|error| format!("{rest}: {error}"));
        let bits = match kind {
            "u32" | "u64" => number()? as u64,
            "f32" => rest.parse::<f32>().map_err(|e| e.to_string())?.to_bits().into(),
            "f64" => rest.parse::<f64>().map_err(|e| e.to_string())?.to_bits(),
            "in" => loaded.memory.allocate(&read(rest)?),
            "zero" => loaded.memory.allocate(&vec![0; number()? as usize]),
            "dump" => {
                let address = loaded.memory.allocate(&vec![0; number()? as usize]);
                checks.push((address, None));
                address
            }
            "check" => {
                let expected = read(rest)?;
                let address = loaded.memory.allocate(&vec![0; expected.len()]);
                checks.push((address, Some(expected)));
                address
            }
            _ => return Err(format!("what is {argument}?")),
        };
        let (from, bytes) = (parameter.offset as usize, parameter.bytes as usize);
        parameters[from..from + bytes.min(8)].copy_from_slice(&bits.to_le_bytes()[..bytes.min(8)]);
    }
    let started = std::time::Instant::now();
    let result = loaded.run(kernel, grid, block, shared, parameters);
    print!("{}", String::from_utf8_lossy(&loaded.host.printed));
    let executed = result.map_err(|fault| fault.to_string())?;
    eprintln!("{executed} warp instructions in {:?}; {} registers", started.elapsed(), info.registers);
    let mut wrong = 0;
    for (address, expected) in checks {
        let got = loaded.memory.read(address);
        let Some(expected) = expected else {
            println!("{:08x?}", got.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect::<Vec<_>>());
            continue;
        };
        for (n, (got, expected)) in got.chunks(8).zip(expected.chunks(8)).enumerate() {
            if got != expected {
                wrong += 1;
                if wrong <= 10 {
                    eprintln!("word {n}: {got:02x?}, expected {expected:02x?}");
                }
            }
        }
    }
    if wrong > 0 { Err(format!("{wrong} words differ")) } else { Ok(()) }
}
