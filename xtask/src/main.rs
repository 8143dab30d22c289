//! `cargo xtask`: every check of this repository, by name or by tier. The list of them is in `lanes.rs`.

mod checks;
mod lane;
mod lanes;
mod table;

use std::process::ExitCode;

use anyhow::{Result, bail};
use lane::{Lane, Run, Size};
use table::Outcome;

const HELP: &str = "\
cargo xtask COMMAND

    quick            the smallest form of every kind of check: what .ci/run runs
    full [LANE…]     every check at full size, or these alone; writes what they showed to docs/checks.md
    list             the lanes: a line each
    LANE…            these lanes, at full size
    --small LANE…    these lanes, as they are in the quick tier

A lane that fails does not stop the others; the exit status is 1 if any failed. What is built goes to
CARGO_TARGET_DIR or, if that is not set, to target/.";

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

/// True if nothing failed.
fn command(words: &[&str]) -> Result<bool> {
    match words {
        [] | ["--help" | "-h" | "help"] => println!("{HELP}\n\nLanes:\n{}", table::list(lanes::LANES)),
        ["list"] => println!("{}", table::list(lanes::LANES)),
        ["quick"] => return run(&lanes::quick(), Size::Small),
        ["full"] => return full(&lanes::LANES.iter().collect::<Vec<_>>()),
        ["full", names @ ..] => return full(&named(names)?),
        ["--small", names @ ..] => return run(&named(names)?, Size::Small),
        names => return run(&named(names)?, Size::Full),
    }
    Ok(true)
}

fn named(names: &[&str]) -> Result<Vec<&'static Lane>> {
    let find = |name: &&str| lanes::LANES.iter().find(|lane| lane.name == *name);
    if let Some(unknown) = names.iter().find(|name| find(name).is_none()) {
        bail!("there is no lane {unknown}; `cargo xtask list` has them");
    }
    Ok(names.iter().filter_map(find).collect())
}

fn run(lanes: &[&Lane], size: Size) -> Result<bool> {
    let outcomes = outcomes(lanes, size)?;
    println!("\n{}", table::text(&outcomes));
    Ok(outcomes.iter().all(|outcome| outcome.showed.is_ok()))
}

fn full(lanes: &[&Lane]) -> Result<bool> {
    let run = Run::new(Size::Full)?;
    let outcomes = outcomes(lanes, Size::Full)?;
    println!("\n{}", table::text(&outcomes));
    table::write_document(&run, &outcomes)?;
    Ok(outcomes.iter().all(|outcome| outcome.showed.is_ok()))
}

fn outcomes(lanes: &[&Lane], size: Size) -> Result<Vec<Outcome>> {
    let run = Run::new(size)?;
    Ok(lanes.iter().map(|lane| Outcome::of(lane, &run)).collect())
}
