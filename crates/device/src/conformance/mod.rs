//! The suite that every device must pass: the rules of this crate's documentation, each as a test
//! that fails where a device breaks it.
//!
//! A test is a function that takes an [`Opener`]. [`conformance_tests!`](crate::conformance_tests)
//! makes a `#[test]` of each; a device crate passes its opener there. Tests may run at the same
//! time in one process: each [`Setup`] has addresses of its own.

mod client;
#[allow(missing_docs, reason = "the name of each test is the rule that it checks")]
pub mod copies;
#[allow(missing_docs, reason = "the name of each test is the rule that it checks")]
pub mod faults;
#[allow(missing_docs, reason = "the name of each test is the rule that it checks")]
pub mod memory;
#[allow(missing_docs, reason = "the name of each test is the rule that it checks")]
pub mod modules;
#[allow(missing_docs, reason = "the name of each test is the rule that it checks")]
pub mod streams;
#[allow(missing_docs, reason = "the name of each test is the rule that it checks")]
pub mod textures;

use std::sync::Arc;

pub use client::{Actor, Args, Loaded, Recorder, Setup, Variables, memory_file};

use crate::{Device, Sink};

/// Makes a device that reports to this sink.
pub type Opener = fn(Arc<dyn Sink>) -> Arc<dyn Device>;

/// The kernels of the suite; `kernels.cu` explains them.
pub const KERNELS: &str = include_str!("kernels.ptx");

/// Makes a `#[test]` of each test of the suite: `conformance_tests!(open_my_device);`
#[macro_export]
macro_rules! conformance_tests {
    ($opener:expr) => {
        $crate::conformance_tests!(@ $opener, streams:
            work_of_a_stream_runs_in_order
            streams_run_at_the_same_time
            each_submission_is_reported_once_and_in_order
            many_blocks_all_run
            blocks_that_wait_for_each_other_meet
            blocks_that_wait_for_earlier_ones_go_on
            an_endless_kernel_does_not_stop_other_streams
            value_writes_and_marks_keep_the_order
            priorities_do_not_starve
            an_unknown_stream_is_an_error
            work_is_done_whoever_carries_it
            who_resumes_kernels_keeps_marks_and_waits_for_reports
        );
        $crate::conformance_tests!(@ $opener, copies:
            copies_in_one_dimension
            copies_in_two_and_three_dimensions
            overlapping_copies_are_as_through_a_buffer
            sets_of_all_widths
            long_copies_do_not_hold_up_kernels
            windows_and_registered_memory
        );
        $crate::conformance_tests!(@ $opener, faults:
            one_byte_past_an_allocation
            a_freed_allocation
            another_clients_memory
            a_null_pointer
            a_misaligned_address
            a_trap
            an_assertion_says_where
            a_fault_ends_everything_of_its_client_and_nothing_else
            a_bad_copy_faults
            read_only_memory
            an_endless_kernel_is_stopped
            closing_a_client_stops_its_kernels
            launches_beyond_the_card
        );
        $crate::conformance_tests!(@ $opener, memory:
            granules_are_enforced
            a_full_card_says_so
            extents_begin_zeroed_and_outlive_the_device
            what_is_mapped_ahead_is_adopted_or_gives_way
            mappings_exclude_each_other
            revoking_waits_for_running_blocks
            reads_and_writes_outside_streams
        );
        $crate::conformance_tests!(@ $opener, modules:
            variables_are_placed_and_filled
            restored_variables_keep_their_contents
            variables_are_filled_when_their_client_agrees
            a_preloaded_module_is_adopted_with_the_variables_of_its_client
            clients_have_variables_of_their_own
            printf_reaches_its_client_in_order
            cooperative_grids_synchronise
            a_cooperative_grid_that_does_not_fit
            dynamic_shared_memory_beyond_the_default
            bad_images_say_what_is_wrong
            function_information_is_complete
            blocks_know_their_multiprocessor
            partitions_at_positions_are_exactly_those
        );
        $crate::conformance_tests!(@ $opener, textures:
            a_plane_is_sampled_in_all_ways
            layers_solids_and_levels_are_sampled
            surfaces_are_read_and_written
            boxes_of_arrays_are_copied
            a_copy_beyond_an_array_faults
            an_array_has_nothing_of_the_one_before
            arrays_are_their_clients_alone
        );
    };
    (@ $opener:expr, $module:ident: $($name:ident)*) => {
        mod $module {
            $(#[test]
            fn $name() {
                $crate::conformance::$module::$name($opener);
            })*
        }
    };
}
