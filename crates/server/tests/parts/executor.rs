//! A pretended executor: keeps to the messages, does no work. What it did can be seen in the
//! clients' pages.

use super::{FOLDER, LOSE, MODE, NAME_AGAIN, NOTICE, RESTS, RESTS_NO_MORE, SPARED, SPARED_NO_MORE, SPEAK, UNEXPLAINED};
use cumux_keeper::Keeper;
use cumux_link::{Connection, LinkError};
use cumux_ring::service::Service;
use cumux_wire::VERSION;
use cumux_wire::message::{Capabilities, ClientStatus, DeviceFacts, FromExecutor, Hello, Scope, SessionConfig, ToExecutor};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub fn device(mode: &str) -> DeviceFacts {
    let exclusive = (mode == "alone").then(|| "one process alone may use this device".to_owned());
    DeviceFacts {
        id: "sim:h200".into(),
        name: "NVIDIA H200".into(),
        uuid: [0xab; 16],
        pci: [0, 6, 0],
        memory: 141 << 30,
        attributes: [
            (cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132),
            (cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 3),
        ]
        .into(),
        capabilities: Capabilities { exclusive, ..Capabilities::default() },
    }
}

/// A session as this executor has it.
struct Held {
    config: SessionConfig,
    status: ClientStatus,
    service: Service,
    files: Vec<OwnedFd>,
}

#[derive(Default)]
struct Executor {
    generation: u32,
    sessions: BTreeMap<u32, Held>,
    /// What an earlier server had told a standby.
    remembered: BTreeMap<u32, Held>,
    keeper: Option<Keeper>,
    keeper_number: Option<u64>,
    /// When it was first asked to let go of a session.
    begun: Option<Instant>,
}

pub fn play(socket: &Path) -> Result<(), String> {
    let mode = std::env::var(MODE).unwrap_or_default();
    let mut executor = Executor::default();
    let mut first_queue = 0;
    // Those that serve nobody wait for a word of the story.
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap_or_default());
    let is_slow = match mode.as_str() {
        "no device" | "no word" | "dies" => true,
        "fourth is slow" => count_in(&folder) == 4,
        "queues fall" | "queues fall, nobody is prepared" => {
            first_queue = 100 - count_in(&folder) as u32;
            false
        }
        "second is slow" | "second is slow, calm is short" => count_in(&folder) == 2,
        _ => false,
    };
    while is_slow && folder.is_dir() && !folder.join(SPEAK).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut lost = Instant::now();
    while lost.elapsed() < Duration::from_secs(20) {
        if let Ok(connection) = Connection::connect(socket) {
            let devices = if mode == "no device" || mode == "no word" { Vec::new() } else { vec![device(&mode)] };
            let serving = executor.generation > 0;
            if !serving {
                // The new server tells a standby everything anew.
                executor.remembered.append(&mut executor.sessions);
            }
            let (generation, scope) = (executor.generation, Scope::Shared);
            let hello = Hello::Executor { version: VERSION, pid: std::process::id(), generation, serving, devices, scope, stripe: 0, first_queue };
            if connection.send(&hello, &[]).is_err() {
                continue;
            }
            if mode == "speaks late" && serving {
                // What the server before did not live to hear.
                let resumed = executor.sessions.keys().copied().collect();
                let active = FromExecutor::Active { generation: executor.generation, resumed, lost: Vec::new(), suspects: Vec::new() };
                connection.send(&active, &[]).map_err(|e| e.to_string())?;
            }
            if mode == "no device" || mode == "no word" {
                let why = if mode == "no word" { String::new() } else { "there is no device sim:h200 in this story".to_owned() };
                connection.send(&FromExecutor::Failed { why }, &[]).map_err(|e| e.to_string())?;
                // As the real one: it ends when it was heard.
                while connection.receive::<ToExecutor>().is_ok_and(|(message, _)| message != ToExecutor::Quit) {}
                return Ok(());
            }
            if executor.serve(&connection, &mode)? {
                return Ok(());
            }
            lost = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("no server".into())
}

/// Which executor of its story this is, counted from 1. The story finds its process number.
fn count_in(folder: &Path) -> usize {
    let mine = |number: &usize| {
        let file = std::fs::File::create_new(folder.join(format!("executor-{number}")));
        file.is_ok_and(|mut file| writeln!(file, "{}", std::process::id()).is_ok())
    };
    // The story may be over, and its folder gone.
    (1..).take_while(|_| folder.is_dir()).find(mine).unwrap_or_default()
}

/// The generations whose first client's kernel does not end.
fn occupations(mode: &str) -> RangeInclusive<u32> {
    1..=match mode {
        "occupied twice" => 2,
        mode => u32::from(mode.starts_with("occupied")),
    }
}

/// Whether the story has asked for this since the last time.
fn is_asked_for(what: &str) -> bool {
    std::env::var_os(FOLDER).is_some_and(|folder| std::fs::remove_file(Path::new(&folder).join(what)).is_ok())
}

impl Executor {
    /// True when told to quit.
    fn serve(&mut self, connection: &Connection, mode: &str) -> Result<bool, String> {
        loop {
            let (message, descriptors) = match connection.receive::<ToExecutor>() {
                Ok(packet) => packet,
                Err(LinkError::Closed) => return Ok(false),
                Err(error) => return Err(error.to_string()),
            };
            let answer = match message {
                ToExecutor::Keeper { number, .. } => {
                    if let Some(lost) = self.keeper_number.replace(number).filter(|_| mode == "late word") {
                        connection.send(&FromExecutor::KeeperLost { number: lost }, &[]).map_err(|e| e.to_string())?;
                    }
                    let keeper = Keeper::over(descriptors.into_iter().next().ok_or("no keeper")?).map_err(|e| e.to_string())?;
                    self.keeper = Some(keeper);
                    self.keep_extents()?;
                    None
                }
                ToExecutor::Attach { session, .. } => {
                    if self.keeper.is_none() {
                        return Err("attach before keeper".into());
                    }
                    let files = cumux_link::connection::exactly::<7>(descriptors).map_err(|e| e.to_string())?;
                    let service = Service::map(&files[0], &files[1]).map_err(|e| e.to_string())?;
                    let status = ClientStatus { session: session.id, kernels: u64::from(session.id) + 10, ..ClientStatus::default() };
                    let id = session.id;
                    self.remembered.remove(&id);
                    self.sessions.insert(id, Held { config: session, status, service, files: files.into() });
                    let active = self.generation > 0;
                    if active {
                        self.keep_extents()?;
                        self.mark_pages();
                    }
                    if mode == "occupied, refused" && self.generation == 2 && id == 1 {
                        self.sessions.remove(&id);
                        let refused = FromExecutor::Attached { session: id, error: "it overlaps another".to_owned(), again: false };
                        connection.send(&refused, &[]).map_err(|e| e.to_string())?;
                        continue;
                    }
                    let silent = mode == "first attaches nothing" && self.generation == 1;
                    (active && !silent).then_some(FromExecutor::Attached { session: id, error: String::new(), again: false })
                }
                ToExecutor::Detach { session, .. } => {
                    let status = self.sessions.remove(&session).map_or_else(|| ClientStatus { session, ..ClientStatus::default() }, |held| held.status);
                    (self.generation > 0).then_some(FromExecutor::Detached { status: Box::new(status) })
                }
                ToExecutor::Unconfine { .. } => None,
                ToExecutor::SpareDriver { spare } => {
                    let name = match (self.generation > 0, spare) {
                        (true, true) => SPARED,
                        (true, false) => SPARED_NO_MORE,
                        (false, true) => RESTS,
                        (false, false) => RESTS_NO_MORE,
                    };
                    let file = PathBuf::from(std::env::var_os(FOLDER).unwrap_or_default()).join(name);
                    std::fs::write(file, "").map_err(|error| error.to_string())?;
                    None
                }
                // It is asked to let go, and does not.
                ToExecutor::Release { .. } if mode == "keeps" => None,
                ToExecutor::Release { session, .. } if mode == "occupied" || mode == "occupied by two" && session > 1 => {
                    eprintln!("asked to let go of session {session} at {} ms", self.begun.get_or_insert_with(Instant::now).elapsed().as_millis());
                    let status = Box::new(ClientStatus { session, ..ClientStatus::default() });
                    Some(FromExecutor::Released { error: "its work has not moved".to_owned(), status, paused_us: 15_000, lasting: false })
                }
                ToExecutor::Release { session, .. } => self.sessions.remove(&session).map(|held| {
                    let status = Box::new(held.status);
                    FromExecutor::Released { error: String::new(), status, paused_us: 0, lasting: false }
                }),
                ToExecutor::Terminate { session, result } => {
                    if let Some(held) = self.sessions.get(&session) {
                        held.service.set_fault(result, "the stand-in was told so");
                        held.service.notify();
                    }
                    None
                }
                ToExecutor::Sessions { request } => {
                    for held in self.sessions.values().chain(self.remembered.values()) {
                        let files: Vec<_> = held.files.iter().map(AsFd::as_fd).collect();
                        let message = FromExecutor::Serves { request, session: Box::new(held.config.clone()) };
                        connection.send(&message, &files).map_err(|e| e.to_string())?;
                    }
                    Some(FromExecutor::ServesEnd { request })
                }
                ToExecutor::Activate { generation, unexplained_after_ms, .. } => {
                    if unexplained_after_ms.is_some() {
                        let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap_or_default());
                        std::fs::write(folder.join(format!("{UNEXPLAINED}{generation}")), "").map_err(|error| error.to_string())?;
                    }
                    if mode == "dies" || (mode == "dies again" && generation > 1) {
                        return Err("this executor dies when it is activated".into());
                    }
                    self.generation = generation;
                    let mut lost = Vec::new();
                    if mode == "loses" && generation > 1 {
                        // The first one, and it says nothing of the second at all.
                        lost.extend(self.sessions.pop_first().map(|(id, _)| (id, "its memory is gone".to_owned())));
                        self.sessions.pop_first();
                    }
                    self.keep_extents()?;
                    self.mark_pages();
                    let resumed: Vec<u32> = self.sessions.keys().copied().collect();
                    if mode == "accuses" && generation > 1 && generation < 9 {
                        let active = FromExecutor::Active { generation, suspects: resumed.clone(), resumed, lost };
                        connection.send(&active, &[]).map_err(|e| e.to_string())?;
                        return Err("this executor dies of its client".into());
                    }
                    if mode == "stuck" {
                        let beat = FromExecutor::Beat { lanes: vec![generation.into()] };
                        connection.send(&beat, &[]).map_err(|e| e.to_string())?;
                    }
                    Some(FromExecutor::Active { generation, resumed, lost, suspects: Vec::new() })
                }
                ToExecutor::Metrics { .. } if occupations(mode).contains(&self.generation) && self.sessions.len() == 3 => {
                    // The first client's kernel does not end.
                    let first_to_leave = if mode == "occupied by two" { 3 } else { 2 };
                    drop(self.sessions.split_off(&first_to_leave));
                    Some(FromExecutor::Occupied { staying: self.sessions.keys().copied().collect() })
                }
                // The first one has moved since it looked.
                ToExecutor::Metrics { .. } if mode == "occupied by two" && self.generation == 1 && self.sessions.len() == 1 && is_asked_for(NAME_AGAIN) => {
                    Some(FromExecutor::Occupied { staying: vec![1, 2] })
                }
                ToExecutor::Metrics { request } if mode == "mute" => {
                    let _ = request;
                    None
                }
                ToExecutor::Metrics { .. } if self.generation > 0 && is_asked_for(LOSE) => {
                    connection
                        .send(&FromExecutor::DeviceLost { why: "the story wants it".to_owned(), blamed: mode != "blames nobody" }, &[])
                        .map_err(|e| e.to_string())?;
                    while mode == "ends slowly" && !is_asked_for(SPEAK) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return Err("this executor has lost its device".into());
                }
                ToExecutor::Metrics { request } => {
                    if is_asked_for(NOTICE) {
                        connection.send(&FromExecutor::FaultNoticed, &[]).map_err(|e| e.to_string())?;
                    }
                    let clients: Vec<ClientStatus> = self.sessions.values().map(|held| held.status.clone()).collect();
                    // In two packets, as when there are many.
                    let (first, rest) = clients.split_at(clients.len() / 2);
                    let piece = FromExecutor::Metrics { request, clients: first.to_vec(), more: true };
                    connection.send(&piece, &[]).map_err(|e| e.to_string())?;
                    Some(FromExecutor::Metrics { request, clients: rest.to_vec(), more: false })
                }
                ToExecutor::Share { request, session, parts } => {
                    if let Some(held) = self.sessions.get_mut(&session) {
                        held.config.parts = parts;
                    }
                    (self.generation > 0 && mode != "shares nothing").then(|| FromExecutor::Shared { request, session, error: String::new() })
                }
                ToExecutor::Server { pid } => {
                    for held in self.sessions.values() {
                        held.service.set_server(pid);
                    }
                    None
                }
                ToExecutor::Retire => None,
                ToExecutor::Quit => return Ok(true),
            };
            if let Some(answer) = answer {
                connection.send(&answer, &[]).map_err(|e| e.to_string())?;
            }
        }
    }

    fn mark_pages(&self) {
        for held in self.sessions.values() {
            held.service.set_generation(self.generation);
        }
    }

    /// Device memory of each session, as a real executor would have it kept.
    fn keep_extents(&self) -> Result<(), String> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        if self.generation == 0 {
            return Ok(());
        }
        for session in self.sessions.keys() {
            let extent = cumux_ring::create("extent", 4096).map_err(|e| e.to_string())?;
            keeper.keep(*session, "extent 0", "", &[extent.as_fd()]).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}
