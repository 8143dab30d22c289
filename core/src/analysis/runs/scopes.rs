//! The leaks of a recording's scopes. They are judged like the runs of the library's `assert_no_leak!`: each exit from
//! a scope is the end of a run.

use std::collections::{HashMap, HashSet};

use super::leaks::{is_the_harnesses, leaks, leaks_of_its_own};
use super::samples::{BlockOrigin, LiveByOrigin, LiveTotals, Samples};
use super::slope::{is_unsettled, keeps_step, late_maxima};
use super::{FEW, MOST};
use crate::analysis::{line_label, name_pattern};
use crate::attribute::Attribution;
use crate::recording::DeviceView;
use crate::snapshot::{ContextId, DeviceSnapshot, Lifetime, ThreadId};
use crate::units::grouped;

/// The number of runs in the warm-up, in which caches may fill up, and the fewest runs. Both are the assertion's
/// defaults.
const WARMUP: usize = 2;
const LEAST: usize = 5;
/// A program still uses a scope that ends in `MOST_PARTS` of `PARTS` equal parts of the allocations since its first
/// run.
const MOST_PARTS: usize = 6;
const PARTS: usize = 8;

/// Whether scopes leak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeakVerdict {
    /// These scopes do not leave more memory the more often they run.
    Nothing(Vec<String>),
    /// A scope leaks.
    Leaks(ScopeLeak),
    /// The recording does not allow a verdict, for this reason.
    Undecided(String),
}

/// The leak of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeLeak {
    /// The scope's path, with `#` for each number.
    pub scope: String,
    /// Number of runs after the warm-up.
    pub runs: usize,
    /// Bytes that these runs left.
    pub bytes: u64,
    /// The line that allocated most of these bytes.
    pub line: String,
}

/// A scope that ran repeatedly. Paths that differ only in numbers are the same scope.
#[derive(Clone, Debug, Default)]
struct RepeatedScope {
    /// The times at which it was left.
    ends: Vec<u64>,
    began: u64,
    threads: HashSet<ThreadId>,
    /// When the enclosing scope was left for the last time.
    around_ended: Option<u64>,
}

/// When a block was live.
struct LifeSpan<'a> {
    life: &'a Lifetime,
    from_ns: u64,
    freed_ns: Option<u64>,
}

/// Whether the scopes of a device leave more memory behind the more often they run.
pub fn left_by_scopes(device: &DeviceView<'_>) -> LeakVerdict {
    let data = device.data();
    let paths: Vec<String> =
        (0..data.contexts.len() as u32).map(|id| name_pattern(&data.context_path(ContextId(id)))).collect();
    let scopes = repeated(device, &paths);
    if let Some(why) = what_is_missing(device, &scopes) {
        return LeakVerdict::Undecided(why);
    }
    let outermost = outermost(data, &paths, &scopes);
    let span = |life| LifeSpan {
        life,
        from_ns: device.span_ns(life).start,
        freed_ns: life.free(device).map(|free| free.time_ns),
    };
    let blocks: Vec<LifeSpan<'_>> = device.lifetimes().iter().map(span).collect();
    let mut names: Vec<&String> = outermost.iter().flatten().copied().collect();
    names.sort_unstable();
    names.dedup();
    let verdicts: Vec<LeakVerdict> = names
        .iter()
        .map(|name| {
            let is_in = |span: &&LifeSpan<'_>| outermost.get(span.life.block.context.0 as usize) == Some(&Some(name));
            judge(device, name, &scopes[*name], &blocks, is_in)
        })
        .collect();
    worst(verdicts).unwrap_or_else(|| LeakVerdict::Nothing(names.into_iter().cloned().collect()))
}

/// The largest leak, or else an undecided verdict. A leak is certain even if others are undecided.
fn worst(verdicts: Vec<LeakVerdict>) -> Option<LeakVerdict> {
    let largest = verdicts.iter().filter_map(|verdict| match verdict {
        LeakVerdict::Leaks(leak) => Some((leak.bytes, verdict)),
        _ => None,
    });
    let undecided = || verdicts.iter().find(|verdict| matches!(verdict, LeakVerdict::Undecided(_)));
    largest.max_by_key(|(bytes, _)| *bytes).map(|(_, verdict)| verdict).or_else(undecided).cloned()
}

fn repeated(device: &DeviceView<'_>, paths: &[String]) -> HashMap<String, RepeatedScope> {
    let data = device.data();
    let mut scopes: HashMap<String, RepeatedScope> = HashMap::new();
    let is_scope = |context: ContextId| data.contexts.get(context.0 as usize).is_some_and(|node| !node.module);
    for mark in device.marks.iter().filter(|mark| is_scope(mark.context)) {
        let Some(path) = paths.get(mark.context.0 as usize) else { continue };
        let scope = scopes
            .entry(path.clone())
            .or_insert_with(|| RepeatedScope { began: mark.time_ns, ..RepeatedScope::default() });
        scope.threads.insert(mark.thread);
        if !mark.enter {
            scope.ends.push(mark.time_ns);
        }
    }
    let last_end: HashMap<String, u64> =
        scopes.iter().filter_map(|(path, scope)| Some((path.clone(), *scope.ends.last()?))).collect();
    for (path, scope) in &mut scopes {
        let around = path.rsplit_once(" > ").map(|(around, _)| around);
        scope.around_ended = around.and_then(|around| last_end.get(around).copied());
    }
    scopes
}

/// Why no scope can be judged; `None` if scopes can be.
fn what_is_missing(device: &DeviceSnapshot, scopes: &HashMap<String, RepeatedScope>) -> Option<String> {
    let on = device.device;
    if device.marks.is_empty() || scopes.is_empty() {
        return Some(format!(
            "no scope was open on {on}: put the code that must not leak into a scope, as memtrace::scope does"
        ));
    }
    if device.overwritten > 0 || !device.gaps.is_empty() {
        return Some(format!("the log of {on} lacks records"));
    }
    if device.is_sample() {
        return Some(format!("the recording of {on} is a sample"));
    }
    let (path, most) = scopes.iter().map(|(path, scope)| (path, scope.ends.len())).max_by_key(|(_, ends)| *ends)?;
    (most < LEAST).then(|| {
        format!(
            "scope `{path}` ended {} times on {on}, and {LEAST} times are needed: two may fill caches",
            grouped(most as u64)
        )
    })
}

/// For each context, the outermost enclosing scope that ran at least [`FEW`] times, or else at least [`LEAST`] times.
fn outermost<'a>(
    data: &Attribution<'_>,
    paths: &'a [String],
    scopes: &HashMap<String, RepeatedScope>,
) -> Vec<Option<&'a String>> {
    let of_runs = |least| {
        let runs = |path: &&String| scopes.get(*path).is_some_and(|scope| scope.ends.len() >= least);
        let mut found: Vec<Option<&String>> = Vec::with_capacity(paths.len());
        // Parents come before their children.
        for (path, node) in paths.iter().zip(&data.contexts) {
            let around = found.get(node.parent.0 as usize).copied().flatten();
            found.push(around.or_else(|| Some(path).filter(runs)));
        }
        found
    };
    of_runs(FEW).into_iter().zip(of_runs(LEAST)).map(|(often, enough)| often.or(enough)).collect()
}

fn judge(
    device: &DeviceView<'_>,
    name: &str,
    scope: &RepeatedScope,
    blocks: &[LifeSpan<'_>],
    is_in: impl Fn(&&LifeSpan<'_>) -> bool,
) -> LeakVerdict {
    let data = device.data();
    let all = scope.ends.len();
    let times: Vec<u64> = scope.ends.iter().copied().rev().step_by(all.div_ceil(MOST)).collect();
    let times: Vec<u64> = times.into_iter().rev().collect();
    let origin =
        |span: &LifeSpan<'_>, of_helper| BlockOrigin { device: device.device, stack: span.life.block.stack, of_helper };
    let own: Vec<&LifeSpan<'_>> = blocks.iter().filter(&is_in).collect();
    let samples = samples_at(&times, own.iter().map(|span| (origin(span, false), *span)));
    let found = leaks_of_its_own(&samples, WARMUP, || by_line(data, &samples));
    if let Some((fullest, _)) = found.first() {
        let grown =
            |at| live_at(at, own.iter().filter(|span| found.iter().any(|(of, _)| of.stack == span.life.block.stack)));
        return match scope.around_ended.filter(|end| times.last() < Some(end)) {
            _ if all < FEW => LeakVerdict::Undecided(format!(
                "scope `{name}` left more memory each time, but ended only {all} times: a cache may be filling up; {FEW} times are needed"
            )),
            Some(end) if grown(end) == 0 => LeakVerdict::Undecided(format!(
                "scope `{name}` left more memory each time, which the scope around it freed: repeat that one {LEAST} times"
            )),
            _ if !goes_on(&times, scope.began, blocks) => LeakVerdict::Undecided(format!(
                "scope `{name}` left more memory each time, but the program went on without it: what is loaded once is no leak"
            )),
            _ => LeakVerdict::Leaks(ScopeLeak {
                scope: name.to_owned(),
                runs: all - WARMUP,
                bytes: found.iter().map(|(_, held)| held.bytes).sum(),
                line: line_label(data, fullest.stack.0),
            }),
        };
    }
    if all < MOST && is_unsure(&samples) {
        let all = grouped(all as u64);
        return LeakVerdict::Undecided(format!(
            "scope `{name}` ended {all} times, and what it leaves still rose in the second half: run it more often"
        ));
    }
    let of_others = |span: &&LifeSpan<'_>| {
        let block = &span.life.block;
        block.context == ContextId::ROOT && span.from_ns >= scope.began && !scope.threads.contains(&block.thread)
    };
    let others = samples_at(&times, blocks.iter().filter(of_others).map(|span| (origin(span, true), span)));
    check_others(data, name, scope, &others)
}

/// Whether a scope kept running as long as the program allocated: it ended in most of the equal parts of the
/// allocations since it first ran.
fn goes_on(times: &[u64], began: u64, blocks: &[LifeSpan<'_>]) -> bool {
    let since = blocks.partition_point(|span| span.from_ns < began);
    let since = blocks.get(since..).unwrap_or_default();
    let parts = since.chunks(since.len().div_ceil(PARTS).max(1));
    let first = parts.filter_map(|part| part.first()).map(|span| span.from_ns).collect::<Vec<_>>();
    let mut with_end: Vec<usize> = times.iter().map(|time| first.partition_point(|from| from <= time)).collect();
    with_end.dedup();
    with_end.len() >= first.len() * MOST_PARTS / PARTS
}

/// Whether the live memory rose more than once in the second half of the runs, and has not settled since.
fn is_unsure(samples: &Samples) -> bool {
    let half = WARMUP.max(samples.runs() / 2);
    let is_unsure = |series: &[f64]| late_maxima(series, half) > 1 && is_unsettled(series, WARMUP);
    let of_stack = |origin: &BlockOrigin| is_unsure(&samples.bytes(origin)) || is_unsure(&samples.blocks(origin));
    is_unsure(&samples.total()) || samples.origins().iter().any(of_stack)
}

/// As in the assertion, memory of threads that may work for the scope is a leak only if it grows in step with the runs.
fn check_others(data: &Attribution<'_>, name: &str, scope: &RepeatedScope, others: &Samples) -> LeakVerdict {
    let growing = leaks(others, WARMUP);
    let half = WARMUP.max(others.runs() / 2);
    let Some((first, _)) = growing.first() else { return LeakVerdict::Nothing(Vec::new()) };
    let line = line_label(data, first.stack.0);
    match growing.iter().find(|(origin, _)| keeps_step(&others.bytes(origin), half)) {
        Some((origin, held)) => LeakVerdict::Leaks(ScopeLeak {
            scope: name.to_owned(),
            runs: scope.ends.len() - WARMUP,
            bytes: held.bytes,
            line: line_label(data, origin.stack.0),
        }),
        None => LeakVerdict::Undecided(format!(
            "scope `{name}` itself leaves nothing, but other threads hold more memory each time, most of it at {line}"
        )),
    }
}

/// Maps all stacks of a line to one origin, and memory of the test harness to `None`.
fn by_line(data: &Attribution<'_>, samples: &Samples) -> impl Fn(&BlockOrigin) -> Option<BlockOrigin> {
    let mut first: HashMap<String, BlockOrigin> = HashMap::new();
    let mut lines: HashMap<BlockOrigin, BlockOrigin> = HashMap::new();
    for origin in samples.origins().into_iter().filter(|origin| !is_the_harnesses(data, origin.stack)) {
        let one = *first.entry(line_label(data, origin.stack.0)).or_insert(origin);
        lines.insert(origin, one);
    }
    move |origin| lines.get(origin).copied()
}

/// Live memory at each of these times.
fn samples_at<'a>(times: &[u64], blocks: impl Iterator<Item = (BlockOrigin, &'a LifeSpan<'a>)>) -> Samples {
    // Stores differences, so that a long-lived block costs no more than a short-lived one. The differences wrap, but
    // their sums do not.
    let mut changes: HashMap<BlockOrigin, Vec<LiveTotals>> = HashMap::new();
    for (origin, span) in blocks {
        let from = times.partition_point(|time| *time < span.from_ns);
        let to = span.freed_ns.map_or(times.len(), |freed| times.partition_point(|time| *time < freed));
        if from < to {
            let changes = changes.entry(origin).or_insert_with(|| vec![LiveTotals::default(); times.len() + 1]);
            let size = span.life.block.size;
            changes[from] = plus(changes[from], size, 1);
            changes[to] = plus(changes[to], size.wrapping_neg(), u64::MAX);
        }
    }
    let mut samples = vec![LiveByOrigin::new(); times.len()];
    for (origin, changes) in changes {
        let mut live = LiveTotals::default();
        for (sample, change) in samples.iter_mut().zip(changes) {
            live = plus(live, change.bytes, change.blocks);
            if live != LiveTotals::default() {
                sample.insert(origin, live);
            }
        }
    }
    samples.into_iter().collect()
}

fn plus(LiveTotals { bytes, blocks }: LiveTotals, more_bytes: u64, more_blocks: u64) -> LiveTotals {
    LiveTotals { bytes: bytes.wrapping_add(more_bytes), blocks: blocks.wrapping_add(more_blocks) }
}

fn live_at<'a>(time: u64, blocks: impl Iterator<Item = &'a &'a LifeSpan<'a>>) -> u64 {
    let is_live = |span: &&&LifeSpan<'_>| span.from_ns <= time && span.freed_ns.is_none_or(|freed| freed > time);
    blocks.filter(is_live).map(|span| span.life.block.size).sum()
}

#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
