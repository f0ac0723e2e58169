//! Lists the device code in the files named on the command line: containers, images, or whole
//! executables.

use cumux_fatbin::{Format, ImageKind, Result, best_ptx, identify, images, sections, total_len};
use std::process::ExitCode;

/// Enough for any image a compiler makes.
const LIMIT: u64 = 1 << 32;

fn list(data: &[u8]) -> Result<()> {
    println!("  {} bytes, length {:?}", data.len(), total_len(data)?);
    let found = images(data)?;
    for image in &found {
        let bytes = image.bytes(LIMIT)?;
        let hash = bytes.iter().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        let bare = match image.kind {
            ImageKind::Elf => images(&bytes)?.first().map(|inner| inner.arch),
            _ => None,
        };
        println!(
            "  {:?} sm_{} {:?} {:?} {:?} {} bytes, hash {hash:016x} {} {bare:?}",
            image.kind,
            image.arch,
            image.variant,
            image.version,
            image.compression,
            bytes.len(),
            image.name.unwrap_or(""),
        );
    }
    let best = best_ptx(&found, 90).map(|image| image.arch);
    println!("  for sm_90: {best:?}");
    Ok(())
}

fn file(data: &[u8]) -> Result<()> {
    if identify(data)? == Format::Elf {
        for section in sections(data)? {
            println!(" {} at {}", section.name, section.offset);
            if section.name != ".nvFatBinSegment" {
                list(section.data)?;
            }
        }
    }
    list(data)
}

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in std::env::args_os().skip(1) {
        println!("{}", path.display());
        let data = match std::fs::read(&path) {
            Ok(data) => data,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                code = ExitCode::FAILURE;
                continue;
            }
        };
        if let Err(error) = file(&data) {
            eprintln!("{}: {error}", path.display());
            code = ExitCode::FAILURE;
        }
    }
    code
}
