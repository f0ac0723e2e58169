//! Loads modules: selects the PTX of an image, compiles it once for the whole process, places and
//! fills its variables.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use cumux_device::{DeviceError, FunctionInfo, GlobalInfo, GlobalsAllocator, ModuleInfo};
use cumux_fatbin::{Image as Stored, ImageKind, Variant, best_compiled, best_ptx, images};
use cumux_wire::{module, result};
use parking_lot::{Mutex, RwLock};

use crate::lower::{self, CompileError, Options};
use crate::memory::maps::Mappings;
use crate::models::Limits;
use crate::program::{LinkedProgram, Program};

/// Largest PTX text that is unpacked.
const MAX_PTX_BYTES: u64 = 256 << 20;
/// Compiled programs that are kept although no client uses them at the moment.
const MAX_CACHED_PROGRAMS: usize = 128;

/// A program, or why it cannot be compiled; empty while a client compiles it.
type Compiled = Arc<OnceLock<Result<Arc<Program>, CompileError>>>;

/// Programs by the hash of their text and options, with the time of their last use (a counter). If
/// two clients load one text at the same time, one of them compiles it.
type Programs = HashMap<[u8; 32], (Compiled, u64)>;

static PROGRAMS: Mutex<Option<Programs>> = Mutex::new(None);

/// The error for an image that cannot be loaded, with its result code.
fn image_error(result: u32, text: impl Into<String>) -> DeviceError {
    DeviceError::Image { result, text: text.into() }
}

/// What a client has set for a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadedFunction {
    /// Bytes of dynamic shared memory that a launch may use.
    pub(crate) max_dynamic_shared: u32,
}

/// A module of one client.
#[derive(Debug, Clone)]
pub(crate) struct LoadedModule {
    pub(crate) linked: Arc<LinkedProgram>,
    pub(crate) functions: Vec<LoadedFunction>,
}

/// Compiles the program in an image.
///
/// # Errors
/// What is wrong with the image.
pub(crate) fn compile_image(limits: &Limits, bytes: &[u8]) -> Result<Arc<Program>, DeviceError> {
    let chosen = extract_ptx(bytes, limits.capability)?;
    let program = compile(&chosen.text, chosen.options)?;
    if program.target > limits.capability && !chosen.stands_in {
        return Err(image_error(
            result::NO_BINARY_FOR_GPU,
            format!("the PTX is for sm_{} and later, this card is sm_{}; build with an earlier -gencode arch", program.target, limits.capability),
        ));
    }
    Ok(program)
}

/// Whether a kernel of an image would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelVerdict {
    /// The kernel's name.
    pub name: String,
    /// Why the kernel would not run; `None` if it would.
    pub refused: Option<String>,
}

/// Says of each kernel of an image whether it would run.
pub(crate) fn judge_kernels(limits: &Limits, bytes: &[u8]) -> Result<Vec<KernelVerdict>, DeviceError> {
    let program = compile_image(limits, bytes)?;
    Ok(program.kernels.iter().map(|kernel| KernelVerdict { name: kernel.name.clone(), refused: kernel.refused.as_ref().map(ToString::to_string) }).collect())
}

/// Loads an image for a client. Returns the module, and what the client must know about it.
pub(crate) fn load(
    limits: &Limits,
    maps: &RwLock<Mappings>,
    bytes: &[u8],
    place: &mut dyn GlobalsAllocator,
) -> Result<(LoadedModule, ModuleInfo), DeviceError> {
    place_program(limits, maps, compile_image(limits, bytes)?, place)
}

/// Makes a compiled program a client's module, as [`load`] does it.
pub(crate) fn place_program(
    limits: &Limits,
    maps: &RwLock<Mappings>,
    program: Arc<Program>,
    place: &mut dyn GlobalsAllocator,
) -> Result<(LoadedModule, ModuleInfo), DeviceError> {
    if program.allocates {
        let why = "its kernels may allocate memory on the card (malloc), which belongs to the executor";
        if place.is_restoring() {
            return Err(DeviceError::Invalid(format!("what one of its modules had on the card has gone with the executor before: {why}")));
        }
        place.not_resumable(why);
    }
    let mut addresses = Vec::with_capacity(program.variables.len());
    let mut fresh = Vec::new();
    for variable in &program.variables {
        let (address, restored) = place.variable(&variable.name, variable.bytes.max(1), variable.align.max(16), variable.managed)?;
        fresh.push(!restored);
        addresses.push(address);
    }
    let linked = Arc::new(LinkedProgram::new(program.clone(), addresses.clone()));
    for (index, variable) in program.variables.iter().enumerate() {
        if fresh[index] {
            let mut contents = linked.initial(index);
            contents.resize(usize::try_from(variable.bytes).unwrap_or(0), 0);
            place.fill(&mut || write(maps, addresses[index], &contents))?;
        }
    }
    let info = ModuleInfo {
        functions: (0..program.kernels.len()).map(|index| describe_function(limits, &program, index)).collect(),
        globals: program
            .variables
            .iter()
            .zip(&addresses)
            .map(|(v, address)| GlobalInfo { name: v.name.clone(), address: *address, bytes: v.bytes, constant: v.constant, managed: v.managed })
            .collect(),
        on_demand: false,
    };
    let functions = program
        .kernels
        .iter()
        .map(|kernel| LoadedFunction { max_dynamic_shared: limits.launch.shared_per_block.saturating_sub(kernel.static_shared) })
        .collect();
    Ok((LoadedModule { linked, functions }, info))
}

/// Writes bytes through the card's mappings.
pub(crate) fn write(maps: &RwLock<Mappings>, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
    maps.read().for_each_mapping(address, bytes.len() as u64, |mapping, offset, part| {
        mapping.write(offset, &bytes[part]);
    })
}

/// What a client must know about a kernel.
fn describe_function(limits: &Limits, program: &Program, index: usize) -> FunctionInfo {
    let kernel = &program.kernels[index];
    FunctionInfo {
        name: kernel.name.clone(),
        parameters: kernel.parameters.iter().map(|p| module::Parameter { offset: p.offset, bytes: p.bytes }).collect(),
        parameter_bytes: kernel.parameter_bytes,
        static_shared: kernel.static_shared,
        constant: kernel.constant_bytes,
        local: kernel.local_bytes,
        registers: limits.registers_of_thread(kernel.registers, kernel.max_threads),
        max_threads: kernel.max_threads.min(limits.launch.threads_per_block),
        ptx_version: program.target,
        binary_version: limits.capability,
        cluster: kernel.cluster,
        required_block: kernel.required_block,
        refused: kernel.refused.as_ref().map(ToString::to_string),
        tells_driver: false,
        unbounded: kernel.unbounded,
    }
}

/// What an image says to the compiler of its PTX.
fn compiler_options(image: &Stored<'_>) -> Options {
    Options {
        most_registers: image.compiler_option("maxrregcount").and_then(|number| number.parse().ok()).filter(|number| *number > 0),
        contracts: image.compiler_option("fmad") != Some("false") && !image.options.split_whitespace().any(|word| word == "-O0"),
    }
}

/// The PTX that is compiled for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chosen {
    text: String,
    options: Options,
    /// It is for newer cards, and stands in for machine code that this card would have run.
    stands_in: bool,
}

/// PTX for newer cards in an image that also has machine code for this card: what a library is
/// that was compiled for all cards of its time and kept PTX for those to come. A card would run the
/// machine code. Both are of one source, and what this card lacks is refused by instruction.
fn stand_in<'i, 'a>(stored: &'i [Stored<'a>], capability: u32) -> Option<&'i Stored<'a>> {
    best_compiled(stored, capability)?;
    stored.iter().filter(|image| image.kind == ImageKind::Ptx && image.variant == Variant::Any).min_by_key(|image| image.arch)
}

/// The PTX in an image that suits the card best, and how it is to be compiled.
fn extract_ptx(bytes: &[u8], capability: u32) -> Result<Chosen, DeviceError> {
    let stored = images(bytes).map_err(|error| image_error(result::INVALID_IMAGE, error.to_string()))?;
    let own = best_ptx(&stored, capability);
    let Some(best) = own.or_else(|| stand_in(&stored, capability)) else {
        return Err(image_error(result::NO_BINARY_FOR_GPU, explain_missing_ptx(&stored, capability)));
    };
    let text = best.bytes(MAX_PTX_BYTES).map_err(|error| image_error(result::INVALID_IMAGE, error.to_string()))?;
    let text = text.strip_suffix(&[0]).unwrap_or(&text);
    match std::str::from_utf8(text) {
        Ok(text) => Ok(Chosen { text: text.to_owned(), options: compiler_options(best), stands_in: own.is_none() }),
        Err(error) => Err(image_error(result::INVALID_PTX, format!("the PTX is not text from byte {} on", error.valid_up_to()))),
    }
}

/// Why an image has no PTX for this card, and how to build one that has.
fn explain_missing_ptx(stored: &[Stored<'_>], capability: u32) -> String {
    let list = |kind: ImageKind| {
        let mut found: Vec<String> = stored.iter().filter(|image| image.kind == kind).filter_map(Stored::architecture).collect();
        found.dedup();
        found.join(", ")
    };
    let (code, text) = (list(ImageKind::Elf), list(ImageKind::Ptx));
    if !text.is_empty() {
        format!("the image contains PTX for {text} only, which this card (sm_{capability}) cannot run; build with -gencode arch=compute_75,code=compute_75")
    } else if !code.is_empty() {
        format!(
            "the image contains only machine code for {code}; the software GPU runs PTX: build with -gencode arch=compute_75,code=compute_75, \
             or take a version of the library that has PTX"
        )
    } else {
        "the image contains no device code; the software GPU runs PTX: build with -gencode arch=compute_75,code=compute_75".into()
    }
}

/// Refused kernels of one module that the log names; of the others it gives the number.
const MAX_NAMED_IN_LOG: usize = 8;

/// Logs which kernels of a new module will be refused when they are launched, with instruction and
/// line.
fn log_refused(program: &Program) {
    let mut refused = program.kernels.iter().filter_map(|kernel| Some((&kernel.name, kernel.refused.as_ref()?)));
    for (name, refusal) in refused.by_ref().take(MAX_NAMED_IN_LOG) {
        tracing::warn!("kernel {name} will be refused when it is launched: {refusal}");
    }
    let more = refused.count();
    if more > 0 {
        tracing::warn!("{more} more kernels of the module will be refused");
    }
}

/// Compiles a text, unless the process has its program already.
fn compile(text: &str, options: Options) -> Result<Arc<Program>, DeviceError> {
    compile_cached(&PROGRAMS, text, options)
}

fn compile_cached(programs: &Mutex<Option<Programs>>, text: &str, options: Options) -> Result<Arc<Program>, DeviceError> {
    let hash: [u8; 32] = blake3::Hasher::new().update(format!("{options:?}\n").as_bytes()).update(text.as_bytes()).finalize().into();
    let entry = {
        let mut programs = programs.lock();
        let programs = programs.get_or_insert_default();
        let now = programs.values().map(|(_, used)| *used).max().unwrap_or(0) + 1;
        if programs.len() >= MAX_CACHED_PROGRAMS && !programs.contains_key(&hash) {
            let unused = |entry: &Compiled| entry.get().is_some_and(|made| made.as_ref().map_or(true, |program| Arc::strong_count(program) == 1));
            let oldest = programs.iter().filter(|(_, (entry, _))| unused(entry)).min_by_key(|(_, (_, used))| *used).map(|(hash, _)| *hash);
            oldest.map(|hash| programs.remove(&hash));
        }
        let (entry, used) = programs.entry(hash).or_default();
        *used = now;
        entry.clone()
    };
    entry
        .get_or_init(|| lower::compile_with(text, options).inspect(|program| log_refused(program)))
        .clone()
        .map_err(|error| image_error(result::INVALID_PTX, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ImageKind, arch: u32) -> Stored<'static> {
        let compression = cumux_fatbin::Compression::None;
        Stored { kind, arch, variant: Variant::Any, version: (0, 0), flags: 0, compression, size: 0, name: None, options: "", at: 0, stored: b"" }
    }

    #[test]
    fn newer_ptx_stands_in_for_machine_code_of_this_card_alone() {
        let library = [of(ImageKind::Elf, 80), of(ImageKind::Elf, 90), of(ImageKind::Ptx, 121), of(ImageKind::Ptx, 120)];
        let arch = |stored: &[Stored<'_>], capability| stand_in(stored, capability).map(|image| image.arch);
        assert_eq!((arch(&library, 90), arch(&library, 86)), (Some(120), Some(120)));
        // A card would not run it either.
        assert_eq!((arch(&library, 75), arch(&library[2..], 90)), (None, None));
        let exact = Stored { variant: Variant::Exact, ..of(ImageKind::Ptx, 100) };
        assert_eq!(arch(&[of(ImageKind::Elf, 90), exact], 90), None, "PTX with a letter is for its card alone");
    }

    #[test]
    fn an_image_without_ptx_says_how_to_build_one() {
        let text = explain_missing_ptx(&[of(ImageKind::Elf, 80), of(ImageKind::Elf, 90)], 90);
        assert_eq!(
            text,
            "the image contains only machine code for sm_80, sm_90; the software GPU runs PTX: build with -gencode arch=compute_75,code=compute_75, \
             or take a version of the library that has PTX"
        );
        assert!(explain_missing_ptx(&[of(ImageKind::Ptx, 100)], 90).contains("PTX for compute_100 only"));
        // Without its letter it would run here.
        let exact = Stored { variant: Variant::Exact, ..of(ImageKind::Ptx, 100) };
        assert!(explain_missing_ptx(&[exact], 103).contains("PTX for compute_100a only, which this card (sm_103) cannot run"));
    }

    #[test]
    fn kernels_are_judged_one_by_one_without_being_loaded() {
        let text = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry plain() { ret; }
.visible .entry matrix() {
    .reg .b32 %r<3>;
    tcgen05.fence::before_thread_sync;
    ret;
}
.visible .entry clustered() .reqnctapercluster 2, 1, 1 { ret; }
.visible .entry counted() .blocksareclusters .reqntid 32, 1, 1 .reqnctapercluster 2, 1, 1 { ret; }
";
        let judged = crate::judge_kernels("sim:h200", text.as_bytes()).unwrap();
        let refused: Vec<(&str, Option<&str>)> = judged.iter().map(|kernel| (kernel.name.as_str(), kernel.refused.as_deref())).collect();
        let [("plain", None), ("matrix", Some(matrix)), ("clustered", None), ("counted", Some(counted))] = refused[..] else { panic!("{refused:?}") };
        assert!(matrix.contains("tcgen05.fence::before_thread_sync (PTX line 7)"), "{matrix}");
        assert!(counted.contains(".blocksareclusters"), "{counted}");
        // What could not be loaded says why, as a program would be told.
        let old = crate::judge_kernels("sim:t4", text.as_bytes()).unwrap_err();
        assert!(matches!(old, DeviceError::Image { result: result::NO_BINARY_FOR_GPU, .. }) && old.to_string().contains("sm_75"), "{old}");
        assert!(crate::judge_kernels("sim:nothing", text.as_bytes()).is_err());
    }

    #[test]
    fn kernels_keep_to_the_registers_that_they_were_told() {
        let needs_many: String = (1..70).map(|n| format!("ld.volatile.global.u32 %r{n}, [%a];\n")).collect();
        let uses_them: String = (1..70).map(|n| format!("st.volatile.global.u32 [%a], %r{n};\n")).collect();
        let kernel = |name: &str, directive: &str| {
            format!(
                ".visible .entry {name}(.param .u64 p) {directive} {{ .reg .b32 %r<70>; .reg .b64 %a; ld.param.u64 %a, [p];\n{needs_many}{uses_them}ret; }}\n"
            )
        };
        let few = ".visible .entry few() { ret; }\n";
        let kernels = [kernel("free", ""), kernel("own", ".maxnreg 40"), kernel("tiny", ".maxnreg 8"), kernel("bounded", ".maxntid 64, 1, 1")];
        let text = format!(".version 8.0\n.target sm_80\n.address_size 64\n{}{few}", kernels.concat());
        let registers = |most_registers| {
            let program = lower::compile_with(&text, Options { most_registers, contracts: true }).unwrap();
            program.kernels.iter().map(|kernel| kernel.registers).collect::<Vec<u32>>()
        };
        // A block of 1,024 threads must fit into a multiprocessor.
        assert_eq!(registers(None), [64, 40, 24, 72, 16]);
        assert_eq!(registers(Some(32)), [32, 40, 24, 72, 16], "the option is for those that do not say it themselves");
        assert_eq!(registers(Some(8))[0], 24);
    }

    /// A full cache forgets the program that nobody has used for the longest time, and only for a
    /// text that it does not have.
    #[test]
    fn the_oldest_unused_program_is_forgotten() {
        let cache = Mutex::new(None);
        let load = |n: usize| {
            compile_cached(&cache, &format!(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k{n}() {{ ret; }}"), Options::default()).unwrap()
        };
        let used = load(0);
        let known: Vec<_> = (1..MAX_CACHED_PROGRAMS).map(|n| Arc::downgrade(&load(n))).collect();
        assert!(Arc::ptr_eq(&used, &load(0)));
        load(1);
        load(MAX_CACHED_PROGRAMS - 1);
        assert!(known.iter().all(|program| program.strong_count() == 1), "it was full, and had all of these");
        load(MAX_CACHED_PROGRAMS);
        let gone: Vec<usize> = (1..MAX_CACHED_PROGRAMS).filter(|n| known[n - 1].strong_count() == 0).collect();
        assert_eq!(gone, [2], "0 is in use, and 1 was used after 2");
        assert!(Arc::ptr_eq(&used, &load(0)));
    }

    #[test]
    fn what_is_no_image_is_refused_in_a_sentence() {
        assert!(matches!(extract_ptx(b"\0\0\0\0", 90), Err(DeviceError::Image { result: result::INVALID_IMAGE, .. })));
        assert!(matches!(extract_ptx(b"", 90), Err(DeviceError::Image { result: result::INVALID_IMAGE, .. })));
        let bare = Chosen { text: ".version 8.0\n".to_owned(), options: Options::default(), stands_in: false };
        assert_eq!(extract_ptx(b".version 8.0\n\0", 90).unwrap(), bare);
        let damaged = extract_ptx(b".version 8.0\n\xff", 90).unwrap_err();
        assert!(damaged.to_string().contains("byte 13"), "{damaged}");
    }
}
