//! Code that runs again and again, and what is live after each run, by stack.

use std::collections::HashMap;

use super::failure::Failure;
use super::measure::{Measured, OpenMeasure};
use crate::error::Error;
use crate::record::guard::Own;
use crate::record::measure;
use crate::snapshot::{Device, SnapshotData, StackId};

/// Where blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) device: Device,
    pub(super) stack: StackId,
}

/// Bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

/// What is live after a run.
pub(super) type Sample = HashMap<Origin, Held>;

/// Runs under one measurement.
#[derive(Debug)]
pub(super) struct Runs {
    open: OpenMeasure,
    begun: bool,
    total: usize,
    samples: Own<Vec<Sample>>,
}

impl Runs {
    pub(super) fn begin(total: usize) -> Result<Self, Failure> {
        Ok(Self { open: OpenMeasure::begin()?, begun: false, total, samples: Own::make(Vec::new) })
    }

    /// To be called before each run, and once after the last: is there another one?
    pub(super) fn again(&mut self) -> bool {
        if self.begun {
            let opened = self.open.opened();
            self.samples.change(|samples| samples.push(sample(opened)));
        }
        self.begun = true;
        self.samples.len() < self.total
    }

    /// The samples, if all runs came to their end.
    pub(super) fn end(self) -> Result<(Measured, Own<Vec<Sample>>), Failure> {
        if self.samples.len() < self.total {
            return Err(Error::left_early(self.samples.len(), self.total).into());
        }
        Ok((self.open.end(), self.samples))
    }
}

fn sample(opened: measure::Opened) -> Sample {
    let mut sample = Sample::new();
    measure::each_live(opened, |device, block| {
        let held = sample.entry(Origin { device, stack: block.stack }).or_default();
        held.bytes += block.size;
        held.blocks += 1;
    });
    sample
}

/// The stacks of a measurement by their numbers in its snapshot, for those that have blocks live now or at the peak.
pub(super) fn in_snapshot(measured: &Measured, data: &SnapshotData) -> HashMap<Origin, StackId> {
    let mut found = HashMap::new();
    for (seen, device) in measured.seen().iter().filter_map(|seen| Some((seen, data.device(seen.device)?))) {
        // Both lists are in the order of the log.
        let blocks = seen.ledger.live.iter().zip(&device.live);
        for (old, new) in blocks.chain(seen.ledger.peak.blocks.iter().zip(&device.peak.blocks)) {
            found.insert(Origin { device: seen.device, stack: old.stack }, new.stack);
        }
    }
    found
}
