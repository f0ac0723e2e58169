//! Relocatable device code: what `nvcc -rdc=true` leaves for a linker on the device's side.
//!
//! The compiler puts one container for each source file beside the code that it has linked itself.
//! If it could not link (PTX alone), the container that programs register is empty, and a driver
//! joins the parts when the program starts. So does cumux, with the PTX of the parts; a part that
//! has machine code alone cannot be joined, and then this is why the program does not run.

use crate::{Image, ImageKind, images};
use std::fmt;

/// The most bytes of one text that are searched.
const TEXT_BYTES: u64 = 64 << 20;
/// A part of the names of the functions with which a kernel starts another kernel, in all versions
/// of NVIDIA's device runtime.
const LAUNCH: &str = "LaunchDevice";

/// What is known of a program's parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relocatable {
    /// The number of parts of the program itself. NVIDIA's device runtime, which is linked to all
    /// programs, does not count.
    pub parts: usize,
    /// What there is to link: `compute_75` for PTX, `sm_90` for machine code.
    pub architectures: Vec<String>,
    /// Each part has PTX, though perhaps not for every device.
    pub has_ptx: bool,
    /// What the compiler has linked already.
    pub linked: Vec<String>,
}

impl Relocatable {
    /// Reads the container that the program registers, and those of its parts. `None` if there are
    /// no parts.
    #[must_use]
    pub fn of(linked: &[u8], parts: &[&[u8]]) -> Option<Self> {
        let mut found = Self { linked: names(&images(linked).unwrap_or_default()), has_ptx: true, ..Self::default() };
        for part in parts {
            let Ok(images) = images(part) else { continue };
            let texts: Vec<String> = images.iter().filter(|image| image.kind == ImageKind::Ptx).filter_map(text).collect();
            if texts.iter().any(|text| defines_launch(text)) {
                continue;
            }
            found.has_ptx &= !texts.is_empty() || images.is_empty();
            found.parts += 1;
            found.architectures.extend(names(&images));
        }
        found.architectures.sort();
        found.architectures.dedup();
        (found.parts > 0).then_some(found)
    }
}

/// Whether these are the images of NVIDIA's device runtime.
pub(crate) fn is_device_runtime(images: &[Image<'_>]) -> bool {
    images.iter().filter(|image| image.kind == ImageKind::Ptx).filter_map(text).any(|text| defines_launch(&text))
}

fn text(image: &Image<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(&image.bytes(TEXT_BYTES).ok()?).into_owned())
}

/// Whether this is the device runtime: it has the bodies of what programs declare as `.extern`.
fn defines_launch(text: &str) -> bool {
    let declarations = text.match_indices(".func").filter(|(at, _)| {
        let rest = &text[*at..];
        // The result stands in parentheses before the name.
        let rest = rest.find(')').map_or(rest, |end| &rest[end..]);
        rest.split('(').next().is_some_and(|name| name.contains(LAUNCH))
    });
    let is_extern = |at: usize| text[..at].rsplit(['\n', ';', '}']).next().is_some_and(|line| line.contains(".extern"));
    declarations.map(|(at, _)| at).any(|at| !is_extern(at))
}

/// Architectures as the compiler's options name them.
fn names(images: &[Image<'_>]) -> Vec<String> {
    let mut names: Vec<String> = images.iter().filter_map(Image::architecture).collect();
    names.sort();
    names.dedup();
    names
}

impl Relocatable {
    /// Why this does not run, as a part of a sentence.
    #[must_use]
    pub fn why(&self) -> String {
        let parts = if self.parts == 1 { "1 part".to_owned() } else { format!("{} parts", self.parts) };
        let linked = match self.linked.as_slice() {
            [] => String::new(),
            linked => format!(", and nvcc has linked it for {} alone", linked.join(", ")),
        };
        let architectures = self.architectures.join(", ");
        let lacks = if self.has_ptx { "this device takes none of its PTX" } else { "not all of it is there as PTX" };
        format!("built with nvcc -rdc=true: its device code ({parts}: {architectures}) has to be linked on the device's side, and {lacks}{linked}")
    }

    /// What to do.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        "build all its parts with PTX that every device takes: nvcc -rdc=true -gencode arch=compute_75,code=compute_75"
    }
}

impl fmt::Display for Relocatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why(), self.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = ".version 9.0\n.target sm_75\n.address_size 64\n.extern .func  (.param .b32 r) _Z5twicei\n(\n.param .b32 x\n)\n;\n";
    const PARENT: &str =
        ".version 9.0\n.target sm_75\n.address_size 64\n.extern .func  (.param .b32 func_retval0) __cudaCDP2LaunchDeviceV2\n(\n.param .b64 x\n)\n;\n";
    const RUNTIME: &str =
        ".version 9.0\n.target sm_121\n.address_size 64\n.visible .func  (.param .b32 func_retval0) __cudaCDP2LaunchDeviceV2(\n.param .b64 x\n)\n{\nret;\n}\n";

    #[test]
    fn parts_are_counted_without_the_device_runtime() {
        let found = Relocatable::of(b"", &[CALLER.as_bytes(), CALLER.as_bytes(), RUNTIME.as_bytes(), b"\0 no image"]).unwrap();
        assert_eq!((found.parts, found.architectures.join(",").as_str()), (2, "compute_75"));
        let text = found.to_string();
        assert!(text.contains("-rdc=true: its device code (2 parts: compute_75) has to be linked on the device's side, and this device takes none"), "{text}");
        assert_eq!(Relocatable::of(b"", &[RUNTIME.as_bytes()]), None);
        assert_eq!(Relocatable::of(b"", &[]), None);
    }

    #[test]
    fn a_part_that_launches_kernels_is_not_the_device_runtime() {
        assert_eq!(Relocatable::of(b"", &[PARENT.as_bytes(), RUNTIME.as_bytes()]).unwrap().parts, 1);
    }
}
