//! Latency of the driver's allocator: time in its calls by line and by scope, and pool churn.

use super::breakdown::at;
use super::labels::Labels;
use crate::analysis::Key;
use crate::recording::DeviceView;
use crate::snapshot::{CallTime, DeviceSnapshot, RecordKind};

/// Time in the driver calls that allocate and free the memory of one line or scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimeRow {
    /// The source line or the scope.
    pub label: String,
    /// Number of calls that allocated.
    pub allocs: u64,
    /// Nanoseconds in the calls that allocated.
    pub alloc_ns: u64,
    /// Number of calls that freed blocks allocated by this line or scope.
    pub frees: u64,
    /// Nanoseconds in the calls that freed.
    pub free_ns: u64,
}

impl TimeRow {
    /// Nanoseconds in all calls.
    pub fn ns(&self) -> u64 {
        self.alloc_ns.saturating_add(self.free_ns)
    }

    fn add(&mut self, time: &CallTime) {
        self.allocs += time.allocs;
        self.alloc_ns = self.alloc_ns.saturating_add(time.alloc_ns);
        self.frees += time.frees;
        self.free_ns = self.free_ns.saturating_add(time.free_ns);
    }
}

/// Time in the driver by user line, most time first.
pub fn time_by_line(device: &DeviceView<'_>) -> Vec<TimeRow> {
    rows(device, Key::Line, |time| time.stack.0)
}

/// Time in the driver by scope, most time first.
pub fn time_by_scope(device: &DeviceView<'_>) -> Vec<TimeRow> {
    rows(device, Key::Scope, |time| time.context.0)
}

fn rows(device: &DeviceView<'_>, key: Key, id: fn(&CallTime) -> u32) -> Vec<TimeRow> {
    let mut labels = Labels::by(device, key, 0);
    let mut rows: Vec<TimeRow> = Vec::new();
    for time in &device.calls {
        at(&mut rows, labels.number_at(id(time))).add(time);
    }
    rows.iter_mut().zip(labels.names()).for_each(|(row, label)| row.label = label.to_owned());
    rows.sort_by(|a, b| b.ns().cmp(&a.ns()).then_with(|| a.label.cmp(&b.label)));
    rows
}

/// Time in all calls.
pub fn time_in_driver(device: &DeviceSnapshot) -> TimeRow {
    let mut all = TimeRow::default();
    device.calls.iter().for_each(|time| all.add(time));
    all
}

/// Pool churn: memory that a pool released to its device and reserved again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Churn {
    /// Bytes that were reserved again.
    #[serde(rename = "bytes_taken_again")]
    pub bytes: u64,
    /// Number of calls in which the pool grew, including the first times.
    #[serde(rename = "growing_calls")]
    pub calls: u64,
    /// Nanoseconds in the calls in which the pool grew.
    #[serde(rename = "growing_ns")]
    pub ns: u64,
    /// The pool's current release threshold, in bytes.
    #[serde(rename = "release_threshold_bytes")]
    pub release_threshold: u64,
    /// The release threshold that avoids the churn, in bytes: the pool's high-water mark.
    #[serde(rename = "threshold_to_keep_all_bytes")]
    pub keep: u64,
}

/// The churn of a device's pool; `None` if nothing was reserved again, or the driver reports no segments.
pub fn churn(device: &DeviceSnapshot) -> Option<Churn> {
    let pool = device.pool?;
    let (mut now, mut most, mut taken) = (0u64, 0u64, 0u64);
    for record in &device.segment_records {
        match record.kind {
            RecordKind::Alloc => {
                (now, taken) = (now.saturating_add(record.size), taken.saturating_add(record.size));
                most = most.max(now);
            }
            RecordKind::Free => now = now.saturating_sub(record.size),
        }
    }
    let (calls, ns) = device
        .calls
        .iter()
        .fold((0, 0u64), |(calls, ns), time| (calls + time.growing, ns.saturating_add(time.growing_ns)));
    let bytes = taken.saturating_sub(most);
    let keep = most.max(pool.reserved_high);
    let churn = Churn { bytes, calls, ns, release_threshold: pool.release_threshold, keep };
    (bytes > 0 && pool.release_threshold < keep).then_some(churn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{LINE_7, Story, WORKER};
    use crate::snapshot::{ContextId, Pool};

    #[test]
    fn times_are_summed_by_line_and_by_scope() {
        let counts = CallTime { allocs: 1, frees: 2, free_ns: 1, ..CallTime::default() };
        let time = |stack, context, alloc_ns| CallTime { stack, context, alloc_ns, ..counts };
        let (root, forward) = (ContextId::ROOT, ContextId(1));
        let mut trace = Story::cuda(0);
        trace.enter("forward");
        trace.driver_took(time(LINE_7, root, 10)).driver_took(time(LINE_7, forward, 20));
        trace.driver_took(time(WORKER, root, 1000));
        let data = trace.build();
        let device = &data.devices[0];
        let lines = time_by_line(&DeviceView::of(&data, device));
        assert_eq!(
            lines.iter().map(|row| (row.ns(), row.allocs, row.frees)).collect::<Vec<_>>(),
            [(1001, 1, 2), (32, 2, 4)]
        );
        let scopes = time_by_scope(&DeviceView::of(&data, device));
        assert_eq!(scopes.iter().map(TimeRow::ns).collect::<Vec<_>>(), [1012, 21]);
        assert_eq!(time_in_driver(device).ns(), 1033);
    }

    #[test]
    fn what_is_taken_twice_is_churn_unless_the_pool_keeps_it_by_now() {
        let mut trace = Story::cuda(0);
        trace.pool(Pool { reserved_high: 30, ..Pool::default() });
        trace.segment_alloc(10, 10).segment_alloc(20, 20).segment_free(20);
        assert_eq!(churn(&trace.device()), None);
        trace.segment_alloc(20, 20).segment_free(10).segment_alloc(5, 5);
        trace.driver_took(CallTime { growing: 4, growing_ns: 90, ..CallTime::default() });
        let expected = Churn { bytes: 25, calls: 4, ns: 90, release_threshold: 0, keep: 30 };
        assert_eq!(churn(&trace.device()), Some(expected));
        trace.pool(Pool { reserved_high: 30, release_threshold: u64::MAX, ..Pool::default() });
        assert_eq!(churn(&trace.device()), None);
    }
}
