//! Images: how many bytes a program means when it passes a bare pointer to a module image.
//!
//! The pointer comes from the program and is read as far as the image's own headers say, never
//! further. What is inside is judged by the executor, in another process.

use crate::ffi::{Try, error};
use core::ffi::{CStr, c_void};
use cumux_fatbin::Bundle;

/// `__fatBinC`, the wrapper that nvcc leaves in the program.
const WRAPPER: u32 = 0x466_243B1;
/// The container that a wrapper points to.
const CONTAINER: u32 = 0xBA55_ED50;
const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");
/// What our own linker leaves for a driver to link.
const BUNDLE: u32 = u32::from_le_bytes(*b"CUMU");
/// No image is larger; a claim beyond it is damage.
const LARGEST: usize = 4 << 30;

/// The version of a wrapper whose second pointer names parts that are to be linked.
const WITH_PARTS: u32 = 2;
/// Parts that are looked at: a list without an end is damage.
const MOST_PARTS: usize = 4096;

/// What a program passes as an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given<'a> {
    /// The image itself.
    pub bytes: &'a [u8],
    /// Relocatable device code that the image is linked from (`nvcc -rdc=true`), where the compiler
    /// has linked nothing that the device takes.
    pub parts: Vec<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for Given<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, parts: Vec::new() }
    }
}

/// Finds the bytes of an image: wrapper, container, ELF, bundle or PTX text.
///
/// # Safety
/// `image` points to an image that stays as it is while the result is used.
///
/// # Errors
/// INVALID_VALUE for a null pointer, INVALID_IMAGE for what is none.
pub unsafe fn given<'a>(image: *const c_void) -> Try<Given<'a>> {
    // SAFETY: the caller vouches for the image.
    let bytes = unsafe { bytes(image)? };
    // SAFETY: an image of at least four bytes, or text with a NUL.
    let parts = match unsafe { first_word(image.cast()) } {
        // SAFETY: its first word says that it is a wrapper, and the caller vouches for it.
        Some(WRAPPER) => unsafe { parts(image.cast()) },
        _ => Vec::new(),
    };
    Ok(Given { bytes, parts })
}

/// The containers in a wrapper's list, which ends with a null pointer.
///
/// # Safety
/// `wrapper` is one, as a compiler made it.
unsafe fn parts<'a>(wrapper: *const u8) -> Vec<&'a [u8]> {
    // SAFETY: a wrapper is 24 bytes: magic, version, data, other.
    let (version, list) = unsafe { (wrapper.add(4).cast::<u32>().read_unaligned(), wrapper.add(16).cast::<*const *const c_void>().read_unaligned()) };
    let mut found = Vec::new();
    if version != WITH_PARTS || list.is_null() {
        return found;
    }
    while found.len() < MOST_PARTS {
        // SAFETY: no entry before this one was null, and the list of a wrapper of this version ends
        // with one that is.
        let part = unsafe { list.add(found.len()).read_unaligned() };
        // SAFETY: each entry points to a container.
        match unsafe { bytes_of_container(part) } {
            Ok(container) => found.push(container),
            Err(_) => break,
        }
    }
    found
}

unsafe fn bytes<'a>(image: *const c_void) -> Try<&'a [u8]> {
    if image.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let image = image.cast::<u8>();
    // SAFETY: the shortest image is longer than four bytes, or text that ends with a NUL; text is
    // read byte by byte.
    let first = unsafe { first_word(image) };
    let length = match first {
        // SAFETY: a wrapper is 24 bytes: magic, version, data, other.
        Some(WRAPPER) => unsafe {
            let data = image.add(8).cast::<*const c_void>().read_unaligned();
            return if data == image.cast() { Err(error::INVALID_IMAGE) } else { bytes_of_container(data) };
        },
        // SAFETY: as below.
        Some(CONTAINER) => return unsafe { bytes_of_container(image.cast()) },
        // SAFETY: an ELF file starts with 64 bytes of header.
        Some(ELF) => unsafe { elf_length(image)? },
        // SAFETY: a bundle is longer than its first bytes, and text has a NUL.
        Some(BUNDLE) => unsafe { bundle_length(image) },
        // SAFETY: text is NUL-terminated.
        _ => unsafe { CStr::from_ptr(image.cast()) }.to_bytes().len(),
    };
    if length == 0 || length > LARGEST {
        return Err(error::INVALID_IMAGE);
    }
    // SAFETY: the image says it is that long.
    Ok(unsafe { core::slice::from_raw_parts(image, length) })
}

/// The first four bytes, unless a NUL comes earlier.
unsafe fn first_word(image: *const u8) -> Option<u32> {
    let mut word = [0; 4];
    for (index, byte) in word.iter_mut().enumerate() {
        // SAFETY: no byte before this one was NUL (or the image is binary and longer).
        *byte = unsafe { image.add(index).read() };
        if *byte == 0 {
            return None;
        }
    }
    Some(u32::from_le_bytes(word))
}

/// The length of a bundle, or of text that has the first letters of its name. 0 for a bundle that
/// says nonsense.
///
/// # Safety
/// `image` points to either.
unsafe fn bundle_length(image: *const u8) -> usize {
    let mut begin = [0; Bundle::SIZED];
    for (at, byte) in begin.iter_mut().enumerate() {
        // SAFETY: no byte of the name before this one was NUL, and behind the whole name is more.
        *byte = unsafe { image.add(at).read() };
        if Bundle::MAGIC.get(at).is_some_and(|own| own != byte) {
            // SAFETY: text is NUL-terminated.
            return unsafe { CStr::from_ptr(image.cast()) }.to_bytes().len();
        }
    }
    Bundle::length(&begin).and_then(|length| usize::try_from(length).ok()).unwrap_or(0)
}

unsafe fn bytes_of_container<'a>(container: *const c_void) -> Try<&'a [u8]> {
    if container.is_null() {
        return Err(error::INVALID_IMAGE);
    }
    let header = container.cast::<u8>();
    // SAFETY: a container has 16 bytes of header: magic, version, header size, payload size.
    let (magic, header_bytes, payload) =
        unsafe { (header.cast::<u32>().read_unaligned(), header.add(6).cast::<u16>().read_unaligned(), header.add(8).cast::<u64>().read_unaligned()) };
    let length = usize::try_from(payload).ok().and_then(|payload| payload.checked_add(usize::from(header_bytes)));
    match length {
        // SAFETY: the container says it is that long.
        Some(length) if magic == CONTAINER && header_bytes >= 16 && length <= LARGEST => Ok(unsafe { core::slice::from_raw_parts(header, length) }),
        _ => Err(error::INVALID_IMAGE),
    }
}

/// End of the last thing that an ELF file's headers name: header tables and section contents.
unsafe fn elf_length(image: *const u8) -> Try<usize> {
    // SAFETY: an ELF64 header is 64 bytes.
    let header = unsafe { core::slice::from_raw_parts(image, 64) };
    let word = |bytes: &[u8], at: usize, size: usize| -> u64 {
        bytes.get(at..at + size).map_or(0, |field| field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    if header.get(4) != Some(&2) {
        return Err(error::INVALID_IMAGE);
    }
    let (programs, sections) = (word(header, 32, 8), word(header, 40, 8));
    let (program_size, program_count) = (word(header, 54, 2), word(header, 56, 2));
    let (section_size, section_count) = (word(header, 58, 2), word(header, 60, 2));
    let section_end = sections.saturating_add(section_size * section_count);
    let mut end = 64.max(programs.saturating_add(program_size * program_count)).max(section_end);
    if sections != 0 && section_size >= 64 && section_end <= LARGEST as u64 {
        // SAFETY: the header says the section table is there.
        let table = unsafe { core::slice::from_raw_parts(image.add(sections as usize), (section_size * section_count) as usize) };
        for section in table.chunks_exact(section_size as usize) {
            const NO_BITS: u64 = 8;
            if word(section, 4, 4) != NO_BITS {
                end = end.max(word(section, 24, 8).saturating_add(word(section, 32, 8)));
            }
        }
    }
    usize::try_from(end).map_err(|_| error::INVALID_IMAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a program passes one that `cuLinkComplete` gave it, of which it knows no length.
    #[test]
    fn a_bundle_is_as_long_as_it_says() {
        let input = cumux_fatbin::LinkInput { kind: 1, name: "part", data: b"\0\x01 code \0 and more" };
        let mut image = Bundle { inputs: vec![input] }.write();
        let length = image.len();
        image.extend(b"\0what follows");
        // SAFETY: a whole bundle.
        assert_eq!(unsafe { given(image.as_ptr().cast()) }, Ok(Given::from(&image[..length])));
        for text in [c"CUMU", c"CUMULNK", c"CUMULNKx", c".version 8.0"] {
            // SAFETY: text with a NUL.
            assert_eq!(unsafe { given(text.as_ptr().cast()) }, Ok(Given::from(text.to_bytes())), "text ends with its NUL");
        }
    }

    fn container(payload: &[u8]) -> Vec<u8> {
        let mut all = CONTAINER.to_le_bytes().to_vec();
        all.extend(1_u16.to_le_bytes());
        all.extend(16_u16.to_le_bytes());
        all.extend((payload.len() as u64).to_le_bytes());
        all.extend(payload);
        all
    }

    #[test]
    fn every_kind_is_measured_by_its_own_headers() {
        let text = b".version 8.0\0rest";
        let whole = container(b"payload");
        let mut longer = whole.clone();
        longer.extend(b"something else");
        let mut wrapper = WRAPPER.to_le_bytes().to_vec();
        wrapper.extend(1_u32.to_le_bytes());
        wrapper.extend((longer.as_ptr() as u64).to_le_bytes());
        wrapper.extend(0_u64.to_le_bytes());
        // SAFETY: images as described.
        unsafe {
            assert_eq!(bytes(text.as_ptr().cast()), Ok(&b".version 8.0"[..]));
            assert_eq!(bytes(longer.as_ptr().cast()), Ok(&whole[..]));
            assert_eq!(bytes(wrapper.as_ptr().cast()), Ok(&whole[..]));
            assert_eq!(bytes(core::ptr::null()), Err(error::INVALID_VALUE));
            assert_eq!(bytes(c"".as_ptr().cast()), Err(error::INVALID_IMAGE));
        }
    }

    #[test]
    fn a_wrapper_names_the_parts_that_are_to_be_linked() {
        let (empty, first, second) = (container(b""), container(b"first"), container(b"second"));
        let mut list = [first.as_ptr(), second.as_ptr(), core::ptr::null()];
        let wrapper = |version: u32, list: *const *const u8| {
            let mut wrapper = WRAPPER.to_le_bytes().to_vec();
            wrapper.extend(version.to_le_bytes());
            wrapper.extend((empty.as_ptr().expose_provenance() as u64).to_le_bytes());
            wrapper.extend((list.expose_provenance() as u64).to_le_bytes());
            wrapper
        };
        // SAFETY: wrappers as described.
        unsafe {
            let found = given(wrapper(2, list.as_ptr()).as_ptr().cast()).unwrap();
            assert_eq!((found.bytes, found.parts), (&empty[..], vec![&first[..], &second[..]]));
            assert_eq!(given(wrapper(1, list.as_ptr()).as_ptr().cast()).unwrap().parts.len(), 0, "there the second pointer is a file's name");
            assert_eq!(given(wrapper(2, core::ptr::null()).as_ptr().cast()).unwrap().parts.len(), 0);
            list[1] = b"no container at all".as_ptr();
            assert_eq!(given(wrapper(2, list.as_ptr()).as_ptr().cast()).unwrap().parts.len(), 1);
            assert_eq!(given(first.as_ptr().cast()), Ok(Given::from(&first[..])));
        }
    }

    #[test]
    fn an_elf_file_ends_where_its_last_content_or_table_ends() {
        let mut file = vec![0_u8; 64];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        file[40..48].copy_from_slice(&64_u64.to_le_bytes());
        file[58..60].copy_from_slice(&64_u16.to_le_bytes());
        file[60..62].copy_from_slice(&1_u16.to_le_bytes());
        let mut section = vec![0_u8; 64];
        section[24..32].copy_from_slice(&200_u64.to_le_bytes());
        section[32..40].copy_from_slice(&56_u64.to_le_bytes());
        file.extend(section);
        file.resize(300, 0);
        // SAFETY: the image above.
        assert_eq!(unsafe { bytes(file.as_ptr().cast()) }.map(<[u8]>::len), Ok(256));
        // Program headers behind everything, as some compilers write them.
        file[32..40].copy_from_slice(&260_u64.to_le_bytes());
        file[54..56].copy_from_slice(&40_u16.to_le_bytes());
        file[56..58].copy_from_slice(&1_u16.to_le_bytes());
        // SAFETY: the image above.
        assert_eq!(unsafe { bytes(file.as_ptr().cast()) }.map(<[u8]>::len), Ok(300));
    }
}
