//! A recording reduced to what a comparison of ranks needs, so that the next one can be read in its place.

use super::names::rank_of_name;
use crate::analysis::diff::difference;
use crate::analysis::{Breakdown, DiffSide, Key, LiveSet, Moment};
use crate::error::Error;
use crate::recording::{DeviceView, Recording};
use crate::snapshot::{Device, Process};

/// What was live on a device at its peak, or at the moment of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePeak {
    /// The device.
    pub device: Device,
    /// All live bytes.
    pub bytes: u64,
    /// Bytes that the device has, if its driver said so.
    pub capacity: Option<u64>,
}

impl DevicePeak {
    pub(in crate::analysis) fn of(live: &LiveSet<'_>) -> Self {
        Self { device: live.device.device, bytes: live.total(), capacity: live.device.capacity() }
    }

    /// The capacity without these bytes; below 0 where an estimate is too high.
    pub fn headroom(&self) -> Option<i64> {
        self.capacity.map(|capacity| difference(self.bytes, capacity))
    }

    fn is_on_gpu(&self) -> bool {
        matches!(self.device, Device::Cuda(_))
    }
}

/// One rank's recording, reduced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSummary {
    /// The name of its file.
    pub file: String,
    /// The process, without threads and mappings. Its rank is that of the file's name if the recording has none.
    pub process: Process,
    /// The rank is that of the file's name.
    pub is_rank_of_name: bool,
    /// What is compared: the peak, or what was live at another moment; `None` if nothing was recorded on the device.
    pub peak: Option<DevicePeak>,
    /// The same of all GPUs; of the compared device alone if somebody chose it.
    pub gpus: Vec<DevicePeak>,
    /// The tables are estimates from a sample.
    pub is_sample: bool,
    /// The capture ends without its end mark.
    pub is_cut_off: bool,
    /// Why what was live at the moment of the comparison is not known.
    pub moment_unknown: Option<String>,
    /// What it lacks.
    pub moment_notes: Vec<String>,
    /// What was live then, by each key.
    pub tables: Vec<Breakdown>,
    /// The same for a comparison with another job; else there is none.
    pub sides: Vec<DiffSide>,
}

impl RankSummary {
    /// Reduces a recording at its peak: on this device, or on its main one.
    pub fn of(recording: &Recording<'_>, file: &str, device: Option<Device>, keys: &[Key]) -> Self {
        Self::at(&Moment::Peak, recording, file, device, keys)
    }

    /// The same at another moment.
    pub fn at(moment: &Moment, recording: &Recording<'_>, file: &str, device: Option<Device>, keys: &[Key]) -> Self {
        let (compared, moment_unknown) = match compared(recording, device).map(|view| live_at(view, moment)).transpose()
        {
            Ok(live) => (live, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let gpus = recording.devices().iter().filter(has_peak).filter(|view| device.is_none_or(|of| of == view.device));
        let gpus = gpus.filter_map(|view| match &compared {
            Some(live) if live.device.device == view.device => Some(DevicePeak::of(live)),
            _ => Some(DevicePeak::of(&live_at(view, moment).ok()?)),
        });
        let gpus = gpus.filter(DevicePeak::is_on_gpu);
        let rank = Self::rank_of(recording, file);
        Self {
            file: file.to_owned(),
            process: Process { rank, threads: Vec::new(), mappings: None, ..recording.process.clone() },
            is_rank_of_name: recording.process.rank.is_none() && rank.is_some(),
            peak: compared.as_ref().map(DevicePeak::of),
            moment_notes: compared.as_ref().map(|live| moment.notes(live)).unwrap_or_default(),
            moment_unknown,
            gpus: gpus.collect(),
            is_sample: compared.as_ref().is_some_and(|live| live.device.is_sample()),
            is_cut_off: recording.health.cut_off,
            tables: keys.iter().map(|key| table(compared.as_ref(), *key)).collect(),
            sides: Vec::new(),
        }
    }

    /// Reduces a recording to be compared with one of another job: it has sides in place of tables.
    pub fn of_side(recording: &Recording<'_>, file: &str, device: Option<Device>, keys: &[Key]) -> Self {
        let compared = compared(recording, device);
        let side = |key: &Key| compared.map(|view| DiffSide::of(&view.at_peak(), *key)).unwrap_or_default();
        Self { sides: keys.iter().map(side).collect(), ..Self::of(recording, file, device, &[]) }
    }

    /// The rank that the recording has, or else its file's name.
    pub fn rank_of(recording: &Recording<'_>, file: &str) -> Option<u32> {
        recording.process.rank.or_else(|| rank_of_name(file))
    }

    /// `rank 3`, or the name of its file.
    pub fn name(&self) -> String {
        self.process.rank.map_or_else(|| self.file.clone(), |rank| format!("rank {rank}"))
    }

    /// Bytes that are compared, 0 if nothing was recorded.
    pub fn bytes(&self) -> u64 {
        self.peak.as_ref().map_or(0, |peak| peak.bytes)
    }

    /// What ranks are compared by: a peak on a GPU is larger than any in host memory.
    pub(crate) fn weight(&self) -> (bool, u64) {
        (self.peak.as_ref().is_some_and(DevicePeak::is_on_gpu), self.bytes())
    }

    /// Whether the recording says which process it is of. A PyTorch snapshot does not.
    pub fn has_process(&self) -> bool {
        self.process.pid != 0
    }

    /// Whether both are of one process.
    pub(in crate::analysis) fn is_same_process(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// Whether the other one is of what this process became (`exec`). A process that ends has an end in its recording, unless it is
    /// killed; its number is not given again so soon.
    pub(super) fn became(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.process.host.clone(), one.process.pid);
        self.is_cut_off && of(self) == of(other)
    }

    /// Host, process id and start: no two processes have the same.
    pub(super) fn identity(&self) -> (&str, u32, u64) {
        (&self.process.host, self.process.pid, self.process.started_unix_us)
    }

    /// When the recording ends, in microseconds since 1970.
    pub(super) fn ended_unix_us(&self) -> u64 {
        self.process.started_unix_us.saturating_add(self.process.duration_ns / 1000)
    }
}

/// What is live at the moment, of every rank the same part.
fn live_at<'r>(view: &'r DeviceView<'r>, moment: &Moment) -> Result<LiveSet<'r>, Error> {
    let live = view.at(moment)?;
    Ok(if moment.is_from_log() { live.without_small() } else { live })
}

fn table(compared: Option<&LiveSet<'_>>, key: Key) -> Breakdown {
    compared.map(|live| live.by(key).into_owned()).unwrap_or_default()
}

/// The device that is compared, if anything was recorded on it.
fn compared<'r>(recording: &'r Recording<'_>, device: Option<Device>) -> Option<&'r DeviceView<'r>> {
    recording.device_or_main(device).filter(has_peak)
}

fn has_peak(view: &&DeviceView<'_>) -> bool {
    view.peak.total() > 0
}
