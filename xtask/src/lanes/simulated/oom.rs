//! The snapshot that examples/resnet writes from inside the call that was refused, because the GPU has too little memory:
//! held against the simulator's own account, and its lines against the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xshell::Shell;

use super::account::{Log, Row};
use super::recording::Differences;
use super::snapshot::{Block, Event, Frame, Segment, Snapshot};

/// The GPU's memory, too little for a training step, as an option and in bytes.
pub(super) const MEMORY: (&str, u64) = ("500MiB", 500 << 20);
/// Parameters and running statistics of ResNet-50, as theory has them.
const MODEL: u64 = 102_440_608;

/// What the simulator's log has when an allocation is refused for the first time.
#[derive(Debug, PartialEq, Eq)]
struct Truth {
    asked_for: u64,
    live: i64,
    reserved: u64,
}

/// What is checked, and against what.
struct Found<'a> {
    truth: Truth,
    segments: Vec<&'a Segment>,
    /// Live ones.
    blocks: Vec<&'a Block>,
    events: &'a [Event],
    refused: &'a Event,
}

/// Says the numbers.
pub(super) fn check(shell: &Shell, snapshot: &Path, log: &Path, text: &str) -> Result<String> {
    let snapshot = Snapshot::read(shell, snapshot)?;
    let model = shell.read_file("examples/resnet/model.rs")?;
    let found = Found::of(&snapshot, &Log::read(log)?)?;
    found.differences(text, &model).end()?;
    Ok(found.said())
}

impl Truth {
    fn of(log: &Log) -> Result<Self> {
        let refused = log.rows.iter().position(Row::is_refused).context("nothing was refused")?;
        let before = &log.rows[..refused];
        let reserved = before.iter().rev().find(|row| row.kind == "Pool").map_or(0, |row| row.reserved);
        let live = before.iter().map(Row::change).sum();
        Ok(Self { asked_for: log.rows[refused].size, live, reserved })
    }
}

impl<'a> Found<'a> {
    fn of(snapshot: &'a Snapshot, log: &Log) -> Result<Self> {
        let segments: Vec<&Segment> = snapshot.segments.iter().filter(|segment| segment.device == 0).collect();
        let all = segments.iter().flat_map(|segment| &segment.blocks);
        let blocks = all.filter(|block| block.state == "active_allocated").collect();
        let events = snapshot.device_traces.first().context("the snapshot has no trace of cuda:0")?;
        let refused: Vec<&Event> = events.iter().filter(|event| event.action == "oom").collect();
        ensure!(refused.len() == 1, "the snapshot has {} refusals, not one", refused.len());
        Ok(Self { truth: Truth::of(log)?, segments, blocks, events, refused: refused[0] })
    }

    fn differences(&self, text: &str, model: &str) -> Differences {
        let mut differences = Differences::default();
        self.numbers(&mut differences);
        self.request(&mut differences);
        self.lines(&mut differences, text, model);
        differences
    }

    fn numbers(&self, differences: &mut Differences) {
        let reserved: u64 = self.segments.iter().map(|segment| segment.total_size).sum();
        let live: u64 = self.by_line().values().sum();
        differences.equal("bytes of the model", self.loaded(), MODEL);
        differences.equal("live bytes", live.cast_signed(), self.truth.live);
        differences.equal("bytes in segments", reserved, self.truth.reserved);
        let came = self.count("segment_alloc");
        differences.equal("segments that came", came, self.segments.len() + self.count("segment_free"));
    }

    fn request(&self, differences: &mut Differences) {
        let Event { size, user_metadata, device_free, frames, .. } = self.refused;
        let line = line_of(frames);
        differences.equal("bytes asked for", *size, self.truth.asked_for);
        differences.equal("where", line.split(':').next(), Some("resnet/main.rs"));
        differences.equal("the scopes of the request", user_metadata.as_str(), "iteration 1 > backward");
        differences.equal("free of the device", *device_free, MEMORY.1.saturating_sub(self.truth.reserved));
    }

    /// What a training step holds: outputs of convolutions and norms, the weights, then gradients.
    fn lines(&self, differences: &mut Differences, text: &str, model: &str) {
        let unknown = self.by_line().get("?").copied();
        differences.equal("bytes of lines that are not the program's", unknown.unwrap_or(0), 0);
        let computing = computing(model);
        for line in self.most().iter().take(5) {
            let known = line.starts_with("resnet/main.rs:") || computing.contains(line);
            differences.equal(&format!("{line} computes something"), known, true);
            let named = text.contains(&format!("examples/{line} ("));
            differences.equal(&format!("the post-mortem names {line}"), named, true);
        }
    }

    /// Bytes of blocks that live and came while the model was loaded.
    fn loaded(&self) -> u64 {
        let live: BTreeSet<u64> = self.blocks.iter().map(|block| block.address).collect();
        let is_loaded =
            |event: &&Event| event.action == "alloc" && outermost(event) == "load" && live.contains(&event.addr);
        let last: BTreeMap<u64, u64> =
            self.events.iter().filter(is_loaded).map(|event| (event.addr, event.size)).collect();
        last.values().sum()
    }

    fn count(&self, action: &str) -> usize {
        self.events.iter().filter(|event| event.action == action).count()
    }

    fn by_line(&self) -> BTreeMap<String, u64> {
        let mut lines = BTreeMap::new();
        for block in &self.blocks {
            *lines.entry(line_of(&block.frames)).or_default() += block.requested_size;
        }
        lines
    }

    /// Lines, those that hold most first.
    fn most(&self) -> Vec<String> {
        let mut lines: Vec<(String, u64)> = self.by_line().into_iter().collect();
        lines.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        lines.into_iter().map(|(line, _)| line).collect()
    }

    fn said(&self) -> String {
        let Truth { asked_for, live, .. } = self.truth;
        let (blocks, segments, most) = (self.blocks.len(), self.segments.len(), self.most());
        let most = most.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        format!("{asked_for} bytes asked for, {live} live in {blocks} blocks and {segments} segments; most at {most}")
    }
}

/// The scope that has all others of the event in it; a block's name follows them.
fn outermost(event: &Event) -> &str {
    let scopes = event.user_metadata.split(':').next().unwrap_or("");
    scopes.split(" > ").next().unwrap_or("")
}

/// The innermost line of the program.
fn line_of(frames: &[Frame]) -> String {
    let own = frames.iter().find_map(|frame| Some((frame.filename.split_once("examples/resnet/")?.1, frame.line)));
    own.map_or_else(|| "?".to_owned(), |(file, line)| format!("resnet/{file}:{line}"))
}

/// Lines of the model that compute.
fn computing(model: &str) -> BTreeSet<String> {
    let computes = |line: &str| ["let ", "forward", "conv"].iter().any(|part| line.contains(part));
    let lines = model.lines().zip(1..).filter(|(line, _)| computes(line));
    lines.map(|(_, number)| format!("resnet/model.rs:{number}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "held: examples/resnet/model.rs:2 (forward)\nand examples/resnet/main.rs:9 (train)";
    const SOURCE: &str = "fn one() {\n    let x = 1;\n}\n";

    fn log() -> Log {
        let rows = format!("Alloc\tPool\t0\t0\t7\t{MODEL}\t200000000\nAlloc\tPool\t0\t0\t7\t50\t200000000\n");
        let refused = "Alloc\tPool\t0\t2\t7\t9000\t0\nFree\tPool\t0\t0\t7\t50\t5\n";
        Log::parse(&format!("op\tkind\tdevice\tresult\tthread\tsize\treserved\n{rows}{refused}")).unwrap()
    }

    fn frames(file: &str, line: u64) -> Vec<Frame> {
        ["/std/src/lib.rs", file].map(|filename| Frame { filename: filename.to_owned(), line }).into()
    }

    fn event(action: &str, addr: u64, size: u64, user_metadata: &str) -> Event {
        let (action, user_metadata) = (action.to_owned(), user_metadata.to_owned());
        Event { action, addr, size, device_free: 0, user_metadata, frames: frames("/x/examples/resnet/main.rs", 9) }
    }

    /// The right one for that log and that program.
    fn snapshot() -> Snapshot {
        let block = |address, requested_size, file, line| Block {
            address,
            requested_size,
            state: "active_allocated".to_owned(),
            frames: frames(file, line),
        };
        let blocks =
            vec![block(1, MODEL, "/x/examples/resnet/main.rs", 9), block(2, 50, "/x/examples/resnet/model.rs", 2)];
        let loaded = [event("alloc", 1, MODEL, "load > layer: weight"), event("alloc", 2, 50, "iteration 1")];
        let refused = Event { device_free: MEMORY.1 - 200_000_000, ..event("oom", 0, 9000, "iteration 1 > backward") };
        let [first, second] = loaded;
        Snapshot {
            segments: vec![Segment { device: 0, total_size: 200_000_000, blocks }],
            device_traces: vec![vec![event("segment_alloc", 1, 200_000_000, ""), first, second, refused]],
        }
    }

    fn compared(snapshot: &Snapshot, text: &str) -> String {
        let log = log();
        let found = Found::of(snapshot, &log).unwrap();
        found.differences(text, SOURCE).end().map_or_else(|error| error.to_string(), |()| found.said())
    }

    #[test]
    fn a_right_snapshot_is_right() {
        let said = "9000 bytes asked for, 102440658 live in 2 blocks and 1 segments; most at resnet/main.rs:9, \
                    resnet/model.rs:2";
        assert_eq!(compared(&snapshot(), TEXT), said);
    }

    /// Changes the right one, and holds that this is found.
    fn found(change: impl Fn(&mut Snapshot), says: &str) {
        let mut wrong = snapshot();
        change(&mut wrong);
        let said = compared(&wrong, TEXT);
        assert!(said.contains(&format!("\n      {says}")), "{says} is not in {said}");
    }

    #[test]
    fn each_wrong_figure_is_found() {
        found(|s| s.device_traces[0][1].size += 1, "bytes of the model: 102440609, not 102440608");
        found(|s| s.device_traces[0][1].user_metadata = "input".to_owned(), "bytes of the model: 0");
        found(|s| s.device_traces[0][3].size += 1, "bytes asked for: 9001, not 9000");
        found(|s| s.device_traces[0][3].frames.clear(), "where: Some(\"?\")");
        found(|s| s.device_traces[0][3].user_metadata.clear(), "the scopes of the request");
        found(|s| s.device_traces[0][3].device_free += 1, "free of the device");
        found(|s| s.segments[0].blocks[1].requested_size += 1, "live bytes: 102440659, not 102440658");
        found(|s| s.segments[0].blocks[1].state = "inactive".to_owned(), "live bytes");
        found(|s| s.segments[0].total_size += 1, "bytes in segments");
        found(|s| s.segments[0].blocks[1].frames.clear(), "bytes of lines that are not the program's: 50, not 0");
        found(|s| s.segments[0].blocks[1].frames[1].line = 1, "resnet/model.rs:1 computes something: false");
        found(|s| s.segments[0].blocks[1].frames[1].line = 1, "the post-mortem names resnet/model.rs:1: false");
        found(|s| drop(s.device_traces[0].remove(0)), "segments that came: 0, not 1");
    }

    #[test]
    fn a_snapshot_without_a_refusal_is_an_error() {
        let mut none = snapshot();
        none.device_traces[0].pop();
        assert!(Found::of(&none, &log()).is_err());
    }
}
