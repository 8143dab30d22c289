//! PyTorch memory snapshot: the pickle that `memory_viz` opens.
//!
//! Dictionaries and keys are those of `torch.cuda.memory._snapshot()` (torch 2.15), so torch's own tools read it.
//! `allocator_settings` has the data for which PyTorch has no key. `user_metadata` has a block's scopes and name.
//! `external_annotations` has the scopes and, if uses were recorded, the time spans in which blocks of the peak are not
//! needed.

mod entries;
mod placed;
mod shared;

use std::io::Write;

use self::placed::placed;
use self::shared::Shared;
use super::advice::{Advice, advice};
use super::budget::{self, Selection};
use super::pickle::Pickler;
use super::{Export, LeftOut};
use crate::error::Error;
use crate::pytorch_words as words;
use crate::recording::Recording;
use crate::report::sampled;
use crate::snapshot::{Device, DeviceSnapshot, Mark, SnapshotData};

/// A snapshot pickle (protocol 4) for PyTorch's `memory_viz` (pytorch.org/memory_viz).
///
/// CUDA devices keep their ordinals. Other devices come after them, or begin at 0 if there is no CUDA device. A free
/// becomes `free_requested` and `free_completed`. Blocks have their real sizes. If blocks were sampled,
/// `allocator_settings` says that, and viewers add up only the sampled blocks.
#[derive(Clone, Debug)]
pub struct Pickle {
    /// Only this device; all if `None`.
    pub device: Option<Device>,
    /// The size limit, within which the peak is never lost. 512 MiB by default, because viewers fail on files of a
    /// gigabyte.
    pub max_bytes: Option<u64>,
}

impl Default for Pickle {
    fn default() -> Self {
        Self { device: None, max_bytes: Some(512 << 20) }
    }
}

impl Export for Pickle {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let devices = numbered(data, self.device);
        let recording = Recording::new(data);
        let rows = |(number, device): &(u64, &DeviceSnapshot)| {
            let of_device = recording.device(device.device).map(advice).unwrap_or_default();
            of_device.into_iter().map(|row| (*number, row)).collect::<Vec<_>>()
        };
        let advice: Vec<(u64, Advice)> = devices.iter().flat_map(rows).collect();
        budget::records(data, self.max_bytes, out, |selection, out| {
            write_selection(data, &devices, &advice, selection, out)
        })
    }
}

fn write_selection(
    data: &SnapshotData,
    devices: &[(u64, &DeviceSnapshot)],
    advice: &[(u64, Advice)],
    selection: &Selection<'_>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let mut pickle = Pickler::begin(out, words::WORDS);
    let mut shared = Shared::new(data, selection);
    pickle.dict(|p| {
        p.word(words::SEGMENTS);
        let segments = devices.iter().flat_map(|&(number, device)| placed(number, device));
        p.list(segments, |p, segment| shared.segment(p, &segment));
        p.word(words::DEVICE_TRACES);
        let lists = devices.iter().map(|&(number, _)| number + 1).max().unwrap_or(1);
        p.list(0..lists, |p, number| shared.trace(p, devices.iter().find(|(n, _)| *n == number).map(|(_, d)| *d)));
        p.word(words::ALLOCATOR_SETTINGS);
        settings(p, data, devices, &selection.left_out);
        p.word(words::EXTERNAL_ANNOTATIONS);
        let shown = |mark: &&Mark| selection.shows_mark(mark);
        let marks = |device: &'_ DeviceSnapshot| device.marks.iter().filter(shown).copied().collect::<Vec<Mark>>();
        let marks =
            devices.iter().flat_map(|&(number, device)| marks(device).into_iter().map(move |mark| (number, mark)));
        let mut list = p.begin_list();
        for (number, mark) in marks {
            p.next_item(&mut list);
            shared.annotation(p, number, &mark);
        }
        for (number, row) in advice {
            for (stage, time_ns) in [(words::START, row.from_ns), (words::END, row.until_ns)] {
                p.next_item(&mut list);
                shared.advice(p, *number, row, (stage, time_ns));
            }
        }
        p.end_list(list);
    });
    Ok(pickle.finish()?)
}

/// The devices to write, with their numbers in viewers.
fn numbered(data: &SnapshotData, only: Option<Device>) -> Vec<(u64, &DeviceSnapshot)> {
    let wanted = |d: &&DeviceSnapshot| only.is_none_or(|only| only == d.device);
    let ordinal = |d: &DeviceSnapshot| match d.device {
        Device::Cuda(ordinal) => Some(u64::from(ordinal)),
        Device::Cpu | Device::Pinned | Device::Managed | Device::Imported => None,
    };
    let mut after_cuda = data.devices.iter().filter(wanted).filter_map(ordinal).max().map_or(0, |last| last + 1)..;
    let mut number = |d| ordinal(d).or_else(|| after_cuda.next()).unwrap_or(u64::MAX);
    data.devices.iter().filter(wanted).map(|d| (number(d), d)).collect()
}

/// Writes `allocator_settings`, which the viewer shows as "Allocator Settings".
fn settings(p: &mut Pickler<'_>, data: &SnapshotData, devices: &[(u64, &DeviceSnapshot)], left_out: &LeftOut) {
    let overwritten = devices.iter().map(|(_, device)| device.overwritten).sum();
    let estimated = devices.iter().any(|(_, device)| device.segments.iter().any(|segment| segment.estimated));
    p.dict(|p| {
        text(p, words::RECORDED_BY, concat!("memtrace ", env!("CARGO_PKG_VERSION")));
        text(p, words::PROGRAM, &data.process.program);
        let names: Vec<String> =
            devices.iter().map(|(number, device)| format!("{number}: {}", device.device)).collect();
        text(p, words::DEVICES, &names.join(", "));
        p.int_of(words::MIN_SIZE, data.settings.min_size);
        p.int_of(words::MAX_ENTRIES, data.settings.max_entries as u64);
        p.int_of(words::RECORDS_OVERWRITTEN, overwritten);
        let mut intervals = devices.iter().filter_map(|(_, device)| device.sample_interval());
        if let Some(interval) = intervals.next() {
            p.int_of(words::SAMPLE_INTERVAL, interval);
            text(p, words::SAMPLED, &sampled::blocks_note(Some(interval)).unwrap_or_default());
        }
        if !left_out.is_nothing() {
            text(p, words::LEFT_OUT, &left_out.to_string());
        }
        p.word(words::SEGMENTS_ARE_ESTIMATED_FROM_ADDRESSES);
        p.bool(estimated);
    });
}

fn text(p: &mut Pickler<'_>, key: u32, value: &str) {
    p.word(key);
    p.text(value);
}
