//! The linker interface: images are collected and joined into one that `cuModuleLoadData` takes.
//!
//! What is joined is PTX (`cumux_fatbin::link`), and the result is PTX, which every device takes.
//! One image alone may also be machine code: it stays as it is. Where a card's driver has to link
//! (machine code, and kernels that launch kernels, whose functions are in a library of NVIDIA's),
//! the result is a [`Bundle`] of everything that was given, which only this service can load.

use crate::connection::Connection;
use crate::ffi::{Try, error, list, name, put};
use crate::handle::{Kind, Table};
use crate::log::unsupported;
use crate::sync::lock;
use crate::{context, device, jit, process};
use core::ffi::{c_char, c_uint, c_void};
use cumux_abi::{CUdevice_attribute, CUjit_option, CUjitInputType, CUlinkState, CUresult};
use cumux_fatbin::{Bundle, Format, LinkInput, Piece, Unlinked, pieces, pieces_of_parts};
use std::ffi::CStr;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// All links in progress.
static LINKS: Table<Link> = Table::new(Kind::Link);

/// A link in progress; the result stays until it is destroyed.
#[derive(Debug)]
pub struct Link {
    /// Compute capability of the device that it is for.
    capability: u32,
    /// Its device takes machine code, too: what is wrong with a single text is the driver's to say.
    takes_machine_code: bool,
    state: Mutex<State>,
    log: Log,
    /// `CU_JIT_MAX_REGISTERS`.
    most_registers: Option<u32>,
}

#[derive(Debug, Default)]
struct State {
    inputs: Vec<Given>,
    pieces: Vec<Piece>,
    /// What `cuLinkComplete` answered.
    image: Option<Vec<u8>>,
}

/// An input as it was given.
#[derive(Debug)]
struct Given {
    kind: CUjitInputType,
    name: String,
    bytes: Vec<u8>,
    is_text: bool,
}

impl Given {
    fn as_input(&self) -> LinkInput<'_> {
        LinkInput { kind: self.kind.0, name: &self.name, data: &self.bytes }
    }
}

/// Why images cannot be linked: the result that the program gets, and the reasons in lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: CUresult,
    pub(crate) text: String,
}

impl From<Unlinked> for Refusal {
    fn from(unlinked: Unlinked) -> Self {
        let code = match unlinked {
            Unlinked::NotPtx(_) => CUresult::CUDA_ERROR_INVALID_PTX,
            Unlinked::NoPtx(_) | Unlinked::Faults(_) => CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
        };
        Self { code, text: unlinked.to_string() }
    }
}

/// How the functions of NVIDIA's device runtime begin, by which kernels launch kernels. A card has
/// them in a library (`libcudadevrt.a`) that its driver links.
const DEVICE_RUNTIME: &str = "cudaCDP";

/// Links the parts of a program that was built with `nvcc -rdc=true`; `None` if they have no PTX
/// for the device. What a driver has to link is a bundle.
///
/// # Errors
/// A part is damaged, or they do not fit together.
pub(crate) fn link_parts(session: &Connection, device: u32, parts: &[&[u8]]) -> Result<Option<Vec<u8>>, Refusal> {
    let damaged = |cause: cumux_fatbin::Error| Refusal { code: error::INVALID_IMAGE, text: cause.to_string() };
    let linked = cumux_fatbin::link(&pieces_of_parts(parts, capability(session, device)).map_err(damaged)?);
    let has_driver = takes_machine_code(session, device);
    let bundle = || {
        let kind = CUjitInputType::CU_JIT_INPUT_FATBINARY.0;
        Bundle { inputs: parts.iter().map(|data| LinkInput { kind, name: "part", data }).collect() }.write()
    };
    match linked {
        Ok(text) if has_driver && text.contains(DEVICE_RUNTIME) => Ok(Some(bundle())),
        Ok(text) => Ok(Some(text.into_bytes())),
        Err(_) if has_driver => Ok(Some(bundle())),
        Err(Unlinked::NoPtx(_)) => Ok(None),
        Err(unlinked) => Err(unlinked.into()),
    }
}

/// Whether a device has a driver, which takes machine code and links it.
fn takes_machine_code(session: &Connection, ordinal: u32) -> bool {
    device::all(session).get(ordinal as usize).is_none_or(|device| !device.facts.capabilities.runs_ptx_alone)
}

/// Compute capability of a device: 90 for 9.0.
fn capability(session: &Connection, ordinal: u32) -> u32 {
    use CUdevice_attribute as Attribute;
    let device = device::all(session).get(ordinal as usize);
    let of = |attribute| device.and_then(|device| device.attribute(attribute)).and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
    of(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 + of(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
}

// ---- The log of a link

/// A buffer of the program's, its bytes, and where the size of what is written is told; as
/// addresses.
type Buffer = (usize, usize, usize);

/// Where a program wants to read what was wrong, as it said when it began the link. The values stay
/// valid until the link is destroyed, says the manual.
#[derive(Debug)]
struct Log {
    error: Option<Buffer>,
}

/// Replaces what is in a buffer.
fn fill((buffer, room, size): Buffer, text: &str) -> Try {
    // SAFETY: the program said that its buffer has that room, and keeps it until the link is
    // destroyed.
    unsafe { crate::ffi::fill_text(core::ptr::with_exposed_provenance_mut(buffer), room, text.as_bytes())? };
    let written = core::ptr::without_provenance_mut(text.len().min(room - 1));
    put!(core::ptr::with_exposed_provenance_mut::<*mut c_void>(size), written);
    Ok(())
}

impl Log {
    /// # Safety
    /// The arrays are what a C caller passed to `cuLinkCreate`.
    unsafe fn new(count: c_uint, options: *const CUjit_option, values: *mut *mut c_void) -> Try<Self> {
        // SAFETY: the caller vouches for the arrays.
        let (options, given) = unsafe { (crate::ffi::array(options, count as usize)?, crate::ffi::array(values.cast_const(), count as usize)?) };
        let find = |wanted: CUjit_option| options.iter().position(|option| *option == wanted);
        let buffer = |buffer: CUjit_option, size: CUjit_option| {
            let (buffer, size) = find(buffer).zip(find(size))?;
            // The low half of the value is the size, as the manual has it.
            let (at, room) = (given.get(buffer)?.expose_provenance(), given.get(size)?.addr() & 0xFFFF_FFFF);
            (at != 0 && room != 0).then_some((at, room, values.wrapping_add(size).expose_provenance()))
        };
        // Nothing is told besides what is wrong.
        if let Some(info) = buffer(CUjit_option::CU_JIT_INFO_LOG_BUFFER, CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
            fill(info, "")?;
        }
        let log = Self { error: buffer(CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) };
        log.write("")?;
        Ok(log)
    }

    /// Replaces what is there.
    fn write(&self, text: &str) -> Try {
        self.error.map_or(Ok(()), |buffer| fill(buffer, text))
    }
}

impl Link {
    /// Tells the program and its user why this fails.
    fn refuse(&self, refusal: Refusal) -> CUresult {
        crate::log::tell(format_args!("device code was not linked: {}", refusal.text));
        let _ = self.log.write(&refusal.text);
        refusal.code
    }
}

// ---- The calls

fn named(state: CUlinkState) -> Try<Arc<Link>> {
    process::enter()?;
    LINKS.get(state.addr() as u64).ok_or(error::INVALID_HANDLE)
}

fn add(state: CUlinkState, kind: CUjitInputType, name: &str, data: &[u8]) -> Try {
    let link = named(state)?;
    match kind {
        CUjitInputType::CU_JIT_INPUT_PTX
        | CUjitInputType::CU_JIT_INPUT_FATBINARY
        | CUjitInputType::CU_JIT_INPUT_CUBIN
        | CUjitInputType::CU_JIT_INPUT_OBJECT
        | CUjitInputType::CU_JIT_INPUT_LIBRARY => {}
        CUjitInputType::CU_JIT_INPUT_NVVM => return Err(unsupported("intermediate code (LTO-IR) is not linked; compile to PTX")),
        other => return Err(unsupported(format!("a linker for inputs of type {}: PTX text, fatbins, objects and libraries are taken", other.0))),
    }
    let mut given = lock(&link.state);
    if given.image.is_some() {
        return Err(error::INVALID_VALUE);
    }
    let found = pieces(name, data, link.capability)
        .map_err(|cause| link.refuse(Refusal { code: error::INVALID_IMAGE, text: format!("error   : '{name}': {cause}") }))?;
    // A device that runs PTX alone has no compiler of its own that would say it in its words.
    for piece in found.iter().filter(|_| !link.takes_machine_code) {
        cumux_fatbin::check(piece).map_err(|unlinked| link.refuse(unlinked.into()))?;
    }
    let is_text = cumux_fatbin::identify(data) == Ok(Format::Ptx);
    given.pieces.extend(found);
    given.inputs.push(Given { kind, name: name.to_owned(), bytes: data.to_vec(), is_text });
    Ok(())
}

pub unsafe fn cuLinkCreate_v2(count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void, out: *mut CUlinkState) -> Try {
    let session = process::enter()?;
    let ordinal = context::current().map_or(0, |context| context.device);
    let takes_machine_code = takes_machine_code(session, ordinal);
    // SAFETY: the C caller vouches for its options.
    let log = unsafe { Log::new(count, options, values)? };
    // SAFETY: as above.
    let most_registers = unsafe { jit::most_registers(count, options, values)? };
    let capability = capability(session, ordinal);
    let (handle, _) =
        LINKS.insert(|_| Arc::new(Link { capability, takes_machine_code, state: Mutex::default(), log, most_registers })).ok_or(error::OUT_OF_MEMORY)?;
    put!(out, core::ptr::without_provenance_mut(handle as usize));
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuLinkAddData_v2(
    state: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    bytes: usize,
    name: *const c_char,
    _count: c_uint,
    _options: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> Try {
    // A name is for messages alone.
    // SAFETY: the C caller vouches for its name.
    let name = if name.is_null() { "<unnamed>".into() } else { unsafe { CStr::from_ptr(name) }.to_string_lossy() };
    add(state, kind, &name, list!(data.cast_const().cast::<u8>(), bytes))
}

pub unsafe fn cuLinkAddFile_v2(
    state: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    _count: c_uint,
    _options: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> Try {
    let path = Path::new(name!(path));
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    add(state, kind, &name, &std::fs::read(path).map_err(|_| error::FILE_NOT_FOUND)?)
}

/// What is linked: a single image as it is, where no other is needed; else the text of all. What
/// only a driver can link is a bundle, which it links when the module is loaded.
fn complete(link: &Link, state: &State) -> Result<Vec<u8>, Refusal> {
    let linked = cumux_fatbin::link(&state.pieces);
    let bundle = || Bundle { inputs: state.inputs.iter().map(Given::as_input).collect() }.write();
    let has_more_than_text = state.inputs.iter().any(|given| !given.is_text);
    match (state.inputs.as_slice(), linked) {
        // A driver has a compiler, which knows more than ours; machine code is linked already.
        ([only], Err(_)) if link.takes_machine_code && is_module(only.kind) => Ok(only.bytes.clone()),
        (_, Err(_)) if link.takes_machine_code && has_more_than_text => Ok(bundle()),
        (_, Ok(text)) if link.takes_machine_code && has_more_than_text && text.contains(DEVICE_RUNTIME) => Ok(bundle()),
        ([only], Ok(_)) if !only.is_text => Ok(only.bytes.clone()),
        (_, linked) => Ok(linked?.into_bytes()),
    }
}

/// Whether an input of this kind is a module by itself.
fn is_module(kind: CUjitInputType) -> bool {
    !matches!(kind, CUjitInputType::CU_JIT_INPUT_OBJECT | CUjitInputType::CU_JIT_INPUT_LIBRARY)
}

pub unsafe fn cuLinkComplete(state: CUlinkState, out: *mut *mut c_void, bytes: *mut usize) -> Try {
    let link = named(state)?;
    let mut state = lock(&link.state);
    if state.inputs.is_empty() || out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    if state.image.is_none() {
        let image = complete(&link, &state).map_err(|refusal| link.refuse(refusal))?;
        let mut image = jit::limit_registers(&image, link.most_registers).unwrap_or(image);
        // Text ends with a NUL.
        if image.last() != Some(&0) {
            image.push(0);
        }
        state.image = Some(image);
    }
    let Some(image) = &state.image else { return Err(error::UNKNOWN) };
    put!(out, core::ptr::with_exposed_provenance_mut(image.as_ptr().expose_provenance()));
    if !bytes.is_null() {
        put!(bytes, image.len());
    }
    Ok(())
}

pub unsafe fn cuLinkDestroy(state: CUlinkState) -> Try {
    process::find_connection()?;
    LINKS.remove(state.addr() as u64).map(drop).ok_or(error::INVALID_HANDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n.extern .func helper();\n.visible .entry k()\n{\ncall.uni helper, ();\nret;\n}\n";
    const MACHINE: &[u8] = include_bytes!("../../fatbin/tests/data/calls.sm_90.cubin");

    fn state(inputs: &[(CUjitInputType, &str, &[u8])]) -> State {
        let mut state = State::default();
        for (kind, name, bytes) in inputs {
            state.pieces.extend(pieces(name, bytes, 90).expect("read"));
            let is_text = *kind == CUjitInputType::CU_JIT_INPUT_PTX;
            state.inputs.push(Given { kind: *kind, name: (*name).to_owned(), bytes: bytes.to_vec(), is_text });
        }
        state
    }

    fn link(takes_machine_code: bool) -> Link {
        Link { capability: 90, takes_machine_code, state: Mutex::default(), log: Log { error: None }, most_registers: None }
    }

    /// A driver links what we cannot; without one, and where text alone lacks something, it is said
    /// what stands in the way.
    #[test]
    fn what_only_a_driver_links_is_a_bundle() {
        let (text, machine) = ((CUjitInputType::CU_JIT_INPUT_PTX, "a", CALLS), (CUjitInputType::CU_JIT_INPUT_CUBIN, "b", MACHINE));
        let image = complete(&link(true), &state(&[text, machine])).expect("a bundle");
        let kinds: Vec<u32> = Bundle::read(&image).expect("read").inputs.iter().map(|input| input.kind).collect();
        assert_eq!(kinds, [CUjitInputType::CU_JIT_INPUT_PTX.0, CUjitInputType::CU_JIT_INPUT_CUBIN.0]);
        assert!(complete(&link(false), &state(&[text, machine])).is_err(), "nobody links it");
        assert!(complete(&link(true), &state(&[text, text])).is_err(), "the helper is missing, and k is there twice");
        assert_eq!(complete(&link(true), &state(&[machine])).as_deref(), Ok(MACHINE), "it is linked already");
    }
}
