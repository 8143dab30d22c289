//! Tests that QEMU's user mode cannot run.

/// The tests' names, and the reasons.
pub(super) const LEFT_OUT: [(&str, &str); 45] = [
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
    ("before_close_range_there_was_another_way_to_a_table", NO_SECCOMP),
    ("where_no_table_is_to_be_had_the_recording_goes_on", NO_SECCOMP),
    ("code_fits_does_not_or_is_undecided", PAGES),
    ("the_log_equals_a_naive_model", PAGES),
    ("it_does_when_addresses_are_used_again_at_once", PAGES),
    ("each_step_reserves_as_much_in_the_model_and_places_blocks_alike", PAGES),
    ("counters_and_log_equal_a_naive_model", PAGES),
    ("the_page_cache_and_the_process_have_rows_and_what_is_available_is_said", PAGES),
    ("once_no_context_is_left_the_hosts_numbers_are_those_from_before", PAGES),
    ("a_streamed_capture_has_the_hosts_memory", PAGES),
    ("a_process_without_cuda_is_left_alone", OTHER_PROGRAMS),
    ("a_shell_and_what_it_starts_behave_as_without_us", OTHER_PROGRAMS),
    ("every_process_is_recorded_where_all_are_asked_for", OTHER_PROGRAMS),
    ("random_programs_have_what_another_allocator_below_counts", OTHER_PROGRAMS),
    ("cargo_test_runs_on_the_simulated_gpu", OTHER_PROGRAMS),
    ("cargo_test_counts_skipped_tests_and_runs_the_others", OTHER_PROGRAMS),
    ("programs_keep_their_names_and_benchmarks_run_as_cargo_runs_them", OTHER_PROGRAMS),
    ("a_runner_of_cargos_configuration_is_not_left_out_without_a_word", OTHER_PROGRAMS),
    ("only_baselines_without_a_test_are_removed_after_a_run_that_passed", OTHER_PROGRAMS),
    ("nothing_is_done_in_a_program_with_a_sanitizer", "there is no sanitizer's library for it"),
    ("the_process_ends_with_the_programs_last_thread", OWN_THREAD),
    ("a_main_thread_that_ends_early_ends_as_alone", OWN_THREAD),
    ("a_snapshot_after_the_main_threads_end_has_the_programs_name_and_functions", OWN_THREAD),
    ("a_program_without_threads_does_not_wait_for_ours", OWN_THREAD),
    ("a_folder_or_a_process_stands_for_the_recordings_that_are_being_written", NO_TERMINAL),
    ("a_killed_program_is_one_that_ended", NO_TERMINAL),
    ("keys_and_windows_of_any_size_are_obeyed_while_a_program_runs", NO_TERMINAL),
    ("somebody_may_end_it_at_any_time", NO_TERMINAL),
    ("each_part_of_resident_memory_has_its_row_and_nothing_is_unexplained", OWN_MEMORY),
    ("hostile_snapshots_are_refused_in_little_memory", OWN_MEMORY),
    ("ten_thousand_threads_leave_nothing", OWN_MEMORY),
    ("children_without_fork_handlers_wait_for_nothing", "it does not clear in children what the kernel clears there"),
    ("stacks_beyond_the_tables_limit_are_counted_for_their_session", FOUR_MINUTES),
    ("advice_that_is_followed_saves_what_it_promises", FOUR_MINUTES),
];
const FOUR_MINUTES: &str = "it takes more than four minutes, its limit";
const OTHER_PROGRAMS: &str = "it starts programs of this machine: a shell, rustc, cargo";
const PAGES: &str = "it needs memory for each page of addresses that are only reserved, more than 20 GiB";
const OWN_THREAD: &str = "it has a thread of its own, which does not end";
const NO_TERMINAL: &str = "it does not know the settings of a terminal that `top` asks for";
const OWN_MEMORY: &str = "its own memory is the process's, too";
const NO_ADDRESS_AGAIN: &str = "it maps nothing where something was";
const NO_SECCOMP: &str = "it has no seccomp";
const NO_LIMIT: &str = "it sets no limit of the address space";
