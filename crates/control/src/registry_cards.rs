//! The registry with a server for each card (`--per-card`), in stories.

use super::*;
use crate::partitions::tests::card;
use cumux_wire::VERSION;
use std::collections::{BTreeMap, BTreeSet};

/// A daemon of three cards, and programs that see some of them.
struct Story {
    registry: Registry,
    now: Instant,
    next_token: Token,
}

fn on(uid: u32, place: usize) -> Duty {
    Duty { uid, reach: Reach::Card(place) }
}

impl Story {
    fn begin() -> Self {
        let mut registry = Registry::new(Settings::default());
        registry.devices = vec!["cuda:0".into(), "cuda:1".into(), "cuda:2".into()];
        registry.cards.clone_from(&registry.devices);
        registry.facts = vec![card(0x18, 132, 9), card(0x28, 132, 9), card(0x38, 132, 9)];
        Self { registry, now: Instant::now(), next_token: 1 }
    }

    fn event(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.registry.handle(self.now, event);
        effects.into_iter().filter(|effect| !matches!(effect, Effect::Log(_) | Effect::Launched { .. })).collect()
    }

    /// A program with these variables, each as `NAME=VALUE`.
    fn client(&mut self, uid: u32, variables: &[&str]) -> (Token, Vec<Effect>) {
        self.client_at(Door::default(), uid, variables)
    }

    fn client_at(&mut self, door: Door, uid: u32, variables: &[&str]) -> (Token, Vec<Effect>) {
        let token = self.next_token;
        self.next_token += 1;
        let environment = variables.iter().filter_map(|text| text.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let hello = Hello::Client { version: VERSION, pid: 7, environment, program: "./x".into() };
        (token, self.event(Event::Client { token, pid: 7, uid, hello, door }))
    }

    /// The server with this duty comes up.
    fn bring_up(&mut self, pid: u32, duty: Duty) -> Vec<Effect> {
        let mut effects = self.event(Event::Launched { pid, duty });
        effects.extend(self.come_back(pid, duty));
        effects
    }

    /// It connects, and is ready.
    fn come_back(&mut self, pid: u32, duty: Duty) -> Vec<Effect> {
        let (names, facts) = (self.registry.devices_for(duty), duty.reach.among(&self.registry.facts));
        let mut effects = self.event(Event::Registered { pid, duty, devices: names });
        effects.extend(self.event(Event::Ready { pid, devices: facts }));
        effects
    }
}

/// A client, its server, and its devices there with their limits.
type Handed = (Token, u32, Vec<(u32, u64)>);

/// To which servers clients go, with what they may use there.
fn handed(effects: &[Effect]) -> Vec<Handed> {
    let hand = |effect: &Effect| if let Effect::Hand { token, server, grant, .. } = effect { Some((*token, *server, grant.devices.clone())) } else { None };
    effects.iter().filter_map(hand).collect()
}

#[test]
fn who_sees_one_card_has_the_server_of_that_card_and_who_sees_several_one_over_all() {
    let mut story = Story::begin();
    let (first, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(effects, [Effect::Launch { duty: on(1000, 1) }]);
    assert_eq!(story.registry.devices_for(on(1000, 1)), ["cuda:1"]);
    assert_eq!(handed(&story.bring_up(50, on(1000, 1))), [(first, 50, vec![(0, 0)])], "it is the only one of that server");
    let (second, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=GPU-38"]);
    assert_eq!(effects, [Effect::Launch { duty: on(1000, 2) }]);
    let (third, effects) = story.client(1000, &[]);
    assert_eq!(effects, [], "one launch at a time");
    assert_eq!(story.event(Event::Launched { pid: 51, duty: on(1000, 2) }), [Effect::Launch { duty: Duty::of_all(1000) }]);
    assert_eq!(handed(&story.come_back(51, on(1000, 2))), [(second, 51, vec![(0, 0)])]);
    assert_eq!(handed(&story.bring_up(52, Duty::of_all(1000))), [(third, 52, vec![(0, 0), (1, 0), (2, 0)])]);
    let (fourth, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=2,1"]);
    assert_eq!(handed(&effects), [(fourth, 52, vec![(2, 0), (1, 0)])]);
    let (fifth, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(handed(&effects), [(fifth, 50, vec![(0, 0)])]);
    // One that has ended is started again, and nobody else's.
    story.now += 60 * Duration::from_secs(1);
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(137) }), [Effect::Launch { duty: on(1000, 1) }]);
}

#[test]
fn limits_mean_the_cards_that_programs_and_commands_count() {
    let mut story = Story::begin();
    story.registry.defaults.memory.set("1", "2G");
    story.registry.defaults.memory.set("0", "1G");
    story.client(1000, &["CUDA_VISIBLE_DEVICES=1"]);
    let effects = story.bring_up(50, on(1000, 1));
    assert_eq!(handed(&effects)[0].2, [(0, 2 << 30)], "the daemon's second card is the server's first");
    story.registry.server_mut(50).unwrap().settings.memory.set("GPU-28", "512M");
    let (_, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=1", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G"]);
    assert_eq!(handed(&effects)[0].2, [(0, 512 << 20)]);
    let (_, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=1", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=256M"]);
    assert_eq!(handed(&effects)[0].2, [(0, 256 << 20)], "a program counts its own");
}

/// A server counts what all clients of a group use together: they all have the same one.
#[test]
fn all_clients_of_a_group_have_the_server_of_its_cards() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut story = Story::begin();
    story.registry.groups.create("pod", &words("devices=GPU-28 memory=3G uid=1000")).unwrap();
    story.registry.groups.create("job", &words("clients=9 uid=1000")).unwrap();
    let door = |group: &str| Door { group: Some(group.into()), ..Door::default() };
    let (_, effects) = story.client_at(door("pod"), 1000, &[]);
    assert_eq!(effects, [Effect::Launch { duty: on(1000, 1) }]);
    let effects = story.bring_up(50, on(1000, 1));
    let Some(Effect::Hand { grant, .. }) = effects.first() else { panic!("{effects:?}") };
    assert_eq!((&grant.devices, &grant.group.as_ref().unwrap().memory), (&vec![(0, 0)], &vec![3 << 30]));
    let (_, effects) = story.client_at(door("job"), 1000, &["CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(effects, [Effect::Launch { duty: Duty::of_all(1000) }]);
    assert_eq!(handed(&story.bring_up(51, Duty::of_all(1000)))[0].1, 51);
    let group = |name: &str| story.registry.groups.get(name).unwrap();
    let server = |pid| story.registry.server(pid).unwrap();
    let limits = |name: &str, pid| story.registry.group_limits(name, group(name), server(pid).reach, &server(pid).devices).memory;
    assert_eq!((limits("pod", 50), limits("pod", 51)), (vec![3 << 30], vec![3 << 30; 3]));
}

#[test]
fn a_group_whose_cards_change_while_its_client_waits_gets_the_right_server() {
    let words = |text: &str| vec![text.to_owned()];
    let mut story = Story::begin();
    story.registry.groups.create("pod", &words("devices=0")).unwrap();
    let door = Door { group: Some("pod".into()), ..Door::default() };
    let (client, effects) = story.client_at(door, 1000, &[]);
    assert_eq!(effects, [Effect::Launch { duty: on(1000, 0) }]);
    story.event(Event::Launched { pid: 50, duty: on(1000, 0) });
    story.event(Event::Registered { pid: 50, duty: on(1000, 0), devices: vec!["cuda:0".into()] });
    story.registry.groups.set("pod", &words("devices=2")).unwrap();
    assert_eq!(story.event(Event::Ready { pid: 50, devices: vec![story.registry.facts[0].clone()] }), [Effect::Launch { duty: on(1000, 2) }]);
    assert_eq!(handed(&story.bring_up(51, on(1000, 2))), [(client, 51, vec![(0, 0)])]);
}

#[test]
fn servers_of_cards_that_an_earlier_daemon_has_left_are_known_by_their_cards() {
    let mut story = Story::begin();
    story.event(Event::Left { pid: Some(50), duty: on(1000, 1) });
    assert_eq!(story.event(Event::Left { pid: None, duty: on(1000, 2) }), [Effect::Launch { duty: on(1000, 2) }], "its clients may still live");
    let (client, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(effects, [], "nobody gets a server beside one that still lives");
    assert_eq!(handed(&story.come_back(50, on(1000, 1))), [(client, 50, vec![(0, 0)])]);
    // Without the option, such a server goes when its clients have gone.
    let mut story = Story::begin();
    story.registry.cards.clear();
    story.event(Event::Left { pid: Some(50), duty: on(1000, 1) });
    story.event(Event::Registered { pid: 50, duty: on(1000, 1), devices: vec!["cuda:1".into()] });
    assert!(story.registry.leaving(50).contains("it serves cuda:1, this daemon was started with cuda:0, cuda:1, cuda:2"), "{}", story.registry.leaving(50));
    let (_, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(effects, [Effect::Launch { duty: Duty::of_all(1000) }]);
    // So does one whose card has another number now.
    let mut story = Story::begin();
    story.registry.cards.swap(0, 1);
    story.event(Event::Left { pid: Some(50), duty: on(1000, 1) });
    story.event(Event::Registered { pid: 50, duty: on(1000, 1), devices: vec!["cuda:1".into()] });
    assert!(story.registry.leaving(50).contains("started with cuda:0,"), "{}", story.registry.leaving(50));
}

#[test]
fn a_user_waits_for_all_servers_of_another() {
    let mut story = Story::begin();
    story.client(1000, &["CUDA_VISIBLE_DEVICES=0"]);
    story.bring_up(50, on(1000, 0));
    story.client(1000, &["CUDA_VISIBLE_DEVICES=1"]);
    story.bring_up(51, on(1000, 1));
    let (other, effects) = story.client(1001, &["CUDA_VISIBLE_DEVICES=2"]);
    assert_eq!(effects, []);
    assert_eq!(story.event(Event::Clients { pid: 50, count: 0, taken: 1 }), [Effect::Shutdown { server: 50, force: false }]);
    assert_eq!(story.event(Event::Exited { pid: 50, status: Some(0) }), [], "the other one still has a client");
    assert_eq!(story.event(Event::Clients { pid: 51, count: 0, taken: 1 }), [Effect::Shutdown { server: 51, force: false }]);
    assert_eq!(story.event(Event::Exited { pid: 51, status: Some(0) }), [Effect::Launch { duty: on(1001, 2) }]);
    assert_eq!(handed(&story.bring_up(52, on(1001, 2))), [(other, 52, vec![(0, 0)])]);
}

#[test]
fn a_server_is_started_for_each_card_by_command() {
    let mut story = Story::begin();
    assert_eq!(story.event(Event::Wanted { uid: 5 }), [Effect::Launch { duty: on(5, 0) }]);
    assert_eq!(story.event(Event::Launched { pid: 50, duty: on(5, 0) }), [Effect::Launch { duty: on(5, 1) }]);
    assert_eq!(story.event(Event::Launched { pid: 51, duty: on(5, 1) }), [Effect::Launch { duty: on(5, 2) }]);
    story.event(Event::Launched { pid: 52, duty: on(5, 2) });
    for (pid, place) in [(50, 0), (51, 1)] {
        story.come_back(pid, on(5, place));
        assert!(story.registry.is_starting(5));
    }
    story.come_back(52, on(5, 2));
    assert!(!story.registry.is_starting(5));
}

/// A card whose server cannot start is nobody else's trouble.
#[test]
fn only_the_clients_of_a_card_are_refused_if_its_server_cannot_start() {
    let mut story = Story::begin();
    let (bad, _) = story.client(1000, &["CUDA_VISIBLE_DEVICES=0"]);
    story.event(Event::Launched { pid: 50, duty: on(1000, 0) });
    let (good, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(effects, [Effect::Launch { duty: on(1000, 1) }]);
    story.event(Event::Launched { pid: 51, duty: on(1000, 1) });
    story.event(Event::Registered { pid: 50, duty: on(1000, 0), devices: vec!["cuda:0".into()] });
    let effects = story.event(Event::Failed { pid: 50, why: "it has fallen off the bus".into() });
    let [Effect::Refuse { token, why, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(*token == bad && why.contains("fallen off the bus"), "{why}");
    assert_eq!(handed(&story.come_back(51, on(1000, 1))), [(good, 51, vec![(0, 0)])]);
}

/// Without the devices' properties nobody knows which card a program sees.
#[test]
fn until_the_cards_are_known_there_is_one_server_over_all() {
    let mut story = Story::begin();
    let facts = std::mem::take(&mut story.registry.facts);
    let (_, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(effects, [Effect::Launch { duty: Duty::of_all(1000) }]);
    story.registry.facts = facts;
    let (_, effects) = story.client(1000, &["CUDA_VISIBLE_DEVICES=1"]);
    assert_eq!(effects, [], "one launch at a time");
    assert_eq!(story.event(Event::Launched { pid: 50, duty: Duty::of_all(1000) }), [Effect::Launch { duty: on(1000, 1) }]);
}

/// Random events: nobody is forgotten, nobody is handed to a server of other cards, and there are
/// never two servers with one duty.
#[test]
fn random_programs_on_random_cards_are_all_served() {
    let mut seed = 0x5eed_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for round in 0..200 {
        let mut story = Story::begin();
        story.registry.multiuser = round % 2 == 0;
        let mut open: BTreeMap<Token, Duty> = BTreeMap::new();
        let mut alive: BTreeMap<u32, Duty> = BTreeMap::new();
        let mut next_pid = 50;
        for step in 0..120 {
            let over = step >= 80;
            let pids: Vec<u32> = alive.keys().copied().collect();
            let server = pids.get(usize::try_from(random(pids.len().max(1) as u64)).unwrap()).map(|pid| (*pid, alive[pid]));
            let mut pending = match (random(6), server) {
                (0 | 1, _) if !over => {
                    let uid = 1000 + u32::try_from(random(2)).unwrap();
                    let (variables, duty): (&[&str], Duty) = match random(4) {
                        0 => (&["CUDA_VISIBLE_DEVICES=0"], on(uid, 0)),
                        1 => (&["CUDA_VISIBLE_DEVICES=GPU-28"], on(uid, 1)),
                        2 => (&["CUDA_VISIBLE_DEVICES=2,0"], Duty::of_all(uid)),
                        _ => (&[], Duty::of_all(uid)),
                    };
                    open.insert(story.next_token, duty);
                    story.client(uid, variables).1
                }
                (2, Some((pid, _))) if !over => {
                    alive.remove(&pid);
                    story.event(Event::Exited { pid, status: Some(1) })
                }
                (3, Some((pid, duty))) => story.come_back(pid, duty),
                (4, Some((pid, _))) => {
                    let handed = story.registry.server(pid).map_or(0, |server| server.handed);
                    story.event(Event::Clients { pid, count: 0, taken: handed })
                }
                _ => {
                    story.now += Duration::from_millis(random(3000));
                    story.event(Event::Tick)
                }
            };
            while !pending.is_empty() {
                match pending.remove(0) {
                    Effect::Launch { duty } => {
                        assert!(alive.values().all(|other| *other != duty && (story.registry.multiuser || other.uid == duty.uid)), "{duty:?} beside {alive:?}");
                        alive.insert(next_pid, duty);
                        pending.extend(story.event(Event::Launched { pid: next_pid, duty }));
                        next_pid += 1;
                    }
                    Effect::Hand { token, server, grant, .. } => {
                        let duty = open.remove(&token).expect("handed twice");
                        assert_eq!(alive[&server], duty);
                        let expected = if duty.reach == Reach::All { 2..=3 } else { 1..=1 };
                        assert!(expected.contains(&grant.devices.len()));
                    }
                    Effect::Refuse { token, .. } => assert!(open.remove(&token).is_some(), "refused twice"),
                    Effect::Kill { server } => {
                        alive.remove(&server);
                        pending.extend(story.event(Event::Exited { pid: server, status: Some(137) }));
                    }
                    Effect::Shutdown { server, .. } => {
                        alive.remove(&server);
                        pending.extend(story.event(Event::Exited { pid: server, status: Some(0) }));
                    }
                    Effect::Finished { .. } | Effect::Log(_) | Effect::Launched { .. } => {}
                }
            }
        }
        // Everything comes up, and everybody leaves.
        for _ in 0..40 {
            story.now += Duration::from_secs(4);
            let mut pending = story.event(Event::Tick);
            for (pid, duty) in alive.clone() {
                pending.extend(story.come_back(pid, duty));
                let handed = story.registry.server(pid).map_or(0, |server| server.handed);
                pending.extend(story.event(Event::Clients { pid, count: 0, taken: handed }));
            }
            while !pending.is_empty() {
                match pending.remove(0) {
                    Effect::Launch { duty } => {
                        alive.insert(next_pid, duty);
                        pending.extend(story.event(Event::Launched { pid: next_pid, duty }));
                        next_pid += 1;
                    }
                    Effect::Hand { token, .. } | Effect::Refuse { token, .. } => drop(open.remove(&token)),
                    Effect::Kill { server } | Effect::Shutdown { server, .. } => {
                        alive.remove(&server);
                        pending.extend(story.event(Event::Exited { pid: server, status: Some(0) }));
                    }
                    Effect::Finished { .. } | Effect::Log(_) | Effect::Launched { .. } => {}
                }
            }
        }
        let duties: BTreeSet<Duty> = alive.values().copied().collect();
        assert!(open.is_empty() && duties.len() == alive.len(), "{open:?} were forgotten; {alive:?}");
    }
}
