//! Looks at stories that continue, and at random stories.

use proptest::prelude::*;

use super::*;
use crate::random::programs;
use crate::recording::Recording;
use crate::snapshot::testing::{LINE_7, LINE_9, Story};

fn look(story: &Story, keys: &[Key]) -> Look {
    let data = story.build();
    Look::of(&Recording::new(&data), "a.memtrace", None, keys)
}

fn row(label: &str, bytes: u64, count: u64, since_last: i64, since_first: i64) -> LookRow {
    let (since_last, since_first) = (Some(since_last), Some(since_first));
    LookRow { label: label.to_owned(), bytes, count: Some(count), since_last, since_first }
}

const SEVEN: &str = "src/model.rs:7 (Net::forward)";
const NINE: &str = "src/main.rs:9 (net::pad)";
const KEYS: &[Key] = &[Key::Line];

#[test]
fn a_row_has_what_it_grew_since_the_last_look_and_since_the_first_one() {
    let mut story = Story::cpu();
    story.at(1).alloc("a", 5000).on(LINE_7).alloc("b", 3000).on(LINE_9).lasting(10);
    let mut looks = Looks::begin(look(&story, KEYS));
    let rows = |looks: &Looks, order| looks.rows(Device::Cpu, Key::Line, order);
    let unknown = |row: &LookRow| (row.since_last, row.since_first) == (None, None);
    assert!(rows(&looks, LookOrder::Bytes).iter().all(unknown), "there is no earlier look");
    assert_eq!((looks.since_ns(Key::Line), rows(&looks, LookOrder::Bytes).len()), (None, 2));

    story.at(11).alloc("c", 2000).on(LINE_9).free("a").lasting(20);
    looks.add(look(&story, KEYS));
    let expected = [row(NINE, 5000, 2, 2000, 2000), row(SEVEN, 0, 0, -5000, -5000)];
    assert_eq!(rows(&looks, LookOrder::Bytes), expected);
    story.at(21).alloc("d", 1000).on(LINE_7).alloc("e", 1000).on(LINE_7).alloc("f", 1000).on(LINE_7).lasting(30);
    looks.add(look(&story, KEYS));
    let (seven, nine) = (row(SEVEN, 3000, 3, 3000, -2000), row(NINE, 5000, 2, 0, 2000));
    assert_eq!(rows(&looks, LookOrder::Bytes), [nine.clone(), seven.clone()]);
    assert_eq!(rows(&looks, LookOrder::Growth), [nine.clone(), seven.clone()]);
    assert_eq!(rows(&looks, LookOrder::Count), [seven, nine]);
    assert_eq!(looks.since_ns(Key::Line), Some(10));

    looks.add_unchanged();
    let expected = [row(NINE, 5000, 2, 0, 2000), row(SEVEN, 3000, 3, 0, -2000)];
    assert_eq!(rows(&looks, LookOrder::Bytes), expected, "nothing was committed since the last look");
}

#[test]
fn growth_by_a_key_begins_with_the_first_look_by_it() {
    let mut story = Story::cpu();
    story.at(1).alloc("a", 5000).on(LINE_7).lasting(10);
    let mut looks = Looks::begin(look(&story, KEYS));
    story.at(11).alloc("b", 2000).on(LINE_7).lasting(20);
    looks.add(look(&story, &[Key::Line, Key::Thread]));
    assert_eq!((looks.since_ns(Key::Line), looks.since_ns(Key::Thread)), (Some(10), None));
    assert_eq!(looks.rows(Device::Cpu, Key::Thread, LookOrder::Bytes)[0].since_first, None);
    story.at(21).alloc("c", 4000).on(LINE_7).lasting(30);
    looks.add(look(&story, &[Key::Line, Key::Thread]));
    let grown = |key| looks.rows(Device::Cpu, key, LookOrder::Bytes)[0].since_first;
    assert_eq!((grown(Key::Line), grown(Key::Thread)), (Some(6000), Some(4000)));
    assert_eq!(looks.rows(Device::Cpu, Key::Scope, LookOrder::Bytes), [], "no look was by scope");
}

#[test]
fn a_file_of_another_process_begins_anew() {
    let mut story = Story::cpu();
    story.at(1).alloc("a", 5000).on(LINE_7).lasting(10);
    let mut looks = Looks::begin(look(&story, KEYS));
    let mut other = look(&story, KEYS);
    other.rank.process.pid += 1;
    looks.add(other);
    assert_eq!(looks.rows(Device::Cpu, Key::Line, LookOrder::Bytes)[0].since_last, None);
}

#[test]
fn a_device_that_is_used_later_has_grown_from_nothing() {
    let mut story = Story::cuda(0);
    let mut looks = Looks::begin(look(&story, KEYS));
    assert!(looks.last().devices.is_empty());
    story.at(1).alloc("a", 700).on(LINE_7).lasting(10);
    looks.add(look(&story, KEYS));
    assert_eq!(looks.rows(Device::Cuda(0), Key::Line, LookOrder::Bytes), [row(SEVEN, 700, 1, 700, 700)]);
}

proptest! {
    #![proptest_config(programs(20))]

    /// The growth of the rows adds up to the growth of the device, to the byte, by every key, whatever happens between
    /// the looks.
    #[test]
    fn rows_of_random_programs_add_up_to_the_device(
        steps in prop::collection::vec((0..3_usize, any::<prop::sample::Index>(), 1..9000_u64, 0..6_u8), 1..60)
    ) {
        let (mut story, mut live, mut totals, mut looks) = (Story::cpu(), Vec::new(), Vec::new(), None::<Looks>);
        story.before(1000);
        for (time, (what, which, size, pause)) in (1..).zip(steps) {
            story.at(time);
            if what == 0 && !live.is_empty() {
                story.free(live.swap_remove(which.index(live.len())));
            } else {
                story.alloc(time, size).on([LINE_7, LINE_9][which.index(2)]);
                live.push(time);
            }
            if pause == 0 {
                let seen = look(story.lasting(time), &Key::ALL);
                totals.push(story.build().devices[0].stats.allocated_bytes.current);
                match &mut looks {
                    Some(looks) => looks.add(seen),
                    None => looks = Some(Looks::begin(seen)),
                }
                check(looks.as_ref().unwrap(), &totals);
            }
        }
    }
}

fn check(looks: &Looks, totals: &[u64]) {
    let last = *totals.last().unwrap();
    for key in Key::ALL {
        let rows = looks.rows(Device::Cpu, key, LookOrder::Bytes);
        assert_eq!(rows.iter().map(|row| row.bytes).sum::<u64>(), last, "{key}");
        assert_eq!(looks.last().devices[0].live, last);
        let [before, first] = [totals.len().checked_sub(2), totals.len().checked_sub(1).map(|_| 0)];
        let grown = |of: fn(&LookRow) -> Option<i64>| rows.iter().map(of).sum::<Option<i64>>();
        let expected = |at: Option<usize>| at.filter(|_| totals.len() > 1).map(|at| last as i64 - totals[at] as i64);
        assert_eq!(grown(|row| row.since_last), expected(before), "{key}");
        assert_eq!(grown(|row| row.since_first), expected(first), "{key}");
    }
}
