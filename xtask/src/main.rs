//! Command line of `cargo xtask`: runs the repository's checks, by name or by tier. `lanes/mod.rs` lists them.

mod cached;
mod checks;
mod lane;
mod lanes;
mod machine;
mod programs;
mod release;
mod table;
mod tree;

use std::io::Seek as _;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use lane::{Lane, LaneSize, Run};
use table::LaneOutcome;

const HELP: &str = "\
cargo xtask COMMAND

    quick            the smallest form of every kind of check; .ci/run runs this
    full [LANE…]     all checks, or these lanes, at full size; records the results in docs/checks.md
    list             the lanes, one line each
    LANE…            these lanes, at full size
    --small LANE…    these lanes, at the size of the quick tier
    release --dry-run   the files of a release, made and tried; nothing is published

A lane that fails does not stop the others; the exit status is 1 if any failed. Builds go to CARGO_TARGET_DIR or,
if that is not set, to target/.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match command(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs a command. Returns whether everything passed.
fn command(words: &[&str]) -> Result<bool> {
    match words {
        [] | ["--help" | "-h" | "help"] => println!("{HELP}\n\nLanes:\n{}", table::list(lanes::LANES)),
        ["list"] => println!("{}", table::list(lanes::LANES)),
        ["quick"] => return quick(),
        ["full"] => return run(&lanes::LANES.iter().collect::<Vec<_>>(), LaneSize::Full, true),
        ["full", names @ ..] => return run(&lanes_named(names)?, LaneSize::Full, true),
        ["release", "--dry-run"] => println!("{}", release::dry_run(&Run::new(LaneSize::Full)?)?),
        ["release", ..] => {
            bail!("a person publishes; `cargo xtask release --dry-run` makes and tries what is published")
        }
        ["--small", names @ ..] => return run(&lanes_named(names)?, LaneSize::Small, false),
        names => return run(&lanes_named(names)?, LaneSize::Full, false),
    }
    Ok(true)
}

/// Runs the quick tier in two processes. Many lanes keep only one core busy, so two processes take less time. Cargo
/// makes a build wait for another build in the same folder.
fn quick() -> Result<bool> {
    let first: Vec<_> = lanes::quick().into_iter().filter(|lane| !lanes::SECOND.contains(&lane.name)).collect();
    let mut output = tempfile::tempfile()?;
    let mut process = Command::new(std::env::current_exe()?)
        .arg("--small")
        .args(lanes::SECOND)
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .spawn()?;
    let passed = run(&first, LaneSize::Small, false);
    let status = process.wait()?;
    println!("\nOutput of the second process:");
    output.rewind()?;
    std::io::copy(&mut output, &mut std::io::stdout())?;
    Ok(passed? && status.success())
}

fn lanes_named(names: &[&str]) -> Result<Vec<&'static Lane>> {
    let find = |name: &&str| match lanes::LANES.iter().find(|lane| lane.name == *name) {
        Some(lane) => Ok(lane),
        None => bail!("there is no lane {name}; `cargo xtask list` shows them"),
    };
    names.iter().map(find).collect()
}

fn run(lanes: &[&Lane], size: LaneSize, record: bool) -> Result<bool> {
    let run = Run::new(size)?;
    let outcomes: Vec<LaneOutcome> = lanes.iter().map(|lane| LaneOutcome::of(lane, &run)).collect();
    println!("\n{}", table::text(&outcomes));
    if record {
        table::write_document(&run, &outcomes)?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.result.is_ok()))
}
