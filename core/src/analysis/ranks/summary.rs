//! A recording reduced to what a comparison of ranks needs, so that it need not stay in memory.

use super::names::rank_of_name;
use crate::analysis::diff::difference;
use crate::analysis::{Breakdown, DiffSide, Key, LiveSet, Moment};
use crate::error::Error;
use crate::recording::{DeviceView, Recording};
use crate::snapshot::{Device, Process};

/// Live memory of a device at its peak, or at the moment of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePeak {
    /// The device.
    pub device: Device,
    /// All live bytes.
    pub bytes: u64,
    /// Bytes of the device, if its driver reported them.
    pub capacity: Option<u64>,
}

impl DevicePeak {
    pub(in crate::analysis) fn of(live: &LiveSet<'_>) -> Self {
        Self { device: live.device.device, bytes: live.total(), capacity: live.device.capacity() }
    }

    /// The capacity minus these bytes. Negative if an estimate is too high.
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
    /// The process, without threads and mappings. If the recording has no rank, the rank is taken from the file's name.
    pub process: Process,
    /// Whether the rank is taken from the file's name.
    pub is_rank_of_name: bool,
    /// The compared memory, at the peak or at another moment. `None` if nothing was recorded on the device.
    pub peak: Option<DevicePeak>,
    /// The memory of all GPUs, or only of the device that the user chose.
    pub gpus: Vec<DevicePeak>,
    /// Whether the tables are estimates from a sample.
    pub is_sample: bool,
    /// Whether the capture ends without its end mark.
    pub is_cut_off: bool,
    /// Why the live memory at the moment of the comparison is not known, if so.
    pub moment_unknown: Option<String>,
    /// Notes on what the live memory at that moment lacks.
    pub moment_notes: Vec<String>,
    /// Live memory at the moment of the comparison, by each key.
    pub tables: Vec<Breakdown>,
    /// Live memory by each key, for a difference between this job and another one; otherwise empty.
    pub sides: Vec<DiffSide>,
}

impl RankSummary {
    /// Reduces a recording at its peak, on this device or else on its main one.
    pub fn of(recording: &Recording<'_>, file: &str, device: Option<Device>, keys: &[Key]) -> Self {
        Self::at(&Moment::Peak, recording, file, device, keys)
    }

    /// Reduces a recording at this moment.
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

    /// Reduces a recording at its peak, for a comparison with another job: the summary has sides instead of tables.
    pub fn of_side(recording: &Recording<'_>, file: &str, device: Option<Device>, keys: &[Key]) -> Self {
        let compared = compared(recording, device);
        let side = |key: &Key| compared.map(|view| DiffSide::of(&view.at_peak(), *key)).unwrap_or_default();
        Self { sides: keys.iter().map(side).collect(), ..Self::of(recording, file, device, &[]) }
    }

    /// The rank in the recording, or else in its file's name.
    pub fn rank_of(recording: &Recording<'_>, file: &str) -> Option<u32> {
        recording.process.rank.or_else(|| rank_of_name(file))
    }

    /// `rank 3`, or the name of the rank's file.
    pub fn name(&self) -> String {
        self.process.rank.map_or_else(|| self.file.clone(), |rank| format!("rank {rank}"))
    }

    /// The compared bytes; 0 if nothing was recorded.
    pub fn bytes(&self) -> u64 {
        self.peak.as_ref().map_or(0, |peak| peak.bytes)
    }

    /// The value that ranks are ordered by: a peak on a GPU is larger than any in host memory.
    pub(crate) fn weight(&self) -> (bool, u64) {
        (self.peak.as_ref().is_some_and(DevicePeak::is_on_gpu), self.bytes())
    }

    /// Whether the recording identifies its process. A PyTorch snapshot does not.
    pub fn has_process(&self) -> bool {
        self.process.pid != 0
    }

    /// Whether both recordings are of the same process.
    pub(in crate::analysis) fn is_same_process(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// Whether the other recording is of the program that this process became by `exec`, which keeps the process id and
    /// writes no end mark. A process that ends writes the mark unless it is killed, and its id is not reused so soon.
    pub(super) fn became(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.process.host.clone(), one.process.pid);
        self.is_cut_off && of(self) == of(other)
    }

    /// Host, process id and start time, which identify a process.
    pub(super) fn identity(&self) -> (&str, u32, u64) {
        (&self.process.host, self.process.pid, self.process.started_unix_us)
    }

    /// When the recording ends, in microseconds since 1970.
    pub(super) fn ended_unix_us(&self) -> u64 {
        self.process.started_unix_us.saturating_add(self.process.duration_ns / 1000)
    }
}

/// Live memory at the moment. Blocks below the threshold are left out if the moment is from the log, so that no rank
/// has them.
fn live_at<'r>(view: &'r DeviceView<'r>, moment: &Moment) -> Result<LiveSet<'r>, Error> {
    let live = view.at(moment)?;
    Ok(if moment.is_from_log() { live.without_small() } else { live })
}

fn table(compared: Option<&LiveSet<'_>>, key: Key) -> Breakdown {
    compared.map(|live| live.by(key).into_owned()).unwrap_or_default()
}

/// The compared device, if anything was recorded on it.
fn compared<'r>(recording: &'r Recording<'_>, device: Option<Device>) -> Option<&'r DeviceView<'r>> {
    recording.device_or_main(device).filter(has_peak)
}

fn has_peak(view: &&DeviceView<'_>) -> bool {
    view.peak.total() > 0
}
