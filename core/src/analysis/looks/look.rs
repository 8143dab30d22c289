//! A look: a recording reduced to the tables that are shown, so that its log need not stay in memory.

use crate::analysis::ranks::{DevicePeak, RankSummary};
use crate::analysis::reserved::is_reported;
use crate::analysis::{Breakdown, Key};
use crate::recording::{DeviceView, Recording};
use crate::snapshot::Device;

/// Live memory of a device at a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLook {
    /// All live bytes.
    pub live: u64,
    /// The peak so far, with the device and its capacity.
    pub peak: DevicePeak,
    /// Bytes that pools and allocators reserve on the device; `None` if no driver reported them.
    pub reserved: Option<u64>,
    /// Whether the rows are estimates from a sample.
    pub is_sample: bool,
    /// Tables of the live memory, one for each of [`Look::keys`].
    tables: Vec<Breakdown>,
}

impl DeviceLook {
    fn of(view: &DeviceView<'_>, keys: &[Key]) -> Self {
        let live = view.at_end();
        Self {
            live: live.total(),
            peak: DevicePeak::of(&view.at_peak()),
            reserved: is_reported(view).then_some(view.stats.reserved_bytes.current),
            is_sample: view.is_sample(),
            tables: keys.iter().map(|key| live.by(*key).into_owned()).collect(),
        }
    }
}

/// Live memory at the end of a recording, or at its last commit so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The process that was recorded; without tables.
    pub rank: RankSummary,
    /// The devices that ever had live memory, the main one first.
    pub devices: Vec<DeviceLook>,
    /// The keys of the tables.
    pub keys: Vec<Key>,
}

impl Look {
    /// Reduces a recording: the given device, or else all devices.
    pub fn of(recording: &Recording<'_>, file: &str, device: Option<Device>, keys: &[Key]) -> Self {
        let main = recording.device_or_main(device).map(|view| view.device);
        let is_shown = |view: &&DeviceView<'_>| view.peak.total() > 0 && device.is_none_or(|one| one == view.device);
        let mut views: Vec<&DeviceView<'_>> = recording.devices().iter().filter(is_shown).collect();
        views.sort_by_key(|view| (Some(view.device) != main, view.device));
        Self {
            rank: RankSummary::of(recording, file, device, &[]),
            devices: views.into_iter().map(|view| DeviceLook::of(view, keys)).collect(),
            keys: keys.to_vec(),
        }
    }

    /// The time of its last commit, in nanoseconds since the recording began.
    pub fn time_ns(&self) -> u64 {
        self.rank.process.duration_ns
    }

    /// A device's table. It is empty if the device had no live memory, and `None` if the look has no tables by this
    /// key.
    pub(super) fn table(&self, device: Device, key: Key) -> Option<&Breakdown> {
        static NOTHING: Breakdown = Breakdown { rows: Vec::new(), total: 0 };
        let at = self.keys.iter().position(|known| *known == key)?;
        let found = self.devices.iter().find(|look| look.peak.device == device);
        Some(found.and_then(|look| look.tables.get(at)).unwrap_or(&NOTHING))
    }

    /// The same look with only the tables by this key.
    pub(super) fn by_one(&self, key: Key) -> Self {
        let only = |look: &DeviceLook| {
            let tables = self.table(look.peak.device, key).cloned().into_iter().collect();
            DeviceLook { tables, ..look.clone() }
        };
        Self { devices: self.devices.iter().map(only).collect(), keys: vec![key], rank: self.rank.clone() }
    }
}
