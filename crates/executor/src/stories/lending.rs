//! What clients lend each other: rights, lifetime, and what a successor finds.

use super::*;
use crate::loans::Token;
use cumux_wire::record::{event_cell, lent};

fn lend(guest: &mut Guest<'_>, address: u64) -> Token {
    let answer = guest.ask(&Op::Lend { address, kind: lent::MEMORY });
    assert_eq!(answer.result, result::SUCCESS);
    [answer.words[0], answer.words[1]]
}

fn borrow(token: Token) -> Op {
    Op::Borrow { token, kind: lent::MEMORY }
}

/// What was freed is given back on another thread.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never comes");
        std::thread::yield_now();
    }
}

#[test]
fn a_loan_outlives_whoever_goes_first_and_nothing_is_left_of_it() {
    let world = World::new();
    let (mut owner, mut other) = (Guest::new(&world, 20), Guest::new(&world, 21));
    let address = owner.ask_ok(&allocate(4096, 256));
    let token = lend(&mut owner, address);
    assert_eq!(lend(&mut owner, address), token, "one handle for one allocation");
    assert_eq!(owner.ask(&borrow(token)).result, result::INVALID_CONTEXT);
    for forged in [[token[0], token[1] ^ 1], [token[1], token[0]], [0; 2]] {
        assert_eq!(other.ask(&borrow(forged)).result, result::INVALID_HANDLE);
    }
    assert_eq!(other.ask(&Op::Borrow { token, kind: lent::EVENT }).result, result::INVALID_HANDLE, "it is no event");
    assert_eq!(other.ask(&Op::VmmBorrow { handle: 1, token }).result, result::INVALID_HANDLE);
    assert_eq!(other.ask(&Op::Lend { address, kind: lent::MEMORY }).result, result::INVALID_VALUE, "it is not its own");
    assert_eq!(other.ask_ok(&borrow(token)), address);
    assert_eq!((owner.charged(), other.charged()), (4096, 0));
    // Freed and open: nobody gets the addresses.
    owner.tell(&Op::MemFree { address });
    assert_ne!(owner.ask_ok(&allocate(4096, 256)), address);
    assert_eq!(owner.charged(), 2 * 4096);
    owner.close();
    assert_eq!(other.charged(), 4096, "who keeps it is charged");
    assert_eq!(other.ask(&borrow(token)).words[0], address, "it has it already");
    other.tell(&Op::Return { address });
    assert_eq!(other.charged(), 0);
    other.close();
    assert!(world.shared.arena.lock().claim(arena::ALL.start, arena::ALL.end - arena::ALL.start), "nothing is left");
}

/// In whichever order they come, and whoever does not.
#[test]
fn successors_find_who_shares_what() {
    for order in 0..4 {
        let world = World::new();
        let (mut owner, mut other) = (Guest::new(&world, 30 + 2 * order), Guest::new(&world, 31 + 2 * order));
        let (kept, freed) = (owner.ask_ok(&allocate(8192, 256)), owner.ask_ok(&allocate(4096, 256)));
        let tokens = [lend(&mut owner, kept), lend(&mut owner, freed)];
        for token in tokens {
            other.ask_ok(&borrow(token));
        }
        owner.ask_ok(&Op::VmmCreate { handle: 5, device: 0, bytes: GRANULE });
        let answer = owner.ask(&Op::VmmLend { handle: 5 });
        let physical = [answer.words[0], answer.words[1]];
        assert_eq!(other.ask_ok(&Op::VmmBorrow { handle: 9, token: physical }), GRANULE);
        owner.tell(&Op::MemFree { address: freed });
        owner.close();
        other.close();
        match order {
            0 => (owner.open(2).unwrap(), other.open(2).unwrap()),
            1 => (other.open(2).unwrap(), owner.open(2).unwrap()),
            2 => (other.open(2).unwrap(), ()),
            _ => (owner.open(2).unwrap(), ()),
        };
        let consequences = world.shared.loans.lock().settle(true);
        world.shared.settle_loans(consequences);
        if order < 2 {
            assert_eq!((owner.charged(), other.charged()), (8192 + 4096 + GRANULE, 0), "as before");
            assert_ne!(owner.ask_ok(&allocate(4096, 256)), freed, "somebody has it open");
            other.tell(&Op::Return { address: freed });
            wait_until(|| owner.charged() == 8192 + 4096 + GRANULE);
            owner.tell(&Op::VmmRelease { handle: 5 });
            assert_eq!((owner.charged(), other.charged()), (8192 + 4096, GRANULE), "physical memory is the other's now");
            owner.close();
        }
        if order == 3 {
            wait_until(|| owner.charged() == 8192 + GRANULE);
            assert_eq!(owner.ask_ok(&allocate(4096, 256)), freed, "nobody has it open");
            owner.close();
            continue;
        }
        let left = if order == 2 { 8192 + 4096 + GRANULE } else { 8192 + GRANULE };
        assert_eq!(other.charged(), left, "{order}: its owner has gone, or never came");
        let reserved = other.ask_ok(&Op::VmmReserve { bytes: GRANULE, align: 0, fixed: 0 });
        other.ask_ok(&Op::VmmMap { address: reserved, bytes: GRANULE, handle: 9, offset: 0 });
        other.ask_ok(&Op::VmmUnmap { address: reserved, bytes: GRANULE });
        other.ask_ok(&Op::Reset);
        assert_eq!(other.charged(), 0);
        other.close();
        assert!(world.shared.arena.lock().claim(arena::ALL.start, arena::ALL.end - arena::ALL.start), "nothing is left");
    }
}

#[test]
fn records_of_an_event_are_numbered_for_all() {
    let world = World::new();
    let (mut owner, mut other) = (Guest::new(&world, 40), Guest::new(&world, 41));
    let address = owner.ask_ok(&allocate(event_cell::BYTES, event_cell::BYTES));
    let ask = |guest: &mut Guest<'_>, action| {
        let answer = guest.ask(&Op::EventCell { address, action });
        assert_eq!(answer.result, result::SUCCESS);
        (answer.words[0], answer.words[1] != 0)
    };
    assert_eq!(other.ask(&Op::EventCell { address, action: event_cell::LOOK }).result, result::INVALID_VALUE, "it is not open");
    assert_eq!(ask(&mut owner, event_cell::CLEAR), (0, true));
    let answer = owner.ask(&Op::Lend { address, kind: lent::EVENT });
    other.ask_ok(&Op::Borrow { token: [answer.words[0], answer.words[1]], kind: lent::EVENT });
    assert_eq!((ask(&mut owner, event_cell::RECORD), ask(&mut other, event_cell::RECORD)), ((1, false), (2, false)));
    owner.close();
    other.close();
    other.open(2).unwrap();
    owner.open(2).unwrap();
    assert_eq!(ask(&mut owner, event_cell::LOOK), (2, false));
    world.shared.cards.write(40, address + event_cell::place_of(2), &2_u64.to_le_bytes()).unwrap();
    assert_eq!(ask(&mut other, event_cell::LOOK), (2, true));
    owner.close();
    other.close();
}

#[test]
fn who_shares_is_not_let_go_of() {
    let world = World::new();
    let (mut owner, mut other) = (Guest::new(&world, 50), Guest::new(&world, 51));
    let address = owner.ask_ok(&allocate(4096, 256));
    let token = lend(&mut owner, address);
    other.ask_ok(&borrow(token));
    let terms = release::Terms { wait: Duration::from_millis(1), unless_still: false };
    let let_go = |client: u32| {
        release::release(&world.shared, &world.intake, &world.session(client), &terms);
        let told = world.reports.try_iter().map(|(message, _)| message);
        told.filter_map(|message| if let FromExecutor::Released { error, .. } = message { Some(error) } else { None }).last().expect("an answer")
    };
    for client in [50, 51] {
        assert!(let_go(client).contains("it shares memory with other clients"));
    }
    other.tell(&Op::Return { address });
    assert_eq!(let_go(50), "");
    assert_eq!(other.ask(&borrow(token)).result, result::INVALID_HANDLE, "it is elsewhere now");
    other.close();
}
