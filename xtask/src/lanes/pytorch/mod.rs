//! PyTorch itself on the simulated GPU: its snapshots are held against what it counts, and the models of its allocator
//! against what it reserves. Kernels compute nothing, but its allocator is the real one.

pub(super) mod torch;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use self::torch::{Counts, Torch};
use crate::checks::Checks;
use crate::lane::Run;

/// Settings of PyTorch's allocator, and the models that have them.
const SETTINGS: [(&str, &str); 5] = [
    ("", "pytorch"),
    ("expandable_segments:True", "pytorch,expandable"),
    ("max_split_size_mb:64", "pytorch,max_split=64MiB"),
    ("roundup_power2_divisions:4", "pytorch,roundup=4"),
    ("expandable_segments:True,roundup_power2_divisions:8", "pytorch,expandable,roundup=8"),
];

/// Memory with which nothing is refused, and memory with which `refused` is.
const ENOUGH: &str = "40GiB";
const TOO_LITTLE: &str = "4GiB";

/// `MEMTRACE_CASES` multiplies the programs that draw what they allocate.
pub(crate) fn run(run: &Run) -> Result<String> {
    let cases: u64 = std::env::var("MEMTRACE_CASES").map_or(Ok(1), |cases| cases.parse())?;
    let (mut checks, mut not_had) = (Checks::default(), Vec::new());
    for torch in torch::VERSIONS {
        let Some(torch) = Torch::of(run, torch)? else {
            not_had.push(torch.0);
            continue;
        };
        let drawn =
            (0..cases).flat_map(|case| [format!("mixed:{}", 11 + 2 * case), format!("streams:{}", 12 + 2 * case)]);
        for way in std::iter::once("train".to_owned()).chain(drawn) {
            check_predictions(&torch, &way, &mut checks)?;
        }
        check_limits(&torch, &mut checks)?;
        check_graphs(&torch, &mut checks)?;
        torch.check_recorded(&mut checks)?;
    }
    if checks.is_empty() {
        return Ok("NOT RUN: no network for PyTorch's wheels".to_owned());
    }
    let missing = if not_had.is_empty() { String::new() } else { format!("; NOT CHECKED: {}", not_had.join(", ")) };
    Ok(format!("{}{missing}", checks.end()?))
}

/// Runs one program with each setting. From each of its snapshots, the models predict what PyTorch reserves with each
/// of the settings, to the byte.
fn check_predictions(torch: &Torch<'_>, way: &str, checks: &mut Checks) -> Result<()> {
    let mut runs = Vec::new();
    for (setting, model) in SETTINGS {
        let (snapshot, counts) = torch.run(way, setting, ENOUGH)?;
        let name = format!("{} {way} {setting}", torch.version);
        check_report(torch, &name, &snapshot, &counts, checks)?;
        runs.push((name, model, snapshot, counts));
    }
    let measured: BTreeMap<&str, u64> =
        runs.iter().map(|(_, model, _, counts)| (*model, counts.reserved_peak)).collect();
    for (name, own, snapshot, _) in &runs {
        let mut predicted = BTreeMap::new();
        for (_, model) in SETTINGS {
            predicted.insert(model, reserved(&torch.replay(snapshot, &["--allocator", model])?, model)?);
        }
        checks.equal(
            &format!("{name}: what is reserved with each setting, from this snapshot"),
            predicted,
            measured.clone(),
        );
        if !own.contains("expandable") {
            check_addresses(torch, name, snapshot, checks)?;
        }
    }
    Ok(())
}

/// Checks that the report has what PyTorch counts.
fn check_report(torch: &Torch<'_>, name: &str, snapshot: &Path, counts: &Counts, checks: &mut Checks) -> Result<()> {
    let report = torch.json(&["report", "--json"], snapshot)?;
    let device = &report["devices"][0];
    let number = |pointer: &str| device.pointer(pointer).and_then(Value::as_u64);
    let found = [
        number("/peak/total_bytes"),
        number("/stats/allocated_bytes.all.current"),
        number("/stats/allocation.all.allocated"),
        number("/stats/num_ooms"),
    ];
    let told = [counts.peak, counts.current, counts.allocations, counts.refused].map(Some);
    checks.equal(&format!("{name}: peak, live bytes, allocations and refusals as PyTorch counts them"), found, told);
    Ok(())
}

/// Checks that the model puts each block where PyTorch puts it.
fn check_addresses(torch: &Torch<'_>, name: &str, snapshot: &Path, checks: &mut Checks) -> Result<()> {
    let replay = torch.replay(snapshot, &[])?;
    let notes = replay["notes"].as_array().context("replay has notes")?;
    let compared =
        notes.iter().filter_map(Value::as_str).find(|note| note.contains("allocs are at the file's address"));
    let compared = compared.unwrap_or_default();
    let all = compared.split_once(" allocs and frees: ").and_then(|(_, rest)| rest.split_once(" allocs are"));
    let is_all =
        all.and_then(|(counts, _)| counts.split_once(" of ")).is_some_and(|(same, all)| same == all && all != "0");
    let is_same = compared.contains("reserved bytes are the file's after each");
    checks.that(&format!("{name}: {compared}"), is_all && is_same);
    Ok(())
}

/// With too little memory: PyTorch releases cached segments, repeats, and is refused at last.
fn check_limits(torch: &Torch<'_>, checks: &mut Checks) -> Result<()> {
    for (setting, model) in SETTINGS {
        let (snapshot, counts) = torch.run("refused", setting, TOO_LITTLE)?;
        let name = format!("{} refused {setting}", torch.version);
        checks.that(&format!("{name}: {} requests are refused", counts.refused), counts.refused > 0);
        check_report(torch, &name, &snapshot, &counts, checks)?;
        // The model differs here: likely what a refused request mapped stays mapped, and no snapshot tells of it.
        if model.contains("expandable") {
            continue;
        }
        check_addresses(torch, &name, &snapshot, checks)?;
        let replay = torch.replay(&snapshot, &["--allocator", model, "--memory", TOO_LITTLE])?;
        checks.equal(&format!("{name}: reserved within {TOO_LITTLE}"), reserved(&replay, model)?, counts.reserved_peak);
    }
    Ok(())
}

/// A graph's pool is not modelled; `replay` says so.
fn check_graphs(torch: &Torch<'_>, checks: &mut Checks) -> Result<()> {
    let (snapshot, counts) = torch.run("graphs", "", ENOUGH)?;
    let name = format!("{} graphs", torch.version);
    check_report(torch, &name, &snapshot, &counts, checks)?;
    let notes = torch.replay(&snapshot, &[])?["notes"].to_string();
    checks.says(&name, &notes, "the file has private pools, which the model has not");
    Ok(())
}

fn reserved(replay: &Value, model: &str) -> Result<u64> {
    let models = replay["allocators"].as_array().context("replay has allocators")?;
    let found = models.iter().find(|found| found["allocator"] == model);
    found.and_then(|found| found["reserved_peak_bytes"].as_u64()).with_context(|| format!("no {model} in {models:?}"))
}
