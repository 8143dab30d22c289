//! Category timelines, read as users of PyTorch read them.

use serde_json::Value;

use super::{CategoriesJson, CategoriesRaw};
use crate::analysis::log::entries;
use crate::export::Export;
use crate::snapshot::testing::{Story, empty, two_lines_and_a_temporary};
use crate::snapshot::{Category, Device, SnapshotData};

/// `[times, sizes]` as `json.load` gives them.
fn timeline(data: &SnapshotData) -> (Vec<u64>, Vec<Vec<u64>>) {
    let mut out = Vec::new();
    CategoriesJson::default().write(data, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn raw(data: &SnapshotData) -> Vec<(i64, u8, i64, usize)> {
    let mut out = Vec::new();
    CategoriesRaw::default().write(data, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// `np.cumsum(sizes, axis=1)`: the last column is the top of the stack.
fn cumsum(sizes: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let sum = |sum: &mut u64, size: &u64| {
        *sum += size;
        Some(*sum)
    };
    sizes.iter().map(|row| row.iter().scan(0, sum).collect()).collect()
}

/// A recording with everything that PyTorch does not have, and with records within one microsecond.
fn with_our_own() -> SnapshotData {
    our_own(Story::cpu(), 1_000, 2_000)
}

/// The first two blocks are allocated at `first_ns` and `second_ns`.
fn our_own(mut trace: Story, first_ns: u64, second_ns: u64) -> SnapshotData {
    trace.before(1024).below_threshold(128);
    trace.at(first_ns).alloc("cache", 2000).named("cache", Category::KvCache);
    trace.at(second_ns).alloc("weights", 1000).named("weights", Category::Parameter);
    trace.at(3_000).alloc("something", 500);
    trace.at(4_000).free("weights");
    trace.at(5_999).alloc("workspace", 64).named("workspace", Category::Workspace).free("workspace");
    trace.build()
}

#[test]
fn rows_hold_what_was_live_after_each_microsecond() {
    let (times, sizes) = timeline(&with_our_own());
    let began = 1_790_000_000_000_000;
    assert_eq!(times, [0, 1, 2, 3, 4, 5].map(|us| began + us));
    // 0, PARAMETER, OPTIMIZER_STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT, AUTOGRAD_DETAIL, unknown
    let rows = [
        [0, 0, 0, 0, 0, 0, 0, 0, 1024],
        [0, 0, 0, 0, 0, 2000, 0, 0, 1024],
        [0, 1000, 0, 0, 0, 2000, 0, 0, 1024],
        [0, 1000, 0, 0, 0, 2000, 0, 0, 1524],
        [0, 0, 0, 0, 0, 2000, 0, 0, 1524],
        [0, 0, 0, 0, 0, 2000, 0, 0, 1524],
    ];
    assert_eq!(sizes, rows);
}

#[test]
fn the_first_row_is_what_was_there_before_even_in_the_microsecond_of_the_first_records() {
    let data = our_own(Story::cpu(), 1, 999);
    let (times, sizes) = timeline(&data);
    assert_eq!(times[..3], [0, 0, 3].map(|us| 1_790_000_000_000_000 + us));
    assert_eq!(cumsum(&sizes)[..2].iter().map(|row| row[8]).collect::<Vec<_>>(), [1024, 4024]);
}

#[test]
fn the_top_of_the_stack_is_the_total_after_every_record() {
    let data = two_lines_and_a_temporary();
    let (times, sizes) = timeline(&data);
    let tops: Vec<u64> = cumsum(&sizes).iter().map(|row| row[8]).collect();
    let totals: Vec<u64> = entries(&data.devices[0]).map(|moment| moment.allocated).collect();
    assert_eq!((times.len(), &tops[1..]), (totals.len() + 1, &totals[..]));
    assert!(sizes.iter().all(|row| row.len() == 9 && row[0] == 0));
}

#[test]
fn raw_entries_make_the_rows() {
    let data = with_our_own();
    let entries = raw(&data);
    let began = 1_790_000_000_000_000_000;
    assert_eq!(entries[..2], [(-1, 1, 1024, 7), (began + 1000, 2, 2000, 4)]);
    // The workspace, which counts as TEMPORARY.
    assert_eq!(entries[5..], [(began + 5_999, 2, 64, 3), (began + 5_999, 4, -64, 3)]);
    let mut last = vec![0i64; 9];
    entries.iter().for_each(|(_, _, bytes, category)| last[category + 1] += bytes);
    let (_, sizes) = timeline(&data);
    assert_eq!(sizes.last().unwrap().iter().map(|size| *size as i64).collect::<Vec<_>>(), last);
}

#[test]
fn without_a_device_there_is_nothing_in_the_lists() {
    let (times, sizes) = timeline(&empty());
    assert!(times.is_empty() && sizes.is_empty() && raw(&empty()).is_empty());
}

#[test]
fn another_device_can_be_asked_for() {
    let mut data = Story::cpu().before(1024).build();
    data.devices.append(&mut our_own(Story::cuda(0), 1_000, 2_000).devices);
    let rows = |device| {
        let mut out = Vec::new();
        CategoriesJson { device }.write(&data, &mut out).unwrap();
        let read: Value = serde_json::from_slice(&out).unwrap();
        read[0].as_array().unwrap().len()
    };
    assert_eq!((rows(None), rows(Some(Device::Cpu)), rows(Some(Device::Managed))), (6, 1, 0));
}
