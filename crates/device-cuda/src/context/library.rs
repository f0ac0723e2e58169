//! The modules of a card, by content, and how an image becomes a module.
//!
//! The variables of an image are [placed](super::placement) in the memory of its client.
//!
//! An image whose variables hold nothing is loaded once and shared by all clients that bring the
//! same bytes: chains of kernels serve all of them, too (decision 0112). If it is large, its
//! kernels are loaded one by one ([`DividedImage`]). The modules used last are kept when no client
//! uses them. PTX is compiled separately, which delays no other client; only
//! machine code is loaded, while the card is quiet (decision 0107).

use super::conditions;
use super::divided::DividedImage;
use super::extents::Extents;
use super::module::{LoadedModule, Sharing};
use super::placement::{self, IdleVariables, Resumption, Variables};
use super::symbols::{self, Symbols};
use crate::counters::ClientCounts;
use crate::driver::{CardAddress, CompileError, Driver};
use crate::quiet::{Gate, NotQuiet};
use cumux_device::{DeviceError, GlobalsAllocator, Image, ImageHash, PreloadedModule, ReadImage};
use cumux_fatbin::{Bundle, ImageKind, LinkInput};
use cumux_wire::result;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of the largest image that is unpacked to read its names.
const MOST_IMAGE_BYTES: u64 = 1 << 30;
/// `CU_JIT_INPUT_PTX`.
const PTX_INPUT: u32 = 1;
/// Most modules that are kept for their next use.
const KEPT_MODULES: usize = 64;
/// Most bytes of those modules' images.
const KEPT_IMAGE_BYTES: usize = 256 << 20;

/// A module that clients may share.
struct SharedModule {
    hash: ImageHash,
    image_bytes: usize,
    module: Arc<LoadedModule>,
}

/// A module that was loaded before its client came.
struct Preloaded {
    hash: ImageHash,
    module: Arc<LoadedModule>,
    owner: Owner,
}

/// Preloaded modules by number. No number is used again: who has one may drop it late.
#[derive(Default)]
struct PreloadedModules {
    last: u64,
    modules: BTreeMap<u64, Preloaded>,
}

/// For whom a module was preloaded.
enum Owner {
    /// Any client. The library counts as one user of the shared module, so that it stays.
    AnyClient,
    /// The client whose variables these are: the answers of its allocator.
    WithVariables { variables: Variables, answers: Vec<Answer> },
}

/// What an allocator was asked, and its answer.
struct Answer {
    name: String,
    bytes: u64,
    align: u64,
    address: CardAddress,
}

/// The modules that clients may share, and those that were preloaded.
///
/// Lock order: the lock of one image in `loading` (1), then the locks of [`Gate`], then `known`
/// and `preloaded` (8), each alone. The map `loading` (8) is locked alone, to find the lock of an
/// image.
#[derive(Default)]
pub(crate) struct ModuleLibrary {
    /// False if all images are loaded as a whole.
    divides: bool,
    /// The module used last is at the end.
    known: Mutex<Vec<SharedModule>>,
    /// Modules that were loaded before their clients came, by their numbers.
    preloaded: Mutex<PreloadedModules>,
    /// A lock for each image that is being loaded. A thread that loads the same image meanwhile
    /// waits for it.
    loading: Mutex<HashMap<ImageHash, Arc<Mutex<()>>>>,
}

/// The image that the driver will choose out of those that the client brought.
struct ChosenImage {
    symbols: Symbols,
    code: ImageCode,
    /// Variables that hold nothing.
    idle: IdleVariables,
}

/// The code of an image, as far as it is needed after its names were read.
enum ImageCode {
    /// Its text. `is_own`: it is not the client's, but made of that.
    Ptx { text: Vec<u8>, is_own: bool },
    /// Machine code with variables.
    WithVariables(Vec<u8>),
    /// Machine code whose variables hold nothing. It was examined.
    WithoutVariables(Resumption),
    /// The same, and its kernels can be loaded one by one.
    Divided(DividedImage),
    /// Nothing is known.
    Unknown,
}

/// A module as it will be loaded.
struct PreparedImage {
    /// The image in place of the one that the client brought.
    image: Option<Vec<u8>>,
    variables: Variables,
}

impl ModuleLibrary {
    /// An empty library. `divides`: kernels of large images are loaded one by one.
    pub(crate) fn new(divides: bool) -> ModuleLibrary {
        ModuleLibrary { divides, ..ModuleLibrary::default() }
    }

    /// Loads the module of an image, and counts the caller as a user. Its variables go where
    /// `place` says. Slow: an engine thread must not call this.
    ///
    /// # Errors
    /// [`DeviceError::Image`] if the image is at fault, else the driver's error as a sentence.
    pub(crate) fn load(
        &self,
        gate: &Arc<Gate>,
        extents: &Extents,
        image: Image<'_>,
        counts: &ClientCounts,
        place: &mut dyn GlobalsAllocator,
    ) -> Result<Arc<LoadedModule>, DeviceError> {
        let Image { bytes: image, hash } = image;
        if let Some(module) = self.find(hash) {
            return Ok(module);
        }
        let begun = Instant::now();
        let linked = link_bundle(gate.driver(), image)?;
        let image = linked.as_deref().unwrap_or(image);
        let chosen = choose_image(gate.driver(), image, self.divides)?;
        tracing::debug!(bytes = image.len(), took = ?begun.elapsed(), "an image is read");
        // A module with writable variables is not shared: there is nothing to wait for.
        if chosen.symbols.writable {
            return load_chosen(gate, extents, image, chosen, counts, place);
        }
        self.load_once(hash, || load_chosen(gate, extents, image, chosen, counts, place).inspect(|module| self.keep(hash, image.len(), module)))
    }

    /// Finds the shared module of this content, or loads it while nobody else does.
    fn load_once(&self, hash: ImageHash, load: impl FnOnce() -> Result<Arc<LoadedModule>, DeviceError>) -> Result<Arc<LoadedModule>, DeviceError> {
        let image_lock = self.loading.lock().entry(hash).or_default().clone();
        let loaded = {
            let _guard = image_lock.lock();
            match self.find(hash) {
                Some(module) => Ok(module),
                None => load(),
            }
        };
        drop(image_lock);
        // Threads that still wait for the image hold a reference to its lock.
        self.loading.lock().retain(|_, image_lock| Arc::strong_count(image_lock) > 1);
        loaded
    }

    /// A module of this content that is there already, with one more user. If the caller restores a
    /// client, that may be one which was preloaded with the variables that `place` names.
    ///
    /// # Errors
    /// The driver's error as a sentence.
    pub(crate) fn adopt(&self, extents: &Extents, hash: ImageHash, place: &mut dyn GlobalsAllocator) -> Result<Option<Arc<LoadedModule>>, DeviceError> {
        if let Some(module) = self.find(hash) {
            return Ok(Some(module));
        }
        if !place.is_restoring() {
            return Ok(None);
        }
        let taken = {
            let mut preloaded = self.preloaded.lock();
            let fits = |module: &Preloaded, place: &mut dyn GlobalsAllocator| match &module.owner {
                Owner::AnyClient => false,
                Owner::WithVariables { answers, .. } => module.hash == hash && answers.iter().all(|answer| answer.is_given_again(place)),
            };
            let number = preloaded.modules.iter().find(|(_, module)| fits(module, place)).map(|(number, _)| *number);
            number.and_then(|number| preloaded.modules.remove(&number))
        };
        let Some(Preloaded { module, owner: Owner::WithVariables { variables, .. }, .. }) = taken else { return Ok(None) };
        module.fill_constants(extents, &variables, place)?;
        Ok(Some(module))
    }

    /// Loads the module of an image whose client has not come yet. `place` names the variables that
    /// the client has; their memory is not there yet, and is not touched. `None` if the module
    /// could not be used for a client that is restored.
    ///
    /// # Errors
    /// As [`ModuleLibrary::load`].
    pub(crate) fn preload(
        &self,
        gate: &Arc<Gate>,
        extents: &Extents,
        hash: ImageHash,
        read: &mut ReadImage<'_>,
        place: &mut dyn GlobalsAllocator,
    ) -> Result<Option<PreloadedModule>, DeviceError> {
        let (module, owner) = match self.find(hash) {
            Some(module) => (module, Owner::AnyClient),
            None => {
                let image = read()?;
                let image = (*image).as_ref();
                let linked = link_bundle(gate.driver(), image)?;
                let image = linked.as_deref().unwrap_or(image);
                let chosen = choose_image(gate.driver(), image, self.divides)?;
                if chosen.symbols.writable {
                    let mut asked = Asked { place, answers: Vec::new(), is_restored: true };
                    let (module, variables) = load_prepared(gate, extents, image, chosen, None, &mut asked)?;
                    if !asked.is_restored {
                        return Ok(None);
                    }
                    (module, Owner::WithVariables { variables, answers: asked.answers })
                } else {
                    let load = || {
                        let (module, _) = load_prepared(gate, extents, image, chosen, None, place)?;
                        self.keep(hash, image.len(), &module);
                        Ok(module)
                    };
                    (self.load_once(hash, load)?, Owner::AnyClient)
                }
            }
        };
        if module.resumption != Resumption::Possible {
            module.remove_user();
            return Ok(None);
        }
        let mut preloaded = self.preloaded.lock();
        preloaded.last += 1;
        let number = preloaded.last;
        preloaded.modules.insert(number, Preloaded { hash, module, owner });
        Ok(Some(PreloadedModule(number)))
    }

    /// Loads the code of kernels of a preloaded module.
    ///
    /// # Errors
    /// The driver's error as a sentence.
    pub(crate) fn preload_kernels(&self, number: PreloadedModule, functions: &[u32]) -> Result<(), DeviceError> {
        let module = self.preloaded.lock().modules.get(&number.0).map(|preloaded| preloaded.module.clone());
        let Some(module) = module else { return Ok(()) };
        functions.iter().try_for_each(|function| module.load_kernel(*function, None))
    }

    /// Gives up a preloaded module. Returns it if it was for one client, which did not take it.
    pub(crate) fn drop_preloaded(&self, number: PreloadedModule) -> Option<Arc<LoadedModule>> {
        let Preloaded { module, owner, .. } = self.preloaded.lock().modules.remove(&number.0)?;
        module.remove_user();
        matches!(owner, Owner::WithVariables { .. }).then_some(module)
    }

    /// Finds the shared module of this content, and counts one more user of it.
    fn find(&self, hash: ImageHash) -> Option<Arc<LoadedModule>> {
        let mut known = self.known.lock();
        let at = known.iter().position(|shared| shared.hash == hash)?;
        let found = known.remove(at);
        let module = found.module.clone();
        module.add_user();
        known.push(found);
        Some(module)
    }

    /// The shared module of this content, if it is on the card.
    pub(crate) fn look_up(&self, hash: ImageHash) -> Option<Arc<LoadedModule>> {
        self.known.lock().iter().find(|shared| shared.hash == hash).map(|shared| shared.module.clone())
    }

    /// Keeps a module for other clients, if it can be shared.
    fn keep(&self, hash: ImageHash, image_bytes: usize, module: &Arc<LoadedModule>) {
        if module.sharing == Sharing::AnyClient {
            module.share_as(hash);
            self.known.lock().push(SharedModule { hash, image_bytes, module: module.clone() });
        }
    }

    /// Takes out the oldest modules that no client uses, if there are too many.
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

/// Links a bundle to machine code. `None` for any other image.
fn link_bundle(driver: &Driver, image: &[u8]) -> Result<Option<Vec<u8>>, DeviceError> {
    if !Bundle::is_bundle(image) {
        return Ok(None);
    }
    let bundle = Bundle::read(image).map_err(|error| image_error(result::INVALID_IMAGE, error.to_string()))?;
    let replace = |input: &LinkInput<'_>| (input.kind == PTX_INPUT).then(|| conditions::replace_in(&String::from_utf8_lossy(input.data))).flatten();
    let own: Vec<Option<String>> = bundle.inputs.iter().map(replace).collect();
    let mut inputs = bundle.inputs.clone();
    for (input, own) in inputs.iter_mut().zip(&own) {
        input.data = own.as_deref().map_or(input.data, str::as_bytes);
    }
    let linked = driver.link(&inputs).map_err(|CompileError { error, log }| {
        let said = if log.is_empty() { driver.describe(error) } else { log };
        image_error(error.number(), format!("the parts of the program were not linked: {said}"))
    })?;
    tracing::debug!(inputs = bundle.inputs.len(), bytes = linked.len(), "a bundle is linked");
    Ok(Some(linked))
}

/// Compiles the image if it is PTX, places its variables, and loads it.
fn load_chosen(
    gate: &Arc<Gate>,
    extents: &Extents,
    image: &[u8],
    chosen: ChosenImage,
    counts: &ClientCounts,
    place: &mut dyn GlobalsAllocator,
) -> Result<Arc<LoadedModule>, DeviceError> {
    let begun = Instant::now();
    let (module, variables) = load_prepared(gate, extents, image, chosen, Some(counts), place)?;
    module.fill_constants(extents, &variables, place)?;
    let (kernels, sharing, on_demand) = (module.kernels.len(), module.sharing, module.info.on_demand);
    tracing::debug!(bytes = image.len(), kernels, ?sharing, on_demand, took = ?begun.elapsed(), "a module is loaded");
    Ok(module)
}

/// The same, but the banks of `__constant__` variables are not filled.
fn load_prepared(
    gate: &Arc<Gate>,
    extents: &Extents,
    image: &[u8],
    chosen: ChosenImage,
    counts: Option<&ClientCounts>,
    place: &mut dyn GlobalsAllocator,
) -> Result<(Arc<LoadedModule>, Variables), DeviceError> {
    let ChosenImage { mut symbols, code, idle } = chosen;
    let was_text = matches!(code, ImageCode::Ptx { .. });
    let code = match code {
        ImageCode::Divided(divided) => {
            let bytes = divided.bytes();
            let outlined = gate.run_quietly(counts, || LoadedModule::load_outline(gate, divided, &symbols, idle.clone())).map_err(NotQuiet::into_error)?;
            match outlined {
                Ok(module) => return Ok((Arc::new(module), Variables::LeftToDriver(Resumption::Possible))),
                Err(error @ (DeviceError::OutOfMemory(_) | DeviceError::Lost(_) | DeviceError::LetGo(_))) => return Err(error),
                Err(why) => {
                    tracing::warn!("an image of {bytes} bytes is loaded as a whole: its kernels cannot be loaded one by one: {why}");
                    ImageCode::WithoutVariables(Resumption::Possible)
                }
            }
        }
        code => code,
    };
    let PreparedImage { image: own, variables } = prepare(gate, extents, code, &symbols, place)?;
    if let (Some(name), Variables::LeftToDriver(resumption)) = (symbols.managed.first(), &variables) {
        // The driver's managed memory belongs to this process: the client would not see it.
        let why = if let Resumption::Impossible(why) = resumption { why } else { "it is not told where" };
        let text = format!("the module has the __managed__ variable {name}, and its variables cannot be placed in memory that the client sees: {why}");
        return Err(image_error(result::NOT_SUPPORTED, text));
    }
    if let Some(compiled) = own.as_deref().filter(|_| was_text) {
        symbols.read_stacks(compiled);
    }
    let module =
        gate.run_quietly(counts, || LoadedModule::load(gate, own.as_deref().unwrap_or(image), &symbols, &variables, idle)).map_err(NotQuiet::into_error)??;
    Ok((Arc::new(module), variables))
}

/// An allocator whose answers are remembered.
struct Asked<'a> {
    place: &'a mut dyn GlobalsAllocator,
    answers: Vec<Answer>,
    /// False once the contents of a variable would have to be written.
    is_restored: bool,
}

impl GlobalsAllocator for Asked<'_> {
    fn variable(&mut self, name: &str, bytes: u64, align: u64, managed: bool) -> Result<(u64, bool), DeviceError> {
        let (address, restored) = self.place.variable(name, bytes, align, managed)?;
        self.is_restored &= restored;
        self.answers.push(Answer { name: name.to_owned(), bytes, align, address });
        Ok((address, restored))
    }

    fn fill(&mut self, write: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        self.place.fill(write)
    }

    fn is_restoring(&self) -> bool {
        self.place.is_restoring()
    }

    fn not_resumable(&mut self, why: &str) {
        self.place.not_resumable(why);
    }
}

impl Answer {
    /// True if this allocator gives the same answer: the module that was loaded with it is as good
    /// as one that is loaded now.
    fn is_given_again(&self, place: &mut dyn GlobalsAllocator) -> bool {
        place.variable(&self.name, self.bytes, self.align, false).is_ok_and(|(address, restored)| restored && address == self.address)
    }
}

/// Compiles an image if it is PTX, and places its variables.
fn prepare(gate: &Gate, extents: &Extents, code: ImageCode, symbols: &Symbols, place: &mut dyn GlobalsAllocator) -> Result<PreparedImage, DeviceError> {
    let left = |image, resumption| Ok(PreparedImage { image, variables: Variables::LeftToDriver(resumption) });
    let (code, compiled) = match code {
        ImageCode::WithVariables(code) => (code, false),
        ImageCode::WithoutVariables(resumption) => return left(None, resumption),
        // Its caller has loaded it.
        ImageCode::Divided(_) => return left(None, Resumption::Possible),
        ImageCode::Unknown => return left(None, Resumption::Impossible("its image is of a kind of which nothing is known".into())),
        ImageCode::Ptx { text, is_own } if !symbols.writable && gate.driver().runs_text(&text) => {
            return left(is_own.then_some(text), Resumption::Possible);
        }
        ImageCode::Ptx { text, is_own } => match gate.driver().compile(&text) {
            Ok(code) => (code, true),
            // Loading the image itself reports the same error, or a better one.
            Err(CompileError { error, log }) => {
                tracing::debug!(code = error.number(), "PTX does not compile on its own: {log}");
                return left(is_own.then_some(text), Resumption::Impossible("its PTX could not be compiled on its own".into()));
            }
        },
    };
    if !symbols.writable {
        let resumption = placement::examine(&code);
        return left(Some(code), resumption);
    }
    // Without a rewritten image, that of the client does as well, unless it would be compiled
    // again.
    let original = if compiled { Some(code.clone()) } else { None };
    let mut variables = placement::place_variables(code, symbols, place, extents)?;
    let rewritten = if let Variables::Placed(placement) = &mut variables { placement.image.take() } else { None };
    Ok(PreparedImage { image: rewritten.or(original), variables })
}

/// True if the driver can make code of this text.
fn compiles(driver: &Driver, text: &[u8]) -> bool {
    driver.runs_text(text) || driver.compile(text).is_ok()
}

/// PTX with functions of ours in place of those that only NVIDIA's driver understands.
fn choose_text(text: Vec<u8>) -> ChosenImage {
    let own = conditions::replace_in(&String::from_utf8_lossy(&text));
    if own.is_some() {
        tracing::debug!("kernels of a module say how a graph goes on: a function of ours takes it down");
    }
    let (text, is_own) = own.map_or((text, false), |own| (own.into_bytes(), true));
    let words = String::from_utf8_lossy(&text);
    let mut symbols = symbols::of_ptx(&words);
    if !is_own && words.contains(conditions::SETS_CONDITION) {
        // It is not declared as compilers do, and nobody knows who calls it.
        symbols.sets_conditions = symbols::Callers::Any;
    }
    ChosenImage { symbols, code: ImageCode::Ptx { text, is_own }, idle: IdleVariables::default() }
}

fn image_error(result: u32, text: String) -> DeviceError {
    DeviceError::Image { result, text }
}

/// Chooses the image for this driver's card out of those that the client brought, and reads its
/// names. `divides`: its kernels may be loaded one by one.
fn choose_image(driver: &Driver, image: &[u8], divides: bool) -> Result<ChosenImage, DeviceError> {
    let capability = driver.device().compute_capability();
    let invalid = |error: cumux_fatbin::Error| image_error(result::INVALID_IMAGE, error.to_string());
    let images = cumux_fatbin::images(image).map_err(invalid)?;
    let chosen = cumux_fatbin::best_compiled(&images, capability).or_else(|| cumux_fatbin::best_ptx(&images, capability)).or(match images.as_slice() {
        // A bare image does not say which cards it is for: the driver decides.
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
            let mut symbols = symbols::of_elf(&bytes).ok_or_else(|| image_error(result::INVALID_IMAGE, "the compiled image is damaged".into()))?;
            // Only in PTX can the driver's function be replaced. Where that is not possible, or the
            // driver is older than the PTX, machine code serves all but those kernels.
            if symbols.sets_conditions != symbols::Callers::default()
                && let Some(text) = cumux_fatbin::best_ptx(&images, capability)
            {
                let own = choose_text(text.bytes(MOST_IMAGE_BYTES).map_err(invalid)?.into_owned());
                if let ImageCode::Ptx { text, is_own: true } = &own.code
                    && compiles(driver, text)
                {
                    return Ok(own);
                }
                tracing::warn!("kernels of an image say how graphs go on, and its PTX cannot be used: those cannot be launched with conditions");
            }
            let idle = if symbols.writable { IdleVariables::find(&bytes) } else { None };
            if idle.is_some() {
                symbols.writable = false;
                symbols.variables.clear();
            }
            let code = if symbols.writable {
                ImageCode::WithVariables(bytes.into_owned())
            } else {
                let resumption = placement::examine(&bytes);
                let divided = if divides && resumption == Resumption::Possible { DividedImage::of(bytes) } else { None };
                divided.map_or(ImageCode::WithoutVariables(resumption), ImageCode::Divided)
            };
            Ok(ChosenImage { symbols, code, idle: idle.unwrap_or_default() })
        }
        ImageKind::Ptx => Ok(choose_text(bytes.into_owned())),
        // Nothing is known of the image, so it may have writable variables and assertions.
        ImageKind::Other(_) => {
            let symbols = Symbols { writable: true, asserts: true, moves_stack: symbols::Callers::Any, ..Symbols::default() };
            Ok(ChosenImage { symbols, code: ImageCode::Unknown, idle: IdleVariables::default() })
        }
    }
}
