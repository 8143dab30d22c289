//! Command line of `cargo xtask`: runs the repository's checks, by name or by tier. `lanes/mod.rs` lists them.

mod checks;
mod lane;
mod lanes;
mod programs;
mod table;

use std::process::ExitCode;

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

/// Returns whether everything passed.
fn command(words: &[&str]) -> Result<bool> {
    match words {
        [] | ["--help" | "-h" | "help"] => println!("{HELP}\n\nLanes:\n{}", table::list(lanes::LANES)),
        ["list"] => println!("{}", table::list(lanes::LANES)),
        ["quick"] => return run(&lanes::quick(), LaneSize::Small, false),
        ["full"] => return run(&lanes::LANES.iter().collect::<Vec<_>>(), LaneSize::Full, true),
        ["full", names @ ..] => return run(&lanes_named(names)?, LaneSize::Full, true),
        ["--small", names @ ..] => return run(&lanes_named(names)?, LaneSize::Small, false),
        names => return run(&lanes_named(names)?, LaneSize::Full, false),
    }
    Ok(true)
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
