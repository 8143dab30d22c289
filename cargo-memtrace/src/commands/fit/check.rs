//! `fit --check`: compares the rows of a prediction with a recording on a GPU.

use std::path::Path;

use memtrace_core::Recording;
use memtrace_core::analysis::{Card, DriftRow, drift};
use memtrace_core::report::{Report, drift_section};
use memtrace_core::snapshot::Device;
use serde_json::json;

use super::arguments::{FitArgs, card};
use super::judge::judge;
use crate::failure::CommandFailure;
use crate::{input, output};

/// Fails if a row was predicted too low. The recording does not name its card, so without `--gpus` a card with
/// the same memory is assumed.
pub(super) fn check(args: &FitArgs, measured: &Path) -> Result<(), CommandFailure> {
    let data = input::read(Some(measured))?.data;
    let recording = Recording::new(&data);
    let device = recording.device_or_main(None).filter(|device| matches!(device.device, Device::Cuda(_)));
    let device = device.ok_or_else(|| CommandFailure::usage("--check: nothing of a GPU was recorded there"))?;
    let total = device.memory.map_or(0, |memory| memory.total);
    let card = match args.gpus.first() {
        Some(name) => card(name)?,
        None => Card::of_memory("the recorded card", total),
    };
    let judged = judge(args, &[card], None)?;
    let fit = judged.gpus.iter().find(|gpu| gpu.device == device.device).and_then(|gpu| gpu.fits.first());
    let fit = fit.ok_or_else(|| CommandFailure::usage(format!("the program did not use {}", device.device)))?;
    let rows = drift(fit, device)
        .ok_or_else(|| CommandFailure::usage("--check: the driver's numbers are not in the recording"))?;
    if args.json {
        output::print_json(format!(
            "{:#}\n",
            json!({ "version": 1, "rows": rows.iter().map(of_row).collect::<Vec<_>>() })
        ))?;
    } else {
        output::print_report(&Report { sections: vec![drift_section(fit, &rows)], ..Report::default() })?;
    }
    let under: Vec<String> =
        rows.iter().filter(|row| row.is_under()).map(|row| format!("predicted too low: {}", row.what)).collect();
    if under.is_empty() { Ok(()) } else { Err(CommandFailure::Check(under)) }
}

fn of_row(row: &DriftRow) -> serde_json::Value {
    let (low, high) = row.differences();
    json!({
        "what": row.what,
        "predicted_bytes": [row.low, row.high],
        "measured_bytes": row.measured,
        "predicted_less_measured_bytes": [low as i64, high as i64],
    })
}
