//! What the fuzz target `ring` drives: an executor's sessions on a device, with a real keeper,
//! without any other process and without threads for the intake. The client's side of a session is
//! the fuzzer's. Everything here panics where it cannot go on, as tests do.

use crate::arena::GRANULE;
use crate::cards::Cards;
use crate::files::Files;
use crate::intake::Intake;
use crate::kept_images::IMAGE_KEY;
use crate::mailbox::{Letter, Mailboxes, Outbox};
use crate::open::{self, Terms};
use crate::session::{Session, Sessions};
use crate::shared::Shared;
use crate::sink::Reports;
use crate::suspicion::Ended;
use cumux_device::{Open, Sink};
use cumux_keeper::client::Keeper;
use cumux_link::Listener;
use cumux_wire::layout::ARENA_BASE;
use cumux_wire::message::{ClientStatus, Hello, SessionConfig};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The lowest part of device memory's addresses is a sanitizer's (AddressSanitizer has its shadow
/// there).
const SANITIZERS: u64 = 4 << 30;

/// An executor without a server. One at a time in a process: device memory has fixed addresses.
pub struct Bench {
    shared: Arc<Shared>,
    intake: Arc<Intake>,
    reports: Receiver<Letter>,
    keeper: Keeper,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").finish_non_exhaustive()
    }
}

impl Bench {
    /// # Panics
    /// The devices cannot be opened.
    #[must_use]
    pub fn new(opener: &dyn Open, devices: &[String]) -> Self {
        let sessions = Sessions::default();
        let (outbox, reports) = Outbox::new();
        let (outbox, mailboxes) = (Arc::new(outbox), Arc::new(Mailboxes::new(1)));
        let sink: Arc<dyn Sink> = Arc::new(Reports::new(sessions.clone(), mailboxes.clone(), outbox.clone()));
        let cards = Cards::open(devices, opener, &sink).expect("the devices open");
        let shared = Arc::new(Shared::new(cards, mailboxes, outbox).expect("descriptors"));
        assert!(shared.arena.lock().claim(ARENA_BASE, SANITIZERS.next_multiple_of(GRANULE)), "nobody has anything yet");
        let keeper = start_keeper();
        shared.set_keeper(1, Keeper::over(keeper.connect().expect("the keeper answers")).expect("a socket"));
        let intake = Intake::new(sessions, shared.clone()).expect("an epoll set");
        Self { shared, intake, reports, keeper }
    }

    /// Opens a session from its files, in the order of `ToExecutor::Attach`: a new one, or one
    /// whose executor was killed.
    ///
    /// # Errors
    /// Why this client cannot be served.
    pub fn open(&self, config: SessionConfig, files: Vec<OwnedFd>, generation: u32) -> Result<(), String> {
        let terms = Terms { generation, ended: Ended::Unexplained { after: Duration::from_secs(1) }, on_hold: false };
        let files = Files::new(files, false).map_err(|error| error.to_string())?;
        open::open(&self.shared, &self.intake, config, files, &terms).map(drop).map_err(|error| error.to_string())
    }

    fn session(&self, client: u32) -> Option<Arc<Session>> {
        self.intake.sessions().into_iter().find(|session| session.client() == client)
    }

    /// Lets the session take records and go on; whether anything moved.
    pub fn intake(&self, client: u32) -> bool {
        self.session(client).is_some_and(|session| session.intake())
    }

    /// Whether a session does nothing any more until its client does something.
    #[must_use]
    pub fn is_quiet(&self, client: u32) -> bool {
        let Some(session) = self.session(client) else { return true };
        if session.has_more() {
            return false;
        }
        session.lock_then_deliver(|inner| !inner.phase.is_requesting() && inner.queues.streams.values().all(|stream| stream.in_flight == 0))
    }

    /// Ends a session as its executor's death would, as far as its successor can see: what is in
    /// journal and keeper stays.
    ///
    /// # Panics
    /// The device does not give its memory back.
    pub fn close(&self, client: u32) -> Option<ClientStatus> {
        Some(self.intake.remove(client)?.close().expect("everything of the client is given back"))
    }

    /// Closes a session for good, and checks that nothing of it is left.
    ///
    /// # Panics
    /// Something is left.
    pub fn forget(&self, client: u32) {
        self.close(client);
        self.keeper.drop_session(client).expect("the keeper answers");
        assert_eq!(self.shared.charged(client), 0, "memory is charged to a client that has gone");
        assert!(!self.shared.fair_queues.has(client), "a client that has gone has its turn");
        while self.reports.try_recv().is_ok() {}
    }

    /// Bytes that are charged to a client.
    #[must_use]
    pub fn charged(&self, client: u32) -> u64 {
        self.shared.charged(client)
    }

    /// What clients have of what all share: addresses that are free, and what the keeper holds.
    /// Images are not among them: they go with the sessions that have loaded them.
    ///
    /// # Panics
    /// The keeper does not answer.
    #[must_use]
    pub fn belongings(&self) -> String {
        let mut kept: Vec<(u32, String)> = self.keeper.list(0).expect("the keeper answers").into_iter().map(|item| (item.session, item.key)).collect();
        kept.retain(|(_, key)| !key.starts_with(IMAGE_KEY));
        format!("{:?} {kept:?}", self.shared.arena.lock())
    }
}

/// A keeper in a thread that ends with the process.
fn start_keeper() -> Keeper {
    let path = std::env::temp_dir().join(format!("cumux-fuzz-{}.sock", std::process::id()));
    let listener = Listener::bind(&path).expect("a socket");
    let socket = path.clone();
    std::thread::spawn(move || cumux_keeper::run(&socket));
    let connection = listener.accept().expect("the keeper connects");
    std::fs::remove_file(&path).expect("our own socket");
    connection.receive::<Hello>().expect("a hello");
    Keeper::over(connection).expect("a socket")
}
