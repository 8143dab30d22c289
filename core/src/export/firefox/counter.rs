//! The memory track: live bytes over time, thinned to the lowest and the highest value of each interval.

use super::history::AllocationRecord;
use crate::error::Error;
use crate::export::gathered::Gathered;

/// More than a screen has columns.
const INTERVALS: u128 = 5_000;

/// Times, and live bytes.
pub(super) struct MemoryCounter(Vec<(u64, i64)>);

impl MemoryCounter {
    pub(super) fn of(records: &[AllocationRecord]) -> Self {
        let (first, last) = (records.first().map_or(0, |first| first.time_ns), records.last());
        let span = u128::from(last.map_or(0, |last| last.time_ns - first)) + 1;
        let interval = |time_ns: u64| u128::from(time_ns - first) * INTERVALS / span;
        let mut live = 0i64;
        let totals = records.iter().map(|record| {
            live = live.saturating_add(record.bytes);
            (record.time_ns, live)
        });
        let totals: Vec<(u64, i64)> = totals.collect();
        let mut found = Vec::new();
        for part in totals.chunk_by(|a, b| interval(a.0) == interval(b.0)) {
            let lowest = part.iter().enumerate().min_by_key(|(_, (_, bytes))| *bytes);
            let highest = part.iter().enumerate().max_by_key(|(_, (_, bytes))| *bytes);
            let ends = [Some(0), lowest.map(|(at, _)| at), highest.map(|(at, _)| at), Some(part.len() - 1)];
            let mut kept: Vec<usize> = ends.into_iter().flatten().collect();
            kept.sort_unstable();
            kept.dedup();
            found.extend(kept.into_iter().filter_map(|at| part.get(at).copied()));
        }
        Self(found)
    }

    pub(super) fn write(&self, out: &mut Gathered<'_>) -> Result<(), Error> {
        let mut before = 0;
        let change = |(_, bytes): &(u64, i64)| {
            let change = bytes - before;
            before = *bytes;
            change
        };
        let changes: Vec<i64> = self.0.iter().map(change).collect();
        out.put(format!(",\"samples\":{{\"length\":{}", self.0.len()));
        out.column("time", &self.0, |(time_ns, _), out| out.millis(*time_ns))?;
        out.column("count", &changes, |change, out| out.signed(*change))?;
        out.column("number", &changes, |_, out| out.put("1"))?;
        out.put("}");
        Ok(())
    }
}
