//! What a linker is given: PTX, taken out of texts, containers, object files and libraries.
//!
//! A piece of device code that has no PTX for the device is a piece, too: whoever links says which
//! one it is, and what it has instead. NVIDIA's device runtime is left out: programs are linked
//! with it in any case, and its functions are the device's business.

use crate::relocatable::is_device_runtime;
use crate::{Error, Format, ImageKind, Length, Result, best_ptx, elf, identify, images, sections, total_len};
use cumux_ptx::link::{Fault, Input};
use object::read::archive::ArchiveFile;

/// Largest text that is unpacked.
const TEXT_BYTES: u64 = 256 << 20;
/// Begins a library (`ar`).
const ARCHIVE: &[u8] = b"!<arch>\n";

/// A piece of device code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// What complaints call it.
    pub name: String,
    /// It is a member of a library: it is taken if others need what it defines.
    pub optional: bool,
    /// The code.
    pub code: Code,
}

/// The code of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// PTX that the device takes.
    Ptx(String),
    /// Nothing that can be linked: what there is instead, as the compiler's options name it
    /// (`sm_90`).
    Other(Vec<String>),
}

/// Why pieces are not linked: a line for each reason, as a linker writes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unlinked {
    /// Some have no PTX for the device.
    #[error("{}", lines(.0))]
    NoPtx(Vec<String>),
    /// Some are not PTX, though they should be.
    #[error("{}", lines(.0))]
    NotPtx(Vec<String>),
    /// Names are missing, or there twice, or do not match.
    #[error("{}", lines(.0))]
    Faults(Vec<String>),
}

fn lines(reasons: &[String]) -> String {
    reasons.iter().map(|reason| format!("error   : {reason}")).collect::<Vec<_>>().join("\n")
}

/// Makes one text of pieces.
///
/// # Errors
/// All that stands in the way.
pub fn link(pieces: &[Piece]) -> std::result::Result<String, Unlinked> {
    let mut inputs = Vec::new();
    let mut lacking = Vec::new();
    for piece in pieces {
        match &piece.code {
            Code::Ptx(text) => inputs.push(Input { name: &piece.name, text, optional: piece.optional }),
            // Of a library nobody may need it: else what is missing is told by its name.
            Code::Other(_) if piece.optional => {}
            Code::Other(has) => lacking.push(format!(
                "'{}' has no PTX for this device (it has {}); build it with -gencode arch=compute_75,code=compute_75",
                piece.name,
                has.join(", ")
            )),
        }
    }
    if inputs.iter().all(|input| input.optional) && lacking.is_empty() {
        lacking.push("there is no device code to link".to_owned());
    }
    if !lacking.is_empty() {
        return Err(Unlinked::NoPtx(lacking));
    }
    cumux_ptx::link::link(&inputs).map_err(|faults| {
        let told = faults.iter().map(ToString::to_string).collect();
        if faults.iter().any(|fault| matches!(fault, Fault::NotPtx { .. })) { Unlinked::NotPtx(told) } else { Unlinked::Faults(told) }
    })
}

/// Whether a piece that has PTX has a text that is PTX.
///
/// # Errors
/// What is wrong with it, and where.
pub fn check(piece: &Piece) -> std::result::Result<(), Unlinked> {
    let Code::Ptx(text) = &piece.code else { return Ok(()) };
    cumux_ptx::parse(text).map(drop).map_err(|error| Unlinked::NotPtx(vec![format!("{}, {error}", piece.name)]))
}

/// The containers in a section, one after another. A damaged one ends the list.
#[must_use]
pub fn containers(mut section: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !section.is_empty() {
        let length = match total_len(section) {
            Ok(Length::Known(length)) => usize::try_from(length).unwrap_or(usize::MAX).min(section.len()),
            _ => section.len(),
        };
        let (container, rest) = section.split_at(length.max(1));
        found.push(container);
        section = &rest[rest.iter().take_while(|byte| **byte == 0).count()..];
    }
    found
}

/// The pieces in what a program gives to a linker, for a device of this compute capability (90 for
/// 9.0).
///
/// # Errors
/// What is wrong with the bytes.
pub fn pieces(name: &str, bytes: &[u8], device: u32) -> Result<Vec<Piece>> {
    if !bytes.starts_with(ARCHIVE) {
        return pieces_of_file(name, bytes, device, false);
    }
    let reason = |error: object::Error| Error::NotAnExecutable { reason: error.to_string() };
    let archive = ArchiveFile::parse(bytes).map_err(reason)?;
    let mut found = Vec::new();
    for member in archive.members() {
        let member = member.map_err(reason)?;
        let data = member.data(bytes).map_err(reason)?;
        let name = format!("{name}({})", String::from_utf8_lossy(member.name()));
        // Members for the host's linker alone are of no interest here.
        if identify(data).is_ok() {
            found.extend(pieces_of_file(&name, data, device, true)?);
        }
    }
    Ok(found)
}

/// The pieces in a list of containers, such as the parts that a program is linked from.
///
/// # Errors
/// What is wrong with the bytes.
pub fn pieces_of_parts(parts: &[&[u8]], device: u32) -> Result<Vec<Piece>> {
    let mut found = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        found.extend(piece_of_container(&format!("part {}", at + 1), part, device, false)?);
    }
    Ok(found)
}

fn pieces_of_file(name: &str, bytes: &[u8], device: u32, optional: bool) -> Result<Vec<Piece>> {
    let is_host_object = identify(bytes)? == Format::Elf && elf::read_arch(bytes)? == 0;
    if !is_host_object {
        return Ok(piece_of_container(name, bytes, device, optional)?.into_iter().collect());
    }
    let mut found = Vec::new();
    for section in sections(bytes)?.iter().filter(|section| section.name != ".nvFatBinSegment") {
        for container in containers(section.data) {
            found.extend(piece_of_container(name, container, device, optional)?);
        }
    }
    Ok(found)
}

/// A container, a text or a compiled image. `None` if there is no code in it, or the device
/// runtime.
fn piece_of_container(name: &str, bytes: &[u8], device: u32, optional: bool) -> Result<Option<Piece>> {
    let known = images(bytes)?;
    if is_device_runtime(&known) || !known.iter().any(crate::Image::has_code) {
        return Ok(None);
    }
    let code = match best_ptx(&known, device) {
        Some(image) => Code::Ptx(String::from_utf8_lossy(&image.bytes(TEXT_BYTES)?).into_owned()),
        None => {
            let other = |image: &crate::Image<'_>| image.architecture().unwrap_or_else(|| "intermediate code (LTO)".to_owned());
            let mut has: Vec<String> = known.iter().filter(|image| image.kind != ImageKind::Other(0)).map(other).collect();
            has.dedup();
            Code::Other(has)
        }
    };
    // What the source was called is known to the compiler alone.
    let name = known.iter().find_map(|image| image.name).map_or_else(|| name.to_owned(), |source| format!("{name}: {source}"));
    Ok(Some(Piece { name, optional, code }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .func f() { ret; }\n";
    const RUNTIME: &str = ".version 9.0\n.target sm_80\n.address_size 64\n.visible .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 x)\n{\nret;\n}\n";

    fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut all = ARCHIVE.to_vec();
        for (name, data) in members {
            all.extend(format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", format!("{name}/"), 0, 0, 0, 644, data.len()).bytes());
            all.extend(*data);
            if data.len() % 2 == 1 {
                all.push(b'\n');
            }
        }
        all
    }

    #[test]
    fn texts_and_members_of_libraries_are_pieces() {
        let text = |name: &str, optional| Piece { name: name.to_owned(), optional, code: Code::Ptx(TEXT.to_owned()) };
        assert_eq!(pieces("a.ptx", TEXT.as_bytes(), 90).unwrap(), [text("a.ptx", false)]);
        let library = archive(&[("one.o", TEXT.as_bytes()), ("notes", b"nothing of ours"), ("runtime.o", RUNTIME.as_bytes()), ("two.o", TEXT.as_bytes())]);
        assert_eq!(pieces("lib.a", &library, 90).unwrap(), [text("lib.a(one.o)", true), text("lib.a(two.o)", true)]);
        // PTX for a newer device is no PTX for this one.
        let newer = TEXT.replace("sm_80", "sm_100");
        assert_eq!(pieces("a", newer.as_bytes(), 90).unwrap()[0].code, Code::Other(vec!["compute_100".to_owned()]));
    }

    #[test]
    fn what_stands_in_the_way_is_told_in_lines() {
        let piece = |name: &str, optional, code: Code| Piece { name: name.to_owned(), optional, code };
        let machine = || Code::Other(vec!["sm_90".to_owned()]);
        let text = || piece("a", false, Code::Ptx(TEXT.to_owned()));
        assert!(link(&[text(), piece("lib(b)", true, machine())]).unwrap().contains("f()"), "nobody needs what the library has");
        let told = link(&[text(), piece("b", false, machine())]).unwrap_err();
        assert!(matches!(told, Unlinked::NoPtx(_)) && told.to_string().starts_with("error   : 'b' has no PTX for this device (it has sm_90); build"), "{told}");
        let told = link(&[text(), text()]).unwrap_err();
        assert_eq!(told.to_string(), "error   : Multiple definition of 'f' in 'a', first defined in 'a'");
        assert_eq!(link(&[]).unwrap_err().to_string(), "error   : there is no device code to link");
        let wrong = piece("c", false, Code::Ptx("no PTX".to_owned()));
        assert!(check(&wrong).is_err() && check(&text()).is_ok() && matches!(link(&[wrong]), Err(Unlinked::NotPtx(_))));
    }

    #[test]
    fn what_is_damaged_is_an_error() {
        for bytes in [&b""[..], b"\x7fELF", b"no code", b"!<arch>\nnot a member", b"\x50\xed\x55\xba\x01\x00"] {
            assert!(pieces("x", bytes, 90).is_err(), "{bytes:?}");
        }
        let library = archive(&[("one.o", TEXT.as_bytes())]);
        for length in 0..library.len() {
            let _ = pieces("x", &library[..length], 90);
        }
    }

    #[test]
    fn the_parts_of_a_program_are_numbered() {
        let found = pieces_of_parts(&[TEXT.as_bytes(), RUNTIME.as_bytes(), TEXT.as_bytes()], 90).unwrap();
        assert_eq!(found.iter().map(|piece| piece.name.as_str()).collect::<Vec<_>>(), ["part 1", "part 3"]);
    }
}
