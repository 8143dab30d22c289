//! Capture export: a whole recording in memtrace's own format, which [`capture`] documents.

use std::io::Write;

use super::{Export, LeftOut, budget};
use crate::capture;
use crate::error::Error;
use crate::snapshot::SnapshotData;

/// The whole recording, which [`open`](crate::open) reads, also on another machine.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// The size limit; `None` for no limit. The oldest records are left out first, as if the log had been shorter. The
    /// blocks of the peak and of the end stay.
    pub max_bytes: Option<u64>,
}

impl Export for Capture {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let records = data.devices.iter().map(|device| device.records.len()).max().unwrap_or(0);
        let left_out = |step: usize| LeftOut { oldest_records: step as u64, ..LeftOut::default() };
        budget::stepwise(
            self.max_bytes,
            || records,
            left_out,
            out,
            |step, _, out| Ok(capture::write(data, records - step, out)?),
        )
    }
}
