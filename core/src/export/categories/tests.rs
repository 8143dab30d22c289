//! Category timelines, read back as users of PyTorch do.

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

/// Everything that PyTorch does not have, and records within one microsecond.
fn with_our_own() -> SnapshotData {
    our_own(Story::cpu(), 1_000, 2_000)
}

/// The first two blocks are allocated then.
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
fn without_a_device_there_is_nothing_in_the_lists_and_nothing_to_draw() {
    let (times, sizes) = timeline(&empty());
    assert!(times.is_empty() && sizes.is_empty() && raw(&empty()).is_empty());
    #[cfg(feature = "figures")]
    {
        let error = super::CategoriesSvg::default().write(&empty(), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("nothing was live"), "{error}");
    }
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

#[cfg(feature = "figures")]
mod drawn {
    use super::super::CategoriesSvg;
    use super::*;

    fn svg(data: &SnapshotData) -> String {
        let mut out = Vec::new();
        CategoriesSvg::default().write(data, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Every element is closed where it must be, and every text is escaped; gives the elements' names.
    fn elements(xml: &str) -> Vec<String> {
        let (mut open, mut names) = (Vec::new(), Vec::new());
        let mut rest = xml;
        while let Some(at) = rest.find('<') {
            let (text, tag) = rest.split_at(at);
            assert!(!text.contains('>'), "{text}");
            for (_, entity) in text.match_indices('&').map(|(at, _)| text.split_at(at)) {
                let known = ["&lt;", "&gt;", "&amp;", "&quot;", "&#39;", "&apos;"];
                assert!(known.iter().any(|known| entity.starts_with(known)), "{entity}");
            }
            let end = tag.find('>').unwrap();
            let inside = &tag[1..end];
            assert_eq!(inside.matches('"').count() % 2, 0, "{inside}");
            let name = inside.trim_matches('/').split_whitespace().next().unwrap().to_owned();
            match (inside.starts_with('/'), inside.ends_with('/')) {
                (true, _) => assert_eq!(open.pop().as_ref(), Some(&name)),
                (_, true) => names.push(name),
                _ => {
                    names.push(name.clone());
                    open.push(name);
                }
            }
            rest = &tag[end + 1..];
        }
        assert_eq!((open, rest.trim()), (Vec::new(), ""));
        names
    }

    #[test]
    fn the_picture_is_well_formed_and_has_an_area_and_a_box_in_the_colour_of_each_category() {
        let svg = svg(&with_our_own());
        let names = elements(&svg);
        for category in [Category::Parameter, Category::Unknown, Category::KvCache, Category::Workspace] {
            let fill = format!("fill=\"{}\"", category.colour());
            assert_eq!(svg.matches(&fill).count(), 2, "{category}");
            assert!(svg.contains(&format!("<title>{category}</title>")));
        }
        assert_eq!(names.iter().filter(|name| *name == "path").count(), 4 + 2, "the peak's mark has two");
        assert!(!svg.contains("GRADIENT") && !svg.contains("NaN"));
        for text in ["net on cpu: memory by category, peak 4.418 KiB", "PARAMETER 1000 B", "peak at 0.003 ms"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn what_the_program_is_called_is_escaped() {
        let mut data = with_our_own();
        data.process.program = "</svg><b a=\"'&\u{1}".into();
        assert!(svg(&data).contains("&lt;/svg&gt;&lt;b a=&quot;&#39;&amp;\\u{1} on cpu"));
        elements(&svg(&data));
        assert!(!svg(&data).contains('\u{1}'));
    }

    /// So many blocks one after another, each freed before the next; one of them large.
    fn busy(count: u64, large: u64) -> SnapshotData {
        let mut trace = Story::cpu();
        for number in 0..count {
            let size = if number == large { 1 << 20 } else { 100 };
            trace.at(number).alloc("block", size).free("block");
        }
        trace.lasting(count).build()
    }

    #[test]
    fn a_picture_of_a_long_log_is_small_and_keeps_a_peak_of_an_instant() {
        let [short, long] = [busy(10_000, 4711), busy(100_000, 4711)].map(|data| svg(&data));
        assert!(long.len() < short.len() + 1000 && long.len() < 100_000, "{} {}", short.len(), long.len());
        let without = svg(&busy(100_000, u64::MAX));
        assert!(long.contains("1.000 MiB") && !without.contains("1.000 MiB"));
        // The plot is 402 pixels high above its axis at 474; the peak takes all of it but the headroom.
        let path = long.split("d=\"").nth(1).unwrap().split('"').next().unwrap();
        let levels = path.split('V').skip(1).map(|rest| rest.split(['H', 'Z']).next().unwrap().parse().unwrap());
        let highest: f64 = levels.fold(f64::MAX, f64::min);
        assert!((highest - (474.0 - 402.0 / 1.05)).abs() < 0.1, "{highest}");
    }

    #[test]
    fn times_and_sizes_beyond_any_program_are_drawn() {
        for (time_ns, size, duration_ns) in [(u64::MAX, 1 << 61, 0), (1 << 62, 1, 1), (0, 1, 0), (0, 1, u64::MAX)] {
            let mut trace = Story::cpu();
            trace.at(time_ns).before(1024);
            trace.alloc("lost", 1).alloc("cache", size).named("cache", Category::KvCache);
            trace.alloc("weights", 1000).named("weights", Category::Parameter).free("weights");
            trace.alloc("workspace", 64).named("workspace", Category::Workspace).free("workspace");
            let data = trace.overwritten(1).lasting(duration_ns).build();
            elements(&svg(&data));
            assert!(!svg(&data).contains("NaN"));
        }
    }
}
