//! The lane `failing`: programs in which one call of the driver fails, alone and under the preloaded library. Both runs
//! must behave the same, and the recordings must equal the simulator's log.

use anyhow::{Result, ensure};

use super::builds;
use super::command::GpuCommand;
use super::preloaded::{AllowedExit, Preloaded};
use crate::lane::Run;

/// Faults, and the kinds of calls that get them.
const KINDS: [(&str, &str); 9] = [
    ("oom", "alloc"),
    ("fail", "alloc"),
    ("fail", "init"),
    ("fail", "free"),
    ("fail", "event"),
    ("fail", "module"),
    ("fail", "launch"),
    ("fail", "copy"),
    ("fail", "sync"),
];

const PROGRAMS: [(&str, &str); 2] = [("candle", "candle-train"), ("candle decodes", "candle-decode")];

/// The largest call number that is tried.
const MOST: u64 = 2000;

pub(crate) fn run(run: &Run) -> Result<String> {
    let mut lane = Preloaded::new(run)?;
    let linked = builds::linked(run, &["--bin=candle-train", "--bin=candle-decode"])?;
    for (name, program) in PROGRAMS {
        let command = GpuCommand::of(run, linked.path(program)?);
        for (answer, kind) in KINDS {
            let ended_early = each_number(&mut lane, name, &command, &format!("{answer}@{kind}"))?;
            // candle ignores the result of a free, and creates no events with one stream.
            ensure!(ended_early > 0 || ["free", "event"].contains(&kind), "{name}: no {kind} failed");
        }
    }
    lane.checks.end()
}

/// Lets each call of this kind fail in turn. Returns how many runs ended early.
fn each_number(lane: &mut Preloaded<'_>, name: &str, command: &GpuCommand<'_>, fault: &str) -> Result<usize> {
    let mut ended_early = 0;
    for number in numbers() {
        let fails = command.clone().variable("MEMTRACE_CUSIM_FAULTS", format!("{fault}:{number}"));
        let name = format!("{name}, {fault}:{number}");
        let ended = lane.both(&name, &fails, AllowedExit::Any)?;
        ended_early += usize::from(!ended.succeeded());
        // If a program fails before it has a device, no report is written.
        if lane.path("report.json").exists() {
            lane.recorded(&name, None, "report.json");
        }
    }
    Ok(ended_early)
}

/// The first numbers, then fewer and fewer of them.
fn numbers() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1), |number| Some(number + 1 + number / 3)).take_while(|number| *number <= MOST)
}
