//! What the compiled images in libraries and executables expect of memory: one line for each kind
//! of finding.

use cumux_fatbin::cubin::{Cubin, Literals};
use cumux_fatbin::{ImageKind, images, sections};
use std::collections::BTreeMap;

const LIMIT: u64 = 1 << 32;

fn main() {
    for path in std::env::args_os().skip(1) {
        let Ok(data) = std::fs::read(&path) else { continue };
        let mut lines: BTreeMap<String, u64> = BTreeMap::new();
        let embedded: Vec<&[u8]> =
            sections(&data).map(|found| found.into_iter().filter(|s| s.name != ".nvFatBinSegment").map(|s| s.data).collect()).unwrap_or_default();
        for part in if embedded.is_empty() { vec![&data[..]] } else { embedded } {
            for image in images(part).unwrap_or_default() {
                if image.kind != ImageKind::Elf {
                    continue;
                }
                let Ok(bytes) = image.bytes(LIMIT) else { continue };
                let line = match Cubin::read(&bytes) {
                    Err(obstacle) => format!("ERROR {obstacle}"),
                    Ok(cubin) => {
                        let placed = cubin.place(&mut bytes.to_vec(), &vec![0x1234_5678_9a00; cubin.blocks.len()], Literals::Placed);
                        let variables = cubin.variables.iter().filter(|v| !v.literal).count();
                        let bits = (cubin.blocks.len(), variables > 0, cubin.constant_bytes > 0, cubin.allocates, cubin.address_taken.is_some());
                        format!(
                            "sm_{} blocks {} variables {} constants {} heap {} addresses {}: {}",
                            image.arch,
                            bits.0,
                            bits.1,
                            bits.2,
                            bits.3,
                            bits.4,
                            placed.map_or_else(|o| o.to_string().chars().take(150).collect(), |()| "placed".to_owned())
                        )
                    }
                };
                *lines.entry(line).or_default() += 1;
            }
        }
        println!("{}", path.display());
        for (line, count) in lines {
            println!("  {count:6} {line}");
        }
    }
}
