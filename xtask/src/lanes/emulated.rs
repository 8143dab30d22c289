//! The tests on aarch64, which QEMU's user mode runs on this machine. It shows what the code does, not what a processor's
//! memory order does to it: that is loom's.

use anyhow::{Result, ensure};
use xshell::{Cmd, cmd};

use crate::lane::{Run, output};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Processors of the machines that this is for have half-precision arithmetic. The crate `gemm` needs it where nothing is
/// optimised.
const FLAGS: &str = "-C target-feature=+fp16";
/// They run cargo, which builds for this machine.
const PACKAGES_LEFT_OUT: [&str; 2] = ["cargo-memtrace", "xtask"];

/// Tests that cannot pass in QEMU's user mode, and why.
const LEFT_OUT: [(&str, &str); 20] = [
    ("another_library_at_the_same_address_has_its_own_frames", NO_ADDRESS_AGAIN),
    ("addresses_that_went_while_nothing_was_recorded_are_forgotten", NO_ADDRESS_AGAIN),
    ("what_was_closed_once_too_often_can_be_opened_again", NO_ADDRESS_AGAIN),
    ("what_a_context_took_along_can_be_opened_again", NO_ADDRESS_AGAIN),
    ("a_heap_that_runs_out_is_explained", NO_LIMIT),
    ("a_dump_without_room_is_written_at_a_later_failure", NO_LIMIT),
    ("running_out_of_memory_in_small_steps_writes_a_snapshot", NO_LIMIT),
    ("words_are_read_and_written_where_the_kernel_refuses_to", "there is no seccomp, and it refuses that itself"),
    ("code_fits_does_not_or_is_undecided", "it needs memory for each page of a card that is only reserved"),
    ("a_process_without_cuda_is_left_alone", OTHER_PROGRAMS),
    ("a_shell_and_what_it_starts_behave_as_without_us", OTHER_PROGRAMS),
    ("every_process_is_recorded_where_all_are_asked_for", OTHER_PROGRAMS),
    ("random_programs_have_what_another_allocator_below_counts", OTHER_PROGRAMS),
    ("cargo_test_runs_on_the_simulated_gpu", OTHER_PROGRAMS),
    ("cargo_test_counts_skipped_tests_and_runs_the_others", OTHER_PROGRAMS),
    ("nothing_is_done_in_a_program_with_a_sanitizer", "there is no sanitizer's library for it"),
    ("each_part_of_resident_memory_has_its_row_and_nothing_is_unexplained", OWN_MEMORY),
    ("ten_thousand_threads_leave_nothing", OWN_MEMORY),
    ("children_without_fork_handlers_wait_for_nothing", "it does not clear in children what the kernel clears there"),
    ("stacks_beyond_the_tables_limit_are_counted_for_their_session", "it takes more than four minutes"),
];
const OTHER_PROGRAMS: &str = "it starts programs of this machine: a shell, rustc, cargo";
const OWN_MEMORY: &str = "its own memory is the process's, too";
const NO_ADDRESS_AGAIN: &str = "it maps nothing where something was";
const NO_LIMIT: &str = "it sets no limit of the address space";

pub(crate) fn run(run: &Run) -> Result<String> {
    let folder = run.scratch("emulated")?;
    cmd!(run.shell, "scripts/emulate-aarch64 {folder}").run()?;
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH")?);
    let packages = PACKAGES_LEFT_OUT.iter().flat_map(|name| ["--exclude", name]);
    LEFT_OUT.iter().for_each(|(name, why)| println!("left out: {name}: {why}"));
    let tests = LEFT_OUT.iter().flat_map(|(name, _)| ["--skip", name]);
    let target = run.target.join("emulated");
    let tests = cmd!(
        run.shell,
        "cargo test --workspace {packages...} --target {TARGET} --target-dir {target} --no-fail-fast -- {tests...}"
    );
    // Only the tests get the other compiler: build scripts are programs of this machine.
    let tests = tests
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("env PATH={path}"));
    passed(tests)
}

/// How many tests passed, of how many programs.
fn passed(tests: Cmd<'_>) -> Result<String> {
    let output = output(tests)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = said.lines().filter(|line| line.ends_with("... FAILED"));
    failed.for_each(|line| println!("FAIL  {line}"));
    let results = said.lines().filter_map(|line| line.strip_prefix("test result: ")?.split(". ").nth(1));
    let counts: Vec<usize> = results.filter_map(|result| result.split(' ').next()?.parse().ok()).collect();
    ensure!(output.status.success(), "{}", crate::lane::both_streams(&output));
    Ok(format!("{} tests in {} programs, {} left out", counts.iter().sum::<usize>(), counts.len(), LEFT_OUT.len()))
}
