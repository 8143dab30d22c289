//! Comparison of categories with the truth, in bytes.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use memtrace::attribute::{AllocationSite, Attribution, Either, allocation_site};
use memtrace::snapshot::{DeviceSnapshot, Record};
use memtrace::{Category, DeviceView, SnapshotData};

use crate::truth::Truth;

/// Bytes whose category is right, unknown or wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums([u64; 3]);

impl Sums {
    pub(crate) fn right(self) -> f64 {
        100. * self.0[0] as f64 / self.0.iter().sum::<u64>().max(1) as f64
    }

    /// In per cent.
    pub(crate) fn wrong_part(self) -> f64 {
        100. * self.0[2] as f64 / self.0.iter().sum::<u64>().max(1) as f64
    }

    pub(crate) fn wrong(self) -> u64 {
        self.0[2]
    }

    fn text(self) -> String {
        let [right, unknown, wrong] = self.0;
        format!("{:6.2} % right ({right} right, {unknown} unknown, {wrong} wrong)", self.right())
    }
}

/// Did a matrix kernel for the CPU allocate the block? Its buffers are in all phases, and the program does not know them.
fn is_kernels(data: &SnapshotData, record: &Record) -> bool {
    let mut files = data.stacks.frames(record.alloc_stack).map(|frame| frame.file_or_empty());
    files.any(|file| ["/gemm-", "/dyn-stack-"].iter().any(|kernel| file.contains(kernel)))
}

/// Results of one program.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// All blocks.
    pub(crate) all: Sums,
    /// Blocks that are live at the peak.
    pub(crate) peak: Sums,
    /// Bytes without a truth.
    untold: u64,
    /// Bytes that are not right, by true category, found category and allocation site.
    missed: BTreeMap<(usize, String), (u64, u64)>,
    /// Unknown bytes at the peak, by remaining candidates and true category.
    between: BTreeMap<(&'static str, &'static str), u64>,
}

impl Rates {
    pub(crate) fn of(truth: &Truth, data: &SnapshotData, device: &DeviceSnapshot) -> Self {
        let mut rates = Self::default();
        let view = DeviceView::of(data, device);
        let (data, categories) = (view.data(), view.categories());
        let at_peak: Vec<_> = device.peak.blocks.iter().map(|block| block.seq).collect();
        for (record, known) in truth.of(device) {
            let Some(known) = known.filter(|_| !is_kernels(data, &record)) else {
                rates.untold += record.size;
                rates.missed(0, None, categories.get(record.alloc_seq), data, &record);
                continue;
            };
            let found = categories.get(record.alloc_seq);
            let is_at_peak = at_peak.contains(&record.alloc_seq);
            // No category is right for a block without one, but any may be wrong.
            let verdict = match found {
                _ if Some(found) == known => 0,
                Category::Unknown if known.is_none() => continue,
                Category::Unknown => 1,
                _ => 2,
            };
            rates.add(verdict, &record, is_at_peak);
            if let (1, true, Some(known)) = (verdict, is_at_peak, known) {
                let class = categories.either(record.alloc_seq).map_or("unknown", Either::label);
                *rates.between.entry((class, known.word())).or_default() += record.size;
            }
            if verdict > 0 {
                rates.missed(verdict, known, found, data, &record);
            }
        }
        rates
    }

    /// Adds the results of a program.
    pub(crate) fn sum(&mut self, other: &Self) {
        for (sums, others) in [(&mut self.all, &other.all), (&mut self.peak, &other.peak)] {
            sums.0.iter_mut().zip(others.0).for_each(|(sum, bytes)| *sum += bytes);
        }
        self.untold += other.untold;
        for (class, bytes) in &other.between {
            *self.between.entry(*class).or_default() += bytes;
        }
    }

    fn add(&mut self, verdict: usize, record: &Record, at_peak: bool) {
        self.all.0[verdict] += record.size;
        if at_peak {
            self.peak.0[verdict] += record.size;
        }
    }

    fn missed(
        &mut self,
        verdict: usize,
        known: Option<Category>,
        found: Category,
        data: &Attribution<'_>,
        record: &Record,
    ) {
        let place = match allocation_site(data, record.alloc_stack) {
            AllocationSite::User(frame) => {
                let (file, line) = (frame.file_or_empty(), frame.line.map_or(0, NonZeroU32::get));
                format!("{}:{line}", file.rsplit('/').next().unwrap_or_default())
            }
            _ => "no line".to_owned(),
        };
        let known = if verdict == 0 { "untold" } else { known.map_or("none", Category::word) };
        let row = self.missed.entry((verdict, format!("{known} called {found} at {place}"))).or_default();
        *row = (row.0 + record.size, row.1 + 1);
    }

    /// Unknown bytes at the peak that could only be right by separating indistinguishable blocks.
    pub(crate) fn print_between(&self) {
        for ((class, known), bytes) in &self.between {
            println!("{bytes:12} bytes at the peak: {class}: {known}");
        }
    }

    pub(crate) fn print(&self, program: &str, in_full: bool) {
        println!("{program:22} peak {}", self.peak.text());
        println!("{:22} all  {}; {} bytes untold", "", self.all.text(), self.untold);
        let mut missed: Vec<_> = self.missed.iter().filter(|((verdict, _), _)| in_full || *verdict == 2).collect();
        missed.sort_by_key(|((verdict, _), (bytes, _))| std::cmp::Reverse((*verdict, *bytes)));
        for ((_, what), (bytes, count)) in missed.into_iter().take(if in_full { 30 } else { 12 }) {
            println!("{:22} {bytes} bytes in {count} blocks: {what}", "");
        }
    }
}
