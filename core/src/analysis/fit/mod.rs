//! Whether a program fits on a card. A recording gives the program's need there, as a range whose upper end is not too
//! low.

mod cards;
mod drift;
mod need;
mod room;
mod unified;

pub use cards::{Card, cards};
pub use drift::{DriftRow, drift};
#[cfg(test)]
pub(super) use need::STACKS;
pub(super) use need::of_recorded;
pub(crate) use room::least as least_room;

use crate::recording::{DeviceView, Recording};
use crate::snapshot::Device;
use crate::units::Bytes;

/// A part of what a program needs on a card, or of what it takes there.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NeedRow {
    /// The name of the part.
    pub what: &'static str,
    /// Lower end, in bytes.
    #[serde(rename = "low_bytes")]
    pub low: u64,
    /// Upper end, in bytes.
    #[serde(rename = "high_bytes")]
    pub high: u64,
    /// How the range is known. For the unexplained part of a balance: what this part may be.
    pub known_by: String,
}

impl NeedRow {
    pub(super) fn new(what: &'static str, low: u64, high: u64, known_by: &str) -> Self {
        Self { what, low, high, known_by: known_by.to_owned() }
    }
}

/// Whether a program fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitVerdict {
    /// The program fits. The least and the most bytes to spare.
    Fits(u64, u64),
    /// The program does not fit. The least and the most bytes that are missing.
    DoesNotFit(u64, u64),
    /// Undecided: the bytes to spare at best, and the bytes missing at worst.
    Undecided(u64, u64),
}

/// What a program requested from a device: its peak in bytes, and the bytes and the number of all its allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedFor(u64, u64, u64);

impl AskedFor {
    /// Bytes live at the peak.
    pub fn peak(self) -> u64 {
        self.0
    }
}

/// What a recorded program needs on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The card.
    pub card: Card,
    /// The parts of the need.
    pub rows: Vec<NeedRow>,
    /// The most that pools take beyond the live bytes, on a card with room for more.
    pub(crate) roomy_pools: u64,
    /// The reason why the need may be higher, if there is one. The verdict is then never [`FitVerdict::Fits`].
    pub doubt: Option<String>,
}

impl Fit {
    /// What the program that was recorded on a device needs on a card.
    pub fn of(device: &DeviceView<'_>, card: Card) -> Self {
        let roomy_pools = need::on_a_roomy_card(device);
        Self { rows: need::rows(device, &card, []), roomy_pools, card, doubt: None }
    }

    /// The need on a card whose memory is the host's. It includes the memory of the process.
    pub fn on_host(recording: &Recording<'_>, device: &DeviceView<'_>, card: Card) -> Self {
        let of_process = unified::rows(recording, device);
        let doubt = match () {
            () if of_process.is_none() => Some("how much memory the process had of the host was not read"),
            () if recording.devices().iter().filter(|other| is_used_gpu(other)).count() > 1 => {
                Some("it uses several GPUs, and all would have the host's memory")
            }
            () => None,
        };
        let rows = need::rows(device, &card, of_process.into_iter().flatten());
        Self { rows, roomy_pools: need::on_a_roomy_card(device), card, doubt: doubt.map(str::to_owned) }
    }

    /// Adds a row of a known size, such as the memory of other processes. Adds nothing if the size is 0.
    pub fn with(mut self, what: &'static str, bytes: u64) -> Self {
        self.rows.extend((bytes > 0).then(|| NeedRow::new(what, bytes, bytes, "as given")));
        self
    }

    /// Memory that a program requested from a device: its peak in bytes, and the bytes and number of all its
    /// allocations.
    pub fn asked_for(device: &DeviceView<'_>) -> AskedFor {
        AskedFor(device.peak.total(), device.stats.allocated_bytes.allocated, device.stats.allocations.allocated)
    }

    /// Adds a doubt if a second run, in which the simulated GPU returned other values than zeros, requested other
    /// memory (`other`) than the first run (`asked`). `other` is `None` if the second run did not use the device.
    pub fn with_other_values(mut self, asked: AskedFor, other: Option<AskedFor>) -> Self {
        if other != Some(asked) && self.doubt.is_none() {
            let [one, other] = [Some(asked), other].map(|asked| Bytes(asked.map_or(0, AskedFor::peak)));
            let with = "when the GPU gave values other than zeros";
            self.doubt = Some(format!("it requested other memory {with}: a peak of {other} instead of {one}"));
        }
        self
    }

    /// Adds a reason why the need is not known, unless there already is a doubt.
    pub fn in_doubt(self, doubt: &str) -> Self {
        Self { doubt: self.doubt.or_else(|| Some(doubt.to_owned())), ..self }
    }

    /// The reason why a recording does not tell the program's need, if there is one. The recorded need is then too
    /// low.
    pub fn doubt(device: &DeviceView<'_>) -> Option<&'static str> {
        if device.data().is_python() {
            return Some("it is PyTorch's: its libraries and modules are not known");
        }
        // The simulated GPU's libraries may all be loaded. Whoever uses NCCL has blocks of it.
        if need::is_simulated(device.data()) && need::allocates(device, "libnccl") {
            return Some("it uses NCCL, whose buffers are not known without GPUs");
        }
        if device.data().health.executable_graphs > 0 {
            return Some("it makes CUDA graphs executable, and what the driver keeps for them is not known");
        }
        Self::doubt_of_peak(device)
    }

    /// The reason why the program may have requested more than was recorded, if there is one.
    pub fn doubt_of_peak(device: &DeviceView<'_>) -> Option<&'static str> {
        let health = &device.data().health;
        match () {
            () if device.stats.num_ooms > 0 => Some("the program was refused memory"),
            () if health.cut_off => Some("the program was ended before its recording was"),
            () if health.lost_blocks > 0 => Some("blocks were lost"),
            () if !health.cuda.unseen_calls.is_empty() => Some("functions allocated memory that was not recorded"),
            () => None,
        }
    }

    /// The sum of the rows' lower ends, and the sum of their upper ends.
    pub fn needed(&self) -> (u64, u64) {
        let sum = |of: fn(&NeedRow) -> u64| self.rows.iter().fold(0u64, |sum, row| sum.saturating_add(of(row)));
        (sum(|row| row.low), sum(|row| row.high))
    }

    /// The most bytes that may be live at once while the rest of the need, at its upper end, also fits; 0 if the rest
    /// alone does not fit.
    pub fn left_for_live(&self, device: &DeviceView<'_>) -> u64 {
        let beside = self.needed().1.saturating_sub(device.peak.bytes);
        self.card.memory.saturating_sub(beside)
    }

    /// Whether the card has the needed memory.
    pub fn verdict(&self) -> FitVerdict {
        let ((low, high), memory) = (self.needed(), self.card.memory);
        match (memory.checked_sub(high), memory.checked_sub(low)) {
            (Some(least), Some(most)) if self.doubt.is_none() => FitVerdict::Fits(least, most),
            (_, Some(most)) => FitVerdict::Undecided(most, high.saturating_sub(memory)),
            _ => FitVerdict::DoesNotFit(low - memory, high - memory),
        }
    }
}

fn is_used_gpu(device: &DeviceView<'_>) -> bool {
    matches!(device.device, Device::Cuda(_)) && device.peak.total() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{Story, frame, stacks};
    use crate::snapshot::{CudaState, LoadedObject, MemoryKind, Pool, SnapshotData, StackId, UnseenCalls};

    fn fit(live: u64, memory: u64) -> Fit {
        let mut story = Story::cuda(0);
        story.alloc("weights", live).memory(MemoryKind::Pool).pool(Pool { reserved_high: live, ..Pool::default() });
        let (data, device) = (story.build(), story.device());
        Fit::of(&DeviceView::of(&data, &device), Card::of_memory("a card", memory))
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
    fn a_program_that_asks_for_other_memory_with_other_values_never_fits() {
        let asking = |sizes: &[u64]| {
            let mut story = Story::cuda(0);
            sizes.iter().zip(["one", "other"]).for_each(|(size, name)| _ = story.alloc(name, *size));
            story.build()
        };
        let zeros = asking(&[1000, 500]);
        let verdict = |other: &SnapshotData, memory| {
            let [one, other] = [&zeros, other].map(|data| DeviceView::of(data, &data.devices[0]));
            let [asked, then] = [&one, &other].map(|view| Fit::asked_for(view));
            Fit::of(&one, Card::of_memory("a card", memory)).with_other_values(asked, Some(then)).verdict()
        };
        let is_undecided = |other: &SnapshotData| matches!(verdict(other, 1 << 40), FitVerdict::Undecided(..));
        assert!(matches!(verdict(&asking(&[1000, 500]), 1 << 40), FitVerdict::Fits(..)));
        assert!([vec![1000], vec![1500], vec![1000, 501]].iter().all(|sizes| is_undecided(&asking(sizes))));
        assert!(matches!(verdict(&asking(&[1000]), 0), FitVerdict::DoesNotFit(..)), "nor without the other values");
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
    fn what_a_library_or_the_driver_keeps_unseen_is_in_doubt() {
        let doubt = |state, library: &str, executable_graphs| {
            let mut story = Story::cuda(0);
            story.stacks(stacks(vec![frame("init", "", 0)], [[0]]));
            let mut data = story.alloc("buffer", 1000).on(StackId(1)).build();
            data.objects[0].path = Some(format!("/usr/lib/{library}.so.2"));
            data.health.cuda.state = state;
            data.health.executable_graphs = executable_graphs;
            Fit::doubt(&DeviceView::of(&data, &data.devices[0]))
        };
        assert_eq!(doubt(CudaState::Simulated, "libcublas", 0), None);
        assert!(doubt(CudaState::Simulated, "libnccl", 0).is_some_and(|why| why.contains("NCCL")));
        let mut unused = Story::cuda(0).alloc("weights", 1000).build();
        unused.health.cuda.state = CudaState::Simulated;
        let path = Some("/usr/lib/libnccl.so.2".to_owned());
        unused.objects.push(LoadedObject { path, ..unused.objects[0].clone() });
        assert_eq!(Fit::doubt(&DeviceView::of(&unused, &unused.devices[0])), None, "loaded, but not used");
        // On a GPU, NCCL's buffers are recorded.
        assert_eq!(doubt(CudaState::Active, "libnccl", 0), None);
        assert!(doubt(CudaState::Active, "libcublas", 1).is_some_and(|why| why.contains("graphs")));
    }

    #[test]
    fn a_known_card_has_a_narrower_range_than_an_unknown_one() {
        let width = |card: Card| {
            let mut story = Story::cuda(0);
            let (data, device) = (story.alloc("a block", 1000).build(), story.device());
            let (low, high) = Fit::of(&DeviceView::of(&data, &device), card).needed();
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

    /// Published sizes of whole contexts, in MiB, with the multiprocessors and threads of the card
    /// (docs/decisions/0034-fit.md).
    #[test]
    fn published_contexts_are_within_the_range() {
        for (multiprocessors, threads, context) in
            [(34, 1536, 107), (82, 1536, 256), (142, 1536, 426), (188, 1536, 555), (148, 2048, 612)]
        {
            let card = Card { threads: Some(multiprocessors * threads), ..Card::of_memory("a card", 0) };
            let story = Story::cuda(0);
            let rows = need::rows(&DeviceView::of(&story.build(), &story.device()), &card, []);
            let is_context = |row: &&NeedRow| ["kernel stacks", "rest of the context"].contains(&row.what);
            let of = |pick: fn(&NeedRow) -> u64| rows.iter().filter(is_context).map(pick).sum::<u64>();
            let (low, high) = (of(|row| row.low), of(|row| row.high));
            assert!((low..=high).contains(&(context << 20)), "{multiprocessors} {low} {high}");
        }
    }
}
