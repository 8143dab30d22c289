//! Whether a program fits on a card: what it needs there, from a recording, as a range whose upper end is not too low.

mod cards;

pub use cards::{Card, cards};

use crate::attribute::{Attribution, is_python};
use crate::recording::DeviceView;
use crate::snapshot::DeviceSnapshot;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// A pool grows by steps of this size.
const STEP: u64 = 32 * MIB;

/// A part of what a program needs on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedRow {
    /// What it is for.
    pub what: &'static str,
    /// At least so many bytes,
    pub low: u64,
    /// and at most so many.
    pub high: u64,
    /// How that is known.
    pub known_by: String,
}

/// Whether a program fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitVerdict {
    /// It does: so many bytes are to spare, at least and at most.
    Fits(u64, u64),
    /// It does not: so many bytes are missing, at least and at most.
    DoesNotFit(u64, u64),
    /// At best so many bytes are to spare, at worst so many are missing.
    Undecided(u64, u64),
}

/// What a recorded program needs on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The card.
    pub card: Card,
    /// The parts of the need.
    pub rows: Vec<NeedRow>,
}

impl Fit {
    /// What the program needed on a device, on a card of which others use `reserved` bytes.
    pub fn of(device: &DeviceView<'_>, card: Card, reserved: u64) -> Self {
        let rows = [live(device), pools(device)].into_iter().chain(of_process(device, &card));
        let others = NeedRow {
            what: "other processes, display",
            low: reserved,
            high: reserved,
            known_by: "as given".to_owned(),
        };
        Self { rows: rows.chain([others]).filter(|row| row.high > 0).collect(), card }
    }

    /// Why a recording does not say what the program needs, if it does not: the need would be too low.
    pub fn doubt(device: &DeviceView<'_>) -> Option<&'static str> {
        let health = &device.data().health;
        match () {
            () if is_python(device.data()) => Some("it is PyTorch's: its libraries and modules are not known"),
            () if device.stats.num_ooms > 0 => Some("the program was refused memory"),
            () if health.cut_off => Some("the program was ended before its recording was"),
            () if health.lost_blocks > 0 => Some("blocks were lost"),
            () if !health.cuda.unseen_calls.is_empty() => Some("functions allocated memory that was not recorded"),
            () => None,
        }
    }

    /// The sums of the rows.
    pub fn needed(&self) -> (u64, u64) {
        let sum = |of: fn(&NeedRow) -> u64| self.rows.iter().fold(0u64, |sum, row| sum.saturating_add(of(row)));
        (sum(|row| row.low), sum(|row| row.high))
    }

    /// Whether that is there.
    pub fn verdict(&self) -> FitVerdict {
        let ((low, high), memory) = (self.needed(), self.card.memory);
        match (memory.checked_sub(high), memory.checked_sub(low)) {
            (Some(least), Some(most)) => FitVerdict::Fits(least, most),
            (None, Some(most)) => FitVerdict::Undecided(most, high - memory),
            _ => FitVerdict::DoesNotFit(low - memory, high - memory),
        }
    }
}

fn live(device: &DeviceView<'_>) -> NeedRow {
    let bytes = device.peak.total();
    let known_by = if is_simulated(device.data()) { "what was asked for, exactly" } else { "recorded on a GPU" };
    NeedRow { what: "live at the peak", low: bytes, high: bytes, known_by: known_by.to_owned() }
}

fn is_simulated(data: &Attribution<'_>) -> bool {
    data.health.cuda.state == crate::snapshot::CudaState::Simulated
}

/// What pools reserved beyond the live bytes: no less than nothing, and a step more where another order of events needs one.
fn pools(device: &DeviceSnapshot) -> NeedRow {
    let (live, used) = (device.stats.allocated_bytes.peak, device.stats.reserved_bytes.peak);
    let beyond = used.saturating_sub(live);
    let step = if device.pool.is_some_and(|pool| pool.reserved_high > 0) { STEP } else { 0 };
    NeedRow {
        what: "rounding and growth of pools",
        low: 0,
        high: beyond + step,
        known_by: "simulated, and a step of 32 MiB".to_owned(),
    }
}

/// What CUDA takes for the process.
fn of_process(device: &DeviceView<'_>, card: &Card) -> Vec<NeedRow> {
    let (fewest, most) = card.threads();
    let stack = |bytes: u64, of| bytes * of;
    let library = |name: &str| device.data().objects.iter().any(|object| is_library(object.path.as_deref(), name));
    let has_cublas = library("libcublas");
    let recorded = device.live.iter().chain(&device.peak.blocks).any(|block| is_cublas(device.data(), block.stack));
    let row = |what, low, high, known_by: &str| NeedRow { what, low, high, known_by: known_by.to_owned() };
    vec![
        row("kernel stacks", stack(KIB, fewest), stack(2 * KIB, most), "1 to 2 KiB a thread of the card"),
        row(
            "rest of the context",
            stack(KIB, fewest) * 9 / 10,
            stack(KIB, most) * 13 / 10,
            "0.9 to 1.3 KiB a thread of the card",
        ),
        row(
            "cuBLAS workspace",
            0,
            if has_cublas && !recorded { 32 * MIB } else { 0 },
            "default: 4 MiB, from Hopper on 32",
        ),
        row("modules", 0, if has_cublas { 300 * MIB } else { 64 * MIB }, "assumed; loaded at first use"),
    ]
}

fn is_library(path: Option<&str>, name: &str) -> bool {
    path.and_then(|path| path.rsplit('/').next()).is_some_and(|file| file.starts_with(name))
}

fn is_cublas(data: &Attribution<'_>, stack: crate::snapshot::StackId) -> bool {
    crate::attribute::library(data, stack).is_some_and(|name| name.to_lowercase().contains("cublas"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::Story;
    use crate::snapshot::{MemoryKind, Pool, SnapshotData, UnseenCalls};

    fn fit(live: u64, memory: u64) -> Fit {
        let mut story = Story::cuda(0);
        story.alloc("weights", live).memory(MemoryKind::Pool).pool(Pool { reserved_high: live, ..Pool::default() });
        let (data, device) = (story.build(), story.device());
        Fit::of(&DeviceView::of(&data, &device), Card::of_memory("a card", memory), 0)
    }

    #[test]
    fn a_program_fits_does_not_or_is_undecided_and_never_fits_by_the_lower_end() {
        let (low, high) = fit(1 << 30, 0).needed();
        assert!(low > 1 << 30 && high > low);
        let verdict = |memory| fit(1 << 30, memory).verdict();
        assert_eq!(verdict(high), FitVerdict::Fits(0, high - low));
        assert_eq!(verdict(high - 1), FitVerdict::Undecided(high - 1 - low, 1));
        assert_eq!(verdict(low), FitVerdict::Undecided(0, high - low));
        assert_eq!(verdict(low - 1), FitVerdict::DoesNotFit(1, high - low + 1));
    }

    #[test]
    fn a_recording_that_lacks_memory_is_no_ground_for_a_verdict() {
        let mut story = Story::cuda(0);
        story.alloc("weights", 1000);
        let doubt = |data: &SnapshotData| Fit::doubt(&DeviceView::of(data, &data.devices[0]));
        let whole = story.build();
        assert_eq!(doubt(&whole), None);
        let refused = story.refused(1 << 30, None).build();
        let mut cut = whole.clone();
        cut.health.cut_off = true;
        let mut lost = whole.clone();
        lost.health.lost_blocks = 1;
        let mut unseen = whole;
        unseen.health.cuda.unseen_calls.push(UnseenCalls { function: "cuX".into(), calls: 1 });
        assert!([refused, cut, lost, unseen].iter().all(|data| doubt(data).is_some()));
    }

    #[test]
    fn a_known_card_has_a_narrower_range_than_an_unknown_one() {
        let width = |card: Card| {
            let mut story = Story::cuda(0);
            let (data, device) = (story.alloc("a block", 1000).build(), story.device());
            let (low, high) = Fit::of(&DeviceView::of(&data, &device), card, 0).needed();
            high - low
        };
        let known: Vec<u64> = cards().map(&width).collect();
        let unknown = width(Card::of_memory("48GiB", 48 << 30));
        assert!(known.iter().all(|width| *width < unknown), "{known:?} {unknown}");
        // At most 3 % of the card for the median card.
        let mut shares: Vec<f64> = cards().map(|card| width(card.clone()) as f64 / card.memory as f64).collect();
        shares.sort_by(f64::total_cmp);
        assert!(shares[shares.len() / 2] < 0.03, "{shares:?}");
    }

    /// Readings of whole contexts, in MiB, with the multiprocessors and threads of the card (docs/decisions/0034-fit.md).
    #[test]
    fn published_contexts_are_within_the_range() {
        for (multiprocessors, threads, context) in
            [(34, 1536, 107), (82, 1536, 256), (142, 1536, 426), (188, 1536, 555), (148, 2048, 612)]
        {
            let card = Card { threads: Some(multiprocessors * threads), ..Card::of_memory("a card", 0) };
            let story = Story::cuda(0);
            let rows = of_process(&DeviceView::of(&story.build(), &story.device()), &card);
            let of = |pick: fn(&NeedRow) -> u64| rows.iter().take(2).map(pick).sum::<u64>();
            let (low, high) = (of(|row| row.low), of(|row| row.high));
            assert!((low..=high).contains(&(context * MIB)), "{multiprocessors} {low} {high}");
        }
    }
}
