//! The crash matrix, as much of it as the suite has time for. `cargo xtask chaos` plays more
//! rounds, and other ones each time.

use cumux_testkit::chaos::{Options, run};

/// Each scenario comes at least once. The seed is fixed, so that a change is judged by the same
/// plans as the change before; the timing differs each time.
#[test]
fn fifty_rounds() {
    let mut options = Options::rounds(50, 1);
    // One that fails takes long: a few are enough to see what is wrong.
    options.most_failures = 3;
    let figures = run(&options);
    println!("{}", figures.table());
    assert_eq!(figures.failed, 0, "of {} rounds; each is printed above with the command that plays it again", figures.rounds);
}
