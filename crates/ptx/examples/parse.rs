//! Parses the PTX files named on the command line. Prints complaints, what was found, and the
//! speed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let mut failed = false;
    let mut bytes = 0usize;
    let mut spent = Duration::ZERO;
    for path in std::env::args_os().skip(1) {
        let source = match std::fs::read(&path) {
            Ok(source) => source,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                failed = true;
                continue;
            }
        };
        let start = Instant::now();
        let result = cumux_ptx::parse_bytes(&source);
        spent += start.elapsed();
        bytes += source.len();
        match result {
            Ok(module) => println!(
                "{}: {} functions, {} variables, {} instructions",
                path.display(),
                module.functions.len(),
                module.globals.len(),
                module.functions.iter().filter_map(|f| f.body.as_ref()).map(|body| body.instructions.len()).sum::<usize>(),
            ),
            Err(error) => {
                failed = true;
                let text = String::from_utf8_lossy(&source);
                eprintln!("{}:\n{}", path.display(), error.render(&text));
            }
        }
    }
    let rate = bytes as f64 / 1e6 / spent.as_secs_f64().max(1e-9);
    println!("{bytes} bytes in {spent:?}: {rate:.0} MB/s");
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
