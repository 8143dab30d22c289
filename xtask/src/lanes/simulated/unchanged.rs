//! The lane `unchanged`: programs under the preloaded library that were not changed for it.

use anyhow::Result;

use super::builds::{self, Programs};
use super::gpu::Call;
use super::preloaded::{End, Preloaded};
use super::programs::FAULTS;
use super::{frameworks, post_mortem, published, text, versions};
use crate::lane::Run;

pub(crate) fn run(run: &Run) -> Result<String> {
    let mut lane = Preloaded::new(run)?;
    let linked = builds::linked(run, &["--bin=candle-train", "--bin=candle-recorded", "--bin=cudarc-linked"])?;
    let train = Call::of(run, linked.path("candle-train")?);
    versions::newest(&mut lane, &train)?;
    train_otherwise(&mut lane, &train)?;
    loaded(&mut lane)?;
    recording_themselves(&mut lane, &linked)?;
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

fn train_otherwise(lane: &mut Preloaded<'_>, train: &Call<'_>) -> Result<()> {
    let source = Some(versions::SOURCE);
    let two = train.clone().options(&["--devices", "2"]).arguments(&["2"]);
    lane.both_recorded("candle on two GPUs", &two, End::Well, source)?;
    let without = train.clone().variable("MEMTRACE_CUSIM_POOLS", 0);
    lane.both_recorded("candle without pools", &without, End::Well, source)?;
    let refused = train.clone().options(&["--faults", "oom@alloc:500"]);
    lane.both_recorded("candle refused once", &refused, End::WellOrBadly, source)?;
    let ended = post_mortem::out_of_memory(lane, "candle out of memory", &refused, versions::SOURCE)?;
    let what = "with bytes at a line of the program";
    let is_row = |line: &str| line.contains(" MiB ") || line.contains(" KiB ");
    text::line(&mut lane.checks, "candle out of memory", &ended.errors, what, |line| {
        is_row(line) && line.contains(&format!("{}:", versions::SOURCE))
    });
    // It is linked against the driver and never calls it.
    let name = "candle on no GPU";
    let ended = lane.both(name, &train.clone().arguments(&["0"]), End::Well)?;
    lane.silent(name, &ended);
    Ok(())
}

/// The driver is loaded at run time, four threads, pinned memory.
fn loaded(lane: &mut Preloaded<'_>) -> Result<()> {
    let call = Call::of(lane.run, &lane.loaded.join("cudarc-loaded"));
    lane.both_recorded("cudarc-loaded", &call, End::Well, Some("cudarc-loaded/src/main.rs"))
}

/// They have memtrace in them, which records; the preloaded copy stands back.
fn recording_themselves(lane: &mut Preloaded<'_>, linked: &Programs) -> Result<()> {
    for name in ["candle-recorded", "cudarc-linked"] {
        let ended = lane.preloaded(&Call::of(lane.run, linked.path(name)?))?;
        lane.checks.that(&format!("{name}: ends with {}", ended.how()), ended.is_well());
        lane.checks.says(name, &ended.errors, "the program has memtrace in it");
        by_itself(lane, name);
    }
    Ok(())
}

fn by_itself(lane: &mut Preloaded<'_>, name: &str) {
    lane.recorded(&format!("{name}, by itself"), Some(&format!("{name}/src/main.rs")), "report.json");
    let is_alone = !lane.path("report-2.json").exists();
    lane.checks.that(&format!("{name}: by itself only"), is_alone);
}

/// Four threads, some calls refused: who gets the refusal differs from run to run, and so does the output.
fn refused(lane: &mut Preloaded<'_>, linked: &Programs) -> Result<()> {
    let name = "cudarc-linked, refused";
    let call = Call::of(lane.run, linked.path("cudarc-linked")?).options(&["--faults", FAULTS]);
    let ended = lane.preloaded(&call)?;
    lane.checks.that(&format!("{name}: ends with {}", ended.how()), ended.is_well());
    lane.checks.says(name, &ended.output, "2 frees refused");
    by_itself(lane, "cudarc-linked");
    Ok(())
}
