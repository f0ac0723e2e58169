//! The registry in stories: events in, orders out.

use super::*;
use crate::partitions::tests::card;
use cumux_wire::VERSION;
use std::collections::{BTreeMap, BTreeSet};

const SECOND: Duration = Duration::from_secs(1);

struct Story {
    registry: Registry,
    now: Instant,
    next_token: Token,
    /// Clients that each server was handed on its present connection.
    handed: BTreeMap<u32, u64>,
}

impl Story {
    fn begin() -> Self {
        Self { registry: Registry::new(Settings::default()), now: Instant::now(), next_token: 1, handed: BTreeMap::new() }
    }

    /// Passes an event to the registry and returns its orders, without log lines.
    fn event(&mut self, event: Event) -> Vec<Effect> {
        if let Event::Registered { pid, .. } = &event {
            self.handed.remove(pid);
        }
        let effects = self.registry.handle(self.now, event);
        for effect in &effects {
            if let Effect::Hand { server, .. } = effect {
                *self.handed.entry(*server).or_default() += 1;
            }
        }
        effects.into_iter().filter(|effect| !matches!(effect, Effect::Log(_) | Effect::Launched { .. })).collect()
    }

    fn client(&mut self, uid: u32) -> (Token, Vec<Effect>) {
        let token = self.next_token;
        self.next_token += 1;
        let hello = Hello::Client { version: VERSION, pid: 7, environment: Vec::new(), program: "./x".into() };
        let effects = self.event(Event::Client { token, pid: 7, uid, hello, door: Door::default() });
        (token, effects)
    }

    /// The server reports that it has received all clients, and has so many now.
    fn counts(&mut self, pid: u32, count: u32) -> Vec<Effect> {
        let taken = self.handed.get(&pid).copied().unwrap_or(0);
        self.event(Event::Clients { pid, count, taken })
    }

    /// Brings up a server of this user with process id `pid`.
    fn bring_up(&mut self, pid: u32, uid: u32) -> Vec<Effect> {
        let mut effects = self.event(Event::Launched { pid, duty: of(uid) });
        effects.extend(self.event(Event::Registered { pid, duty: of(uid), devices: Vec::new() }));
        effects.extend(self.event(Event::Ready { pid, devices: Vec::new() }));
        effects
    }
}

fn of(uid: u32) -> Duty {
    Duty::of_all(uid)
}

fn handed(effects: &[Effect]) -> Vec<(Token, u32)> {
    effects.iter().filter_map(|e| if let Effect::Hand { token, server, .. } = e { Some((*token, *server)) } else { None }).collect()
}

fn refused(effects: &[Effect]) -> Vec<(Token, u32)> {
    effects.iter().filter_map(|e| if let Effect::Refuse { token, result, .. } = e { Some((*token, *result)) } else { None }).collect()
}

#[test]
fn the_first_client_starts_a_server_and_is_handed_over_when_it_is_ready() {
    let mut story = Story::begin();
    let (first, effects) = story.client(1000);
    assert_eq!(effects, [Effect::Launch { duty: of(1000) }]);
    assert_eq!(story.event(Event::Launched { pid: 50, duty: of(1000) }), []);
    let (second, effects) = story.client(1000);
    assert_eq!(effects, [], "one launch is enough");
    assert_eq!(story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() }), []);
    let effects = story.event(Event::Ready { pid: 50, devices: Vec::new() });
    assert_eq!(handed(&effects), [(first, 50), (second, 50)]);
    let (third, effects) = story.client(1000);
    assert_eq!(handed(&effects), [(third, 50)]);
}

#[test]
fn another_user_waits_until_the_clients_have_gone() {
    let mut story = Story::begin();
    story.client(1000);
    story.bring_up(50, 1000);
    story.counts(50, 1);
    let (other, effects) = story.client(1001);
    assert_eq!(effects, []);
    let (mine, effects) = story.client(1000);
    assert_eq!(handed(&effects), [(mine, 50)], "the active user goes on");
    assert_eq!(story.counts(50, 2), []);
    assert_eq!(story.counts(50, 0), [Effect::Shutdown { server: 50, force: false }]);
    let (late, effects) = story.client(1000);
    assert_eq!(effects, [], "a leaving server gets nobody");
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(0) }), [Effect::Launch { duty: of(1001) }]);
    assert_eq!(handed(&story.bring_up(51, 1001)), [(other, 51)]);
    // Now the first user waits.
    assert_eq!(story.counts(51, 0), [Effect::Shutdown { server: 51, force: false }]);
    assert_eq!(story.event(Event::Exited { pid: 51, status: Some(0) }), [Effect::Launch { duty: of(1000) }]);
    assert_eq!(handed(&story.bring_up(52, 1000)), [(late, 52)]);
}

#[test]
fn a_server_that_dies_is_started_again_for_its_own_user_first() {
    let mut story = Story::begin();
    story.client(1000);
    story.bring_up(50, 1000);
    story.counts(50, 3);
    story.client(1001);
    story.now += 60 * SECOND;
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(137) }), [Effect::Launch { duty: of(1000) }], "its clients need it");
    assert_eq!(story.bring_up(51, 1000), [Effect::Shutdown { server: 51, force: false }], "nobody came back, so the other user's turn");
}

#[test]
fn clients_that_lose_their_server_before_the_hand_over_wait_for_it() {
    let mut story = Story::begin();
    story.client(1000);
    story.bring_up(50, 1000);
    assert_eq!(story.event(Event::Disconnected { pid: 50 }), []);
    let (late, effects) = story.client(1000);
    assert_eq!(effects, []);
    // It connects again.
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    assert_eq!(handed(&story.event(Event::Ready { pid: 50, devices: Vec::new() })), [(late, 50)]);
}

#[test]
fn six_failed_starts_and_the_clients_are_told() {
    let mut story = Story::begin();
    let (client, mut effects) = story.client(1000);
    let mut launches = 0;
    for pid in 50.. {
        if refused(&effects) == [(client, result::MPS_CONNECTION_FAILED)] {
            break;
        }
        if effects.is_empty() {
            story.now = story.registry.deadline().expect("a retry is planned");
            effects = story.event(Event::Tick);
        }
        assert_eq!(effects, [Effect::Launch { duty: of(1000) }]);
        launches += 1;
        story.event(Event::Launched { pid, duty: of(1000) });
        effects = story.event(Event::Exited { pid, status: Some(1) });
    }
    assert_eq!(launches, 6);
    let (_, effects) = story.client(1000);
    assert_eq!(effects, [Effect::Launch { duty: of(1000) }], "the next client is a new reason to try");
}

#[test]
fn a_server_that_says_why_it_cannot_serve_is_not_tried_again() {
    let mut story = Story::begin();
    let (client, _) = story.client(1000);
    story.event(Event::Launched { pid: 50, duty: of(1000) });
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    let effects = story.event(Event::Failed { pid: 50, why: "unknown device sim:h2000".into() });
    assert!(matches!(&effects[..], [Effect::Refuse { token, why, .. }] if *token == client && why.contains("sim:h2000")), "{effects:?}");
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(1) }), []);
    assert_eq!(story.registry.failure(1000), Some("unknown device sim:h2000"));
}

#[test]
fn quit_waits_for_clients_and_force_does_not() {
    let mut story = Story::begin();
    story.client(0);
    story.bring_up(50, 0);
    let (waiting, _) = story.client(1001);
    let effects = story.event(Event::Quit { timeout: None });
    assert_eq!(refused(&effects), [(waiting, result::MPS_SERVER_NOT_READY)]);
    assert_eq!(effects.len(), 1, "the server has a client: {effects:?}");
    let (late, effects) = story.client(0);
    assert_eq!(refused(&effects), [(late, result::MPS_SERVER_NOT_READY)]);
    assert_eq!(story.event(Event::Quit { timeout: Some(2 * SECOND) }), []);
    story.now += 2 * SECOND;
    assert_eq!(story.event(Event::Tick), [Effect::Shutdown { server: 50, force: true }]);
    story.now += FORCED;
    assert_eq!(story.event(Event::Tick), [Effect::Kill { server: 50 }]);
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(137) }), [Effect::Finished { clean: false }]);
}

#[test]
fn quit_without_servers_is_over_at_once() {
    let mut story = Story::begin();
    assert_eq!(story.event(Event::Quit { timeout: None }), [Effect::Finished { clean: true }]);
    assert_eq!(story.event(Event::Quit { timeout: None }), [], "and only once");
}

#[test]
fn shutdown_waits_and_force_kills_what_hangs() {
    let mut story = Story::begin();
    story.client(0);
    story.bring_up(50, 0);
    assert_eq!(story.event(Event::Shutdown { pid: 50, force: false }), []);
    let (late, effects) = story.client(0);
    assert_eq!(handed(&effects), [(late, 50)], "it serves until its clients are gone");
    assert_eq!(story.event(Event::Shutdown { pid: 50, force: true }), [Effect::Shutdown { server: 50, force: true }]);
    story.now += FORCED;
    assert_eq!(story.event(Event::Tick), [Effect::Kill { server: 50 }]);
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(137) }), [], "it was asked to go");
}

#[test]
fn running_servers_are_adopted_by_a_new_daemon() {
    let mut story = Story::begin();
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    story.event(Event::Ready { pid: 50, devices: Vec::new() });
    story.counts(50, 2);
    let (client, effects) = story.client(1000);
    assert_eq!(handed(&effects), [(client, 50)]);
    assert_eq!(story.registry.servers().len(), 1);
}

#[test]
fn a_running_server_that_comes_late_is_used_in_place_of_a_new_one() {
    let mut story = Story::begin();
    let (client, effects) = story.client(1000);
    assert_eq!(effects, [Effect::Launch { duty: of(1000) }]);
    story.event(Event::Launched { pid: 60, duty: of(1000) });
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    assert_eq!(story.event(Event::Exited { pid: 60, status: Some(1) }), [], "no third one");
    assert_eq!(handed(&story.event(Event::Ready { pid: 50, devices: Vec::new() })), [(client, 50)]);
    assert_eq!(story.counts(50, 0), []);
    story.event(Event::Shutdown { pid: 50, force: false });
    assert_eq!(story.event(Event::Exited { pid: 50, status: None }), [], "what was asked to go stays away");
}

#[test]
fn start_server_starts_one_and_only_one() {
    let mut story = Story::begin();
    assert_eq!(story.event(Event::Wanted { uid: 5 }), [Effect::Launch { duty: of(5) }]);
    story.bring_up(50, 5);
    assert!(!story.registry.is_starting(5));
    assert_eq!(story.event(Event::Wanted { uid: 5 }), []);
    let effects = story.event(Event::LaunchFailed { duty: of(9), why: "no".into(), again: false });
    assert_eq!(effects, []);
    assert_eq!(story.registry.failure(9), Some("no"));
}

#[test]
fn a_client_that_dies_in_the_queue_is_forgotten() {
    let mut story = Story::begin();
    story.client(1000);
    story.bring_up(50, 1000);
    assert_eq!(story.counts(50, 1), []);
    let (dead, effects) = story.client(1001);
    assert_eq!(effects, []);
    assert_eq!(story.event(Event::ClientGone { token: dead }), []);
    assert_eq!(story.event(Event::ClientGone { token: dead }), [], "twice is no harm");
    assert_eq!(story.counts(50, 0), [], "nobody waits for the server to go");
    let (late, effects) = story.client(1002);
    assert_eq!(effects, [Effect::Shutdown { server: 50, force: false }]);
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(0) }), [Effect::Launch { duty: of(1002) }], "not for the dead one");
    assert_eq!(handed(&story.bring_up(51, 1002)), [(late, 51)]);
}

#[test]
fn a_client_that_dies_while_its_server_starts_is_not_handed_over() {
    let mut story = Story::begin();
    let (dead, _) = story.client(1000);
    story.event(Event::Launched { pid: 50, duty: of(1000) });
    story.event(Event::ClientGone { token: dead });
    let (other, _) = story.client(1001);
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    let effects = story.event(Event::Ready { pid: 50, devices: Vec::new() });
    assert_eq!(effects, [Effect::Shutdown { server: 50, force: false }], "the other one's turn");
    story.event(Event::Exited { pid: 50, status: Some(0) });
    assert_eq!(handed(&story.bring_up(51, 1001)), [(other, 51)]);
}

#[test]
fn a_client_that_dies_between_hand_over_and_session_is_not_counted_for_ever() {
    let mut story = Story::begin();
    story.client(0);
    assert_eq!(handed(&story.bring_up(50, 0)).len(), 1);
    assert_eq!(story.event(Event::Quit { timeout: None }), [], "it may be on its way");
    let effects = story.event(Event::Clients { pid: 50, count: 0, taken: 1 });
    assert_eq!(effects, [Effect::Shutdown { server: 50, force: false }], "the server took it, and it was no more");
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(0) }), [Effect::Finished { clean: true }]);
}

#[test]
fn a_client_on_its_way_is_counted_whatever_the_server_says_of_others() {
    let mut story = Story::begin();
    story.client(1000);
    story.bring_up(50, 1000);
    story.client(1001);
    // The first client was served and has gone; the second one crosses that message.
    let (_, effects) = story.client(1000);
    assert_eq!(handed(&effects).len(), 1);
    assert_eq!(story.event(Event::Clients { pid: 50, count: 1, taken: 1 }), []);
    assert_eq!(story.event(Event::Clients { pid: 50, count: 0, taken: 1 }), [], "one is on its way");
    assert_eq!(story.event(Event::Clients { pid: 50, count: 1, taken: 2 }), []);
    assert_eq!(story.event(Event::Clients { pid: 50, count: 0, taken: 2 }), [Effect::Shutdown { server: 50, force: false }]);
}

#[test]
fn a_server_that_connects_again_is_counted_anew() {
    let mut story = Story::begin();
    story.client(1000);
    story.bring_up(50, 1000);
    // Clients that were on their way on the broken connection are lost with it.
    story.event(Event::Disconnected { pid: 50 });
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    story.client(1001);
    assert_eq!(story.counts(50, 0), [Effect::Shutdown { server: 50, force: false }]);
}

#[test]
fn a_server_that_lies_about_its_clients_harms_nobody_s_arithmetic() {
    let mut story = Story::begin();
    story.client(1000);
    story.bring_up(50, 1000);
    story.event(Event::Clients { pid: 50, count: u32::MAX, taken: u64::MAX });
    let (late, effects) = story.client(1000);
    assert_eq!(handed(&effects), [(late, 50)]);
    story.event(Event::Shutdown { pid: 50, force: false });
    assert_eq!(story.event(Event::Clients { pid: 50, count: 0, taken: u64::MAX }), [Effect::Shutdown { server: 50, force: false }]);
}

#[test]
fn a_server_with_the_devices_of_an_earlier_daemon_serves_its_clients_and_nobody_else() {
    let mut story = Story::begin();
    story.registry.devices = vec!["sim:h200".into()];
    let old = || vec!["sim:l4".to_owned()];
    let effects = story.registry.handle(story.now, Event::Registered { pid: 50, duty: of(1000), devices: old() });
    assert!(effects.iter().any(|e| matches!(e, Effect::Log(text) if text.contains("it serves sim:l4, this daemon was started with sim:h200"))), "{effects:?}");
    assert_eq!(story.counts(50, 1), [], "it has not been asked to go before it told of its clients");
    story.event(Event::Ready { pid: 50, devices: Vec::new() });
    assert!(story.registry.servers()[0].is_ready() && story.registry.leaving(50).contains("sim:l4"));
    assert_eq!(story.registry.server(50).unwrap().outdated().as_deref(), Some("sim:l4"), "start_server says why it starts none");
    let (new, effects) = story.client(1000);
    assert_eq!(effects, [], "it waits for the new device");
    assert_eq!(story.counts(50, 0), [Effect::Shutdown { server: 50, force: false }]);
    assert_eq!(story.event(Event::Exited { pid: 50, status: None }), [Effect::Launch { duty: of(1000) }]);
    assert_eq!(handed(&story.bring_up(51, 1000)), [(new, 51)]);
    assert_eq!((story.registry.leaving(51), story.registry.devices_for(of(1000))), (String::new(), vec!["sim:h200".to_owned()]));
    // Without clients it goes at once.
    let mut story = Story::begin();
    story.registry.devices = vec!["sim:h200".into()];
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: old() });
    assert_eq!(story.counts(50, 0), [Effect::Shutdown { server: 50, force: false }]);
    // The same devices, or parts of them, do not count as others.
    for devices in [vec!["sim:h200".to_owned()], vec!["a".to_owned(), "b".to_owned()]] {
        let mut story = Story::begin();
        story.registry.devices = vec!["sim:h200".into()];
        story.registry.localities = vec!["a".into(), "b".into()];
        story.event(Event::Registered { pid: 50, duty: of(1000), devices });
        assert_eq!(story.counts(50, 0), []);
        assert_eq!(story.registry.leaving(50), "");
    }
}

#[test]
fn a_server_with_other_devices_that_dies_has_a_successor_on_these() {
    let mut story = Story::begin();
    story.registry.devices = vec!["sim:h200".into()];
    let old = || vec!["sim:l4".to_owned()];
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: old() });
    story.counts(50, 1);
    story.event(Event::Ready { pid: 50, devices: Vec::new() });
    story.now += 60 * SECOND;
    assert_eq!(story.event(Event::Exited { pid: 50, status: None }), [Effect::Launch { duty: of(1000) }]);
    assert_eq!(story.registry.devices_for(of(1000)), old());
    story.event(Event::Launched { pid: 51, duty: of(1000) });
    let (new, effects) = story.client(1000);
    assert_eq!(effects, []);
    story.event(Event::Registered { pid: 51, duty: of(1000), devices: old() });
    assert_eq!(story.counts(51, 1), []);
    assert_eq!(story.event(Event::Ready { pid: 51, devices: Vec::new() }), [], "nobody new for the old device");
    assert_eq!(story.counts(51, 0), [Effect::Shutdown { server: 51, force: false }]);
    assert_eq!(story.event(Event::Exited { pid: 51, status: Some(0) }), [Effect::Launch { duty: of(1000) }]);
    assert_eq!(story.registry.devices_for(of(1000)), ["sim:h200"]);
    assert_eq!(handed(&story.bring_up(52, 1000)), [(new, 52)]);
}

#[test]
fn a_server_of_an_earlier_daemon_is_waited_for() {
    let mut story = Story::begin();
    story.event(Event::Left { pid: Some(50), duty: of(1000) });
    assert!(story.registry.is_starting(1000) && !story.registry.server(50).unwrap().is_connected());
    let (own, effects) = story.client(1000);
    assert_eq!(effects, [], "no second server for its user");
    let (other, effects) = story.client(1001);
    assert_eq!(effects, [], "and none for another user beside it");
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    assert_eq!(story.counts(50, 1), [], "it has a client that the earlier daemon gave it");
    assert_eq!(handed(&story.event(Event::Ready { pid: 50, devices: Vec::new() })), [(own, 50)]);
    assert_eq!(story.counts(50, 0), [Effect::Shutdown { server: 50, force: false }], "the other user's turn");
    assert_eq!(story.event(Event::Exited { pid: 50, status: None }), [Effect::Launch { duty: of(1001) }]);
    assert_eq!(handed(&story.bring_up(51, 1001)), [(other, 51)]);
    // A server that never comes back.
    let mut story = Story::begin();
    story.event(Event::Left { pid: Some(50), duty: of(1000) });
    story.client(1000);
    assert_eq!(story.registry.deadline(), Some(story.now + 5 * SECOND));
    story.now += 5 * SECOND;
    assert_eq!(story.event(Event::Tick), [Effect::Launch { duty: of(1000) }]);
    // A server that ends before it connects: its clients may still live.
    let mut story = Story::begin();
    story.event(Event::Left { pid: Some(50), duty: of(1000) });
    assert_eq!(story.event(Event::Exited { pid: 50, status: None }), [Effect::Launch { duty: of(1000) }]);
}

#[test]
fn what_an_earlier_daemon_has_lost_gets_a_server_as_long_as_somebody_needs_it() {
    let mut story = Story::begin();
    assert_eq!(story.event(Event::Left { pid: None, duty: of(1000) }), [Effect::Launch { duty: of(1000) }]);
    story.event(Event::Launched { pid: 50, duty: of(1000) });
    assert_eq!(story.event(Event::Left { pid: None, duty: of(1001) }), [], "one after the other");
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    assert_eq!(story.counts(50, 2), []);
    story.event(Event::Ready { pid: 50, devices: Vec::new() });
    assert_eq!(story.counts(50, 0), [Effect::Shutdown { server: 50, force: false }]);
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(0) }), [Effect::Launch { duty: of(1001) }]);
    // The next client makes it a server like others.
    let (client, _) = story.client(1001);
    assert_eq!(handed(&story.bring_up(51, 1001)), [(client, 51)]);
    assert_eq!(story.counts(51, 0), [], "an idle server stays");
    let mut story = Story::begin();
    story.event(Event::Left { pid: None, duty: of(1000) });
    story.event(Event::Launched { pid: 50, duty: of(1000) });
    story.client(1000);
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    assert_eq!(handed(&story.event(Event::Ready { pid: 50, devices: Vec::new() })).len(), 1);
    assert_eq!(story.counts(50, 0), []);
}

/// A server that is killed at once would leave its keeper and executors behind.
#[test]
fn a_server_that_starts_when_the_daemon_ends_is_told_to_go_when_it_comes() {
    for (timeout, force) in [(None, false), (Some(Duration::ZERO), true)] {
        for earlier in [false, true] {
            let begin = || {
                let mut story = Story::begin();
                story.event(if earlier { Event::Left { pid: Some(50), duty: of(0) } } else { Event::Launched { pid: 50, duty: of(0) } });
                assert_eq!(story.event(Event::Quit { timeout }), []);
                story
            };
            let mut story = begin();
            let mut effects = story.event(Event::Registered { pid: 50, duty: of(0), devices: Vec::new() });
            effects.extend(story.counts(50, 0));
            assert_eq!(effects, [Effect::Shutdown { server: 50, force }], "{timeout:?} {earlier}");
            assert_eq!(story.event(Event::Exited { pid: 50, status: Some(0) }), [Effect::Finished { clean: true }]);
            // A server that does not connect keeps nobody waiting.
            let mut story = begin();
            story.now = story.registry.deadline().expect("a deadline");
            let effects = story.event(Event::Tick);
            let ended = if earlier && !force { Effect::Finished { clean: true } } else { Effect::Kill { server: 50 } };
            assert_eq!(effects, [ended], "{timeout:?} {earlier}");
        }
    }
}

/// Random histories: no client is handed over twice or forgotten, and nothing is launched while a
/// server lives or after quit.
#[test]
fn no_client_is_forgotten() {
    let mut seed: u64 = 0x2026_1121;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let mut story = Story::begin();
        let mut open: BTreeSet<Token> = BTreeSet::new();
        let mut alive: Vec<(u32, u32)> = Vec::new();
        let mut next_pid = 50;
        let mut pending: Vec<Effect> = Vec::new();
        for step in 0..80 {
            let quit = step == 79;
            let uid = 1000 + u32::try_from(random(2)).unwrap();
            let server = alive.last().copied();
            let effects = match (quit, random(8), server) {
                (true, ..) => story.event(Event::Quit { timeout: Some(Duration::ZERO) }),
                (_, 0 | 1, _) => {
                    let (token, effects) = story.client(uid);
                    open.insert(token);
                    effects
                }
                (_, 2, Some((pid, uid))) => story.event(Event::Registered { pid, duty: of(uid), devices: Vec::new() }),
                (_, 3, Some((pid, _))) => story.event(Event::Ready { pid, devices: Vec::new() }),
                (_, 4, Some((pid, _))) => story.counts(pid, u32::try_from(random(2)).unwrap()),
                (_, 6, _) => {
                    let token = random(story.next_token);
                    open.remove(&token);
                    story.event(Event::ClientGone { token })
                }
                (_, 5, Some((pid, _))) => {
                    alive.clear();
                    story.event(Event::Exited { pid, status: Some(1) })
                }
                _ => {
                    story.now += Duration::from_millis(random(3000));
                    story.event(Event::Tick)
                }
            };
            pending.extend(effects);
            while !pending.is_empty() {
                match pending.remove(0) {
                    Effect::Launch { duty } => {
                        assert!(alive.is_empty() && !quit && duty.reach == Reach::All);
                        alive.push((next_pid, duty.uid));
                        pending.extend(story.event(Event::Launched { pid: next_pid, duty }));
                        next_pid += 1;
                    }
                    Effect::Hand { token, server, uid, .. } => {
                        assert!(open.remove(&token), "handed twice");
                        assert_eq!(alive, [(server, uid)], "to a live server of the same user");
                    }
                    Effect::Refuse { token, .. } => assert!(open.remove(&token), "refused twice"),
                    Effect::Kill { server } => {
                        alive.clear();
                        pending.extend(story.event(Event::Exited { pid: server, status: Some(137) }));
                    }
                    Effect::Shutdown { .. } | Effect::Finished { .. } | Effect::Log(_) | Effect::Launched { .. } => {}
                }
            }
        }
        assert!(open.is_empty(), "clients {open:?} were forgotten");
    }
}

#[test]
fn in_multi_user_mode_nobody_waits_for_another_user() {
    let mut story = Story::begin();
    story.registry.multiuser = true;
    let (first, effects) = story.client(1000);
    assert_eq!(effects, [Effect::Launch { duty: of(1000) }]);
    assert_eq!(story.event(Event::Launched { pid: 50, duty: of(1000) }), []);
    let (second, effects) = story.client(1001);
    assert_eq!(effects, [Effect::Launch { duty: of(1001) }]);
    assert_eq!(story.event(Event::Launched { pid: 51, duty: of(1001) }), []);
    let mut effects = story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    effects.extend(story.event(Event::Ready { pid: 50, devices: Vec::new() }));
    effects.extend(story.event(Event::Registered { pid: 51, duty: of(1001), devices: Vec::new() }));
    effects.extend(story.event(Event::Ready { pid: 51, devices: Vec::new() }));
    assert_eq!(handed(&effects), [(first, 50), (second, 51)]);
    assert_eq!(story.registry.servers().len(), 2);
    assert_eq!(story.counts(50, 0), [], "an idle server stays");
    assert_eq!(story.event(Event::Exited { pid: 51, status: Some(1) }).len(), 0);
}

#[test]
fn static_partitions_are_given_to_clients_and_percentages_are_not() {
    let mut story = Story::begin();
    let device = card(0x18, 132, 9);
    let mut board = Board::new(std::slice::from_ref(&device));
    let name = board.add("GPU-18", 2).unwrap();
    story.registry.board = Some(board);
    story.event(Event::Wanted { uid: 1000 });
    story.event(Event::Launched { pid: 50, duty: of(1000) });
    story.event(Event::Registered { pid: 50, duty: of(1000), devices: Vec::new() });
    story.event(Event::Ready { pid: 50, devices: vec![device] });
    let (token, effects) = story.client(1000);
    assert_eq!(refused(&effects), [(token, result::INVALID_RESOURCE_CONFIGURATION)]);
    let environment = vec![("CUDA_MPS_SM_PARTITION".to_owned(), name), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".to_owned(), "10".to_owned())];
    let hello = Hello::Client { version: VERSION, pid: 7, environment, program: "./x".into() };
    let effects = story.event(Event::Client { token: 99, pid: 7, uid: 1000, hello, door: Door::default() });
    let Some(Effect::Hand { grant, .. }) = effects.first() else { panic!("{effects:?}") };
    assert_eq!((grant.share, &grant.sms, &grant.devices), (Percentage::ALL, &vec![(0..16).collect::<Vec<u32>>()], &vec![(0, 0)]));
    assert!(story.registry.board.as_ref().is_some_and(|board| board.clients().contains(&7)));
}
