//! The lane `unchanged`: unmodified programs under the preloaded library.

use anyhow::Result;

use super::builds;
use super::command::GpuCommand;
use super::preloaded::{AllowedExit, Preloaded};
use super::programs::FAULTS;
use super::{frameworks, post_mortem, published, versions};
use crate::lane::Run;
use crate::programs::Programs;

pub(crate) fn run(run: &Run) -> Result<String> {
    let mut lane = Preloaded::new(run)?;
    let linked = builds::linked(run, &["--bin=candle-train", "--bin=candle-recorded", "--bin=cudarc-linked"])?;
    let train = GpuCommand::of(run, linked.path("candle-train")?);
    versions::newest(&mut lane, &train)?;
    train_variants(&mut lane, &train)?;
    loaded(&mut lane)?;
    programs_with_memtrace(&mut lane, &linked)?;
    refused(&mut lane, &linked)?;
    if run.is_full() {
        published::candle(&mut lane)?;
        published::cudarc(&mut lane)?;
        published::tests(&mut lane)?;
        versions::older(&mut lane)?;
        frameworks::luminal(&mut lane)?;
        frameworks::burn(&mut lane)?;
    }
    lane.checks.end()
}

fn train_variants(lane: &mut Preloaded<'_>, train: &GpuCommand<'_>) -> Result<()> {
    let source = Some(versions::SOURCE);
    let two = train.clone().variable("MEMTRACE_CUSIM_DEVICES", "2").arguments(&["2"]);
    lane.both_recorded("candle on two GPUs", &two, AllowedExit::Success, source)?;
    let without = train.clone().variable("MEMTRACE_CUSIM_POOLS", 0);
    lane.both_recorded("candle without pools", &without, AllowedExit::Success, source)?;
    let refused = train.clone().variable("MEMTRACE_CUSIM_FAULTS", "oom@alloc:500");
    lane.both_recorded("candle refused once", &refused, AllowedExit::SuccessOrError, source)?;
    let ended = post_mortem::out_of_memory(lane, "candle out of memory", &refused, versions::SOURCE)?;
    let is_row = |line: &str| line.contains(" MiB ") || line.contains(" KiB ");
    let is_line_of_source = |line: &str| is_row(line) && line.contains(&format!("{}:", versions::SOURCE));
    let what = "with bytes at a line of the program";
    lane.checks.line("candle out of memory", &ended.stderr, what, is_line_of_source);
    // The program is linked against the driver, but never calls it.
    let name = "candle on no GPU";
    let ended = lane.both(name, &train.clone().arguments(&["0"]), AllowedExit::Success)?;
    lane.silent(name, &ended);
    Ok(())
}

/// This program loads the driver at run time, and uses four threads and pinned memory.
fn loaded(lane: &mut Preloaded<'_>) -> Result<()> {
    let command = GpuCommand::of(lane.run, &lane.loaded.join("cudarc-loaded"));
    lane.both_recorded("cudarc-loaded", &command, AllowedExit::Success, Some("cudarc-loaded/src/main.rs"))
}

/// Programs with memtrace linked in record themselves; the preloaded copy stays inactive.
fn programs_with_memtrace(lane: &mut Preloaded<'_>, linked: &Programs) -> Result<()> {
    for name in ["candle-recorded", "cudarc-linked"] {
        let ended = lane.preloaded(&GpuCommand::of(lane.run, linked.path(name)?))?;
        lane.checks.exit(name, ended.status(), ended.succeeded(), &ended.stderr);
        lane.checks.says(name, &ended.stderr, "the program has memtrace in it");
        recorded_once(lane, name);
    }
    Ok(())
}

fn recorded_once(lane: &mut Preloaded<'_>, name: &str) {
    lane.recorded(&format!("{name}, recording itself"), Some(&format!("{name}/src/main.rs")), "report.json");
    let is_only_one = !lane.path("report-2.json").exists();
    lane.checks.that(&format!("{name}: one report only"), is_only_one);
}

/// The thread that gets a refusal differs between runs, and so does the output.
fn refused(lane: &mut Preloaded<'_>, linked: &Programs) -> Result<()> {
    let name = "cudarc-linked, refused";
    let command = GpuCommand::of(lane.run, linked.path("cudarc-linked")?).variable("MEMTRACE_CUSIM_FAULTS", FAULTS);
    let ended = lane.preloaded(&command)?;
    lane.checks.exit(name, ended.status(), ended.succeeded(), &ended.stderr);
    lane.checks.says(name, &ended.stdout, "2 frees refused");
    recorded_once(lane, "cudarc-linked");
    Ok(())
}
