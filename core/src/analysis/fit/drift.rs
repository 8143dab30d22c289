//! Compares what was predicted for a card with a recording made on that card.

use super::Fit;
use super::need::{LIVE, POOLS, WORKSPACE, is_cublas};
use crate::analysis::{BalanceItem, balance};
use crate::recording::DeviceView;

/// A part of a need, predicted and measured, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriftRow {
    /// The name of the part.
    pub what: &'static str,
    /// Lower end of the prediction.
    pub low: u64,
    /// Upper end of the prediction.
    pub high: u64,
    /// Measured bytes.
    pub measured: u64,
}

impl DriftRow {
    /// Whether more was measured than predicted, even by one byte.
    pub fn is_under(&self) -> bool {
        self.measured > self.high
    }

    /// Lower end and upper end of the prediction, each minus the measured bytes.
    pub fn differences(&self) -> (i128, i128) {
        let less = |predicted: u64| i128::from(predicted) - i128::from(self.measured);
        (less(self.low), less(self.high))
    }
}

/// The rows of a prediction that a recording on the same card can judge, and their sum. All that CUDA takes for the
/// process is one row, because the driver reports only the total of used memory. `None` if the recording lacks the
/// driver's report.
///
/// If other processes use the card, too, their memory counts as this process's.
pub fn drift(fit: &Fit, measured: &DeviceView<'_>) -> Option<Vec<DriftRow>> {
    measured.memory?;
    let rest = balance(measured)?
        .rows
        .iter()
        .filter(|row| row.item == BalanceItem::Unexplained)
        .map(|row| row.bytes)
        .sum::<i64>();
    let workspace = workspace(fit, measured);
    let live = measured.peak.total().saturating_sub(workspace);
    let beyond = measured.stats.reserved_bytes.peak.saturating_sub(measured.stats.allocated_bytes.peak);
    let row = |what, measured, is_part: &dyn Fn(&str) -> bool| {
        let rows = || fit.rows.iter().filter(|row| is_part(row.what));
        // If the card had more room than the program needs, its pools may have kept more.
        let high = |row: &super::NeedRow| if row.what == POOLS { row.high.max(fit.roomy_pools) } else { row.high };
        DriftRow { what, low: rows().map(|row| row.low).sum(), high: rows().map(high).sum(), measured }
    };
    let process = u64::try_from(rest).unwrap_or(0) + workspace;
    Some(vec![
        row(LIVE, live, &|what| what == LIVE),
        row(POOLS, beyond, &|what| what == POOLS),
        row("context, workspaces, modules, others", process, &|what| ![LIVE, POOLS].contains(&what)),
        row("= needed", live + beyond + process, &|_| true),
    ])
}

/// Bytes that cuBLAS itself had at the peak, if the prediction has a row for them. On a GPU they are recorded.
fn workspace(fit: &Fit, measured: &DeviceView<'_>) -> u64 {
    let has_row = fit.rows.iter().any(|row| row.what == WORKSPACE);
    let blocks = measured.peak.blocks.iter().filter(|block| has_row && is_cublas(measured.data(), block.stack));
    blocks.map(|block| block.size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Card;
    use crate::snapshot::testing::{Story, frame, stacks};
    use crate::snapshot::{DeviceMemory, MemoryKind, Pool, StackId};

    #[test]
    fn rows_are_judged_one_by_one_and_a_byte_too_few_is_under() {
        let mut story = Story::cuda(0);
        story.alloc("weights", 1000).memory(MemoryKind::Pool);
        story.pool(Pool { used: 1024, reserved: 4096, reserved_high: 4096, used_before: Some(0), ..Pool::default() });
        let used = |used: u64| DeviceMemory { free: (1 << 40) - used, total: 1 << 40, ..DeviceMemory::default() };
        let data = story.memory_of_device(used(4096)).build();
        let fit = Fit::of(&DeviceView::of(&data, &data.devices[0]), Card::of_memory("a card", 1 << 30));
        let process = fit.rows.iter().filter(|row| ![LIVE, POOLS].contains(&row.what)).map(|row| row.high).sum::<u64>();
        for (beyond, is_under) in [(0, false), (process, false), (process + 1, true)] {
            let data = story.memory_of_device(used(4096 + beyond)).build();
            let rows = drift(&fit, &DeviceView::of(&data, &data.devices[0])).unwrap();
            assert_eq!((rows[0].measured, rows[2].measured), (1000, beyond));
            assert_eq!(rows.iter().map(DriftRow::is_under).collect::<Vec<_>>()[..3], [false, false, is_under]);
            let sums = rows[..3]
                .iter()
                .fold((0, 0, 0), |(low, high, all), row| (low + row.low, high + row.high, all + row.measured));
            assert_eq!(sums, (rows[3].low, rows[3].high, rows[3].measured));
        }
        assert_eq!(rows_without_balance(&fit), None);
    }

    fn rows_without_balance(fit: &Fit) -> Option<Vec<DriftRow>> {
        let mut story = Story::cuda(0);
        let data = story.alloc("weights", 1000).build();
        drift(fit, &DeviceView::of(&data, &data.devices[0]))
    }

    /// The simulated cuBLAS takes no memory; the real one asks the driver for it.
    #[test]
    fn what_cublas_itself_took_is_judged_with_its_own_row() {
        let own = frame("net::forward", "src/net.rs", 7);
        let recorded = |workspace: u64| {
            let mut story = Story::cuda(0);
            story.stacks(stacks(vec![own.clone(), frame("cublasCreate_v2", "", 0)], [[0], [1]]));
            story.alloc("weights", 1000).on(StackId(1));
            if workspace > 0 {
                story.alloc("workspace", workspace).on(StackId(2));
            }
            let used = 1000 + workspace + (200 << 20);
            let memory = DeviceMemory { free: (1 << 40) - used, total: 1 << 40, ..DeviceMemory::default() };
            let mut data = story.memory_of_device(memory).build();
            data.objects[0].path = Some("/usr/lib/libcublas.so.13".into());
            data
        };
        let (first, real) = (recorded(0), recorded(4 << 20));
        let fit = Fit::of(&DeviceView::of(&first, &first.devices[0]), Card::of_memory("a card", 1 << 40));
        let rows = drift(&fit, &DeviceView::of(&real, &real.devices[0])).unwrap();
        let measured: Vec<u64> = rows.iter().map(|row| row.measured).collect();
        assert_eq!(measured, [1000, 0, 204 << 20, 1000 + (204 << 20)]);
        assert!(!rows.iter().any(DriftRow::is_under), "{rows:?}");
        // If the prediction already contains that block, it counts as the program's.
        let fit = Fit::of(&DeviceView::of(&real, &real.devices[0]), Card::of_memory("a card", 1 << 40));
        let rows = drift(&fit, &DeviceView::of(&real, &real.devices[0])).unwrap();
        assert_eq!((rows[0].measured, rows[2].measured), (1000 + (4 << 20), 200 << 20));
    }
}
