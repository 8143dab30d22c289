//! The report of the example resnet: sums of its tables, and figures that theory predicts.

use crate::checks::Checks;
use crate::lanes::report::{DeviceReport, JsonReport, ScopeReport};

/// Trainable parameters of ResNet-50 and the running statistics of its norms, four bytes each.
const PARAMETER_BYTES: i64 = (25_557_032 + 53_120) * 4;

pub(super) fn check(checks: &mut Checks, report: &JsonReport, pickle_bytes: u64) {
    let Some(device) = report.devices.first() else { return checks.fail("the report has no device") };
    sums(checks, device);
    iterations(checks, device);
    parameters(checks, device);
    if device.records_overwritten == 0 {
        let entries = device.records + device.stats.frees;
        let bytes = pickle_bytes as f64 / entries as f64;
        checks.that(&format!("snapshot.pickle: {bytes:.1} bytes per entry, {entries} entries"), bytes <= 70.0);
    }
}

fn sums(checks: &mut Checks, device: &DeviceReport) {
    for (by, table) in device.peak_tables() {
        checks.equal(&format!("sum of the rows at the peak by {by}"), table.sum(), device.peak.total_bytes);
    }
    let live = device.stats.live_bytes + device.stats.below_threshold_bytes;
    checks.equal("sum of the rows of live blocks by line", device.live_by_line.sum(), live);
}

/// From the second on, all iterations must have the same peak: to the byte on one thread, within a thousandth on
/// several.
fn iterations(checks: &mut Checks, device: &DeviceReport) {
    let is_iteration =
        |scope: &&ScopeReport| scope.path.strip_prefix("iteration ").is_some_and(|n| n.parse::<u32>().is_ok());
    let peaks: Vec<i64> =
        device.scopes.iter().filter(is_iteration).filter_map(|scope| scope.total_peak_bytes).collect();
    let later = peaks.get(1..).unwrap_or_default();
    let (Some(least), Some(most)) = (later.iter().min(), later.iter().max()) else {
        return checks.fail("the report has no second iteration");
    };
    let one_thread = std::env::var("RAYON_NUM_THREADS").is_ok_and(|threads| threads == "1");
    let apart = most - least;
    checks.that(&format!("peaks of later iterations: {later:?}"), apart == 0 || !one_thread && apart * 1000 <= *most);
    checks.equal("the largest peak of an iteration", peaks.iter().max(), Some(&device.peak.bytes));
}

/// Parameters below the threshold of 64 KiB are not recorded; they are less than one per cent.
fn parameters(checks: &mut Checks, device: &DeviceReport) {
    let load = device.scopes.iter().find(|scope| scope.path == "load").map_or(0, |scope| scope.own_peak_bytes);
    let holds = load <= PARAMETER_BYTES && load * 100 > PARAMETER_BYTES * 99;
    checks.that(&format!("parameters: {load} bytes of {PARAMETER_BYTES} in theory"), holds);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::lanes::report::tests::sample;

    /// A correct report of two iterations.
    fn correct() -> DeviceReport {
        let table = |bytes: &[u64]| -> Value {
            json!({ "rows": bytes.iter().map(|bytes| json!({ "label": "", "bytes": bytes })).collect::<Vec<_>>() })
        };
        let mut device = sample()["devices"][0].take();
        device["peak"] = json!({ "bytes": 900, "total_bytes": 1000 });
        device["peak_by_line"] = table(&[600, 400]);
        device["peak_by_function"] = table(&[1000]);
        device["peak_by_scope"] = table(&[999, 1]);
        device["live_by_line"] = table(&[70, 30]);
        device["stats"]["allocated_bytes.all.current"] = json!(90);
        device["stats"]["below_threshold_bytes"] = json!(10);
        device["stats"]["allocation.all.freed"] = json!(10);
        device["records"] = json!(20);
        let mut device: DeviceReport = serde_json::from_value(device).unwrap();
        device.scopes =
            vec![scope("load", PARAMETER_BYTES, 0), scope("iteration 1", 0, 800), scope("iteration 2", 0, 900)];
        device
    }

    fn scope(path: &str, own_peak_bytes: i64, total: i64) -> ScopeReport {
        ScopeReport { path: path.into(), calls: 1, own_peak_bytes, total_peak_bytes: Some(total) }
    }

    fn failure(device: DeviceReport, pickle_bytes: u64) -> Option<String> {
        let mut report: JsonReport = serde_json::from_value(sample()).unwrap();
        report.devices = vec![device];
        let mut checks = Checks::default();
        check(&mut checks, &report, pickle_bytes);
        checks.end().err().map(|error| error.to_string())
    }

    #[test]
    fn a_correct_report_passes_and_each_wrong_figure_fails() {
        assert_eq!(failure(correct(), 2000), None);
        assert_eq!(failure(correct(), 2101).unwrap(), "1 of 8 checks failed");
        let wrong: [fn(&mut DeviceReport); 6] = [
            |device| device.peak_by_line.rows[0].bytes += 1,
            |device| device.peak_by_function.rows.clear(),
            |device| device.peak_by_scope.rows[1].bytes = 0,
            |device| device.stats.live_bytes += 1,
            |device| device.scopes[2].total_peak_bytes = Some(901),
            |device| device.scopes[0].own_peak_bytes = PARAMETER_BYTES * 98 / 100,
        ];
        for change in wrong {
            let mut device = correct();
            change(&mut device);
            assert_eq!(failure(device, 2000).unwrap(), "1 of 8 checks failed");
        }
    }

    #[test]
    fn later_iterations_with_different_peaks_fail() {
        let mut device = correct();
        device.scopes.push(scope("iteration 3", 0, 898));
        assert!(failure(device, 2000).is_some());
    }
}
