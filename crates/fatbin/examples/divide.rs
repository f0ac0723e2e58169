//! Writes the compiled images for one architecture that libraries and executables bring, whole
//! (`N.cubin`), as outlines (`N.outline`) and as excerpts of their first kernels (`N.K`), for
//! `benches/cu/announce.cu`. What is not divided is said with its reason.
//!
//! `divide FOLDER LIBRARY…`

use cumux_fatbin::cubin::{Division, Undivided};
use cumux_fatbin::{ImageKind, images, sections};
use std::path::Path;

/// That of an H100 and an H200.
const ARCHITECTURE: u32 = 90;
/// Kernels of an image that get an excerpt.
const EXCERPTS: usize = 4;
const LIMIT: u64 = 1 << 32;

fn write_parts(image: &[u8], stem: &Path) -> Result<(), Undivided> {
    let division = Division::read(image)?;
    let write =
        |extension: &str, part: &[u8]| std::fs::write(stem.with_extension(extension), part).unwrap_or_else(|error| panic!("{}: {error}", stem.display()));
    write("cubin", image);
    write("outline", &division.outline(image)?);
    for kernel in 0..division.functions().len().min(EXCERPTS) {
        write(&kernel.to_string(), &division.excerpt(image, kernel)?);
    }
    Ok(())
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().expect("divide FOLDER LIBRARY…");
    let mut number = 0;
    for path in arguments {
        let data = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for section in sections(&data).unwrap_or_default().into_iter().filter(|section| section.name != ".nvFatBinSegment") {
            for image in images(section.data).unwrap_or_default() {
                if image.kind != ImageKind::Elf || image.arch != ARCHITECTURE {
                    continue;
                }
                let Ok(bytes) = image.bytes(LIMIT) else { continue };
                if let Err(why) = write_parts(&bytes, &Path::new(&folder).join(number.to_string())) {
                    println!("image {number} of {} bytes is not divided: {why}", bytes.len());
                }
                number += 1;
            }
        }
    }
    println!("{number} images");
}
