//! Live sets: the blocks that are live at a moment, and the bytes that no block accounts for.

use std::borrow::Cow;
use std::ops::Deref;

use crate::recording::DeviceView;
use crate::snapshot::{Block, Peak, Weight};

/// Live memory of a device at a moment, as a [`Peak`]: bytes, time, blocks, and what is not recorded.
#[derive(Clone, Debug)]
pub struct LiveSet<'r> {
    /// The device.
    pub device: &'r DeviceView<'r>,
    state: Cow<'r, Peak>,
}

impl DeviceView<'_> {
    /// Live memory at the peak.
    pub fn at_peak(&self) -> LiveSet<'_> {
        LiveSet { device: self, state: Cow::Borrowed(&self.snapshot().peak) }
    }
}

impl<'r> LiveSet<'r> {
    pub(super) fn of(device: &'r DeviceView<'r>, state: Peak) -> Self {
        Self { device, state: Cow::Owned(state) }
    }

    pub(crate) fn is_peak(&self) -> bool {
        matches!(self.state, Cow::Borrowed(_))
    }

    /// The live set without blocks below the threshold. At a moment that is found in the log, their bytes are known
    /// only if this moment is the peak.
    pub(super) fn without_small(mut self) -> Self {
        self.state.to_mut().below_threshold = 0;
        self
    }

    /// The blocks with their weights, as [`peak_weights`](crate::snapshot::DeviceSnapshot::peak_weights).
    pub fn weights(&self) -> impl Iterator<Item = (&Block, Weight)> {
        self.state.weights(self.device.sampling)
    }
}

impl Deref for LiveSet<'_> {
    type Target = Peak;

    fn deref(&self) -> &Peak {
        &self.state
    }
}
