//! `ptxas`, as compilers find it under `cumux run` on software GPUs: what it makes is no machine
//! code but the PTX that it was given, in a container that says how to compile it.
//!
//! Triton and XLA start NVIDIA's `ptxas` as a program of its own, and load what it has written. The
//! stand-in takes the options of CUDA's manual (*NVIDIA CUDA Compiler Driver, ptxas options*).
//! Those that change results or registers go into the container; others are taken and do nothing.
//! A text that the software GPU does not understand ends as one that `ptxas` does not.

use crate::say;
use anyhow::{Context as _, bail};
use cumux_device_sim::lower;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// The name under which compilers look for it.
pub const NAME: &str = "ptxas";

/// The toolkit whose PTX the software GPU knows. Compilers read it to choose a version of PTX, and
/// keep what they have compiled apart by the whole text.
const VERSION: &str = "ptxas of cumux: its output is PTX, for software GPUs alone\nCuda compilation tools, release 13.0, V13.0.88\n";

/// Options whose value may be the next word.
const WITH_VALUE: &[&str] = &[
    "o",
    "output-file",
    "arch",
    "gpu-name",
    "O",
    "opt-level",
    "maxrregcount",
    "fmad",
    "e",
    "entry",
    "m",
    "machine",
    "input-as-string",
    "options-file",
    "optf",
    "def-load-cache",
    "dlcm",
    "def-store-cache",
    "dscm",
    "force-load-cache",
    "flcm",
    "force-store-cache",
    "fscm",
    "split-compile",
    "Ofast-compile",
    "Ofc",
];

/// Exit status of `ptxas` where the text is wrong.
const WRONG_TEXT: u8 = 255;

/// What a command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    inputs: Vec<PathBuf>,
    output: Option<PathBuf>,
    /// Compute capability: 90 for `sm_90a`.
    arch: u32,
    /// For the container, as compilers write them.
    options: Vec<String>,
    version: bool,
    /// An object is wanted that a linker takes.
    to_be_linked: bool,
}

/// Writes the container and returns the exit status.
pub fn main(arguments: Vec<OsString>) -> anyhow::Result<u8> {
    let asked = read(arguments)?;
    if asked.version {
        say::text(VERSION)?;
        return Ok(0);
    }
    if asked.to_be_linked {
        bail!(
            "ptxas for software GPUs makes no objects to be linked (-c): compile for PTX (nvcc -gencode arch=compute_75,code=compute_75), or set CUMUX_COMPILERS=0 to use NVIDIA's ptxas"
        );
    }
    let [input] = asked.inputs.as_slice() else { bail!("ptxas for software GPUs takes one file of PTX, and {} were named", asked.inputs.len()) };
    let shown = input.display();
    let text = fs::read(input).with_context(|| format!("cannot read {shown}"))?;
    let text = String::from_utf8(text).ok().with_context(|| format!("{shown} is no PTX: it has bytes that are no text"))?;
    let text = text.trim_end_matches('\0');
    if let Err(error) = lower::compile(text) {
        say::complain(format_args!("ptxas {shown}, {error}\nptxas fatal   : Ptx assembly aborted due to errors"));
        return Ok(WRONG_TEXT);
    }
    let image = cumux_fatbin::write_text(text.as_bytes(), asked.arch, &asked.options.join(" "))?;
    let output = asked.output.unwrap_or_else(|| "elf.o".into());
    fs::write(&output, image).with_context(|| format!("cannot write {}", output.display()))?;
    Ok(0)
}

/// Reads a command line.
fn read(arguments: Vec<OsString>) -> anyhow::Result<Asked> {
    let mut asked = Asked::default();
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        let Some(option) = word.to_str().and_then(|text| text.strip_prefix("--").or_else(|| text.strip_prefix('-'))).filter(|name| !name.is_empty()) else {
            asked.inputs.push(word.into());
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            // -O3
            None if option.len() == 2 && option.starts_with('O') => ("O", Some(OsString::from(&option[1..]))),
            None if WITH_VALUE.contains(&option) => (option, Some(words.next().with_context(|| format!("ptxas: -{option} needs a value"))?)),
            None => (option, None),
        };
        let number = || value.as_ref().and_then(|value| value.to_str()?.parse::<u32>().ok());
        match name {
            "o" | "output-file" => asked.output = value.map(PathBuf::from),
            "arch" | "gpu-name" => asked.arch = value.as_ref().and_then(|value| capability(value.to_str()?)).unwrap_or_default(),
            "maxrregcount" => asked.options.extend(number().map(|most| format!("-maxrregcount={most}"))),
            "fmad" if value.as_ref().is_some_and(|value| value == "false") => asked.options.push("--fmad=false".to_owned()),
            "O" | "opt-level" if number() == Some(0) => asked.options.push("-O0".to_owned()),
            "g" | "device-debug" => asked.options.push("-O0".to_owned()),
            "V" | "version" => asked.version = true,
            "c" | "compile-only" => asked.to_be_linked = true,
            _ => {}
        }
    }
    asked.options.dedup();
    Ok(asked)
}

/// 90 for `sm_90a`.
fn capability(name: &str) -> Option<u32> {
    let number = name.strip_prefix("sm_").or_else(|| name.strip_prefix("compute_"))?;
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    number[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Asked {
        read(line.split_whitespace().map(OsString::from).collect()).unwrap()
    }

    #[test]
    fn command_lines_of_compilers_are_understood() {
        let triton = asked("-lineinfo --fmad=false -v --opt-level 0 --gpu-name=sm_90a /tmp/a.ptx -o /tmp/a.ptx.o");
        let named = |text: &str| PathBuf::from(text);
        let expected = Asked {
            inputs: vec![named("/tmp/a.ptx")],
            output: Some(named("/tmp/a.ptx.o")),
            arch: 90,
            options: vec!["--fmad=false".to_owned(), "-O0".to_owned()],
            ..Asked::default()
        };
        assert_eq!(triton, expected);
        let xla = asked("/tmp/a.ptx -o /tmp/a.cubin -arch=sm_120 --warn-on-spills -maxrregcount=32 -O3");
        assert_eq!((xla.arch, xla.options, xla.inputs), (120, vec!["-maxrregcount=32".to_owned()], vec![named("/tmp/a.ptx")]));
        assert_eq!(asked("-g -O0 -arch sm_75 a.ptx").options, ["-O0"]);
        assert!(asked("--version").version && asked("-c a.ptx").to_be_linked);
        assert!(read(vec!["-o".into()]).is_err());
    }
}
