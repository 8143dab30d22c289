//! Tests that cargo runs: the README's command, concurrency models under loom, and random programs at length.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use xshell::{Cmd, cmd};

use crate::lane::Run;

pub(crate) fn run(run: &Run) -> Result<String> {
    let command = run.readme_command("tests")?;
    let shown = command.to_string();
    command.run()?;
    Ok(format!("`{shown}` passes"))
}

/// Tests of behaviour that another unwinder changes.
const NOT_CHECKED: [(&str, &str); 7] = [
    ("a_recorded_block_takes_little_of_the_programs_stack", "libgcc's unwinder takes more"),
    ("a_free_with_a_stack_takes_little_of_the_programs_own", "libgcc's unwinder takes more"),
    ("a_block_on_a_signal_stack_is_limited_and_takes_more_the_first_time", "libgcc's unwinder takes more"),
    ("a_handler_on_a_small_signal_stack_may_allocate", "libgcc's unwinder takes more"),
    ("threads_with_the_smallest_stack_run_and_are_recorded", "libgcc's unwinder takes more"),
    ("what_a_context_took_along_can_be_opened_again", "what libgcc's unwinder maps takes the address"),
    ("addresses_that_went_while_nothing_was_recorded_are_forgotten", "what libgcc's unwinder maps takes the address"),
];

/// Runs the tests with libgcc's unwinder taking every stack as well.
pub(crate) fn stacks(run: &Run) -> Result<String> {
    NOT_CHECKED.iter().for_each(|(name, why)| println!("left out: {name}: {why}"));
    checked(cmd!(run.shell, "cargo test --workspace --exclude xtask --no-fail-fast"), &[])
}

/// The number of tests that passed, and of their programs. No stack in them may differ from libgcc's.
pub(super) fn checked(tests: Cmd<'_>, left_out: &[(&str, &str)]) -> Result<String> {
    let left_out = left_out.iter().chain(&NOT_CHECKED).flat_map(|(name, _)| ["--skip", name]);
    let tests = tests.env("MEMTRACE_CHECK_STACKS", "abort").arg("--").args(left_out);
    let mut tests = Command::from(tests).stdout(Stdio::piped()).spawn()?;
    let (mut passed, mut programs) = (0, 0);
    let mut said = Vec::new();
    // The lines are printed at once, because the tests may take an hour.
    for line in BufReader::new(tests.stdout.take().context("a pipe")?).lines() {
        let line = line?;
        if let Some(counts) = line.strip_prefix("test result: ok. ") {
            (passed, programs) =
                (passed + counts.split(' ').next().unwrap_or_default().parse::<usize>()?, programs + 1);
        }
        if line.starts_with("test result: ") || line.ends_with("... FAILED") {
            println!("{line}");
        }
        said.push(line);
    }
    ensure!(tests.wait()?.success(), "{}", said.join("\n"));
    Ok(format!("{passed} tests in {programs} programs with libgcc's stacks"))
}

/// Model-checks every interleaving of threads.
pub(crate) fn loom(run: &Run) -> Result<String> {
    let target = run.target.join("loom");
    let test =
        cmd!(run.shell, "cargo test --quiet --release --manifest-path tests/loom/Cargo.toml --target-dir {target}");
    test.env("RUSTFLAGS", "--cfg loom").run()?;
    Ok("every interleaving".to_owned())
}

/// Runs `diff` on twenty pairs of equal runs of a program, and on ten planted regressions.
pub(crate) fn differences(run: &Run) -> Result<String> {
    let test = cmd!(run.shell, "cargo test --quiet -p training --test differences -- --nocapture");
    let text = crate::lane::said(test.env("MEMTRACE_TEST_DIFFERENCES", "full"))?;
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" bytes")).collect();
    rows.iter().for_each(|row| println!("{row}"));
    Ok(rows.first().copied().unwrap_or("no pairs").to_owned())
}

/// Runs programs with a planted fault, and counts how often each fault is found, undecided and passed.
pub(crate) fn verdicts(run: &Run) -> Result<String> {
    let test = cmd!(run.shell, "cargo test --quiet --test verdicts planted -- --nocapture --test-threads=1");
    let text = crate::lane::said(test.env("MEMTRACE_TEST_RUNS", "200"))?;
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("found") || line.contains("passed")).collect();
    rows.iter().for_each(|row| println!("{row}"));
    Ok(rows.iter().find(|row| row.contains("of 30")).copied().unwrap_or("no programs").to_owned())
}

/// Runs sixty times as many random programs, and the parallel tests a thousand times.
pub(crate) fn stress(run: &Run) -> Result<String> {
    let shell = &run.shell;
    let random = cmd!(
        shell,
        "cargo test --quiet -p candle-memtrace -p memtrace-cusim --lib --test recording --test hostile --test model"
    );
    random.env("MEMTRACE_CASES", "60").run()?;
    // Tests that run longer, whatever the number of cases.
    let longer = ["certain", "again_at_once", "never_larger", "fails_anywhere"];
    let tests = cmd!(shell, "cargo test --quiet --workspace --lib --test cuda --test followed -- {longer...}");
    tests.env("MEMTRACE_CASES", "1").run()?;
    cmd!(shell, "cargo test --quiet --test parallel").env("MEMTRACE_TEST_RUNS", "1000").run()?;
    Ok("sixty times as many random programs; 64 parallel tests, a thousand times".to_owned())
}
