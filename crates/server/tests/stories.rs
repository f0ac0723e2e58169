//! Stories of a server with real processes around it: the keeper is the real one, executors are
//! pretended, the story plays daemon and clients.
//!
//! One file, although long: a list of stories of one world.
#![forbid(unsafe_code)]

mod parts;

use cumux_wire::VERSION;
use cumux_wire::layout;
use cumux_wire::message::{FromServer, Place, ServerStatus, ToServer};
use cumux_wire::result;
use parts::world::{World, has_file, is_stopped, kill, set_going, stop};
use parts::{RESTS, RESTS_NO_MORE};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

/// No test: the other processes of the stories start here.
#[test]
fn part() {
    parts::play();
}

#[test]
fn a_client_comes_and_goes() {
    let mut world = World::new("");
    let mut a = world.client();
    let b = world.client();
    assert!(a.session != b.session && a.slot != b.slot);
    assert_eq!(a.multiprocessors, 66, "half of an H200");
    cumux_ring::file::check(&a.files().ring, layout::ring::BYTES as u64).unwrap();
    cumux_ring::file::check(&a.files().page, layout::page::BYTES as u64).unwrap();
    cumux_ring::file::check(&a.files().window, layout::WINDOW_BYTES).unwrap();
    assert!(a.files().server.is_alive() && a.files().keeper.is_alive() && a.files().doorbell.as_raw_fd() > 0);
    let status = world.status_when(|s| s.standby != 0);
    assert_eq!(a.server(), status.pid);
    assert_eq!((status.state.as_str(), status.uid, status.takeovers, status.devices.len()), ("ACTIVE", 7, 0, 1));
    assert_eq!(
        status.clients.iter().map(|c| (c.session, c.pid, c.kernels)).collect::<Vec<_>>(),
        [(a.session, a.program.id(), u64::from(a.session) + 10), (b.session, b.program.id(), u64::from(b.session) + 10)]
    );

    a.kill();
    world.expect_clients(1);
    let status = world.status_when(|s| s.gone.len() == 1);
    assert_eq!((status.gone[0].pid, status.gone[0].state.as_str(), status.gone[0].kernels), (a.program.id(), "killed", u64::from(a.session) + 10));
    assert_eq!(status.clients.len(), 1);
    let c = world.client();
    assert_eq!(c.slot, a.slot, "its slot is free again");
    assert!(c.session > b.session, "its number is not");
    let log = world.log();
    for line in [
        format!("Client {{PID: {}, Context ID: 1}} connected", a.program.id()),
        "Device NVIDIA H200 (uuid GPU-abababab-abab-abab-abab-abababababab) is associated".into(),
        format!("Client {{PID: {}, Context ID: 1}} exiting. Number of active client contexts is 1.", a.program.id()),
        format!("Client process {} disconnected", a.program.id()),
    ] {
        assert!(log.contains(&line), "{line} is missing in\n{log}");
    }
}

#[test]
fn a_client_that_exits_is_told_from_one_that_was_killed_and_an_exec_replaces_its_session() {
    let mut world = World::new("");
    let program = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut first = world.knock_for(program, VERSION, 0);
    first.welcome();
    // The same process again, as after an exec.
    let again = Command::new("true").spawn().unwrap();
    let program = std::mem::replace(&mut first.program, again);
    let mut second = world.knock_for(program, VERSION, 0);
    second.welcome();
    assert_ne!(first.session, second.session);
    let status = world.status_when(|s| s.gone.len() == 1);
    assert_eq!((status.gone[0].session, status.clients.len()), (first.session, 1));
    drop(second.program.stdin.take());
    let status = world.status_when(|s| s.gone.len() == 2);
    assert_eq!((status.gone[1].state.as_str(), status.clients.len()), ("exited", 0));
}

#[test]
fn the_standby_takes_over_when_the_executor_is_killed() {
    let mut world = World::new("");
    let (a, b) = (world.client(), world.client());
    let mut generation = 1;
    for _ in 0..3 {
        let before = world.status_when(|s| s.standby != 0 && s.state == "ACTIVE");
        assert_eq!((a.generation(), b.generation()), (generation, generation));
        let start = std::time::Instant::now();
        kill(before.executor);
        let note = world.expect_note("has taken over");
        println!("killed to taken over: {:?} ({note})", start.elapsed());
        assert!(note.contains("2 clients go on, 0 do not"), "{note}");
        generation += 1;
        assert_eq!((a.generation(), b.generation()), (generation, generation), "the pages know the new one");
        assert!(world.is_unexplained(generation), "somebody's work may have been its end");
        let after = world.status();
        assert_eq!((after.executor, after.takeovers, after.clients[0].takeovers), (before.standby, generation - 1, generation - 1));
        assert_eq!((a.sticky(), b.sticky()), (0, 0));
    }
    let c = world.client();
    assert_eq!(c.generation(), generation, "new clients are served, too");
}

#[test]
fn sixty_four_clients_at_once_are_served_and_taken_over() {
    let mut world = World::new("");
    let before = world.status_when(|s| s.standby != 0);
    let mut clients: Vec<_> = (0..64).map(|_| world.knock_as(VERSION, 0)).collect();
    clients.iter_mut().for_each(parts::world::FakeClient::welcome);
    kill(before.executor);
    println!("{}", world.expect_note("64 clients go on, 0 do not"));
    assert!(clients.iter().all(|client| client.generation() == 2 && client.sticky() == 0));
    let mut slots: Vec<_> = clients.iter().map(|client| client.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 64, "every client has a window of its own");
}

#[test]
fn a_client_that_was_not_attached_yet_is_served_by_the_next_executor() {
    let mut world = World::new("first attaches nothing");
    let before = world.status_when(|s| s.standby != 0);
    let mut waiting = world.knock_as(VERSION, 0);
    world.expect_clients(1);
    kill(before.executor);
    waiting.welcome();
    assert_eq!(waiting.generation(), 2);
}

#[test]
fn a_client_that_goes_while_nobody_serves_is_forgotten() {
    let mut world = World::new("");
    let mut a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    a.kill();
    kill(before.executor);
    let status = world.status_when(|s| s.takeovers == 1 && s.gone.len() == 1);
    assert!(status.clients.is_empty());
    assert_eq!(world.client().slot, a.slot);
}

#[test]
fn without_a_standby_an_executor_is_started_from_cold() {
    let mut world = World::new("");
    let a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    kill(before.standby);
    kill(before.executor);
    world.expect_note("has taken over");
    let after = world.status_when(|s| s.standby != 0);
    assert!(after.executor != before.executor && after.executor != before.standby);
    assert!(a.generation() >= 2 && a.sticky() == 0);
}

#[test]
fn a_device_for_one_process_alone_gets_no_standby_and_a_cold_start() {
    let mut world = World::new("alone");
    let a = world.client();
    let before = world.status_when(|s| !s.no_standby.is_empty());
    assert!(before.no_standby.contains("one process alone") && before.state == "ACTIVE", "{before:?}");
    for generation in 2..4 {
        let old = world.status();
        assert_eq!((old.standby, old.generation), (0, generation - 1), "none is started");
        kill(old.executor);
        world.expect_note("1 clients go on, 0 do not");
        assert_eq!((a.generation(), a.sticky()), (generation, 0));
        world.status_when(|s| s.takeovers == generation - 1 && s.standby == 0 && !s.no_standby.is_empty());
    }
    // A new server hears it from nobody again and leaves the one executor alone, too.
    world.kill_server();
    world.start_server();
    world.expect(|m| matches!(m, FromServer::Ready { .. }));
    world.status_when(|s| s.standby == 0 && !s.no_standby.is_empty());
}

#[test]
fn a_status_of_very_many_clients_comes_in_pieces() {
    let world = World::new("");
    let mut clients: Vec<_> = (0..70).map(|_| world.knock_as(VERSION, 0)).collect();
    clients.iter_mut().for_each(parts::world::FakeClient::welcome);
    world.tell(&ToServer::Status { request: 9000 }, &[]);
    let (mut found, mut packets) = (Vec::new(), 0);
    loop {
        let FromServer::Status { server, more, .. } = world.expect(|m| matches!(m, FromServer::Status { request: 9000, .. })) else { unreachable!() };
        packets += 1;
        found.extend(server.clients.iter().map(|c| (c.session, c.kernels)));
        if !more {
            break;
        }
    }
    let mut expected: Vec<_> = clients.iter().map(|c| (c.session, u64::from(c.session) + 10)).collect();
    expected.sort_unstable();
    assert_eq!((packets, found), (2, expected));
}

#[test]
fn a_killed_server_is_made_again_from_the_keeper() {
    let mut world = World::new("");
    let (a, mut b) = (world.client(), world.client());
    let before = world.status_when(|s| s.standby != 0);
    world.kill_server();
    assert!(!a.files().server.is_alive() && a.files().keeper.is_alive());
    b.kill();
    world.start_server();
    world.expect(|m| matches!(m, FromServer::Ready { .. }));
    let after = world.status_when(|s| s.clients.len() == 1 && s.standby != 0);
    assert_eq!((after.executor, after.standby, after.keeper), (before.executor, before.standby, before.keeper), "nothing else was touched");
    assert_eq!((after.clients[0].session, after.clients[0].pid), (a.session, a.program.id()));
    assert_eq!((a.server(), a.generation(), a.sticky()), (after.pid, 1, 0), "the page names the new server");
    let c = world.client();
    assert!(c.session > b.session, "numbers are not used twice");
    kill(after.executor);
    world.expect_note("2 clients go on");
    assert_eq!(a.generation(), 2, "the rebuilt server can let another executor take over");
}

#[test]
fn executors_that_died_with_the_server_are_replaced_by_the_rebuilt_one() {
    let mut world = World::new("");
    let a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    world.kill_server();
    kill(before.executor);
    world.start_server();
    let status = world.status_when(|s| s.takeovers == 1);
    assert_eq!((status.executor, a.generation(), a.sticky()), (before.standby, 2, 0));
    assert_eq!(a.server(), status.pid, "the page names the new server, though its old writer is dead");
}

#[test]
fn a_dead_keeper_is_replaced_and_has_everything_again() {
    let mut world = World::new("");
    let a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    kill(before.keeper);
    let after = world.status_when(|s| s.keeper != 0 && s.keeper != before.keeper);
    assert_eq!((after.executor, a.sticky()), (before.executor, 0), "nobody else was touched");
    let b = world.client();
    // What the new keeper has is enough for a new server.
    world.kill_server();
    world.start_server();
    world.expect(|m| matches!(m, FromServer::Ready { .. }));
    let status = world.status_when(|s| s.clients.len() == 2);
    assert_eq!(status.clients.iter().map(|c| c.session).collect::<Vec<_>>(), [a.session, b.session]);
}

#[test]
fn who_cannot_be_served_gets_a_sentence() {
    let world = World::new("crowded");
    let (result, why) = world.knock_as(VERSION + 1, 0).refused();
    assert!(result == result::SYSTEM_DRIVER_MISMATCH && why.contains("version"), "{result} {why}");
    let (_a, _b) = (world.client(), world.client());
    let (result, why) = world.knock_as(VERSION, 0).refused();
    assert!(result == result::MPS_MAX_CLIENTS_REACHED && why.contains("CUMUX_MAX_CLIENTS"), "{result} {why}");
}

/// The daemon counts whom it has handed over until the server says what became of them.
#[test]
fn the_daemon_hears_of_every_client_that_did_not_become_one() {
    let world = World::new("crowded");
    let clients = |count, taken| {
        world.expect(|m| matches!(m, FromServer::Clients { count: c, taken: t } if (*c, *t) == (count, taken)));
    };
    let (mut a, _b) = (world.client(), world.client());
    assert_eq!(world.knock_as(VERSION, 0).refused().0, result::MPS_MAX_CLIENTS_REACHED);
    clients(2, 3);
    a.kill();
    clients(1, 3);
    // Dead before anybody looked.
    let program = Command::new("true").spawn().unwrap();
    assert!(cumux_link::Process::open(program.id()).unwrap().ended(None));
    let _dead = world.knock_for(program, VERSION, 0);
    clients(1, 4);
    // It lives, and does not want to be served any more.
    let _gone = world.knock_hung_up();
    clients(1, 5);
    assert_eq!(world.knock_as(VERSION + 1, 0).refused().0, result::SYSTEM_DRIVER_MISMATCH);
    clients(1, 6);
}

#[test]
fn clients_of_a_device_that_is_lost_get_an_error_instead_of_waiting() {
    let mut world = World::new("dies again");
    let client = world.client();
    let before = world.status_when(|s| s.standby != 0);
    kill(before.executor);
    world.expect(|m| matches!(m, FromServer::Failed { why } if why.contains("5 executors ended")));
    world.server_ends();
    assert_eq!(client.sticky(), 806);
}

#[test]
fn a_device_that_cannot_be_opened_is_reported_with_its_reason() {
    let mut world = World::unready("no device");
    let client = world.knock_and_wait();
    world.let_executor_speak();
    world.expect(|m| matches!(m, FromServer::Failed { why } if why.contains("no device sim:h200")));
    let (result, why) = client.refused();
    assert!(result == result::MPS_SERVER_NOT_READY && why.contains("no device sim:h200"), "{result} {why}");
    world.server_ends();
}

/// Found by the fuzz target `packets`: clients were refused without a word.
#[test]
fn an_executor_that_gives_no_reason_is_reported_in_a_sentence() {
    let mut world = World::unready("no word");
    let client = world.knock_and_wait();
    world.let_executor_speak();
    world.expect(|m| matches!(m, FromServer::Failed { why } if why.contains("server.log")));
    let (result, why) = client.refused();
    assert!(result == result::MPS_SERVER_NOT_READY && why.contains("server.log"), "{result} {why}");
    world.server_ends();
}

#[test]
fn executors_that_keep_dying_end_the_wait() {
    let mut world = World::unready("dies");
    let client = world.knock_and_wait();
    world.let_executor_speak();
    world.expect(|m| matches!(m, FromServer::Failed { why } if why.contains("5 executors ended")));
    assert_eq!(client.refused().0, result::MPS_SERVER_NOT_READY);
    world.server_ends();
}

#[test]
fn one_client_is_terminated_on_request() {
    let mut world = World::new("");
    let (mut a, b) = (world.client(), world.client());
    world.tell(&ToServer::Terminate { request: 5, pid: a.program.id() }, &[]);
    world.expect(|m| matches!(m, FromServer::Terminated { request: 5, found: true, .. }));
    let status = world.status_when(|s| s.standby != 0);
    assert_eq!((status.clients[0].state.as_str(), a.sticky(), b.sticky()), ("terminated", 810, 0));
    world.tell(&ToServer::Terminate { request: 6, pid: 1 }, &[]);
    world.expect(|m| matches!(m, FromServer::Terminated { request: 6, found: false, .. }));
    a.kill();
    assert_eq!(world.status_when(|s| s.gone.len() == 1).gone[0].state, "terminated");
}

#[test]
fn a_share_is_changed_while_the_client_runs_and_outlives_executor_and_server() {
    let mut world = World::new("");
    let client = world.client();
    let set = |world: &World, pid: u32, percent: &str| {
        let share = cumux_wire::share::Share::parse(percent).unwrap();
        world.tell(&ToServer::SetShare { request: 77, pid, share }, &[]);
        match world.expect(|m| matches!(m, FromServer::Shared { request: 77, .. })) {
            FromServer::Shared { before, now, error, .. } => (before, now, error),
            other => unreachable!("{other:?}"),
        }
    };
    let pid = client.program.id();
    assert_eq!(set(&world, pid, "12.5"), (66, 16, String::new()));
    assert!(set(&world, 1, "50").2.contains("no client"));
    let before = world.status_when(|s| s.standby != 0);
    kill(before.executor);
    assert_eq!(set(&world, pid, "25").1, 32, "also while nobody serves");
    world.status_when(|s| s.takeovers == 1);
    world.kill_server();
    world.start_server();
    world.expect(|m| matches!(m, FromServer::Ready { .. }));
    assert_eq!(set(&world, pid, "100"), (32, 132, String::new()), "the next server knows it");
    assert_eq!(world.status().clients[0].multiprocessors, 132);
}

#[test]
fn an_executor_that_does_not_answer_delays_the_status_only_so_long() {
    let mut world = World::new("mute");
    let a = world.client();
    let status = world.status();
    assert_eq!((status.clients[0].session, status.clients[0].kernels), (a.session, 0));
}

#[test]
fn a_new_daemon_is_found() {
    let mut world = World::new("");
    let a = world.client();
    world.new_daemon();
    world.expect_clients(1);
    world.expect(|m| matches!(m, FromServer::Ready { .. }));
    assert_eq!(world.status().clients[0].session, a.session);
}

#[test]
fn shutting_down_waits_for_clients_or_leaves_them_with_an_error() {
    let mut world = World::new("");
    let a = world.client();
    world.tell(&ToServer::Shutdown { force: false }, &[]);
    assert_eq!(world.knock_as(VERSION, 0).refused().0, result::MPS_SERVER_NOT_READY);
    assert_eq!(world.status().clients.len(), 1, "still served");
    world.tell(&ToServer::Shutdown { force: true }, &[]);
    world.server_ends();
    assert_eq!(a.sticky(), 806);
    assert!(a.files().keeper.ended(None));

    let mut world = World::new("");
    let mut a = world.client();
    world.tell(&ToServer::Shutdown { force: false }, &[]);
    a.kill();
    world.server_ends();
}

#[test]
fn a_server_that_nobody_needs_ends_by_itself() {
    let mut world = World::new("lonely");
    let mut a = world.client();
    world.no_daemon();
    a.kill();
    world.server_ends();
}

/// The invariant is total: whoever the successor does not take, whether it says so or not, is told
/// at once or taken after all.
#[test]
fn clients_that_the_successor_does_not_take_are_told_at_once() {
    let mut world = World::new("loses");
    let (a, mut b, c) = (world.client(), world.client(), world.client());
    let before = world.status_when(|s| s.standby != 0);
    kill(before.executor);
    world.expect_note("1 clients go on, 1 do not");
    let status = world.status_when(|s| s.clients.iter().any(|client| client.error != 0));
    let of = |pid: u32| status.clients.iter().find(|client| client.pid == pid).unwrap().clone();
    assert_eq!((a.sticky(), b.sticky(), c.sticky()), (806, 0, 0));
    assert_eq!((of(a.program.id()).error, of(a.program.id()).fault.as_str()), (806, "its memory is gone"));
    // The second one was never mentioned: it is attached anew, and ends like any other.
    world.status_when(|s| s.clients.iter().any(|client| client.session == b.session && client.kernels == u64::from(b.session) + 10));
    b.kill();
    world.status_when(|s| s.gone.iter().any(|gone| gone.session == b.session));
    let d = world.client();
    assert_eq!(d.slot, a.slot, "the slot of the one that was lost is free though its process lives");
    world.tell(&ToServer::Terminate { request: 8, pid: a.program.id() }, &[]);
    world.expect(|m| matches!(m, FromServer::Terminated { request: 8, found: true, error } if error.is_empty()));
    assert_eq!(a.sticky(), 806, "the first error stays");
}

#[test]
fn who_cannot_be_ended_now_is_not_said_to_have_been() {
    let mut world = World::new("impatient");
    let a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    stop(before.executor);
    world.tell(&ToServer::Terminate { request: 9, pid: a.program.id() }, &[]);
    world.expect(|m| matches!(m, FromServer::Terminated { request: 9, found: true, error } if error.contains("does not answer")));
    assert_eq!(a.sticky(), 0);
    // Nobody serves it when its executor is gone, so that the server can say it.
    kill(before.executor);
    world.expect_note("has taken over");
    assert_eq!(a.sticky(), 810);
    world.tell(&ToServer::Terminate { request: 10, pid: a.program.id() }, &[]);
    world.expect(|m| matches!(m, FromServer::Terminated { request: 10, found: true, error } if error.is_empty()));
}

/// The server ends while an executor takes over: what that one says of its sessions comes to the
/// next server, which does not know them yet.
#[test]
fn what_an_executor_says_late_costs_nobody_a_session() {
    let mut world = World::new("speaks late");
    let (a, b) = (world.client(), world.client());
    let before = world.status_when(|s| s.standby != 0);
    world.kill_server();
    world.start_server();
    world.expect_note("goes on with 2 clients");
    // The executor's own figures: it still has both.
    let served = |s: &cumux_wire::message::ServerStatus| s.clients.iter().map(|client| (client.pid, client.kernels)).collect::<Vec<_>>();
    let wanted = [(a.program.id(), u64::from(a.session) + 10), (b.program.id(), u64::from(b.session) + 10)];
    assert_eq!(served(&world.status_when(|s| s.standby != 0)), wanted);
    kill(before.executor);
    world.expect_note("2 clients go on, 0 do not");
    assert_eq!((a.generation(), a.sticky(), b.sticky()), (2, 0, 0));
}

/// Keeper and server end in any order: the executor names the sessions that it serves, to a server
/// that has nothing else to go by.
#[test]
fn keeper_and_server_end_together_and_nobody_is_lost() {
    for keeper_first in [true, false] {
        let mut world = World::new("");
        let (a, b) = (world.client(), world.client());
        let before = world.status_when(|s| s.standby != 0);
        if keeper_first {
            kill(before.keeper);
        }
        world.kill_server();
        kill(before.keeper);
        // Whatever the old server had begun in place of the keeper has nothing in it.
        world.start_server();
        world.expect(|m| matches!(m, FromServer::Ready { .. }));
        let after = world.status_when(|s| s.clients.len() == 2 && s.standby != 0);
        assert_eq!((after.executor, after.standby), (before.executor, before.standby), "they have served all the time");
        assert_eq!((a.sticky(), b.sticky(), a.server()), (0, 0, after.pid));
        let c = world.client();
        assert!(c.slot != a.slot && c.slot != b.slot && c.session > b.session);
        // And the new keeper has what a successor and the next server need.
        kill(after.executor);
        world.expect_note("3 clients go on, 0 do not");
        world.kill_server();
        world.start_server();
        world.expect(|m| matches!(m, FromServer::Ready { .. }));
        assert_eq!(world.status_when(|s| s.clients.len() == 3 && s.state == "ACTIVE").executor, before.standby);
    }
}

/// An executor tells the next server of the keeper that it lost under the last one. That is another
/// keeper than the next server's first, which lives on.
#[test]
fn a_late_word_about_a_dead_keeper_ends_no_other() {
    let mut world = World::new("late word");
    let a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    world.kill_server();
    kill(before.keeper);
    world.start_server();
    world.expect(|m| matches!(m, FromServer::Ready { .. }));
    let after = world.status_when(|s| s.clients.len() == 1 && s.keeper != 0 && s.standby != 0);
    // What the executor says of that keeper comes before its part of this status.
    let b = world.client();
    assert_eq!(world.status_when(|s| s.clients.len() == 2).keeper, after.keeper, "{}", world.log());
    assert!(!world.log().contains("does not answer an executor"), "{}", world.log());
    assert_eq!((a.sticky(), b.sticky()), (0, 0));
}

/// The standby alone is left: it had been told of all sessions.
#[test]
fn of_server_keeper_and_executor_none_is_left_and_the_standby_names_the_clients() {
    let mut world = World::new("");
    let a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    world.wait_for(|_| has_file(before.standby, "memfd:cumux-ring"));
    world.kill_server();
    kill(before.keeper);
    kill(before.executor);
    world.start_server();
    let after = world.status_when(|s| s.takeovers == 1 && s.state == "ACTIVE");
    assert_eq!((after.executor, after.clients.len(), a.generation(), a.sticky()), (before.standby, 1, 2, 0));
}

/// Each of the processes that a server looks after is stopped by a signal: it is replaced, and its
/// clients go on.
#[test]
fn processes_that_are_stopped_are_replaced() {
    let mut world = World::new("watched");
    let a = world.client();
    let first = world.status_when(|s| s.standby != 0);
    stop(first.executor);
    world.expect_note("was stopped by a signal");
    world.expect_note("1 clients go on");
    let second = world.status_when(|s| s.standby != 0 && s.state == "ACTIVE");
    assert_eq!((second.executor, a.generation()), (first.standby, 2));
    stop(second.standby);
    let third = world.status_when(|s| s.standby != 0 && s.standby != second.standby);
    assert_eq!((third.executor, third.takeovers), (second.executor, 1));
    stop(third.keeper);
    // The server does not wait for it.
    world.status();
    let fourth = world.status_when(|s| s.keeper != 0 && s.keeper != third.keeper && s.state == "ACTIVE");
    assert_eq!((fourth.executor, a.sticky()), (second.executor, 0));
    world.client();
}

#[test]
fn while_an_executor_is_stopped_the_status_says_so() {
    let mut world = World::new("watched");
    let before = world.status_when(|s| s.standby != 0);
    stop(before.executor);
    world.status_when(|s| s.state == "UNRESPONSIVE" || s.executor != before.executor);
    world.status_when(|s| s.state == "ACTIVE" && s.executor == before.standby);
    assert!(world.log().contains("stands still"), "{}", world.log());
}

/// What a stopped keeper holds is nobody else's while no executor serves.
#[test]
fn a_stopped_keeper_is_set_going_when_it_alone_has_the_memory() {
    let mut world = World::new("watched");
    let a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    // The server sees all of it at once.
    stop(before.pid);
    stop(before.keeper);
    kill(before.standby);
    kill(before.executor);
    set_going(before.pid);
    world.expect_note("has taken over");
    assert_eq!((world.status().keeper, a.sticky()), (before.keeper, 0));
}

#[test]
fn an_executor_whose_threads_hang_is_replaced() {
    let mut world = World::new("stuck");
    let a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    world.expect_note("runs and does not answer");
    world.status_when(|s| s.takeovers > 0 && s.state == "ACTIVE");
    assert!(a.generation() > 1 && a.sticky() == 0 && !world.log().contains("executors ended within"), "{before:?}");
}

/// Deaths that have their makers among the clients say nothing against the device.
#[test]
fn deaths_of_suspects_do_not_end_the_service_of_others() {
    let mut world = World::new("accuses");
    let a = world.client();
    let before = world.status_when(|s| s.standby != 0);
    kill(before.executor);
    let after = world.status_when(|s| s.takeovers == 8 && s.state == "ACTIVE");
    assert_eq!((after.generation, a.generation(), a.sticky()), (9, 9, 0));
}

#[test]
fn when_its_kernel_has_ended_a_client_comes_back() {
    let mut world = World::new("occupied, ends");
    let ([first, second, third], apart) = occupied(&mut world);
    let status = world.status_when(|s| s.clients.iter().all(|client| client.place == Place::Shared && client.executor == s.executor));
    let counts =
        |of: &parts::world::FakeClient| status.clients.iter().find(|client| client.session == of.session).map(|client| (client.takeovers, client.moves));
    assert_eq!([&first, &second].map(counts), [Some((0, 1)), Some((1, 0))], "one has moved, the other was taken over");
    assert_eq!([&first, &second, &third].map(|client| (client.generation(), client.sticky())), [(2, 0); 3]);
    world.wait_for(|_| !std::path::Path::new(&format!("/proc/{apart}/exe")).exists());
    assert_eq!((status.takeovers, status.clients.len()), (1, 3), "its end is nobody's misfortune");
    // The standby knows it again.
    let standby = world.status_when(|s| s.standby != 0).standby;
    kill(status.executor);
    let status = world.status_when(|s| s.takeovers == 2 && s.state == "ACTIVE");
    assert_eq!(status.executor, standby);
    world.wait_for(|_| [&first, &second, &third].iter().all(|client| client.generation() == 3 && client.sticky() == 0));
}

/// Each time it is left alone costs a takeover, and the executor that stood by.
#[test]
fn a_client_that_is_left_alone_again_stays_apart_for_longer() {
    let mut world = World::new("occupied twice");
    let [first, second] = [world.client(), world.client()];
    world.status_when(|s| s.standby != 0);
    // Each question about three clients makes the executor let go of two: again when the first one
    // has come back. It stays apart for one second, and then for two. Neither stay begins before
    // there are three clients.
    let before = std::time::Instant::now();
    let clients = [first, second, world.client()];
    world.status_when(|s| s.takeovers == 2);
    world.status_when(|s| s.clients.len() == 3 && s.clients.iter().all(|client| client.place == Place::Shared && client.executor == s.executor));
    assert!(before.elapsed() >= std::time::Duration::from_secs(3), "{:?}", before.elapsed());
    assert_eq!(clients.each_ref().map(|client| client.sticky()), [0; 3]);
}

#[test]
fn a_client_that_the_shared_executor_cannot_take_back_gets_one_of_its_own() {
    let mut world = World::new("occupied, refused");
    let ([mut first, _second, _third], apart) = occupied(&mut world);
    let status = world.status_when(|s| s.clients.iter().any(|client| client.session == first.session && client.place == Place::Own));
    let own = status.clients.into_iter().find(|client| client.session == first.session).unwrap();
    assert!(own.place_why.contains("it overlaps another") && ![apart, status.executor, status.standby].contains(&own.executor), "{own:?}");
    assert_eq!(first.sticky(), 0, "no error");
    first.kill();
    world.wait_for(|_| !std::path::Path::new(&format!("/proc/{}/exe", own.executor)).exists());
    world.status_when(|s| s.clients.len() == 2 && s.takeovers == 1);
}

/// Three clients, of which the first one's kernel does not end. Returns them with the executor that
/// was left to it.
fn occupied(world: &mut World) -> ([parts::world::FakeClient; 3], u32) {
    let [first, second] = [world.client(), world.client()];
    let before = world.status_when(|s| s.standby != 0);
    let clients = [first, second, world.client()];
    // The executor answers a question about three clients by letting go of two.
    world.status();
    world.expect_note("whose kernels do not end");
    let after = world.status_when(|s| s.state == "ACTIVE" && s.takeovers == 1 && s.standby != 0);
    assert!(after.executor == before.standby && after.standby != before.executor, "{before:?} {after:?}");
    assert_eq!(after.clients.len(), 3);
    assert_eq!(clients.each_ref().map(|client| client.generation()), [1, 2, 2], "the others go on in the next one");
    assert!(!world.is_unexplained(2), "nobody's work has ended anything");
    (clients, before.executor)
}

#[test]
fn a_client_whose_kernel_does_not_end_keeps_its_executor_for_itself() {
    let mut world = World::new("occupied");
    let ([mut first, mut second, third], apart) = occupied(&mut world);
    let newcomer = world.client();
    assert_eq!(newcomer.generation(), 2, "nobody else comes to the executor apart");
    second.kill();
    world.expect_clients(3);
    let status = world.status_when(|s| s.clients.iter().any(|c| c.session == first.session && c.kernels == u64::from(first.session) + 10));
    assert_eq!(status.clients.len(), 3, "the figures of both executors");
    first.kill();
    world.expect_clients(2);
    world.wait_for(|_| !std::path::Path::new(&format!("/proc/{apart}/exe")).exists());
    let status = world.status_when(|s| s.clients.len() == 2 && s.gone.len() == 2);
    assert_eq!((status.takeovers, status.state.as_str()), (1, "ACTIVE"), "its end is nobody's misfortune");
    assert_eq!((third.generation(), newcomer.sticky()), (2, 0));
}

/// Two clients stay in an executor beside kernels that do not end, and one of them moves to the
/// next one. What its executor says late names it once more: it must not be taken from there.
#[test]
fn a_client_that_has_moved_is_not_taken_back_by_what_its_executor_says_late() {
    let mut world = World::new("occupied by two");
    let [first, _second] = [world.client(), world.client()];
    world.status_when(|s| s.standby != 0);
    let _third = world.client();
    world.status();
    world.expect_note("whose kernels do not end");
    let is_served = |status: &ServerStatus| {
        let place = |session: u32| status.clients.iter().find(|client| client.session == session).map(|client| client.place);
        place(1) == Some(Place::Shared) && place(2) == Some(Place::Apart)
    };
    world.status_when(is_served);
    world.name_again();
    for _ in 0..3 {
        let status = world.status();
        assert!(is_served(&status), "{:?}", status.clients);
    }
    // It is asked for its figures where it is.
    world.status_when(|s| s.clients.iter().any(|client| client.session == first.session && client.kernels == u64::from(first.session) + 10));
    assert_eq!((first.generation(), first.sticky()), (2, 0));
}

/// Each attempt costs the client 15 ms: it is not asked for again before a hundred times that.
#[test]
fn a_client_that_cannot_leave_yet_loses_a_hundredth_of_its_time() {
    let mut world = World::new("occupied");
    let _clients = occupied(&mut world);
    let asked = |world: &World| -> Vec<u64> {
        let log = world.log();
        let lines = log.lines().filter_map(|line| line.split_once("asked to let go of session 1 at ")?.1.strip_suffix(" ms"));
        lines.map(|ms| ms.parse().unwrap()).collect()
    };
    world.wait_for(|world| asked(world).len() >= 3);
    let times = asked(&world);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1500), "{times:?}");
}

#[test]
fn of_two_orders_that_cross_the_first_one_hears_that_it_was_overtaken() {
    let mut world = World::new("keeps");
    let a = world.client();
    let pid = a.program.id();
    world.status_when(|s| s.standby != 0);
    world.tell(&ToServer::Move { request: 50, pid, own: true }, &[]);
    world.status_when(|s| s.clients.iter().any(|client| client.place_why.contains("being moved")));
    world.tell(&ToServer::Move { request: 51, pid, own: false }, &[]);
    world.expect(|m| matches!(m, FromServer::Moved { request: 50, found: true, error, .. } if error.contains("overtaken")));
    world.expect(|m| matches!(m, FromServer::Moved { request: 51, found: true, error, .. } if error.is_empty()));
    assert_eq!(world.status().clients[0].place, Place::Shared);
}

/// The share of a client in an executor of its own is that executor's to give; when it dies the
/// next one begins with it, and whoever waits hears that.
#[test]
fn a_share_is_answered_for_by_the_executor_that_has_the_client() {
    let mut world = World::new("shares nothing");
    let a = world.client();
    let pid = a.program.id();
    world.status_when(|s| s.standby != 0);
    world.tell(&ToServer::Move { request: 60, pid, own: true }, &[]);
    world.expect(|m| matches!(m, FromServer::Moved { request: 60, error, .. } if error.is_empty()));
    let own = world.status().clients[0].clone();
    assert_eq!((own.place, own.moves, own.takeovers), (Place::Own, 1, 0));
    world.tell(&ToServer::SetShare { request: 61, pid, share: cumux_wire::share::Share::parse("25").unwrap() }, &[]);
    let before = world.status();
    kill(own.executor);
    world.expect(|m| matches!(m, FromServer::Shared { request: 61, before: 66, now: 32, error } if error.is_empty()));
    let next = world.status_when(|s| s.clients[0].place == Place::Own && s.clients[0].executor != own.executor);
    assert_eq!((next.executor, next.clients[0].multiprocessors, next.clients[0].takeovers), (before.executor, 32, 1));
}

#[test]
fn clients_of_an_executor_apart_that_dies_go_on_with_the_others() {
    let mut world = World::new("occupied");
    let ([first, second, _third], apart) = occupied(&mut world);
    kill(apart);
    world.wait_for(|_| first.generation() == 2);
    let status = world.status_when(|s| s.clients.len() == 3);
    assert_eq!((status.takeovers, first.sticky(), second.sticky()), (1, 0, 0));
}

/// In a world whose fourth executor is slow: the one that serves after a loss, the one that stands
/// by, and the one that comes up.
fn one_ready_and_one_coming_up(world: &mut World) -> (u32, u32, u32) {
    // After a loss two are to stand by.
    let first = world.status_when(|s| s.standby != 0);
    world.wait_for(|_| has_file(first.standby, "ring"));
    kill(first.executor);
    let second = world.status_when(|s| s.takeovers == 1 && s.state == "ACTIVE");
    let (ready, coming_up) = (world.executor(3), world.executor(4));
    world.wait_for(|_| has_file(ready, "ring"));
    (second.executor, ready, coming_up)
}

/// What comes up would hold the driver's lock while the fault is handled (decision 0120).
#[test]
fn an_executor_that_comes_up_is_stopped_from_the_sign_of_a_fault_until_the_next_one_serves() {
    let mut world = World::new("fourth is slow");
    let client = world.client();
    let (serving, ready, coming_up) = one_ready_and_one_coming_up(&mut world);
    assert!(!is_stopped(coming_up));

    world.notice_fault();
    world.wait_for(|_| is_stopped(coming_up));
    assert!(!is_stopped(serving) && !is_stopped(ready), "one serves, the other can take over");

    world.lose_device();
    let third = world.status_when(|s| s.takeovers == 2 && s.state == "ACTIVE");
    assert_eq!((third.executor, client.generation(), client.sticky()), (ready, 3, 0));
    world.wait_for(|_| !is_stopped(coming_up));
    world.let_executor_speak();
    world.wait_for(|_| has_file(coming_up, "ring"));
}

/// In a world whose third and fourth executor stand by after a loss: the one that takes over at the
/// next one.
fn takes_over_of_two(mode: &str) -> usize {
    let mut world = World::new(mode);
    let client = world.client();
    let (_, third, fourth) = one_ready_and_one_coming_up(&mut world);
    world.wait_for(|_| has_file(fourth, "ring"));
    world.lose_device();
    let after = world.status_when(|s| s.takeovers == 2 && s.state == "ACTIVE");
    assert_eq!((client.generation(), client.sticky()), (3, 0));
    if after.executor == third { 3 } else { 4 }
}

/// A fault is noticed sooner in it (decision 0128).
#[test]
fn the_standby_with_the_lowest_queues_takes_over() {
    assert_eq!(takes_over_of_two("queues fall"), 4);
}

#[test]
fn of_standbys_that_are_not_prepared_the_oldest_takes_over() {
    assert_eq!(takes_over_of_two("queues fall, nobody is prepared"), 3);
}

/// All clients wait for it.
#[test]
fn an_executor_that_was_stopped_at_a_fault_goes_on_when_it_alone_can_take_over() {
    let mut world = World::new("second is slow");
    let client = world.client();
    let coming_up = world.executor(2);
    world.notice_fault();
    world.wait_for(|_| is_stopped(coming_up));
    world.let_executor_speak();
    world.lose_device();
    let after = world.status_when(|s| s.takeovers == 1 && s.state == "ACTIVE");
    assert_eq!((after.executor, client.generation(), client.sticky()), (coming_up, 2, 0));
}

/// Otherwise a client whose copies break the device would do so for ever.
#[test]
fn a_lost_device_of_which_nobody_was_told_counts_like_any_other_end() {
    let mut world = World::new("blames nobody");
    let client = world.client();
    world.status_when(|s| s.standby != 0);
    world.lose_device();
    world.status_when(|s| s.takeovers == 1 && s.state == "ACTIVE");
    assert_eq!((world.is_unexplained(2), client.sticky(), client.generation()), (true, 0, 2));
}

/// What need not be asked of the driver waits for that end (decision 0120).
#[test]
fn the_one_that_serves_spares_the_driver_while_the_lost_one_ends() {
    let mut world = World::new("ends slowly");
    let client = world.client();
    let first = world.status_when(|s| s.standby != 0);
    world.wait_for(|_| has_file(first.standby, "ring"));
    world.lose_device();
    world.status_when(|s| s.takeovers == 1 && s.state == "ACTIVE");
    assert!(!world.is_unexplained(2), "a client was told that it broke the device");
    world.wait_for(World::is_driver_spared);
    assert_eq!((client.sticky(), client.generation()), (0, 2));
    world.let_executor_speak();
    world.wait_for(World::is_driver_spared_no_more);
}

/// Its calls of the driver would wait until the fault has been handled, and the takeover for them.
#[test]
fn who_stands_by_begins_nothing_while_a_fault_is_handled() {
    let mut world = World::new("calm is short");
    let _client = world.client();
    let first = world.status_when(|s| s.standby != 0);
    world.wait_for(|_| has_file(first.standby, "ring"));
    assert!(!world.was_told(RESTS));
    world.notice_fault();
    world.wait_for(|world| world.was_told(RESTS));
    world.wait_for(|world| world.was_told(RESTS_NO_MORE));
}

#[test]
fn a_fault_without_a_loss_stops_nobody_for_long() {
    let mut world = World::new("second is slow, calm is short");
    let _client = world.client();
    let coming_up = world.executor(2);
    // By the story: perhaps the server's stop is over before anybody sees it.
    stop(coming_up);
    world.notice_fault();
    world.wait_for(|_| !is_stopped(coming_up));
}
