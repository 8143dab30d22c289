//! Programs of the frameworks Burn and Luminal under the preloaded library.

use anyhow::Result;

use super::builds;
use super::command::GpuCommand;
use super::preloaded::{AllowedExit, Preloaded};
use crate::lanes::report::ReportRow;

/// A thread of cubecl allocates a few blocks for Burn and divides them among tensors. So the report names cubecl as the
/// allocator, and shows no line of the program and no temporaries.
pub(super) fn burn(lane: &mut Preloaded<'_>) -> Result<()> {
    let name = "burn-perceptron";
    lane.both_recorded(name, &command(lane, name)?, AllowedExit::Success, None)?;
    let report = lane.report("report.json")?;
    for device in ["cuda:0", "pinned"] {
        let device = report.only(device)?;
        let all = [("cubecl_cuda".to_owned(), device.peak.bytes)];
        let what = format!("{name}: rows by allocator of {} at the peak", device.name);
        lane.checks.equal(&what, rows(&device.peak_by_allocator), all.to_vec());
        lane.checks.equal(&format!("{name}: temporaries of {}", device.name), device.temporaries.len(), 0);
        let notes = device.peak_by_allocator.iter().filter_map(|row| row.others.get("note")?.as_str());
        let count = notes.filter(|note| note.contains("which are not seen")).count();
        lane.checks.equal(&format!("{name}: notes on {}", device.name), count, 1);
    }
    Ok(())
}

/// Luminal's operators run on the program's thread, below the line that calls `execute`. Each result is one block.
pub(super) fn luminal(lane: &mut Preloaded<'_>) -> Result<()> {
    let name = "luminal-perceptron";
    let command = command(lane, name)?;
    lane.both_recorded(name, &command, AllowedExit::Success, Some("luminal-perceptron/src/main.rs"))?;
    let report = lane.report("report.json")?;
    let operators: Vec<&str> =
        report.only("cuda:0")?.peak_by_operator.rows.iter().map(|row| row.label.as_str()).collect();
    let expected = ["CudaCopyToDevice", "CudaMatmul2D", "CudaConstant"];
    lane.checks.equal(&format!("{name}: operators at the peak"), operators, expected.to_vec());
    lane.no_notes(name, &command)
}

fn command<'a>(lane: &Preloaded<'_>, name: &str) -> Result<GpuCommand<'a>> {
    let manifest = lane.run.root.join("tests/simulated").join(name).join("Cargo.toml");
    let option = format!("--manifest-path={}", manifest.display());
    let programs = builds::with_toolkit(lane.run, &["--locked", &option])?;
    Ok(GpuCommand::of(lane.run, programs.path(name)?))
}

fn rows(rows: &[ReportRow]) -> Vec<(String, i64)> {
    rows.iter().map(|row| (row.label.clone(), row.bytes)).collect()
}
