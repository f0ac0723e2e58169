//! The linker interface: images are collected and joined into one that `cuModuleLoadData` takes.
//! Without a device linker only a single PTX text (or container) can be "joined"; more than one is
//! refused by name.

use crate::ffi::{Try, error, list, name, put};
use crate::handle::{Kind, Table};
use crate::log::unsupported;
use crate::process;
use crate::sync::lock;
use core::ffi::{c_char, c_uint, c_void};
use cumux_abi::{CUjit_option, CUjitInputType, CUlinkState};
use std::sync::{Arc, Mutex};

/// All links in progress.
static LINKS: Table<Link> = Table::new(Kind::Link);

/// A link in progress; the result stays until it is destroyed.
#[derive(Debug)]
pub struct Link {
    inputs: Mutex<Vec<Vec<u8>>>,
}

fn named(state: CUlinkState) -> Try<Arc<Link>> {
    process::enter()?;
    LINKS.get(state.addr() as u64).ok_or(error::INVALID_HANDLE)
}

fn add(state: CUlinkState, kind: CUjitInputType, mut data: Vec<u8>) -> Try {
    let link = named(state)?;
    match kind {
        CUjitInputType::CU_JIT_INPUT_PTX => {
            if data.last() != Some(&0) {
                data.push(0);
            }
        }
        CUjitInputType::CU_JIT_INPUT_FATBINARY | CUjitInputType::CU_JIT_INPUT_CUBIN => {}
        other => return Err(unsupported(format!("a linker for inputs of type {}: PTX text, fatbins and cubins are taken", other.0))),
    }
    let mut inputs = lock(&link.inputs);
    if !inputs.is_empty() {
        return Err(unsupported("several images cannot be linked; compile them into one"));
    }
    inputs.push(data);
    Ok(())
}

pub unsafe fn cuLinkCreate_v2(count: c_uint, options: *mut CUjit_option, _values: *mut *mut c_void, out: *mut CUlinkState) -> Try {
    process::enter()?;
    list!(options.cast_const(), count as usize);
    let (handle, _) = LINKS.insert(|_| Arc::new(Link { inputs: Mutex::default() })).ok_or(error::OUT_OF_MEMORY)?;
    put!(out, core::ptr::without_provenance_mut(handle as usize));
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuLinkAddData_v2(
    state: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    bytes: usize,
    _name: *const c_char,
    _count: c_uint,
    _options: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> Try {
    add(state, kind, list!(data.cast_const().cast::<u8>(), bytes).to_vec())
}

pub unsafe fn cuLinkAddFile_v2(
    state: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    _count: c_uint,
    _options: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> Try {
    add(state, kind, std::fs::read(name!(path)).map_err(|_| error::FILE_NOT_FOUND)?)
}

pub unsafe fn cuLinkComplete(state: CUlinkState, out: *mut *mut c_void, bytes: *mut usize) -> Try {
    let link = named(state)?;
    let inputs = lock(&link.inputs);
    let image = inputs.first().ok_or(error::INVALID_VALUE)?;
    put!(out, core::ptr::with_exposed_provenance_mut(image.as_ptr().expose_provenance()));
    put!(bytes, image.len());
    Ok(())
}

pub unsafe fn cuLinkDestroy(state: CUlinkState) -> Try {
    process::find_connection()?;
    LINKS.remove(state.addr() as u64).map(drop).ok_or(error::INVALID_HANDLE)
}
