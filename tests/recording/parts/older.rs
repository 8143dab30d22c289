//! The times of deleted parts, against an oracle that keeps every alloc and free: the highest moment of each, and what each stack
//! and each scope held then and at least.

use std::collections::BTreeMap;
use std::path::PathBuf;

use memtrace::Snapshot;
use memtrace::snapshot::{ContextId, OlderRow, StackId};
use proptest::prelude::*;

use super::{Folder, SMALL};
use crate::support::{MIB, Raw, alone, cpu};

/// A function's name, and what allocates in it.
type Site = (&'static str, fn(usize) -> Raw);

const SITES: [Site; 3] = [("site_red", site_red), ("site_green", site_green), ("site_blue", site_blue)];

#[inline(never)]
fn site_red(size: usize) -> Raw {
    Raw::new(std::hint::black_box(size))
}

#[inline(never)]
fn site_green(size: usize) -> Raw {
    Raw::new(std::hint::black_box(size) + 1)
}

#[inline(never)]
fn site_blue(size: usize) -> Raw {
    Raw::new(std::hint::black_box(size) + 2)
}

/// The last one is no scope.
const SCOPES: [&str; 3] = ["loading", "serving", ""];

/// An alloc, or a free if it is negative.
#[derive(Clone, Copy)]
struct Event {
    site: usize,
    scope: usize,
    bytes: i64,
}

/// A program that allocates at three sites in two scopes and outside of them, and all that it did.
struct Program {
    events: Vec<Event>,
    kept: Vec<(Event, Raw)>,
}

/// Bytes of each site or scope.
type Bytes = [i64; 3];

impl Program {
    /// Before the recording begins: the list of events is larger than the threshold.
    fn new() -> Self {
        Self { events: Vec::with_capacity(1 << 20), kept: Vec::new() }
    }

    fn alloc(&mut self, site: usize, mebibytes: usize) {
        let (size, scope) = (mebibytes * MIB, self.events.len() % 3);
        // One stack, whatever the scope.
        let _scope = (!SCOPES[scope].is_empty()).then(|| memtrace::scope_guard(SCOPES[scope]));
        let block = SITES[site].1(size);
        let event = Event { site, scope, bytes: (size + site) as i64 };
        self.kept.push((event, block));
        self.events.push(event);
    }

    /// In a scope that is not that of most allocs.
    fn free(&mut self, index: usize) {
        let (event, block) = self.kept.swap_remove(index);
        memtrace::scope(SCOPES[0], || drop(block));
        self.events.push(Event { bytes: -event.bytes, ..event });
    }

    fn come_and_go(&mut self, site: usize, times: usize) {
        for _ in 0..times {
            self.alloc(site, 1);
            self.free(self.kept.len() - 1);
        }
    }

    /// The highest total of these events, the rows' bytes at its first moment, and the least of each.
    fn expected(&self, events: std::ops::Range<usize>, row: fn(&Event) -> usize) -> (i64, Bytes, Bytes) {
        let mut now = [0; 3];
        self.events[..events.start].iter().for_each(|event| now[row(event)] += event.bytes);
        let (mut highest, mut at_highest, mut least) = (now.iter().sum(), now, now);
        for event in &self.events[events] {
            let row = row(event);
            now[row] += event.bytes;
            least[row] = least[row].min(now[row]);
            if now.iter().sum::<i64>() > highest {
                (highest, at_highest) = (now.iter().sum(), now);
            }
        }
        (highest, at_highest, least)
    }

    /// Checks all older times; returns how many there are. `has_room` if each has room for all stacks and scopes.
    fn check(&self, read: &Snapshot, has_room: bool) -> usize {
        let device = cpu(read);
        assert!(device.gaps.is_empty(), "{:?}", device.gaps);
        let mut from = 0;
        for time in &device.older {
            let to = from + time.records as usize;
            let (highest, at_highest, least) = self.expected(from..to, |event| event.site);
            let (_, scopes_at_highest, scopes_least) = self.expected(from..to, |event| event.scope);
            assert!(!time.lacks_records && time.from_ns <= time.highest_ns && time.highest_ns <= time.to_ns);
            assert_eq!((time.highest - device.not_recorded) as i64, highest, "records {from} to {to}");
            let sites = by(&time.stacks, |stack| site_of(read, stack));
            let scopes = by(&time.scopes, |context| scope_of(read, context));
            for (found, all) in [(sites, (at_highest, least)), (scopes, (scopes_at_highest, scopes_least))] {
                let is_part = |found: Bytes, all: Bytes| found.iter().zip(all).all(|(found, all)| *found <= all);
                match has_room {
                    true => assert_eq!(found, all, "records {from} to {to}"),
                    false => assert!(is_part(found.0, all.0) && is_part(found.1, all.1), "records {from} to {to}"),
                }
            }
            from = to;
        }
        assert_eq!(from as u64, device.overwritten, "every record is in the log or in an older time");
        let ends = device.older.iter().map(|time| time.to_ns);
        let begins = device.older.iter().map(|time| time.from_ns);
        assert!(begins.skip(1).eq(ends.take(device.older.len().saturating_sub(1))), "no time is missing");
        device.older.len()
    }
}

/// What each held at the highest moment, and at least.
fn by<K: Copy>(rows: &[OlderRow<K>], number: impl Fn(K) -> usize) -> (Bytes, Bytes) {
    let (mut at_highest, mut least) = ([0; 3], [0; 3]);
    for row in rows {
        at_highest[number(row.of)] += row.at_highest as i64;
        least[number(row.of)] += row.least as i64;
    }
    (at_highest, least)
}

fn scope_of(read: &Snapshot, context: ContextId) -> usize {
    let path = read.context_path(context);
    SCOPES.iter().position(|scope| *scope == path).unwrap_or_else(|| panic!("{path}"))
}

fn site_of(read: &Snapshot, stack: StackId) -> usize {
    let names: Vec<&str> = read.stacks.frames(stack).map(|frame| frame.function_or_empty()).collect();
    let is_in = |site: &Site| names.iter().any(|name| name.contains(site.0));
    SITES.iter().position(is_in).unwrap_or_else(|| panic!("{names:?}"))
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize, usize),
    Free(prop::sample::Index),
    Many(usize, usize),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3usize, 1..8usize).prop_map(|(site, size)| Step::Alloc(site, size)),
        4 => any::<prop::sample::Index>().prop_map(Step::Free),
        3 => (0..3usize, 1..300usize).prop_map(|(site, times)| Step::Many(site, times)),
        2 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(crate::random::programs(8))]

    #[test]
    fn each_older_time_has_its_highest_moment_and_the_least_of_each_stack_and_scope(
        steps in steps(),
        rounds in 1..30usize,
        budget in 2 * SMALL..10 * SMALL,
    ) {
        let _alone = alone();
        let folder = Folder::new();
        let mut program = Program::new();
        let session = folder.begin(budget);
        program.alloc(0, 1);
        for _ in 0..rounds {
            for step in &steps {
                match step {
                    Step::Alloc(site, mebibytes) => program.alloc(*site, *mebibytes),
                    Step::Free(_) if program.kept.is_empty() => {}
                    Step::Free(index) => program.free(index.index(program.kept.len())),
                    Step::Many(site, times) => program.come_and_go(*site, *times),
                    Step::Flush => session.flush(),
                }
            }
            session.flush();
        }
        let growing = folder.read();
        session.end().unwrap();
        let at_end = folder.read();
        // A busy disk takes longer than a flush waits. If that is always so, the test fails with too many rejects.
        prop_assume!(cpu(&at_end).gaps.is_empty());
        // Three sites, each called from three lines; a stack has 64 KiB of the budget.
        let has_room = budget >= 9 << 16;
        program.check(&growing, has_room);
        program.check(&at_end, has_room);
        prop_assert!(folder.bytes() <= budget);
    }
}

#[test]
fn after_hundreds_of_parts_neighbours_are_joined_and_still_exact() {
    let _alone = alone();
    let folder = Folder::new();
    let mut program = Program::new();
    let session = folder.begin(3 * SMALL);
    let mut round = 0;
    while !folder.part(150).exists() {
        program.come_and_go(round % 3, 50);
        program.alloc(round * 7 % 3, 1 + round % 3);
        if program.kept.len() > 40 {
            (0..30).for_each(|_| program.free(0));
        }
        session.flush();
        round += 1;
    }
    let growing = folder.read();
    let times = program.check(&growing, true);
    assert!((17..=48).contains(&times), "{times}");
    let longest = cpu(&growing).older.iter().map(|time| time.records).max().unwrap();
    assert!(longest < cpu(&growing).overwritten / 8, "{longest} of {}", cpu(&growing).overwritten);
    session.end().unwrap();
    let at_end = folder.read();
    program.check(&at_end, true);
    // As one file, and of each part alone.
    let whole = folder.0.path().join("whole.memtrace");
    at_end.write(&whole).unwrap();
    assert_eq!(cpu(&memtrace::open(&whole).unwrap()).older, cpu(&at_end).older);
    let parts: BTreeMap<u64, PathBuf> =
        (1..200).map(|number| (number, folder.part(number))).filter(|part| part.1.exists()).collect();
    for (number, part) in &parts {
        let alone = Snapshot::parse(&std::fs::read(part).unwrap()).unwrap();
        program.check(&alone, true);
        assert!(cpu(&alone).older.len() >= times.min(17), "{number}");
    }
}
