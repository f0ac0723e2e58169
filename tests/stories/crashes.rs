//! Crashes at named steps of the fault path and of a move, as many as the suite has time for.
//! `cargo xtask chaos --steps 500` plays more, and other ones each time.

use cumux_testkit::crashes::{Figures, Options, run};

fn expect_as_promised(figures: &Figures) {
    assert!(figures.complaints.is_empty(), "{} complaints; the first: {}", figures.complaints.len(), figures.complaints[0]);
}

/// The seed is fixed, so that a change is judged by the same plans as the change before.
#[test]
fn nobody_has_a_wrong_result_or_waits_for_ever() {
    let figures = run(&Options { steps: 10, killed: 0, seed: 1, lanes: 3 });
    expect_as_promised(&figures);
    assert!(figures.struck * 2 >= figures.rounds, "the steps of {} of {} rounds were never reached", figures.rounds - figures.struck, figures.rounds);
}

/// 100 of 100 with `cargo xtask chaos --killed 100`.
#[test]
fn an_executor_with_eight_busy_clients_is_killed_from_outside() {
    expect_as_promised(&run(&Options { steps: 0, killed: 2, seed: 1, lanes: 2 }));
}
