//! Names for blocks, wherever they are recorded.

use super::{Label, measure, own, recorder};
use crate::snapshot::Device;

/// Names the live block that begins at an address of a device, or of any; false if none is recorded there.
pub(crate) fn name(device: Option<Device>, address: u64, label: Label<'_>) -> bool {
    own(|| {
        let recorded = recorder::name(device, address, label);
        measure::name(device, address, label) || recorded
    })
}
