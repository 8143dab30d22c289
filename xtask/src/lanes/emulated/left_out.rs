//! Tests that QEMU's user mode cannot run.

/// Their names, and why.
pub(super) const LEFT_OUT: [(&str, &str); 24] = [
    ("another_library_at_the_same_address_has_its_own_frames", NO_ADDRESS_AGAIN),
    ("addresses_that_went_while_nothing_was_recorded_are_forgotten", NO_ADDRESS_AGAIN),
    ("what_was_closed_once_too_often_can_be_opened_again", NO_ADDRESS_AGAIN),
    ("what_a_context_took_along_can_be_opened_again", NO_ADDRESS_AGAIN),
    ("a_library_without_a_build_id_is_identified_by_its_file", NO_ADDRESS_AGAIN),
    ("code_at_the_addresses_of_unloaded_code_has_its_own_names", NO_ADDRESS_AGAIN),
    ("a_heap_that_runs_out_is_explained", NO_LIMIT),
    ("a_dump_without_room_is_written_at_a_later_failure", NO_LIMIT),
    ("running_out_of_memory_in_small_steps_writes_a_snapshot", NO_LIMIT),
    ("words_are_read_and_written_where_the_kernel_refuses_to", NO_SECCOMP),
    ("a_block_of_code_that_was_recorded_before_takes_no_system_call", NO_SECCOMP),
    ("code_fits_does_not_or_is_undecided", "it needs memory for each page of a card that is only reserved"),
    ("a_process_without_cuda_is_left_alone", OTHER_PROGRAMS),
    ("a_shell_and_what_it_starts_behave_as_without_us", OTHER_PROGRAMS),
    ("every_process_is_recorded_where_all_are_asked_for", OTHER_PROGRAMS),
    ("random_programs_have_what_another_allocator_below_counts", OTHER_PROGRAMS),
    ("cargo_test_runs_on_the_simulated_gpu", OTHER_PROGRAMS),
    ("cargo_test_counts_skipped_tests_and_runs_the_others", OTHER_PROGRAMS),
    ("nothing_is_done_in_a_program_with_a_sanitizer", "there is no sanitizer's library for it"),
    ("the_process_ends_with_the_programs_last_thread", "it has a thread of its own, which does not end"),
    ("each_part_of_resident_memory_has_its_row_and_nothing_is_unexplained", OWN_MEMORY),
    ("ten_thousand_threads_leave_nothing", OWN_MEMORY),
    ("children_without_fork_handlers_wait_for_nothing", "it does not clear in children what the kernel clears there"),
    ("stacks_beyond_the_tables_limit_are_counted_for_their_session", "it takes more than four minutes"),
];
const OTHER_PROGRAMS: &str = "it starts programs of this machine: a shell, rustc, cargo";
const OWN_MEMORY: &str = "its own memory is the process's, too";
const NO_ADDRESS_AGAIN: &str = "it maps nothing where something was";
const NO_SECCOMP: &str = "it has no seccomp";
const NO_LIMIT: &str = "it sets no limit of the address space";
