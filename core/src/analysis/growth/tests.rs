//! Growth of programs whose growth is known, and of caches and queues, which do not grow.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::analysis::log;
use crate::random::programs;
use crate::snapshot::testing::{LINE_7, Story, frame, stacks};
use crate::snapshot::{
    ContextId, ContextNode, Gap, OlderRow, OlderTime, Record, SnapshotData, StackId, Thread, ThreadId,
};

/// How long a line keeps the memory of its requests.
#[derive(Clone, Copy, Debug)]
enum Keeps {
    /// Until the request ends.
    Nothing,
    /// One block out of this many requests, forever.
    Every(usize),
    /// The blocks of this many newest requests.
    Newest(usize),
    /// Blocks of this many first requests.
    First(usize),
    /// All blocks, until there are this many; then it frees them.
    Cleared(usize),
}

const REQUESTS: usize = 3_000;

/// Requests one millisecond apart. Each allocates 1 KiB on every line, and keeps it as the line says.
fn service(lines: &[Keeps]) -> SnapshotData {
    let mut story = Story::cuda(0);
    let frames = (1..).take(lines.len()).map(|line| frame("net::serve", "/home/u/net/src/serve.rs", line));
    story.stacks(stacks(frames.collect(), (0..lines.len() as u32).map(|line| [line])));
    let mut kept: Vec<std::collections::VecDeque<usize>> = vec![Default::default(); lines.len()];
    for request in 0..REQUESTS {
        for (at, keeps) in lines.iter().enumerate() {
            let (label, line_kept) = (request * lines.len() + at, &mut kept[at]);
            story.at(1_000_000 * request as u64 + at as u64 + 1).alloc(label, 1024).on(StackId(1 + at as u32));
            let stays = match *keeps {
                Keeps::Nothing => false,
                Keeps::Every(many) => request % many == 0,
                Keeps::First(many) => request < many,
                Keeps::Newest(_) | Keeps::Cleared(_) => true,
            };
            if !stays {
                story.free(label);
                continue;
            }
            line_kept.push_back(label);
            match *keeps {
                Keeps::Newest(many) if line_kept.len() > many => _ = story.free(line_kept.pop_front().unwrap()),
                Keeps::Cleared(many) if line_kept.len() >= many => {
                    line_kept.drain(..).for_each(|label| _ = story.free(label));
                }
                _ => {}
            }
        }
    }
    story.lasting(REQUESTS as u64 * 1_000_000);
    story.build()
}

fn growth_of(data: &SnapshotData) -> Growth {
    Growth::of(&DeviceView::of(data, &data.devices[0]), Key::Line)
}

fn line(at: usize) -> String {
    format!("src/serve.rs:{} (net::serve)", at + 1)
}

fn keeps() -> impl Strategy<Value = Keeps> {
    prop_oneof![
        Just(Keeps::Nothing),
        (1..=150usize).prop_map(Keeps::Every),
        (1..REQUESTS / 2).prop_map(Keeps::Newest),
        (1..REQUESTS * 4 / 5).prop_map(Keeps::First),
        (2..REQUESTS * 3 / 5).prop_map(Keeps::Cleared),
    ]
}

proptest! {
    #![proptest_config(programs(10))]
    #[test]
    fn planted_growth_is_found_at_its_line_and_nothing_else_grows(lines in prop::collection::vec(keeps(), 1..5)) {
        let data = service(&lines);
        let growth = growth_of(&data);
        let mut found: Vec<&str> = growth.growing().iter().map(|row| &*row.label).collect();
        found.sort_unstable();
        let planted = lines.iter().enumerate().filter(|(_, keeps)| matches!(keeps, Keeps::Every(_)));
        let planted: Vec<(String, usize)> = planted.map(|(at, keeps)| match keeps {
            Keeps::Every(many) => (line(at), *many),
            _ => unreachable!(),
        }).collect();
        prop_assert_eq!(found, planted.iter().map(|(label, _)| &**label).collect::<Vec<_>>());
        for (label, many) in planted {
            let row = growth.growing().iter().find(|row| row.label == label).unwrap();
            // 60,000 requests a minute. At both ends of an interval of 187.5 requests, one more or one fewer block may
            // be live.
            let (a_minute, block) = (60_000 * 1024 / many as u64, 60_000 * 1024 * 2 / 375);
            prop_assert!(row.least_per_minute <= a_minute + block && a_minute <= row.most_per_minute + block, "{:?}", row);
            prop_assert!(row.per_minute.abs_diff(a_minute) <= block / 11 + 2, "{:?} {}", row, a_minute);
        }
    }
}

#[test]
fn a_leak_of_1_kib_in_every_100th_request_is_found_with_its_rate_and_the_time_that_is_left() {
    let mut data = service(&[Keeps::Nothing, Keeps::Every(100), Keeps::First(900)]);
    let memory = crate::snapshot::DeviceMemory { total: 2 << 20, ..Default::default() };
    data.devices[0].memory = Some(memory);
    let growth = growth_of(&data);
    assert_eq!((growth.grows(), growth.growing().len()), (Some(true), 1));
    let row = growth.first().unwrap();
    assert_eq!((&*row.label, row.at_end), (&*line(1), 30 << 10));
    // 1 KiB in 100 ms is 600 KiB in a minute. Of the 2 MiB, 900 KiB and 30 KiB are live.
    assert!(row.per_minute.abs_diff(600 << 10) < 60 << 10, "{row:?}");
    let left = (2 << 20) - (930 << 10);
    assert_eq!(growth.full_in_ns(), Some((u128::from(left as u64) * MINUTE / u128::from(row.per_minute)) as u64));
}

#[test]
fn caches_and_queues_do_not_grow() {
    for keeps in [
        Keeps::Nothing,
        Keeps::First(2000),
        Keeps::Newest(100),
        Keeps::Newest(1400),
        Keeps::Cleared(10),
        Keeps::Cleared(1700),
    ] {
        assert_eq!(growth_of(&service(&[keeps])).grows(), Some(false), "{keeps:?}");
    }
}

#[test]
fn what_cannot_be_told_is_undecided() {
    let undecided = |change: fn(&mut SnapshotData)| {
        let mut data = service(&[Keeps::Every(10)]);
        change(&mut data);
        let growth = growth_of(&data);
        assert_eq!((growth.grows(), growth.rows.len()), (None, 0));
        growth.undecided.unwrap()
    };
    assert!(undecided(|data| data.devices[0].records.clear()).contains("no log"));
    assert!(undecided(|data| data.health.lost_blocks = 1).contains("lost"));
    let gap = |data: &mut SnapshotData| data.devices[0].gaps.push(Gap { at: 1, records: 1, from_ns: 5, to_ns: 7 });
    assert!(undecided(gap).contains("gaps"));
    // The program did nothing most of the time.
    assert!(undecided(|data| data.process.duration_ns *= 3).contains("nothing was allocated"));
    let no_times = |data: &mut SnapshotData| {
        data.devices[0].records.iter_mut().for_each(|record| record.time_ns = 0);
        data.process.duration_ns = 0;
    };
    assert!(undecided(no_times).contains("no times"));
}

/// Allocates a block of 10 bytes each microsecond for 1.6 ms. `also` adds other events.
fn rising(size: u64, mut also: impl FnMut(&mut Story, u64)) -> Story {
    let mut story = Story::cpu();
    for at in 0..1600_u64 {
        story.at(1 + at * 1000).alloc(at, size).on(LINE_7);
        also(&mut story, at);
    }
    story.lasting(1_600_000);
    story
}

fn free_all(story: &mut Story, until: u64) {
    (0..=until).for_each(|label| _ = story.free(label));
}

#[track_caller]
fn may_grow(story: &Story, why: &str) {
    let growth = growth_of(&story.build());
    assert_eq!((growth.grows(), growth.rows.len()), (None, 1), "{growth:?}");
    match growth.rows[0].growth {
        RowGrowth::MayGrow(reason) => assert!(reason.contains(why), "{reason}"),
        RowGrowth::Grows => panic!("{why}: {growth:?}"),
    }
}

#[test]
fn what_may_be_a_cache_is_undecided() {
    assert_eq!(growth_of(&rising(10, |_, _| {}).build()).grows(), Some(true));
    let freed_at = |when: u64| {
        rising(10, move |story, at| {
            if at == when {
                free_all(story, at);
            }
        })
    };
    may_grow(&freed_at(300), "fell in the warm-up");
    may_grow(&freed_at(1599), "until the last interval");
    assert_eq!(growth_of(&freed_at(1000).build()).grows(), Some(false));
    // No block of this line stays before the last third.
    let lately = rising(10, |story, at| {
        if at < 1100 {
            story.free(at);
        }
    });
    may_grow(&lately, "not in every interval");
    // The growth pauses for one interval.
    let pausing = rising(10, |story, at| {
        if (900..1050).contains(&at) {
            story.free(at);
        }
    });
    may_grow(&pausing, "not in every interval");
}

#[test]
fn a_log_without_its_beginning_and_a_sample_are_undecided() {
    may_grow(rising(10, |_, _| {}).overwritten(200), "lacks its beginning");
    let temporaries = || rising(10, |story, at| _ = story.free(at));
    assert_eq!(growth_of(&temporaries().build()).grows(), Some(false));
    for story in [temporaries().overwritten(200), temporaries().sampled(4096)] {
        let growth = growth_of(&story.build());
        assert_eq!((growth.grows(), growth.rows.len()), (None, 0), "{growth:?}");
    }
    may_grow(rising(10, |_, _| {}).sampled(4096), "sampled");
    // All large blocks are recorded.
    assert_eq!(growth_of(&rising(1 << 20, |_, _| {}).sampled(4096).build()).grows(), Some(true));
}

#[test]
fn a_free_by_another_thread_is_taken_from_the_row_of_the_thread_that_allocated() {
    let mut story = rising(10, |story, at| _ = story.thread(2).free(at).thread(1));
    let mut data = story.stacks(Default::default()).build();
    data.process.threads = [1, 2].map(thread).to_vec();
    let growth = Growth::of(&DeviceView::of(&data, &data.devices[0]), Key::Thread);
    assert_eq!((growth.grows(), growth.rows), (Some(false), Vec::new()));
}

fn thread(number: u32) -> Thread {
    Thread { number: ThreadId(number), os_id: number, name: format!("worker {number}") }
}

/// Puts the blocks of each stack into a scope of their own.
fn scoped(mut data: SnapshotData) -> SnapshotData {
    let name = |at: usize| if at == 0 { String::new() } else { format!("scope {at}") };
    let node = |at| ContextNode { parent: ContextId::ROOT, name: name(at), module: false };
    data.contexts = (0..data.stacks.len()).map(node).collect();
    let device = &mut data.devices[0];
    device.records.iter_mut().for_each(|record| record.context = ContextId(record.alloc_stack.0));
    let blocks = device.live.iter_mut().chain(&mut device.peak.blocks);
    blocks.for_each(|block| block.context = ContextId(block.stack.0));
    data
}

/// The recording of a stream with a budget, in which `times` older times replace the first `deleted` records.
fn deleted(mut data: SnapshotData, deleted: usize, times: usize) -> SnapshotData {
    let device = &mut data.devices[0];
    let gone: Vec<Record> = device.records.drain(..deleted).collect();
    let mut held: BTreeMap<u32, u64> = BTreeMap::new();
    for part in gone.chunks(deleted.div_ceil(times)) {
        let mut least = held.clone();
        for record in part {
            let stack = record.alloc_stack.0;
            let now = held.entry(stack).or_default();
            *now = now.saturating_add_signed(log::change(device, record));
            least.insert(stack, (*now).min(least.get(&stack).copied().unwrap_or(0)));
        }
        let from_ns = device.older.last().map_or(0, |time| time.to_ns);
        let to_ns = part.last().map_or(0, |record| record.time_ns);
        let stack = |(stack, least): (&u32, &u64)| OlderRow { of: StackId(*stack), least: *least, at_highest: 0 };
        let scope = |(scope, least): (&u32, &u64)| OlderRow { of: ContextId(*scope), least: *least, at_highest: 0 };
        let (stacks, scopes) = (least.iter().map(stack).collect(), least.iter().map(scope).collect());
        let (records, highest_ns) = (part.len() as u64, to_ns);
        let time = OlderTime { from_ns, to_ns, records, highest_ns, stacks, scopes, ..OlderTime::default() };
        device.older.push(time);
    }
    device.overwritten = deleted as u64;
    data
}

#[test]
fn of_a_stream_with_a_budget_growth_is_that_of_the_whole_run() {
    for (records, times) in [(1_000, 1), (3_000, 3), (6_000, 7), (9_000, 16), (11_000, 48), (12_050, 48)] {
        let data = scoped(service(&[Keeps::Every(100), Keeps::Newest(40), Keeps::First(300)]));
        assert!(data.devices[0].records.len() > 12_050 + 100, "some of the log is left");
        let mut data = deleted(data, records, times);
        let growth = growth_of(&data);
        assert!(growth.grows().is_none() && (1..16).contains(&growth.older), "{growth:?}");
        assert_eq!(
            growth.undecided,
            Some("of the time before the log, only the least of each stack or scope is known")
        );
        let [row] = &growth.rows[..] else { panic!("{:?}", growth.rows) };
        assert!(matches!(row.growth, RowGrowth::MayGrow(_)) && row.label == line(0), "{row:?}");
        // 1 KiB in 100 ms, from the end of the warm-up on. An interval is at most a second.
        assert!(row.per_minute.abs_diff(600 << 10) < 100 << 10, "{records} {times} {row:?}");
        assert_eq!(row.at_end, 30 << 10);
        let by = |data: &SnapshotData, key| Growth::of(&DeviceView::of(data, &data.devices[0]), key);
        let by_scope = by(&data, Key::Scope);
        let [same] = &by_scope.rows[..] else { panic!("{:?}", by_scope.rows) };
        assert_eq!((by_scope.older, same), (growth.older, &GrowingRow { label: "scope 1".to_owned(), ..row.clone() }));
        // A key that depends on neither stacks nor scopes has only the log. The same is true of recordings of older
        // versions.
        let only_the_log = |growth: Growth| {
            assert_eq!((growth.older, growth.undecided), (0, Some("the log lacks its beginning")));
        };
        only_the_log(by(&data, Key::Thread));
        data.devices[0].older.iter_mut().for_each(|time| time.scopes.clear());
        only_the_log(by(&data, Key::Scope));
    }
}
