//! One image: PTX text or compiled code for one architecture.

use crate::elf;
use crate::error::Result;
use crate::unpack::{self, Compression};
use object::{Object as _, ObjectSection as _};
use std::borrow::Cow;

/// Machine code that is looked into is no larger.
const MOST_BYTES: u64 = 1 << 30;

/// What an image contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// PTX text.
    Ptx,
    /// Compiled for one architecture.
    Elf,
    /// Something else, such as intermediate code for link-time optimisation.
    Other(u16),
}

impl ImageKind {
    pub(crate) fn from_number(number: u16) -> Self {
        match number {
            1 => Self::Ptx,
            2 => Self::Elf,
            other => Self::Other(other),
        }
    }
}

/// How far an architecture's code reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// `sm_90`: PTX for this architecture and all later ones, compiled code for this major version.
    Any,
    /// `sm_90a`: this architecture only.
    Exact,
    /// `sm_100f`: this architecture and later ones of its family.
    Family,
}

/// An image, still packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image<'a> {
    /// What the image contains.
    pub kind: ImageKind,
    /// Compute capability as one number: 90 for 9.0. 0 if a bare image does not say.
    pub arch: u32,
    /// On which other architectures it runs.
    pub variant: Variant,
    /// Format version of the image: the PTX version for PTX. (0, 0) for bare images.
    pub version: (u16, u16),
    /// The entry's flags as they are written; 0 for bare images.
    pub flags: u64,
    /// How the bytes are packed.
    pub compression: Compression,
    /// Bytes after unpacking, as announced.
    pub size: u64,
    /// The source file's name, if the compiler left it.
    pub name: Option<&'a str>,
    /// What the compiler was told and the one that compiles this PTX is to be told; empty if
    /// nothing.
    pub options: &'a str,
    /// Where the entry begins in the data.
    pub at: u64,
    /// The bytes as they lie in the data.
    pub stored: &'a [u8],
}

impl<'a> Image<'a> {
    /// The unpacked bytes, at most `limit`. PTX comes without the zeros that pad it.
    pub fn bytes(&self, limit: u64) -> Result<Cow<'a, [u8]>> {
        let mut bytes = unpack::unpack(&unpack::Packed { at: self.at, compression: self.compression, stored: self.stored, size: self.size }, limit)?;
        if self.kind == ImageKind::Ptx {
            let end = trimmed_len(&bytes);
            match &mut bytes {
                Cow::Borrowed(slice) => *slice = &slice[..end],
                Cow::Owned(vec) => vec.truncate(end),
            }
        }
        Ok(bytes)
    }

    /// The value of a compiler option by its name without dashes: `32` for `-maxrregcount=32` and
    /// for `--maxrregcount 32`. `None` if it is not given.
    #[must_use]
    pub fn compiler_option(&self, name: &str) -> Option<&'a str> {
        let mut words = self.options.split_whitespace();
        while let Some(word) = words.next() {
            let Some(word) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
            if word == name {
                return Some(words.next().unwrap_or_default());
            }
            if let Some(value) = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
        }
        None
    }

    /// Can a device of this compute capability run the image? (For PTX: compile it.)
    pub fn runs_on(&self, device: u32) -> bool {
        let same_major = self.arch / 10 == device / 10;
        match (self.variant, self.kind) {
            (Variant::Exact, _) => self.arch == device,
            (Variant::Family, _) => same_major && self.arch <= device,
            (Variant::Any, ImageKind::Ptx) => self.arch <= device,
            (Variant::Any, _) => same_major && self.arch <= device,
        }
    }

    /// What it is for, as the compiler's options name it: `compute_100a` for PTX, `sm_90` for
    /// compiled code. `None` for images of other kinds.
    #[must_use]
    pub fn architecture(&self) -> Option<String> {
        let kind = match self.kind {
            ImageKind::Ptx => "compute",
            ImageKind::Elf => "sm",
            ImageKind::Other(_) => return None,
        };
        let variant = match self.variant {
            Variant::Any => "",
            Variant::Exact => "a",
            Variant::Family => "f",
        };
        Some(format!("{kind}_{}{variant}", self.arch))
    }

    /// Whether there is anything to run in the image. The compiler's linker leaves machine code
    /// without a function in programs that have nothing to link.
    #[must_use]
    pub fn has_code(&self) -> bool {
        if self.kind != ImageKind::Elf {
            return true;
        }
        let Ok(bytes) = self.bytes(MOST_BYTES) else { return true };
        let Ok(file) = object::File::parse(&*bytes) else { return true };
        file.sections().any(|section| section.name_bytes().is_ok_and(|name| name.starts_with(b".text")))
    }

    /// More specific is better: the newer architecture, then the narrower variant.
    fn rank(&self) -> (u32, u8) {
        let variant = match self.variant {
            Variant::Any => 0,
            Variant::Family => 1,
            Variant::Exact => 2,
        };
        (self.arch, variant)
    }
}

/// The PTX that suits a device of this compute capability (90 for 9.0) best.
pub fn best_ptx<'i, 'a>(images: &'i [Image<'a>], device: u32) -> Option<&'i Image<'a>> {
    best_of_kind(images, ImageKind::Ptx, device)
}

/// The compiled image that suits a device of this compute capability best.
pub fn best_compiled<'i, 'a>(images: &'i [Image<'a>], device: u32) -> Option<&'i Image<'a>> {
    best_of_kind(images, ImageKind::Elf, device)
}

fn best_of_kind<'i, 'a>(images: &'i [Image<'a>], kind: ImageKind, device: u32) -> Option<&'i Image<'a>> {
    images.iter().filter(|image| image.kind == kind && image.runs_on(device)).max_by_key(|image| image.rank())
}

/// Length without the zeros at the end.
fn trimmed_len(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn bare_image(bytes: &[u8], kind: ImageKind) -> Image<'_> {
    Image {
        kind,
        arch: 0,
        variant: Variant::Any,
        version: (0, 0),
        flags: 0,
        compression: Compression::None,
        size: bytes.len() as u64,
        name: None,
        options: "",
        at: 0,
        stored: bytes,
    }
}

/// Bare PTX ends at its zero byte, if there is one. The architecture is read from `.target`.
pub(crate) fn bare_ptx(bytes: &[u8]) -> Image<'_> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let mut image = bare_image(&bytes[..end], ImageKind::Ptx);
    if let Some((arch, variant)) = read_target(image.stored) {
        image.arch = arch;
        image.variant = variant;
    }
    image
}

pub(crate) fn bare_elf(bytes: &[u8]) -> Result<Image<'_>> {
    let mut image = bare_image(bytes, ImageKind::Elf);
    image.arch = elf::read_arch(bytes)?;
    Ok(image)
}

/// The architecture that a PTX text names in `.target sm_90a`.
fn read_target(text: &[u8]) -> Option<(u32, Variant)> {
    let key = b".target";
    let line = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| line.starts_with(key))?;
    let name = line[key.len()..].trim_ascii_start().strip_prefix(b"sm_")?;
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let arch = std::str::from_utf8(&name[..digits]).ok()?.parse().ok()?;
    let variant = match name.get(digits) {
        Some(b'a') => Variant::Exact,
        Some(b'f') => Variant::Family,
        _ => Variant::Any,
    };
    Some((arch, variant))
}
