//! Captures of whole recordings; the bytes are documented at [`capture`].

use std::io::Write;

use super::{Export, LeftOut, budget};
use crate::capture;
use crate::error::Error;
use crate::snapshot::SnapshotData;

/// Everything, to be read again with [`read_capture`](crate::read_capture), also elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// The size to keep to, if that is possible: the oldest records are left out, as if the log had been shorter. What was
    /// live at the peak and at the end stays. No limit if `None`.
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
