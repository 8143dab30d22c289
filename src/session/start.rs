//! When a recording began.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::missed;
use crate::snapshot::Health;

/// When the recording began, and the process's health counters at that moment.
#[derive(Clone, Debug)]
pub(super) struct RecordingStart {
    pub(super) began: Instant,
    pub(super) unix_us: u64,
    pub(super) missed: Health,
}

impl RecordingStart {
    pub(super) fn now() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), unix_us: epoch.as_micros() as u64, missed: missed::so_far() }
    }
}
