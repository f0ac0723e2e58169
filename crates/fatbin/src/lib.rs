//! What a program hands to the driver as "module data", taken apart.
//!
//! CUDA programs carry their device code in *containers* (several may follow one another), each
//! with entries for some architectures: PTX text or a compiled image, plain or compressed. A
//! program may also pass a bare compiled image or bare PTX. [`images`] reads all three;
//! [`total_len`] says how many bytes belong to a pointer of which only the start is known;
//! [`Bundle`] is what a linker is given, as one image;
//! [`sections`] finds what is embedded in an executable file; [`pieces`] what a linker is given;
//! [`calls`] finds the kernels of a compiled image whose stack is unbounded;
//! [`cubin`] makes a compiled image use variables at addresses of the caller's; [`lines`] finds the
//! source line of an instruction.
//!
//! All input is hostile: nothing here panics, every length is checked before it is used, and
//! unpacking is bounded by the announced size and by a limit of the caller's.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

mod bundle;
mod container;
mod elf;
mod embedded;
mod error;
mod format;
mod image;
mod length;
mod linkable;
mod registers;
mod relocatable;
mod unpack;

pub mod calls;
pub mod cubin;
pub mod lines;
pub mod stacks;

pub use bundle::{Bundle, LinkInput};
pub use container::write_text;
pub use embedded::{EmbeddedSection, sections};
pub use error::{Error, Result};
pub use format::{CONTAINER_MAGIC, Format, WRAPPER_MAGIC, identify};
pub use image::{Image, ImageKind, Variant, best_compiled, best_ptx};
pub use length::{Length, total_len};
pub use linkable::{Code, Piece, Unlinked, check, containers, link, pieces, pieces_of_parts};
pub use registers::limit_registers;
pub use relocatable::Relocatable;
pub use unpack::Compression;

/// All images in module data, in order. Nothing is unpacked yet: see [`Image::bytes`].
pub fn images(bytes: &[u8]) -> Result<Vec<Image<'_>>> {
    match identify(bytes)? {
        Format::Container => container::read_images(bytes),
        Format::Elf => Ok(vec![image::bare_elf(bytes)?]),
        Format::Ptx => Ok(vec![image::bare_ptx(bytes)]),
        Format::Wrapper => Err(Error::IsWrapper),
    }
}
