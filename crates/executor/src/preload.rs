//! A standby loads the modules of all clients before it is needed, and maps their memory, so that a
//! takeover need not. While the driver tears down the context that was broken, its calls wait for
//! 20 to 400 ms.
//!
//! It reads the journals that the executor that serves writes. What it reads is a hint: a module
//! that is loaded for nothing is dropped again, and one that is missing is loaded at the takeover.
//! So nothing depends on a journal that is read in the middle of a change.
//!
//! When all modules are loaded, it makes the chains that the clients have ([`ChainsAhead`]).
//!
//! Loading takes turns with shorter pauses, because the card is busy with clients. Where
//! the card has no memory left, it rests for longer and longer, and tries again.
//!
//! While a fault is handled it begins nothing, because calls of the driver would wait for that.
//!
//! After the takeover what was loaded stays for clients that come later: those that another
//! executor still has, and that are to move here.

use crate::background::Restored;
use crate::chains_ahead::{ChainsAhead, pause_after};
use crate::files::Files;
use crate::memory::{EXTENT_KEY, ExtentNote};
use crate::objects::{Change, Logged, ModuleSpec};
use crate::shared::Shared;
use cumux_device::{DeviceError, ImageHash, PreloadedModule};
use cumux_ring::journal::{JournalError, ObjectReader};
use cumux_wire::layout::{self, DeviceIndex};
use cumux_wire::message::SessionConfig;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the journals are looked at.
const PERIOD: Duration = Duration::from_millis(250);
/// The nice value of the thread.
const LOWEST_PRIORITY: i32 = 19;
/// Bytes of images that are loaded in advance at most: they take the card's memory twice.
const MOST_BYTES: usize = 1 << 30;

/// Most kernels of one module that are loaded without a pause.
const KERNELS_AT_ONCE: usize = 8;

/// A fault is handled by then, or is waited for no longer.
const LONGEST_CALM: Duration = Duration::from_millis(1_500);

/// The first and the longest time for which nothing is loaded when the card's memory is used up.
const SHORTEST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(64);

/// A client that may have to be taken over, or that comes later.
struct Expected {
    journal: Arc<OwnedFd>,
    window: Arc<OwnedFd>,
    window_address: u64,
    /// The indices of its devices, by its own ordinals.
    device_indices: Vec<u32>,
}

/// Whether modules are loaded.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Course {
    #[default]
    Loading,
    /// The takeover has come: no module is loaded in advance any more.
    Over,
}

#[derive(Default)]
struct Plan {
    course: Course,
    expected: BTreeMap<u32, Expected>,
    /// Until then nothing is begun.
    rests_until: Option<Instant>,
    /// How many modules are loaded.
    loaded: usize,
    /// How many kernels of modules whose kernels are loaded one by one.
    kernels: usize,
}

#[derive(Default)]
struct Board {
    plan: Mutex<Plan>,
    changed: Condvar,
}

/// Loads modules in advance, on a thread of its own, until it is [ended](Preloader::end).
#[derive(Default)]
pub struct Preloader {
    board: Arc<Board>,
    thread: Option<JoinHandle<Stock>>,
    /// What is left of it after the takeover, for clients that come later.
    left: Arc<Mutex<Stock>>,
}

/// What was loaded, and for whom.
#[derive(Default)]
struct Stock {
    preloaded: Preloaded,
    wanted: BTreeMap<u32, HashSet<Key>>,
}

impl Stock {
    /// Drops what nobody of these clients wants.
    fn retain(&mut self, shared: &Shared, is_expected: impl Fn(u32) -> bool) {
        self.wanted.retain(|client, _| is_expected(*client));
        let wanted: HashSet<&Key> = self.wanted.values().flatten().collect();
        self.preloaded.retain(shared, &wanted);
    }
}

/// A module as several clients may have it: its image, device, and variables.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    image: String,
    device_index: DeviceIndex,
    variables: Vec<(String, u64, u64)>,
}

/// What became of a module.
enum Attempt {
    /// The device has loaded it, and the code of these kernels, if it loads them one by one.
    Loaded { number: PreloadedModule, bytes: usize, kernels: BTreeSet<u32> },
    /// The device gains nothing by it, or cannot load it: the takeover will say why.
    NotLoaded,
}

/// The modules that were loaded in advance, or tried.
#[derive(Default)]
struct Preloaded(HashMap<Key, Attempt>);

impl Preloaded {
    fn bytes(&self) -> usize {
        self.0.values().map(|attempt| if let Attempt::Loaded { bytes, .. } = attempt { *bytes } else { 0 }).sum()
    }

    fn count(&self) -> usize {
        self.0.values().filter(|attempt| matches!(attempt, Attempt::Loaded { .. })).count()
    }

    fn count_kernels(&self) -> usize {
        self.0.values().map(|attempt| if let Attempt::Loaded { kernels, .. } = attempt { kernels.len() } else { 0 }).sum()
    }

    /// Drops what is not wanted any more.
    fn retain(&mut self, shared: &Shared, wanted: &HashSet<&Key>) {
        self.0.retain(|key, attempt| {
            let stays = wanted.contains(key);
            if let (false, Attempt::Loaded { number, .. }) = (stays, attempt) {
                shared.cards.drop_preloaded(key.device_index, *number);
            }
            stays
        });
    }
}

/// A client's modules and pinned memory, as far as its journal was read.
struct Watched {
    reader: ObjectReader,
    modules: BTreeMap<u32, ModuleSpec>,
    /// Pinned ranges of its window: address and bytes.
    pinned: BTreeMap<u64, u64>,
    /// Its memory may have changed since it was mapped ahead.
    is_changed: bool,
}

impl Watched {
    fn update(&mut self) -> Result<(), JournalError> {
        let new = self.reader.read_new()?;
        if new.is_whole {
            self.modules.clear();
            self.pinned.clear();
        }
        self.is_changed |= !new.entries.is_empty();
        for entry in new.entries {
            match Logged::decode(&entry).map(|logged| logged.change) {
                Ok(Change::Module { id, spec }) => drop(self.modules.insert(id, spec)),
                Ok(Change::ModuleGone { id }) => drop(self.modules.remove(&id)),
                Ok(Change::KernelUsed { module, function }) => {
                    if let Some(spec) = self.modules.get_mut(&module) {
                        spec.used.insert(function);
                    }
                }
                Ok(Change::Window { address, bytes }) => drop(self.pinned.insert(address, bytes)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Preloader {
    /// From now on this client's modules are loaded in advance.
    pub fn expect(&mut self, shared: &Arc<Shared>, config: &SessionConfig, files: &Files) {
        let device_indices = config.parts.iter().map(|part| part.device).collect();
        let (window, window_address) = (files.window(), layout::window_address(config.window_slot));
        let mut plan = self.board.plan.lock();
        plan.expected.insert(config.id, Expected { journal: files.journal(), window, window_address, device_indices });
        drop(plan);
        self.board.changed.notify_all();
        if self.thread.is_none() {
            let (shared, board) = (shared.clone(), self.board.clone());
            // Without a thread the takeover takes longer, and nothing else.
            self.thread = std::thread::Builder::new().name("preload".into()).spawn(move || run(&shared, &board)).ok();
        }
    }

    /// How many kernels are loaded in advance, of modules whose kernels are loaded one by one.
    #[cfg(test)]
    pub fn kernels(&self) -> usize {
        self.board.plan.lock().kernels
    }

    /// How many modules are loaded in advance.
    #[cfg(test)]
    pub fn loaded(&self) -> usize {
        self.board.plan.lock().loaded
    }

    /// This client has gone, or has come: whether it was expected.
    pub fn forget(&mut self, client: u32) -> bool {
        self.board.plan.lock().expected.remove(&client).is_some()
    }

    /// All clients but these have gone.
    pub fn retain(&mut self, clients: &BTreeMap<u32, (SessionConfig, Files)>) {
        self.board.plan.lock().expected.retain(|client, _| clients.contains_key(client));
    }

    /// Begins nothing while a fault is handled, or goes on.
    pub fn rest(&mut self, rest: bool) {
        self.board.plan.lock().rests_until = rest.then(|| Instant::now() + LONGEST_CALM);
        self.board.changed.notify_all();
    }

    /// Begins nothing any more: the takeover comes.
    pub fn end(&mut self) {
        self.board.plan.lock().course = Course::Over;
        self.board.changed.notify_all();
    }

    /// When the takeover is over, or another client has come or gone: drops what no client has
    /// taken and none wants that is still expected.
    pub fn clear(&mut self, shared: &Arc<Shared>) {
        let (thread, own, board, left) = (self.thread.take(), shared.clone(), self.board.clone(), self.left.clone());
        let clear = move || {
            let had_thread = thread.is_some();
            let stock = thread.and_then(|thread| thread.join().ok());
            {
                let mut left = left.lock();
                if let Some(stock) = stock {
                    *left = stock;
                }
                left.retain(&own, |client| board.plan.lock().expected.contains_key(&client));
                board.plan.lock().loaded = left.preloaded.count();
            }
            // Last, and without the lock: a card may take a minute to unmap what was mapped ahead.
            // Nothing is mapped ahead any more, so this is done once.
            if had_thread {
                own.cards.forget_expected(&|_| true);
            }
        };
        if !shared.workers.run_soon(clear) {
            tracing::warn!("the modules that were loaded in advance stay on the card: the system has no thread to drop them");
        }
    }
}

fn run(shared: &Shared, board: &Board) -> Stock {
    // Clients come first, and who cannot be slower is as fast as before.
    let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
    let mut watched: BTreeMap<u32, Watched> = BTreeMap::new();
    let mut stock = Stock::default();
    let (mut rest, mut mapped, mut chains) = (SHORTEST_REST, MappedAhead::default(), ChainsAhead::default());
    loop {
        let Some(Wanted { modules, kernels }) = list_wanted(board, &mut watched) else { return stock };
        mapped.follow(shared, board, &mut watched);
        stock.wanted = modules;
        let mut clients: HashMap<&Key, Vec<u32>> = HashMap::new();
        for (client, keys) in &stock.wanted {
            keys.iter().for_each(|key| clients.entry(key).or_default().push(*client));
        }
        // Kernels are missing: they are loaded without a longer pause.
        let mut is_complete = true;
        stock.preloaded.retain(shared, &clients.keys().copied().collect());
        shared.drop_unused_images(&clients.keys().map(|key| key.image.as_str()).collect());
        for (key, clients) in clients {
            let begun = Instant::now();
            let used = kernels.get(key);
            let attempted = match stock.preloaded.0.get_mut(key) {
                Some(Attempt::Loaded { number, kernels, .. }) => {
                    let missing: Vec<u32> = used.into_iter().flatten().filter(|kernel| !kernels.contains(kernel)).take(KERNELS_AT_ONCE).copied().collect();
                    if missing.is_empty() {
                        continue;
                    }
                    is_complete = false;
                    preload_kernels(shared, key, *number, &missing).inspect(|()| kernels.extend(&missing))
                }
                Some(Attempt::NotLoaded) => continue,
                None => {
                    let room = MOST_BYTES.saturating_sub(stock.preloaded.bytes());
                    preload(shared, key, &clients, room).map(|attempt| {
                        is_complete &= used.is_none() || attempt.is_none();
                        stock.preloaded.0.extend(attempt.map(|attempt| (key.clone(), attempt)));
                    })
                }
            };
            match attempted {
                Ok(()) => {
                    rest = SHORTEST_REST;
                    chains.note_loaded();
                }
                Err(Obstacle::Full(why)) => {
                    tracing::warn!("no modules are loaded in advance for {} s ({why}): a takeover would take longer", rest.as_secs());
                    if !pause(board, rest) {
                        return stock;
                    }
                    rest = (rest * 2).min(LONGEST_REST);
                    is_complete = false;
                    // Clients may have gone meanwhile.
                    break;
                }
                Err(Obstacle::Lost(why)) => {
                    tracing::warn!("no more modules are loaded in advance ({why}): a takeover would take longer");
                    return stock;
                }
            }
            {
                let mut plan = board.plan.lock();
                (plan.loaded, plan.kernels) = (stock.preloaded.count(), stock.preloaded.count_kernels());
            }
            if !pause(board, pause_after(begun)) {
                return stock;
            }
        }
        if is_complete {
            let clients: Vec<u32> = stock.wanted.keys().copied().collect();
            if !(chains.follow(shared, &clients, |time| pause(board, time)) && pause(board, PERIOD)) {
                return stock;
            }
        }
    }
}

/// What is mapped ahead, by client: its window and its extents.
#[derive(Default)]
struct MappedAhead(BTreeMap<u32, Vec<u64>>);

impl MappedAhead {
    /// Maps what clients have now, and unmaps what they have no more. What cannot be mapped ahead
    /// is mapped at the takeover, which says why it cannot.
    fn follow(&mut self, shared: &Shared, board: &Board, watched: &mut BTreeMap<u32, Watched>) {
        if !shared.cards.maps_ahead() {
            return;
        }
        let mut gone: Vec<u64> = self.0.extract_if(.., |client, _| !watched.contains_key(client)).flat_map(|(_, addresses)| addresses).collect();
        if !gone.is_empty() {
            // First: another client may have the addresses by now.
            shared.cards.forget_expected(&|address| gone.contains(&address));
            gone.clear();
        }
        for (client, watched) in watched.iter_mut().filter(|(_, watched)| watched.is_changed) {
            let plan = board.plan.lock();
            let Some(expected) = plan.expected.get(client).filter(|_| plan.course == Course::Loading) else { continue };
            let (window, address, device_indices) = (expected.window.clone(), expected.window_address, expected.device_indices.clone());
            drop(plan);
            let Ok(items) = shared.ask_keeper(|keeper| keeper.list(*client)) else { continue };
            watched.is_changed = false;
            let mut pinned: Vec<(u64, u64)> = watched.pinned.iter().map(|(address, bytes)| (*address, *bytes)).collect();
            // Managed variables: nobody announces them.
            let variables = watched.modules.values().flat_map(|module| &module.variables).map(|(_, at, bytes)| (*at, (*bytes).max(1)));
            pinned.extend(variables.filter(|(at, bytes)| *at >= address && at.saturating_add(*bytes) <= address + layout::WINDOW_BYTES));
            let mut addresses = vec![address];
            if let Err(error) = shared.cards.expect_window(&device_indices, window.as_fd(), address, layout::WINDOW_BYTES, &pinned) {
                tracing::debug!("the window of session {client} is not mapped in advance: {error}");
            }
            for item in items {
                let address = item.key.strip_prefix(EXTENT_KEY).and_then(|address| u64::from_str_radix(address, 16).ok());
                let (Some(address), Some(file)) = (address, item.descriptors.first()) else { continue };
                let ExtentNote { bytes, name: Some(name) } = ExtentNote::read(&item.note) else { continue };
                match shared.cards.expect_extent(name, address, file.as_fd(), bytes) {
                    Ok(true) => addresses.push(address),
                    Ok(false) => {}
                    Err(error) => tracing::debug!("an extent of session {client} is not mapped in advance: {error}"),
                }
            }
            let before = self.0.insert(*client, addresses).unwrap_or_default();
            gone.extend(before);
        }
        gone.retain(|address| !self.0.values().any(|addresses| addresses.contains(address)));
        if !gone.is_empty() {
            shared.cards.forget_expected(&|address| gone.contains(&address));
        }
    }
}

/// Waits, and as long as nothing is to be begun. False if the takeover comes.
fn pause(board: &Board, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    let mut plan = board.plan.lock();
    while plan.course == Course::Loading {
        let until = plan.rests_until.map_or(until, |rests| rests.max(until));
        if Instant::now() >= until {
            plan.rests_until = None;
            break;
        }
        board.changed.wait_until(&mut plan, until);
    }
    plan.course == Course::Loading
}

/// What clients have.
#[derive(Default)]
struct Wanted {
    /// The modules, by client.
    modules: BTreeMap<u32, HashSet<Key>>,
    /// The kernels that were launched of modules whose kernels are loaded one by one.
    kernels: HashMap<Key, BTreeSet<u32>>,
}

/// What the clients have now, as far as it can be known. `None` if the takeover comes.
fn list_wanted(board: &Board, watched: &mut BTreeMap<u32, Watched>) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    let plan = board.plan.lock();
    if plan.course == Course::Over {
        return None;
    }
    let expected = &plan.expected;
    watched.retain(|client, _| expected.contains_key(client));
    let mut device_indices = BTreeMap::new();
    for (client, expected) in expected {
        device_indices.insert(*client, expected.device_indices.clone());
        if !watched.contains_key(client)
            && let Ok(reader) = ObjectReader::map(&*expected.journal)
        {
            watched.insert(*client, Watched { reader, modules: BTreeMap::new(), pinned: BTreeMap::new(), is_changed: true });
        }
    }
    drop(plan);
    for (client, watched) in watched {
        if let Err(error) = watched.update() {
            // The next time the whole of it is read.
            tracing::debug!("the journal of session {client} was not read: {error}");
        }
        for spec in watched.modules.values().filter(|spec| spec.not_resumable.is_none()) {
            let device_index = device_indices.get(client).and_then(|device_indices| device_indices.get(spec.device as usize)).copied().unwrap_or(0);
            let key = Key { image: spec.image.clone(), device_index, variables: spec.variables.clone() };
            if !spec.used.is_empty() {
                wanted.kernels.entry(key.clone()).or_default().extend(&spec.used);
            }
            wanted.modules.entry(*client).or_default().insert(key);
        }
    }
    Some(wanted)
}

/// Why nothing is loaded for now, or any more.
enum Obstacle {
    /// There is no memory on the card.
    Full(String),
    /// The device is lost.
    Lost(String),
}

/// Loads the code of kernels of a preloaded module. What cannot be loaded now is loaded when it is
/// launched.
fn preload_kernels(shared: &Shared, key: &Key, number: PreloadedModule, kernels: &[u32]) -> Result<(), Obstacle> {
    let begun = Instant::now();
    match shared.cards.preload_kernels(key.device_index, number, kernels) {
        Ok(()) => {
            tracing::debug!(kernels = kernels.len(), took = ?begun.elapsed(), "kernels in advance");
            Ok(())
        }
        Err(DeviceError::OutOfMemory(why)) => Err(Obstacle::Full(why)),
        Err(DeviceError::Lost(why)) => Err(Obstacle::Lost(why)),
        Err(error) => {
            tracing::debug!("kernels of a module were not loaded in advance: {error}");
            Ok(())
        }
    }
}

/// Loads one module that these clients have, if its image is no longer than `room` bytes. `None` if
/// that is to be tried again: there is no room, or no keeper at the moment.
fn preload(shared: &Shared, key: &Key, clients: &[u32], room: usize) -> Result<Option<Attempt>, Obstacle> {
    let Some(hash) = ImageHash::from_hex(&key.image) else { return Ok(Some(Attempt::NotLoaded)) };
    let (mut bytes, mut is_read) = (0, true);
    let mut read = || {
        let image = shared.read_image(&key.image, clients, room as u64);
        let failed = |why: String| Err(DeviceError::Invalid(why));
        match image {
            Ok(Some(image)) => {
                bytes = (*image).as_ref().len();
                return Ok(image);
            }
            Ok(None) => is_read = false,
            Err(error) => {
                is_read = false;
                return failed(error.to_string());
            }
        }
        failed("the image is gone, or there is no room for more".to_owned())
    };
    let begun = Instant::now();
    let loaded = shared.cards.preload_module(key.device_index, hash, &mut read, &mut Restored(&key.variables));
    tracing::debug!(bytes, is_loaded = matches!(loaded, Ok(Some(_))), took = ?begun.elapsed(), "a module in advance");
    match loaded {
        Ok(Some(number)) => Ok(Some(Attempt::Loaded { number, bytes, kernels: BTreeSet::new() })),
        Ok(None) => Ok(Some(Attempt::NotLoaded)),
        Err(DeviceError::OutOfMemory(why)) => Err(Obstacle::Full(why)),
        Err(DeviceError::Lost(why)) => Err(Obstacle::Lost(why)),
        Err(error) => {
            tracing::debug!("a module was not loaded in advance: {error}");
            Ok(is_read.then_some(Attempt::NotLoaded))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_begun_while_a_fault_is_handled_and_the_takeover_ends_that() {
        let mut preloader = Preloader::default();
        let board = preloader.board.clone();
        assert!(pause(&board, Duration::ZERO));
        preloader.rest(true);
        let begun = Instant::now();
        assert!(pause(&board, Duration::ZERO));
        assert!(begun.elapsed() >= LONGEST_CALM / 2, "it has waited, and not for ever");
        preloader.rest(true);
        preloader.rest(false);
        assert!(board.plan.lock().rests_until.is_none() && pause(&board, Duration::ZERO));
        board.plan.lock().rests_until = Some(Instant::now() + Duration::from_secs(3600));
        let waits = std::thread::spawn(move || pause(&board, Duration::ZERO));
        preloader.end();
        assert!(!waits.join().unwrap());
    }
}
