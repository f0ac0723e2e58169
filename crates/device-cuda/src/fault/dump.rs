//! A core dump of the card: where kernels have failed, and which kernels were on the card. Pure.
//!
//! The dump is an ELF file whose sections are tables; `cudacoredump.h` of the CUDA toolkit lays
//! them out. Only fields are read here that were compared with what a card had run (an H200 with
//! driver 580, `tests/gpu/faults.sh`). A table that is too short or absent is taken as empty: the
//! dump is evidence, and missing evidence accuses nobody.

use super::CudaError;
use super::warps::FaultPlace;
use cumux_fatbin::lines::{self, Source};
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of an entry of the table of multiprocessors.
const SM_BYTES: usize = 48;
/// Bytes of an entry of the table of grids.
const GRID_BYTES: usize = 136;
/// Bytes of an entry of the table of blocks on a multiprocessor.
const BLOCK_BYTES: usize = 56;
/// The name of a function's code section, before the function's name.
const CODE_SECTION: &str = ".text.";
/// The name of the section of a kernel's parameters, before the kernel's name. Functions that
/// kernels call have none.
const PARAMETER_SECTION: &[u8] = b".nv.constant0.";

/// Most characters of a function's name in a description.
const MOST_FUNCTION: usize = 200;

/// Why a dump cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the core dump cannot be read: {0}")]
pub(crate) struct DumpError(String);

impl DumpError {
    /// The system does not give the dump.
    pub(crate) fn new(why: String) -> DumpError {
        DumpError(why)
    }
}

/// A place in a module's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodePlace {
    /// The driver's handle of the module.
    pub module: u64,
    /// The function's name in the image.
    pub function: String,
    /// True if the function is a kernel, not one that kernels call.
    pub is_kernel: bool,
    /// Bytes from the function's beginning.
    pub offset: u64,
}

/// A function's code.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Code {
    addresses: Range<u64>,
    module: u64,
    function: String,
    is_kernel: bool,
}

/// An exception that a multiprocessor has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exception {
    /// The multiprocessor.
    pub sm: u64,
    /// The type, as the debugger's interface numbers them.
    pub code: u32,
    /// The address of the instruction, if the multiprocessor knows it.
    pub pc: Option<u64>,
    /// The driver's handles of the kernels that had blocks on the multiprocessor.
    pub kernels: Vec<u64>,
}

/// What a dump says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Dump {
    /// The exceptions. A trap leaves none.
    pub exceptions: Vec<Exception>,
    /// The driver's handles of the kernels that were on the card.
    pub resident: Vec<u64>,
    /// The source line of the first exception, if its image has line information.
    pub source: Option<Source>,
    /// Where the functions' code lies.
    code: Vec<Code>,
}

#[cfg(test)]
impl Dump {
    /// A dump without code.
    pub(super) fn of(exceptions: Vec<Exception>, resident: Vec<u64>) -> Dump {
        Dump { exceptions, resident, source: None, code: Vec::new() }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |half| u32::from_le_bytes(*half))
}

/// Reads a dump.
///
/// # Errors
/// It is not an ELF file, or its sections lie outside of it.
pub(crate) fn read(bytes: &[u8]) -> Result<Dump, DumpError> {
    let fail = |error: object::read::Error| DumpError(error.to_string());
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(fail)?;
    let sections = header.sections(LittleEndian, bytes).map_err(fail)?;
    let mut dump = Dump::default();
    let (mut modules, mut images) = (Vec::new(), Vec::new());
    // A grid's number and the handle of its kernel.
    let mut grids: Vec<(u64, u64)> = Vec::new();
    let mut sms: Vec<(u64, u32, u32, u64)> = Vec::new();
    // A multiprocessor's position in its table and the number of a grid with a block there.
    let mut blocks: Vec<(u32, u64)> = Vec::new();
    for section in sections.iter() {
        let Ok(name) = sections.section_name(LittleEndian, section) else { continue };
        let Ok(data) = section.data(LittleEndian, bytes) else { continue };
        if name.starts_with(b".cudbg.modtbl.") {
            modules.extend(data.chunks_exact(8).map(|entry| word(entry, 0)));
        } else if name.starts_with(b".cudbg.relfimg.") {
            images.push(data);
        } else if name.starts_with(b".cudbg.gridtbl.") {
            grids.extend(data.chunks_exact(GRID_BYTES).map(|entry| (word(entry, 0), word(entry, 16))));
        } else if name.starts_with(b".cudbg.smtbl.") {
            sms.extend(data.chunks_exact(SM_BYTES).map(|entry| (word(entry, 0), half(entry, 8), half(entry, 12), word(entry, 16))));
        } else if name.starts_with(b".cudbg.ctatbl.") {
            let sm = section.sh_info.get(LittleEndian);
            blocks.extend(data.chunks_exact(BLOCK_BYTES).map(|entry| (sm, word(entry, 0))));
        }
    }
    dump.resident = grids.iter().map(|(_, kernel)| *kernel).collect();
    for (at, (sm, code, pc_known, pc)) in sms.into_iter().enumerate() {
        if code == 0 && pc_known == 0 {
            continue;
        }
        let here = blocks.iter().filter(|(position, _)| *position as usize == at);
        let kernels = here.filter_map(|(_, grid)| grids.iter().find(|(number, _)| number == grid)).map(|(_, kernel)| *kernel).collect();
        dump.exceptions.push(Exception { sm, code, pc: (pc_known != 0).then_some(pc), kernels });
    }
    let images: Vec<(u64, &[u8])> = modules.into_iter().zip(images).collect();
    for (module, image) in &images {
        add_code(&mut dump.code, *module, image);
    }
    dump.source = dump.first_place().and_then(|place| {
        let image = images.iter().find(|(module, _)| *module == place.module)?;
        lines::find(image.1, &place.function, place.offset)
    });
    Ok(dump)
}

/// Adds the functions of a module's relocated image that have an address.
fn add_code(code: &mut Vec<Code>, module: u64, image: &[u8]) {
    let Ok(header) = FileHeader64::<LittleEndian>::parse(image) else { return };
    let Ok(sections) = header.sections(LittleEndian, image) else { return };
    let names = sections.iter().filter_map(|section| sections.section_name(LittleEndian, section).ok());
    let kernels: BTreeSet<&[u8]> = names.filter_map(|name| name.strip_prefix(PARAMETER_SECTION)).collect();
    for section in sections.iter() {
        let Ok(name) = sections.section_name(LittleEndian, section) else { continue };
        let (start, bytes) = (section.sh_addr.get(LittleEndian), section.sh_size.get(LittleEndian));
        if let Some(function) = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix(CODE_SECTION))
            && start != 0
        {
            let is_kernel = kernels.contains(function.as_bytes());
            code.push(Code { addresses: start..start.saturating_add(bytes), module, function: function.to_owned(), is_kernel });
        }
    }
}

impl Dump {
    /// The function that lies at this address.
    pub(crate) fn place_of(&self, pc: u64) -> Option<CodePlace> {
        let Code { addresses, module, function, is_kernel } = self.code.iter().find(|code| code.addresses.contains(&pc))?;
        Some(CodePlace { module: *module, function: function.clone(), is_kernel: *is_kernel, offset: pc - addresses.start })
    }

    /// Where the exceptions were found, for whoever looks for the warps that fault again.
    pub(crate) fn fault_places(&self) -> Vec<FaultPlace> {
        let code = |pc: u64| self.code.iter().find(|code| code.addresses.contains(&pc)).map(|code| code.addresses.clone());
        self.exceptions.iter().map(|exception| FaultPlace { sm: exception.sm, code: exception.pc.and_then(code) }).collect()
    }

    /// Where the first exception occurred, if the multiprocessor knows it.
    fn first_place(&self) -> Option<CodePlace> {
        self.place_of(self.exceptions.first()?.pc?)
    }

    /// Where the exceptions occurred, in words; `None` for a trap.
    pub(crate) fn describe_place(&self) -> Option<String> {
        let exception = self.exceptions.first()?;
        let Some(CodePlace { function, offset, .. }) = self.first_place() else { return Some(format!("on multiprocessor {}", exception.sm)) };
        let source = self.source.as_ref().map_or_else(String::new, |source| format!(" ({source})"));
        // Names of templates have any length, and texts are cut.
        let function = match function.char_indices().nth(MOST_FUNCTION) {
            Some((end, _)) => format!("{}…", &function[..end]),
            None => function,
        };
        Some(format!("at {function}+{offset:#x}{source}, multiprocessor {}", exception.sm))
    }

    /// The error that the exceptions mean for their client; a launch failure for a trap, which
    /// leaves none.
    pub(crate) fn error(&self) -> CudaError {
        self.exceptions
            .iter()
            .map(|exception| error_of_exception(exception.code))
            .find(|error| *error != CudaError::LAUNCH_FAILED)
            .unwrap_or(CudaError::LAUNCH_FAILED)
    }
}

/// The error that the driver reports for a type of exception (`CUDBGException_t` of
/// `cudadebugger.h`).
pub(crate) fn error_of_exception(code: u32) -> CudaError {
    match code {
        1 | 2 | 5 | 10 | 14 | 17 | 18 => CudaError::ILLEGAL_ADDRESS,
        3 | 9 => CudaError::HARDWARE_STACK_ERROR,
        4 => CudaError::ILLEGAL_INSTRUCTION,
        6 | 11 => CudaError::MISALIGNED_ADDRESS,
        7 => CudaError::INVALID_ADDRESS_SPACE,
        8 => CudaError::INVALID_PC,
        12 => CudaError::ASSERT,
        _ => CudaError::LAUNCH_FAILED,
    }
}

#[cfg(test)]
impl Dump {
    /// A function that lies there.
    pub(crate) fn add_function(&mut self, addresses: Range<u64>, module: u64, function: &str, is_kernel: bool) {
        self.code.push(Code { addresses, module, function: function.to_owned(), is_kernel });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with these sections: name, address, info, bytes.
    fn elf(sections: &[(&str, u64, u32, Vec<u8>)]) -> Vec<u8> {
        const HEADER: usize = 64;
        let mut names = vec![0];
        let (mut bytes, mut headers) = (vec![0; HEADER], vec![0; HEADER]);
        let mut add = |name: &str, kind: u32, address: u64, info: u32, data: &[u8], bytes: &mut Vec<u8>, names: &mut Vec<u8>| {
            let name_at = names.len() as u32;
            names.extend(name.bytes().chain([0]));
            let data = if kind == object::elf::SHT_STRTAB.0 { names.clone() } else { data.to_vec() };
            headers.extend([name_at, kind].iter().flat_map(|half| half.to_le_bytes()));
            headers.extend([0, address, bytes.len() as u64, data.len() as u64].iter().flat_map(|word| word.to_le_bytes()));
            headers.extend([0, info].iter().flat_map(|half| half.to_le_bytes()));
            headers.extend([1_u64, 0].iter().flat_map(|word| word.to_le_bytes()));
            bytes.extend(data);
        };
        for (name, address, info, data) in sections {
            add(name, 0x7000_0000, *address, *info, data, &mut bytes, &mut names);
        }
        add(".shstrtab", object::elf::SHT_STRTAB.0, 0, 0, &[], &mut bytes, &mut names);
        let count = sections.len() as u16 + 2;
        bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x33");
        bytes[16..24].copy_from_slice(&[4, 0, 190, 0, 1, 0, 0, 0]);
        let headers_at = bytes.len() as u64;
        bytes[40..48].copy_from_slice(&headers_at.to_le_bytes());
        bytes[52..64].copy_from_slice(&[64, 0, 0, 0, 0, 0, 64, 0, count as u8, 0, count as u8 - 1, 0]);
        bytes.extend(headers);
        bytes
    }

    fn words(words: &[u64], bytes: usize) -> Vec<u8> {
        let mut entry: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        entry.resize(bytes, 0);
        entry
    }

    fn sample(code: u64, pc: Option<u64>) -> Vec<u8> {
        let image =
            |address: u64| elf(&[(".text.first", address, 0, vec![0; 64]), (".nv.constant0.first", 0, 0, Vec::new()), (".text.second", 0, 0, vec![0; 64])]);
        let valid = u64::from(pc.is_some()) << 32;
        let sms = [words(&[0], SM_BYTES), words(&[21, code | valid, pc.unwrap_or(0)], SM_BYTES)].concat();
        elf(&[
            (".cudbg.modtbl.dev0.ctx0", 0, 0, words(&[0xa, 0xb], 16)),
            (".cudbg.relfimg.dev0.ctx0", 0, 0, image(0x1000)),
            (".cudbg.relfimg.dev0.ctx0", 0, 1, image(0x2000)),
            (".cudbg.gridtbl.dev0", 0, 0, [words(&[7, 0, 0xf1, 0, 0xa], GRID_BYTES), words(&[8, 0, 0xf2, 0, 0xb], GRID_BYTES)].concat()),
            (".cudbg.smtbl.dev0", 0, 0, sms),
            (".cudbg.ctatbl.dev0.sm1", 0, 1, words(&[8], BLOCK_BYTES)),
        ])
    }

    #[test]
    fn an_exception_names_its_function_and_module() {
        let dump = read(&sample(14, Some(0x2010))).expect("read");
        assert_eq!(dump.resident, [0xf1, 0xf2]);
        assert_eq!(dump.exceptions, [Exception { sm: 21, code: 14, pc: Some(0x2010), kernels: vec![0xf2] }]);
        assert_eq!(dump.place_of(0x2010), Some(CodePlace { module: 0xb, function: "first".into(), is_kernel: true, offset: 16 }));
        assert_eq!((dump.place_of(0x2040), dump.place_of(0)), (None, None));
        assert_eq!(dump.error(), CudaError::ILLEGAL_ADDRESS);
    }

    /// A compiled image with line information, with this function at this address.
    fn lined_image(function: &str, address: u64) -> Vec<u8> {
        let mut image = include_bytes!("../../../fatbin/tests/data/lines.sm_90.cubin").to_vec();
        let header = FileHeader64::<LittleEndian>::parse(&*image).expect("an image");
        let sections = header.sections(LittleEndian, &*image).expect("sections");
        let (index, _) = sections.section_by_name(LittleEndian, [CODE_SECTION, function].concat().as_bytes()).expect("the function");
        let at = header.e_shoff.get(LittleEndian) as usize + index.0 * 64 + 16;
        image[at..at + 8].copy_from_slice(&address.to_le_bytes());
        image
    }

    #[test]
    fn an_exception_names_its_source_line() {
        let with_pc = |pc: u64| {
            elf(&[
                (".cudbg.modtbl.dev0.ctx0", 0, 0, words(&[0xa, 0xb], 16)),
                (".cudbg.relfimg.dev0.ctx0", 0, 0, lined_image("store", 0x1000)),
                (".cudbg.relfimg.dev0.ctx0", 0, 1, lined_image("inlined", 0x2000)),
                (".cudbg.smtbl.dev0", 0, 0, words(&[3, 14 | 1 << 32, pc], SM_BYTES)),
            ])
        };
        let place = |pc| read(&with_pc(pc)).expect("read").describe_place().expect("an exception");
        assert_eq!(place(0x1060), "at store+0x60 (/mnt/lines.cu:12), multiprocessor 3");
        assert_eq!(place(0x2030), "at inlined+0x30 (/mnt/lines.cuh:3, inlined at /mnt/lines.cu:17), multiprocessor 3");
        assert_eq!(place(0x3000), "on multiprocessor 3");
        assert_eq!(read(&sample(14, Some(0x2010))).expect("read").describe_place().expect("an exception"), "at first+0x10, multiprocessor 21");
    }

    #[test]
    fn exceptions_without_an_address_and_traps_are_read() {
        let dump = read(&sample(12, None)).expect("read");
        assert_eq!((dump.exceptions[0].pc, dump.error()), (None, CudaError::ASSERT));
        let trap = read(&sample(0, None)).expect("read");
        assert!(trap.exceptions.is_empty() && trap.resident.len() == 2);
        assert_eq!(trap.error(), CudaError::LAUNCH_FAILED);
    }

    #[test]
    fn damaged_dumps_do_no_harm() {
        assert!(read(b"").is_err() && read(b"\x7fELF").is_err());
        let whole = sample(14, Some(0x2010));
        for end in (0..whole.len()).step_by(7) {
            let _ = read(&whole[..end]);
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = read(&damaged);
        }
    }
}
