//! Shell scripts: what they must have to fail at the first error, and what the shells of all
//! machines understand. `sh -n` and shellcheck look at the rest in the tests.

use crate::yaml::Refusal;

/// Words of bash in a script for sh.
const BASH: [&str; 5] = ["[[", "function ", "<<<", "&>", "source "];

pub(super) fn check(text: &str) -> Result<(), Refusal> {
    if !text.starts_with("#!/bin/sh\n") {
        return Err(Refusal::new(1, "a script begins with #!/bin/sh"));
    }
    if !text.lines().any(|line| line == "set -eu") {
        return Err(Refusal::new(2, "a script needs \"set -eu\": it would go on after an error"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let code = if line.trim_start().starts_with('#') { "" } else { line };
        if let Some(word) = BASH.iter().find(|word| code.contains(*word)) {
            return Err(Refusal::new(number, format!("\"{}\" is not for /bin/sh", word.trim())));
        }
        // The daemon would take its own percentage for the default of all clients.
        if code.contains("nvidia-cuda-mps-control -d") && !before(text, number).any(|line| line.trim() == "unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") {
            return Err(Refusal::new(
                number,
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is to be unset before the daemon starts: it would be the ceiling of all clients",
            ));
        }
    }
    Ok(())
}

fn before(text: &str, line: usize) -> impl Iterator<Item = &str> {
    text.lines().take(line - 1)
}
