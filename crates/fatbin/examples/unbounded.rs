//! Which kernels of a program or library are unbounded: `cargo run --release -p cumux-fatbin
//! --example unbounded -- FILE…` counts them by image.

use cumux_fatbin::calls::find_unbounded;
use cumux_fatbin::{ImageKind, containers, images, sections};

fn main() {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).expect("a file");
        let (mut read, mut with, mut names) = (0, 0, Vec::new());
        for section in sections(&bytes).unwrap_or_default() {
            let stored: Vec<_> = containers(section.data).into_iter().flat_map(|container| images(container).unwrap_or_default()).collect();
            for image in stored.iter().filter(|image| image.kind == ImageKind::Elf && image.architecture().as_deref() == Some("sm_90")) {
                let Ok(code) = image.bytes(1 << 30) else { continue };
                read += 1;
                let found = find_unbounded(&code);
                with += usize::from(!found.is_empty());
                names.extend(found.into_iter().filter(|(name, _)| !name.starts_with('$')));
            }
        }
        println!("{path}: {read} images for sm_90, {with} with unbounded functions, {} of them outside of kernels' sections", names.len());
        for (name, why) in names.iter().take(12) {
            println!("    {why:?} {name}");
        }
    }
}
