//! Clients that leave for another executor beside work that does not end: when each of them may,
//! who is named meanwhile, and that nothing of those that have left is touched.

use super::*;

/// A client that comes back loads its modules, which waits for the long kernel of another: all
/// leave but that one, also the client whose opening waits.
#[test]
fn a_session_that_is_being_opened_does_not_stay_with_a_kernel_that_does_not_end() {
    let world = World::new();
    let (long, coming) = (Guest::new(&world, 1), Guest::new(&world, 2));
    coming.close();
    let files = Files::new(coming.files.iter().map(|file| file.try_clone().unwrap()).collect(), false).unwrap();
    let [ring, page, _, journal, ..] = &files.all;
    let (service, journal) = (Service::map(ring, page).unwrap(), Journal::map(journal).unwrap());
    let session =
        Arc::new(Session::new(coming.config.clone(), world.shared.clone(), SessionParts { service, journal, files, taken: 0, phase: Phase::reading() }));
    world.intake.add(&session).unwrap();
    let opening = session.lock();
    world.sink.let_go(&BTreeSet::from([1]), Begun::Only(Vec::new()));
    drop(opening);
    let told: Vec<FromExecutor> = world.reports.try_iter().map(|(message, _)| message).collect();
    assert!(told.iter().any(|message| matches!(message, FromExecutor::Occupied { staying } if *staying == [1])), "{told:?}");
    world.intake.remove(2);
    long.close();
}

/// A lane may hold reports that it has taken and not delivered. What they say is over would be done
/// again by the next executor, so lanes settle before anybody leaves, and once more after that.
#[test]
fn lanes_deliver_what_they_have_taken_before_anybody_leaves() {
    /// Says whether the session was elsewhere each time lanes settled.
    struct Watching(Arc<Session>, Mutex<Vec<bool>>);

    impl IntakeLanes for Watching {
        fn leave(&self, _client: ClientId) {}

        fn settle(&self) {
            self.1.lock().push(self.0.lock().phase.is_elsewhere());
        }
    }

    let world = World::new();
    let guest = Guest::new(&world, 1);
    let session = world.session(1);
    let sessions = Sessions::default();
    sessions.write().insert(1, session.clone());
    let sink = Reports::new(sessions, world.shared.mailboxes.clone(), Arc::new(Outbox::new().0));
    let lanes = Arc::new(Watching(session, Mutex::default()));
    sink.set_lanes(lanes.clone(), Leaving::Possible);
    sink.let_go(&BTreeSet::new(), Begun::Only(Vec::new()));
    assert_eq!(*lanes.1.lock(), [false, true]);
    guest.close();
}

/// All leave while a session is being opened by another thread. The next executor must not open it
/// before that is over, with the journal that this one still writes.
#[test]
fn a_session_that_is_being_opened_when_all_leave_is_named_until_it_has_left() {
    let world = World::new();
    let (long, coming) = (Guest::new(&world, 1), Guest::new(&world, 2));
    assert!(world.sink.begin_opening(2));
    world.sink.let_go(&BTreeSet::from([1]), Begun::Only(Vec::new()));
    assert_eq!(world.staying(), [1, 2], "it cannot leave yet");
    assert!(!world.session(2).lock().phase.is_elsewhere());
    let session = world.session(2);
    world.sink.end_opening(2);
    assert_eq!(world.staying(), [1]);
    assert!(session.lock().phase.has_departed() && !world.intake.has(2));
    assert!(!world.sink.begin_opening(3), "it takes no others");
    // Who could not be opened is not named any more.
    let other = Reports::new(Sessions::default(), world.shared.mailboxes.clone(), Arc::new(Outbox::new().0));
    other.set_lanes(world.intake.clone(), Leaving::Possible);
    assert!(other.begin_opening(4));
    other.end_opening(4);
    assert!(other.begin_opening(4), "nobody has left");
    drop(coming);
    long.close();
}

/// Whoever is told who stays takes all others for departed: so nobody says it while others are
/// still to leave, and everybody names those who are late.
#[test]
fn who_is_opened_while_others_are_late_does_not_say_that_those_have_left() {
    let world = World::new();
    let (long, late, coming) = (Guest::new(&world, 1), Guest::new(&world, 2), Guest::new(&world, 3));
    assert!(world.sink.begin_opening(3));
    let session = world.session(2);
    let call = session.lock();
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| world.sink.let_go(&BTreeSet::from([1]), Begun::Only(Vec::new())));
        while !world.sink.is_apart() {
            std::thread::yield_now();
        }
        world.sink.end_opening(3);
        leaving.join().expect("no panic");
    });
    // The third one may have been opened before the others began to leave, or after that.
    let first = world.staying();
    assert!(first == [1, 2, 3] || first == [1, 2], "{first:?}");
    if first == [1, 2, 3] {
        assert_eq!(world.staying(), [1, 2], "the second one is in a call");
    }
    drop(call);
    assert_eq!(world.staying(), [1]);
    assert!(session.lock().phase.has_departed());
    drop((late, coming));
    world.intake.remove(2);
    world.intake.remove(3);
    long.close();
}

/// Its next executor may have it, and marks there what it has begun.
#[test]
fn the_journal_of_a_session_that_has_departed_is_not_touched() {
    let world = World::new();
    let mut guest = Guest::new(&world, 1);
    guest.tell(&Op::StreamCreate { index: 1, device: 0, priority: 0, partition: 0 });
    let session = world.session(1);
    let nothing = Begun::Only(Vec::new());
    assert!(session.depart(Duration::from_secs(60), &nothing));
    let next = Journal::map(&guest.files[3]).unwrap();
    next.set_submitted(1, 7);
    // A thread that follows latecomers, or a loss, comes late.
    assert!(session.depart(Duration::from_secs(60), &nothing) && session.depart_from_loss(Duration::ZERO, &nothing));
    session.last_reports(Duration::from_secs(60), &nothing);
    assert_eq!(next.submitted(1), 7);
    drop(session);
    world.intake.remove(1);
}

/// Nothing of a session that is to leave is begun any more. If it is in a call, it leaves when that
/// has ended; it must not stay for good.
#[test]
fn a_session_that_is_in_a_call_when_all_leave_comes_after_them() {
    let world = World::new();
    let (long, late) = (Guest::new(&world, 1), Guest::new(&world, 2));
    let session = world.session(2);
    let call = session.lock();
    world.sink.let_go(&BTreeSet::from([1]), Begun::Only(Vec::new()));
    assert_eq!(world.staying(), [1, 2], "it cannot leave yet");
    assert!(!call.phase.is_elsewhere());
    drop(call);
    assert_eq!(world.staying(), [1]);
    assert!(session.lock().phase.is_elsewhere());
    drop(late);
    world.intake.remove(2);
    long.close();
}

/// The variables of a module that is loaded are filled by the device, while nobody has the lock. A
/// session does not leave meanwhile: its next executor would load the module again, and what is
/// filled late would be written over that.
#[test]
fn a_session_whose_variables_are_being_filled_comes_after_all_others() {
    let world = World::new();
    let (long, late) = (Guest::new(&world, 1), Guest::new(&world, 2));
    let session = world.session(2);
    let (begun, begins) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let filled = std::thread::spawn({
        let session = session.clone();
        move || {
            New::on(&session, 0).fill(&mut || {
                begun.send(()).expect("somebody waits");
                ends.recv().expect("it is let go on");
                Ok(())
            })
        }
    });
    begins.recv_timeout(Duration::from_secs(60)).expect("it begins");
    world.sink.let_go(&BTreeSet::from([1]), Begun::Only(Vec::new()));
    assert_eq!(world.staying(), [1, 2], "it cannot leave yet");
    assert!(!session.lock().phase.is_elsewhere());
    end.send(()).expect("it waits");
    filled.join().expect("no panic").expect("it was still here");
    assert_eq!(world.staying(), [1]);
    let after = New::on(&session, 0).fill(&mut || unreachable!("it is elsewhere"));
    assert!(matches!(after, Err(DeviceError::LetGo(_))), "{after:?}");
    drop(late);
    world.intake.remove(2);
    long.close();
}

/// A device whose code panics meanwhile does not keep the session here.
#[test]
fn a_session_leaves_although_filling_its_variables_has_panicked() {
    let world = World::new();
    let (long, late) = (Guest::new(&world, 1), Guest::new(&world, 2));
    let session = world.session(2);
    let filled = std::thread::spawn(move || New::on(&session, 0).fill(&mut || panic!("of this test")));
    assert!(filled.join().is_err());
    world.sink.let_go(&BTreeSet::from([1]), Begun::Only(Vec::new()));
    assert_eq!(world.staying(), [1]);
    drop(late);
    world.intake.remove(2);
    long.close();
}

/// Nor is its memory given back meanwhile, if its client ends.
#[test]
fn a_session_whose_variables_are_being_filled_keeps_its_memory_until_then() {
    let world = World::new();
    let guest = Guest::new(&world, 3);
    let session = world.intake.remove(3).expect("it is open");
    let (begun, begins) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let (closed, closes) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        let session = &session;
        threads.spawn(move || {
            let filled = New::on(session, 0).fill(&mut || {
                begun.send(()).expect("somebody waits");
                ends.recv().expect("it is let go on");
                Ok(())
            });
            filled.expect("it was still here");
        });
        begins.recv_timeout(Duration::from_secs(60)).expect("it begins");
        threads.spawn(move || {
            session.close().expect("everything is given back");
            closed.send(()).expect("somebody waits");
        });
        assert!(closes.recv_timeout(Duration::from_millis(200)).is_err(), "its memory was given back too early");
        end.send(()).expect("it waits");
        closes.recv_timeout(Duration::from_secs(60)).expect("it is closed then");
    });
    drop(guest);
}
