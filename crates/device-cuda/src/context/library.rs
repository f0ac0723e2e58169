//! The modules of a card, by content, and how an image becomes one.
//!
//! An image without writable variables is loaded once and shared by all clients that bring the same
//! bytes; those used last stay when nobody uses them. PTX is compiled apart, where that stops
//! nobody; only machine code is loaded, at a moment when nothing long runs (decision 0107).

use super::module::{LoadedModule, Sharing};
use super::symbols::{self, Symbols};
use crate::counters::ClientCounts;
use crate::driver::CompileError;
use crate::quiet::Gate;
use cumux_device::DeviceError;
use cumux_fatbin::ImageKind;
use cumux_wire::result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Largest image, in bytes, that is unpacked to read its names.
const MOST_IMAGE_BYTES: u64 = 1 << 30;
/// Modules that are kept for their next use.
const KEPT_MODULES: usize = 64;
/// Bytes of those modules' images, together.
const KEPT_IMAGE_BYTES: usize = 256 << 20;

/// A module that may be shared.
struct SharedModule {
    hash: blake3::Hash,
    image_bytes: usize,
    module: Arc<LoadedModule>,
}

/// The modules that may be shared.
///
/// Lock order: `loading` is held alone, to find an image's turn. The turn, then [`Gate`]'s locks,
/// then `known`.
#[derive(Default)]
pub(crate) struct ModuleLibrary {
    /// The one used last is at the end.
    known: Mutex<Vec<SharedModule>>,
    /// Images that are being loaded. A client that brings the same image meanwhile waits for the
    /// outcome.
    loading: Mutex<HashMap<blake3::Hash, Arc<Mutex<()>>>>,
}

/// An image as the driver will choose it out of what the client brought.
struct ChosenImage {
    symbols: Symbols,
    /// Its text, if it is PTX.
    ptx: Option<Vec<u8>>,
}

impl ModuleLibrary {
    /// The module of an image, with the caller counted as a user. Slow: not for an engine's thread.
    ///
    /// # Errors
    /// [`DeviceError::Image`] where the image is at fault; the driver's errors in words.
    pub(crate) fn load(&self, gate: &Arc<Gate>, image: &[u8], counts: &ClientCounts) -> Result<Arc<LoadedModule>, DeviceError> {
        let hash = blake3::hash(image);
        let turn = self.loading.lock().entry(hash).or_default().clone();
        let loaded = self.load_in_turn(gate, image, hash, counts, &turn);
        // Whoever still waits holds the same turn.
        self.loading.lock().retain(|_, turn| Arc::strong_count(turn) > 1);
        loaded
    }

    /// The shared module of this content, with one more user, if there is one.
    fn find(&self, hash: blake3::Hash) -> Option<Arc<LoadedModule>> {
        let mut known = self.known.lock();
        let at = known.iter().position(|shared| shared.hash == hash)?;
        let found = known.remove(at);
        let module = found.module.clone();
        module.add_user();
        known.push(found);
        Some(module)
    }

    fn load_in_turn(
        &self,
        gate: &Arc<Gate>,
        image: &[u8],
        hash: blake3::Hash,
        counts: &ClientCounts,
        turn: &Mutex<()>,
    ) -> Result<Arc<LoadedModule>, DeviceError> {
        if let Some(module) = self.find(hash) {
            return Ok(module);
        }
        let ChosenImage { symbols, ptx } = choose_image(gate.driver().device().compute_capability(), image)?;
        if let Some(name) = symbols.managed.first() {
            let text = format!("the module has the __managed__ variable {name}: managed memory belongs to one process and cannot be shared with the client");
            return Err(image_error(result::NOT_SUPPORTED, text));
        }
        // A module with writable variables is each client's own: there is nothing to wait for.
        let _turn = if symbols.writable { None } else { Some(turn.lock()) };
        if let Some(module) = self.find(hash) {
            return Ok(module);
        }
        let compiled = ptx.and_then(|ptx| match gate.driver().compile(&ptx) {
            Ok(code) => Some(code),
            // The driver says the same, or better, when it is given the image itself.
            Err(CompileError { error, log }) => {
                tracing::debug!(code = error.number(), "PTX does not compile on its own: {log}");
                None
            }
        });
        let module = Arc::new(gate.run_quietly(Some(counts), || LoadedModule::load(gate, compiled.as_deref().unwrap_or(image), &symbols))?);
        if module.sharing == Sharing::AnyClient {
            self.known.lock().push(SharedModule { hash, image_bytes: image.len(), module: module.clone() });
        }
        Ok(module)
    }

    /// Takes out the oldest modules that nobody uses, if there are too many.
    pub(crate) fn evict_unused(&self) -> Vec<Arc<LoadedModule>> {
        let mut known = self.known.lock();
        let mut bytes: usize = known.iter().map(|shared| shared.image_bytes).sum();
        let mut excess = known.len().saturating_sub(KEPT_MODULES);
        let evicted = known.extract_if(.., |shared| {
            let goes = (excess > 0 || bytes > KEPT_IMAGE_BYTES) && !shared.module.is_used();
            if goes {
                excess = excess.saturating_sub(1);
                bytes -= shared.image_bytes;
            }
            goes
        });
        evicted.map(|shared| shared.module).collect()
    }
}

fn image_error(result: u32, text: String) -> DeviceError {
    DeviceError::Image { result, text }
}

/// The image that a card of this compute capability (major * 10 + minor) takes out of what the
/// client brought, and the names in it.
fn choose_image(capability: u32, image: &[u8]) -> Result<ChosenImage, DeviceError> {
    let invalid = |error: cumux_fatbin::Error| image_error(result::INVALID_IMAGE, error.to_string());
    let images = cumux_fatbin::images(image).map_err(invalid)?;
    let chosen = cumux_fatbin::best_compiled(&images, capability).or_else(|| cumux_fatbin::best_ptx(&images, capability)).or(match images.as_slice() {
        // A bare image that does not say for what card it is: the driver judges.
        [only] => Some(only),
        _ => None,
    });
    let Some(chosen) = chosen else {
        let text = format!("none of the {} images runs on compute capability {}.{}", images.len(), capability / 10, capability % 10);
        return Err(image_error(result::NO_BINARY_FOR_GPU, text));
    };
    let bytes = chosen.bytes(MOST_IMAGE_BYTES).map_err(invalid)?;
    match chosen.kind {
        ImageKind::Elf => {
            let symbols = symbols::of_elf(&bytes).ok_or_else(|| image_error(result::INVALID_IMAGE, "the compiled image is damaged".into()))?;
            Ok(ChosenImage { symbols, ptx: None })
        }
        ImageKind::Ptx => Ok(ChosenImage { symbols: symbols::of_ptx(&String::from_utf8_lossy(&bytes)), ptx: Some(bytes.to_vec()) }),
        // Nothing is known of it, so it may have anything.
        ImageKind::Other(_) => Ok(ChosenImage { symbols: Symbols { writable: true, asserts: true, ..Symbols::default() }, ptx: None }),
    }
}
