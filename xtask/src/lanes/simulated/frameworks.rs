//! Programs of other frameworks than candle, under the preloaded library.

use anyhow::Result;

use super::builds;
use super::gpu::Call;
use super::preloaded::{End, Preloaded};

/// Burn's memory is cubecl's, whose own thread takes a few blocks and gives tensors parts of them. The report says so, and no
/// more: no line of the program, no temporaries.
pub(super) fn burn(lane: &mut Preloaded<'_>) -> Result<()> {
    let name = "burn-perceptron";
    lane.both_recorded(name, &call(lane, name)?, End::Well, None)?;
    let report = lane.report("report.json")?;
    for device in ["cuda:0", "pinned"] {
        let device = report.only(device)?;
        let all = [("cubecl_cuda".to_owned(), device.peak.bytes)];
        let what = format!("{name}: what allocators hold of {} at the peak", device.name);
        lane.checks.equal(&what, rows(&device.peak_by_allocator), all.to_vec());
        lane.checks.equal(&format!("{name}: temporaries of {}", device.name), device.temporaries.len(), 0);
        let notes = device.peak_by_allocator.iter().filter_map(|row| row.others.get("note")?.as_str());
        let is_note = |note: &str| note.contains("which are not seen");
        lane.checks
            .that(&format!("{name}: a note on {}", device.name), notes.filter(|note| is_note(note)).count() == 1);
    }
    Ok(())
}

/// Luminal's operators run on the program's thread, one block for each result: where the program calls `execute`.
pub(super) fn luminal(lane: &mut Preloaded<'_>) -> Result<()> {
    let name = "luminal-perceptron";
    let call = call(lane, name)?;
    lane.both_recorded(name, &call, End::Well, Some("luminal-perceptron/src/main.rs"))?;
    let report = lane.report("report.json")?;
    let operators: Vec<&str> =
        report.only("cuda:0")?.peak_by_operator.rows.iter().map(|row| row.label.as_str()).collect();
    let expected = ["CudaCopyToDevice", "CudaMatmul2D", "CudaConstant"];
    lane.checks.equal(&format!("{name}: operators at the peak"), operators, expected.to_vec());
    lane.no_notes(name, &call)
}

fn call<'a>(lane: &Preloaded<'_>, name: &str) -> Result<Call<'a>> {
    let manifest = lane.run.root.join("tests/simulated").join(name).join("Cargo.toml");
    let option = format!("--manifest-path={}", manifest.display());
    let programs = builds::with_toolkit(lane.run, &["--locked", &option])?;
    Ok(Call::of(lane.run, programs.path(name)?))
}

fn rows(rows: &[super::report::Row]) -> Vec<(String, i64)> {
    rows.iter().map(|row| (row.label.clone(), row.bytes)).collect()
}
