//! A standby loads the modules of all clients before it is needed, so that a takeover need not.
//!
//! It reads the journals that the executor that serves writes. What it reads is a hint: a module
//! that is loaded for nothing is dropped again, and one that is missing is loaded at the takeover.
//! So nothing depends on a journal that is read in the middle of a change.
//!
//! Loading takes turns with pauses of the same length, because the card is busy with clients.

use crate::background::Restored;
use crate::files::Files;
use crate::objects::{Change, Logged, ModuleSpec};
use crate::shared::Shared;
use cumux_device::{DeviceError, ImageHash, PreloadedModule};
use cumux_ring::journal::{JournalError, ObjectReader};
use cumux_wire::layout::DeviceIndex;
use cumux_wire::message::SessionConfig;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the journals are looked at.
const PERIOD: Duration = Duration::from_millis(250);
/// The nice value of the thread.
const LOWEST_PRIORITY: i32 = 19;
/// The longest pause after a module.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Bytes of images that are loaded in advance at most: they take the card's memory twice.
const MOST_BYTES: usize = 1 << 30;

/// A client that may have to be taken over.
struct Expected {
    journal: Arc<OwnedFd>,
    /// The indices of its devices, by its own ordinals.
    device_indices: Vec<u32>,
}

#[derive(Default)]
struct Plan {
    /// None once the standby is one no more.
    expected: Option<BTreeMap<u32, Expected>>,
    /// How many modules are loaded.
    loaded: usize,
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
    thread: Option<JoinHandle<Preloaded>>,
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
    /// The device has loaded it.
    Loaded { number: PreloadedModule, bytes: usize },
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

    /// Drops what is not wanted any more.
    fn retain(&mut self, shared: &Shared, wanted: &HashSet<Key>) {
        self.0.retain(|key, attempt| {
            let stays = wanted.contains(key);
            if let (false, Attempt::Loaded { number, .. }) = (stays, attempt) {
                shared.cards.drop_preloaded(key.device_index, *number);
            }
            stays
        });
    }
}

/// A client's modules, as far as its journal was read.
struct Watched {
    reader: ObjectReader,
    modules: BTreeMap<u32, ModuleSpec>,
}

impl Watched {
    fn update(&mut self) -> Result<(), JournalError> {
        let new = self.reader.read_new()?;
        if new.is_whole {
            self.modules.clear();
        }
        for entry in new.entries {
            match Logged::decode(&entry).map(|logged| logged.change) {
                Ok(Change::Module { id, spec }) => drop(self.modules.insert(id, spec)),
                Ok(Change::ModuleGone { id }) => drop(self.modules.remove(&id)),
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
        let mut plan = self.board.plan.lock();
        plan.expected.get_or_insert_default().insert(config.id, Expected { journal: files.journal(), device_indices });
        drop(plan);
        self.board.changed.notify_all();
        if self.thread.is_none() {
            let (shared, board) = (shared.clone(), self.board.clone());
            // Without a thread the takeover takes longer, and nothing else.
            self.thread = std::thread::Builder::new().name("preload".into()).spawn(move || run(&shared, &board)).ok();
        }
    }

    /// How many modules are loaded in advance.
    #[cfg(test)]
    pub fn loaded(&self) -> usize {
        self.board.plan.lock().loaded
    }

    /// This client has gone.
    pub fn forget(&mut self, client: u32) {
        if let Some(expected) = &mut self.board.plan.lock().expected {
            expected.remove(&client);
        }
    }

    /// All clients but these have gone.
    pub fn retain(&mut self, clients: &BTreeMap<u32, (SessionConfig, Files)>) {
        if let Some(expected) = &mut self.board.plan.lock().expected {
            expected.retain(|client, _| clients.contains_key(client));
        }
    }

    /// Begins nothing any more: the takeover comes.
    pub fn end(&mut self) {
        self.board.plan.lock().expected = None;
        self.board.changed.notify_all();
    }

    /// Drops what no client has taken, when the takeover is over.
    pub fn clear(&mut self, shared: &Arc<Shared>) {
        let Some(thread) = self.thread.take() else { return };
        let own = shared.clone();
        let clear = move || {
            if let Ok(mut preloaded) = thread.join() {
                preloaded.retain(&own, &HashSet::new());
            }
        };
        if !shared.workers.run_soon(clear) {
            tracing::warn!("the modules that were loaded in advance stay on the card: the system has no thread to drop them");
        }
    }
}

fn run(shared: &Shared, board: &Board) -> Preloaded {
    // Clients come first, and who cannot be slower is as fast as before.
    let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
    let mut watched: BTreeMap<u32, Watched> = BTreeMap::new();
    let mut preloaded = Preloaded::default();
    loop {
        let Some(wanted) = list_wanted(board, &mut watched) else { return preloaded };
        preloaded.retain(shared, &wanted);
        for key in wanted {
            if preloaded.0.contains_key(&key) {
                continue;
            }
            let begun = Instant::now();
            let room = MOST_BYTES.saturating_sub(preloaded.bytes());
            match preload(shared, &key, room) {
                Ok(Some(attempt)) => drop(preloaded.0.insert(key, attempt)),
                Ok(None) => {}
                Err(why) => {
                    tracing::warn!("no more modules are loaded in advance ({why}): a takeover would take longer");
                    return preloaded;
                }
            }
            board.plan.lock().loaded = preloaded.count();
            if !pause(board, begun.elapsed().min(LONGEST_PAUSE)) {
                return preloaded;
            }
        }
        if !pause(board, PERIOD) {
            return preloaded;
        }
    }
}

/// Waits. False if the takeover comes.
fn pause(board: &Board, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    let mut plan = board.plan.lock();
    while plan.expected.is_some() && !board.changed.wait_until(&mut plan, until).timed_out() {}
    plan.expected.is_some()
}

/// What the clients have now, as far as it can be known. `None` if the takeover comes.
fn list_wanted(board: &Board, watched: &mut BTreeMap<u32, Watched>) -> Option<HashSet<Key>> {
    let mut wanted = HashSet::new();
    let plan = board.plan.lock();
    let expected = plan.expected.as_ref()?;
    watched.retain(|client, _| expected.contains_key(client));
    let mut device_indices = BTreeMap::new();
    for (client, expected) in expected {
        device_indices.insert(*client, expected.device_indices.clone());
        if !watched.contains_key(client)
            && let Ok(reader) = ObjectReader::map(&*expected.journal)
        {
            watched.insert(*client, Watched { reader, modules: BTreeMap::new() });
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
            wanted.insert(Key { image: spec.image.clone(), device_index, variables: spec.variables.clone() });
        }
    }
    Some(wanted)
}

/// Loads one module, if its image is no longer than `room` bytes. `None` if there is no keeper at
/// the moment.
///
/// # Errors
/// Why no other will be loaded either.
fn preload(shared: &Shared, key: &Key, room: usize) -> Result<Option<Attempt>, String> {
    let Some(hash) = ImageHash::from_hex(&key.image) else { return Ok(Some(Attempt::NotLoaded)) };
    let (mut bytes, mut failure) = (0, None);
    let mut read = || match shared.read_image(&key.image) {
        Ok(Some(image)) if image.len() <= room => {
            bytes = image.len();
            Ok(image)
        }
        Ok(_) => Err(DeviceError::Invalid("the image is gone, or there is no room for more".into())),
        Err(error) => {
            let text = error.to_string();
            failure = Some(error);
            Err(DeviceError::Invalid(text))
        }
    };
    let loaded = shared.cards.preload_module(key.device_index, hash, &mut read, &mut Restored(&key.variables));
    if let Some(error) = failure {
        tracing::debug!("an image was not read: {error}");
        return Ok(None);
    }
    let attempt = match loaded {
        Ok(Some(number)) => Attempt::Loaded { number, bytes },
        Ok(None) => Attempt::NotLoaded,
        Err(error @ (DeviceError::OutOfMemory(_) | DeviceError::Lost(_))) => return Err(error.to_string()),
        Err(error) => {
            tracing::debug!("a module was not loaded in advance: {error}");
            Attempt::NotLoaded
        }
    };
    Ok(Some(attempt))
}
