//! Gauges of live bytes and peaks for the facade `metrics`, by device and by scope.
//!
//! Recording does not update the gauges. [`record_devices`] and [`record_scopes`] set them from the recorder's
//! counters. The program calls these functions before each scrape or every few seconds. They do nothing without an
//! active session.
//!
//! | gauge | labels | value |
//! |---|---|---|
//! | [`LIVE_BYTES`] | `device` | live bytes |
//! | [`PEAK_BYTES`] | `device` | the peak, as in the report |
//! | [`SCOPE_LIVE_BYTES`] | `device`, `scope` | live bytes that were allocated in the scope |
//! | [`SCOPE_PEAK_BYTES`] | `device`, `scope` | high-water mark of these live bytes |
//!
//! ```
//! memtrace::metrics::describe();
//! # fn scrape() {
//! memtrace::metrics::record_devices();
//! memtrace::metrics::record_scopes(1);
//! # }
//! ```

use ::metrics::{Unit, describe_gauge, gauge};
use memtrace_core::snapshot::{Device, SnapshotData};

use crate::record::guard::Own;
use crate::record::{CONTEXTS, ScopeBytes, recorder};

/// Live bytes of a device.
pub const LIVE_BYTES: &str = "memtrace_live_bytes";
/// Peak of a device.
pub const PEAK_BYTES: &str = "memtrace_peak_bytes";
/// Live bytes that were allocated in a scope.
pub const SCOPE_LIVE_BYTES: &str = "memtrace_scope_live_bytes";
/// High-water mark of [`SCOPE_LIVE_BYTES`].
pub const SCOPE_PEAK_BYTES: &str = "memtrace_scope_peak_bytes";

/// Registers the units and descriptions of the gauges with the exporter.
pub fn describe() {
    describe_gauge!(LIVE_BYTES, Unit::Bytes, "Live bytes of a device");
    describe_gauge!(PEAK_BYTES, Unit::Bytes, "High-water mark of a device's live bytes");
    describe_gauge!(SCOPE_LIVE_BYTES, Unit::Bytes, "Live bytes that were allocated in a scope");
    describe_gauge!(SCOPE_PEAK_BYTES, Unit::Bytes, "High-water mark of the live bytes that were allocated in a scope");
}

/// Sets the gauges of all devices.
pub fn record_devices() {
    for device in devices().iter() {
        gauge!(LIVE_BYTES, "device" => device.device.to_string()).set(device.live as f64);
        gauge!(PEAK_BYTES, "device" => device.device.to_string()).set(device.peak as f64);
    }
}

/// Sets the gauges of scopes that are at most `depth` deep; 1 leaves out scopes inside others. Each path is a gauge of
/// its own, so keep numbers of steps or requests out of the scopes' labels.
pub fn record_scopes(depth: usize) {
    for device in devices().iter() {
        for scope in device.scopes.iter().filter(|scope| scope.depth <= depth) {
            let labels = [("device", device.device.to_string()), ("scope", scope.path.clone())];
            gauge!(SCOPE_LIVE_BYTES, &labels).set(scope.live as f64);
            gauge!(SCOPE_PEAK_BYTES, &labels).set(scope.peak as f64);
        }
    }
}

struct DeviceGauges {
    device: Device,
    live: u64,
    peak: u64,
    scopes: Vec<ScopeGauges>,
}

struct ScopeGauges {
    path: String,
    depth: usize,
    live: u64,
    peak: u64,
}

/// The counters, copied as own work. The program's recorder (of the crate `metrics`) gets copies of the labels that
/// are made outside own work, so they are the program's memory.
fn devices() -> Own<Vec<DeviceGauges>> {
    Own::make(|| {
        // A forked child may not take locks.
        if recorder::was_forked() {
            return Vec::new();
        }
        let mut contexts = SnapshotData::default();
        contexts.contexts = CONTEXTS.nodes();
        recorder::devices().filter_map(|device| gauges(device, &contexts)).collect()
    })
}

fn gauges(device: Device, contexts: &SnapshotData) -> Option<DeviceGauges> {
    let (copy, scopes) = recorder::gauges(device)?;
    let scope = |of: &ScopeBytes| {
        let names = contexts.context_names(of.context);
        ScopeGauges { path: names.join(" > "), depth: names.len(), live: of.live, peak: of.peak }
    };
    Some(DeviceGauges {
        device,
        live: copy.ledger.stats.allocated_bytes.current + copy.below_threshold,
        peak: copy.ledger.peak.total(),
        scopes: scopes.iter().map(scope).collect(),
    })
}
