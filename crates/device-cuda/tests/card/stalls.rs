//! An engine that does not come back.

use super::{NESTED_ONLY, run_nested};
use cumux_device::conformance::{Args, Setup};
use cumux_device::{Begun, Channel, ClientId, Device, Fault, Outcome, Report, Sink, StreamId};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Condvar, Mutex};

/// Whether engines that report wait, and for whom.
static HELD: Mutex<Option<ClientId>> = Mutex::new(None);
static RELEASED: Condvar = Condvar::new();

/// Keeps the engine of a client in a report, as the driver would in a call.
struct Holding(Arc<dyn Sink>);

impl Holding {
    fn hold(&self, client: ClientId) {
        let held = HELD.lock().expect("no panic");
        drop(RELEASED.wait_while(held, |held| *held == Some(client)).expect("no panic"));
    }
}

impl Sink for Holding {
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome) {
        self.hold(client);
        self.0.retired(client, stream, token, outcome);
    }

    fn retired_all(&self, reports: &mut Vec<Report>) {
        reports.iter().for_each(|report| self.hold(report.client));
        self.0.retired_all(reports);
    }

    fn text(&self, client: ClientId, channel: Channel, text: &[u8]) {
        self.0.text(client, channel, text);
    }

    fn faulted(&self, client: ClientId, fault: &Fault) {
        self.0.faulted(client, fault);
    }

    fn lost(&self, why: &str, begun: Begun) {
        self.0.lost(why, begun);
    }
}

fn open(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    super::open(Arc::new(Holding(sink)))
}

/// Whoever waits behind it would wait for ever.
#[test]
fn a_device_whose_engine_does_not_come_back_is_given_up() {
    if std::env::var(super::CARD).is_err() {
        let settings = [("CUMUX_DISPATCHERS", "2"), ("CUMUX_ENGINE_LIMIT_MS", "2000"), (NESTED_ONLY, "1")];
        return run_nested("stalls::a_device_whose_engine_does_not_come_back_is_given_up", &settings);
    }
    if std::env::var(NESTED_ONLY).is_err() {
        return println!("left out: its limit is set for a software GPU");
    }
    let setup = ManuallyDrop::new(Setup::new(open));
    let [stuck, other] = [1, 2].map(|id| ManuallyDrop::new(setup.client(id)));
    let [(stream, module, out), (other_stream, other_module, other_out)] =
        [&stuck, &other].map(|client| (client.stream(), client.kernels(), client.allocate(8)));
    // Engines that answer are left alone, however often they are asked.
    for _ in 0..200 {
        stuck.done(stuck.launch(stream, &module, "fill", 1, 32, Args::new().u64(out).u32(1).u32(5)));
        other.done(other.launch(other_stream, &other_module, "fill", 1, 32, Args::new().u64(other_out).u32(1).u32(5)));
    }
    assert!(setup.recorder.losses().is_empty());
    *HELD.lock().expect("no panic") = Some(stuck.id);
    stuck.launch(stream, &module, "fill", 1, 32, Args::new().u64(out).u32(1).u32(6));
    let (why, begun) = setup.recorder.wait_for_loss();
    assert!(why.contains("has not come back from a call of the driver") && begun == Begun::Unknown, "{why} {begun:?}");
    *HELD.lock().expect("no panic") = None;
    RELEASED.notify_all();
    eprintln!("{}: the card stays open", super::PASSED);
}
