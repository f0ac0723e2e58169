//! Images that the compiler made, whose kernels use the stack in different ways.

use cumux_fatbin::stacks::find_moving_stacks;

const STACKS: [&[u8]; 3] = [include_bytes!("data/stacks.sm_80.cubin"), include_bytes!("data/stacks.sm_90.cubin"), include_bytes!("data/stacks.sm_100.cubin")];
const CALLS: &[u8] = include_bytes!("data/calls.sm_90.cubin");
const APART: &[u8] = include_bytes!("data/calls.linked.cubin");
const VARIABLES: &[u8] = include_bytes!("data/variables.sm_90.cubin");

#[test]
fn kernels_that_take_stack_by_a_parameter_are_told_from_others() {
    for image in STACKS {
        let found = find_moving_stacks(image).expect("it can be read");
        assert_eq!(found.iter().collect::<Vec<_>>(), ["by_parameter"]);
    }
    assert!(find_moving_stacks(VARIABLES).expect("it can be read").is_empty());
}

#[test]
fn kernels_that_restore_the_stack_from_a_register_count() {
    let found = find_moving_stacks(CALLS).expect("it can be read");
    assert!(found.contains("recursive") && !found.contains("plain") && !found.contains("says"), "{found:?}");
}

#[test]
fn what_cannot_be_read_is_not_told() {
    assert_eq!(find_moving_stacks(APART), None, "any kernel may call a function that has code of its own");
    assert_eq!(find_moving_stacks(b".version 7.0"), None);
    for end in (0..CALLS.len()).step_by(97) {
        let _ = find_moving_stacks(&CALLS[..end]);
    }
}
