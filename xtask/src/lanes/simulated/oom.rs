//! The post-mortem snapshot that examples/resnet writes from inside a refused allocation, compared with the simulator's
//! log and with the source lines of the model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xshell::Shell;

use super::log::{LogRow, SimulatorLog};
use super::pickle::{PickledBlock, PickledEvent, PickledFrame, PickledSegment, PickledSnapshot};
use super::recording::Differences;

/// The GPU's memory, too small for a training step, as the script's option and in bytes.
pub(super) const MEMORY: (&str, u64) = ("500MiB", 500 << 20);
/// Parameters and running statistics of ResNet-50 in theory.
const MODEL_BYTES: u64 = 102_440_608;

/// The simulator's figures at the first refused allocation.
#[derive(Debug, PartialEq, Eq)]
struct LogAtRefusal {
    requested: u64,
    live: i64,
    reserved: u64,
}

struct RefusalSnapshot<'a> {
    logged: LogAtRefusal,
    segments: Vec<&'a PickledSegment>,
    live: Vec<&'a PickledBlock>,
    events: &'a [PickledEvent],
    refused: &'a PickledEvent,
}

/// Checks the snapshot and returns a summary.
pub(super) fn check(shell: &Shell, snapshot: &Path, log: &Path, text: &str) -> Result<String> {
    let snapshot = PickledSnapshot::read(shell, snapshot)?;
    let model = shell.read_file("examples/resnet/model.rs")?;
    let refusal = RefusalSnapshot::of(&snapshot, &SimulatorLog::read(log)?)?;
    refusal.differences(text, &model).end()?;
    Ok(refusal.summary())
}

impl LogAtRefusal {
    fn of(log: &SimulatorLog) -> Result<Self> {
        let refused = log.rows.iter().position(LogRow::is_refused).context("nothing was refused")?;
        let before = &log.rows[..refused];
        let reserved = before.iter().rev().find(|row| row.kind == "Pool").map_or(0, |row| row.reserved);
        let live = before.iter().map(LogRow::change).sum();
        Ok(Self { requested: log.rows[refused].size, live, reserved })
    }
}

impl<'a> RefusalSnapshot<'a> {
    fn of(snapshot: &'a PickledSnapshot, log: &SimulatorLog) -> Result<Self> {
        let segments: Vec<&PickledSegment> = snapshot.segments.iter().filter(|segment| segment.device == 0).collect();
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let live = blocks.filter(|block| block.state == "active_allocated").collect();
        let events = snapshot.device_traces.first().context("the snapshot has no trace of cuda:0")?;
        let refused: Vec<&PickledEvent> = events.iter().filter(|event| event.action == "oom").collect();
        ensure!(refused.len() == 1, "the snapshot has {} refusals, not one", refused.len());
        Ok(Self { logged: LogAtRefusal::of(log)?, segments, live, events, refused: refused[0] })
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
        differences.equal("bytes of the model", self.loaded(), MODEL_BYTES);
        differences.equal("live bytes", live.cast_signed(), self.logged.live);
        differences.equal("bytes in segments", reserved, self.logged.reserved);
        let allocated = self.count("segment_alloc");
        differences.equal("segments allocated", allocated, self.segments.len() + self.count("segment_free"));
    }

    fn request(&self, differences: &mut Differences) {
        let PickledEvent { size, user_metadata, device_free, frames, .. } = self.refused;
        let line = line_of(frames);
        differences.equal("bytes requested", *size, self.logged.requested);
        differences.equal("file of the request", line.split(':').next(), Some("resnet/main.rs"));
        differences.equal("the scopes of the request", user_metadata.as_str(), "iteration 1 > backward");
        differences.equal("free of the device", *device_free, MEMORY.1.saturating_sub(self.logged.reserved));
    }

    /// The largest lines are computations: outputs of convolutions and norms, weights, gradients.
    fn lines(&self, differences: &mut Differences, text: &str, model: &str) {
        let unknown = self.by_line().get("?").copied();
        differences.equal("bytes without a line of the program", unknown.unwrap_or(0), 0);
        let computing = computing(model);
        for line in self.largest_lines().iter().take(5) {
            let known = line.starts_with("resnet/main.rs:") || computing.contains(line);
            differences.equal(&format!("{line} computes something"), known, true);
            let named = text.contains(&format!("examples/{line} ("));
            differences.equal(&format!("the post-mortem names {line}"), named, true);
        }
    }

    /// Bytes of live blocks that were allocated while the model was loaded.
    fn loaded(&self) -> u64 {
        let live: BTreeSet<u64> = self.live.iter().map(|block| block.address).collect();
        let is_loaded =
            |event: &&PickledEvent| event.action == "alloc" && outermost(event) == "load" && live.contains(&event.addr);
        let last: BTreeMap<u64, u64> =
            self.events.iter().filter(is_loaded).map(|event| (event.addr, event.size)).collect();
        last.values().sum()
    }

    fn count(&self, action: &str) -> usize {
        self.events.iter().filter(|event| event.action == action).count()
    }

    fn by_line(&self) -> BTreeMap<String, u64> {
        let mut lines = BTreeMap::new();
        for block in &self.live {
            *lines.entry(line_of(&block.frames)).or_default() += block.requested_size;
        }
        lines
    }

    /// Lines by live bytes, largest first.
    fn largest_lines(&self) -> Vec<String> {
        let mut lines: Vec<(String, u64)> = self.by_line().into_iter().collect();
        lines.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        lines.into_iter().map(|(line, _)| line).collect()
    }

    fn summary(&self) -> String {
        let LogAtRefusal { requested, live, .. } = self.logged;
        let (blocks, segments) = (self.live.len(), self.segments.len());
        let largest = self.largest_lines().into_iter().take(3).collect::<Vec<_>>().join(", ");
        format!(
            "{requested} bytes requested, {live} live in {blocks} blocks and {segments} segments; most at {largest}"
        )
    }
}

/// The outermost scope, from `scope > scope: name of the block`.
fn outermost(event: &PickledEvent) -> &str {
    let scopes = event.user_metadata.split(':').next().unwrap_or("");
    scopes.split(" > ").next().unwrap_or("")
}

/// The innermost line of the program.
fn line_of(frames: &[PickledFrame]) -> String {
    let own = frames.iter().find_map(|frame| Some((frame.filename.split_once("examples/resnet/")?.1, frame.line)));
    own.map_or_else(|| "?".to_owned(), |(file, line)| format!("resnet/{file}:{line}"))
}

/// Lines of the model's source that compute a tensor.
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

    fn log() -> SimulatorLog {
        let rows = format!("Alloc\tPool\t0\t0\t7\t{MODEL_BYTES}\t200000000\nAlloc\tPool\t0\t0\t7\t50\t200000000\n");
        let refused = "Alloc\tPool\t0\t2\t7\t9000\t0\nFree\tPool\t0\t0\t7\t50\t5\n";
        SimulatorLog::parse(&format!("op\tkind\tdevice\tresult\tthread\tsize\treserved\n{rows}{refused}")).unwrap()
    }

    fn frames(file: &str, line: u64) -> Vec<PickledFrame> {
        ["/std/src/lib.rs", file].map(|filename| PickledFrame { filename: filename.to_owned(), line }).into()
    }

    fn event(action: &str, addr: u64, size: u64, user_metadata: &str) -> PickledEvent {
        let (action, user_metadata) = (action.to_owned(), user_metadata.to_owned());
        PickledEvent {
            action,
            addr,
            size,
            device_free: 0,
            user_metadata,
            frames: frames("/x/examples/resnet/main.rs", 9),
        }
    }

    /// The correct snapshot for that log and that source.
    fn snapshot() -> PickledSnapshot {
        let block = |address, requested_size, file, line| PickledBlock {
            address,
            requested_size,
            state: "active_allocated".to_owned(),
            frames: frames(file, line),
        };
        let blocks = vec![
            block(1, MODEL_BYTES, "/x/examples/resnet/main.rs", 9),
            block(2, 50, "/x/examples/resnet/model.rs", 2),
        ];
        let loaded = [event("alloc", 1, MODEL_BYTES, "load > layer: weight"), event("alloc", 2, 50, "iteration 1")];
        let refused =
            PickledEvent { device_free: MEMORY.1 - 200_000_000, ..event("oom", 0, 9000, "iteration 1 > backward") };
        let [first, second] = loaded;
        PickledSnapshot {
            segments: vec![PickledSegment { device: 0, total_size: 200_000_000, blocks }],
            device_traces: vec![vec![event("segment_alloc", 1, 200_000_000, ""), first, second, refused]],
        }
    }

    fn compared(snapshot: &PickledSnapshot, text: &str) -> String {
        let log = log();
        let found = RefusalSnapshot::of(snapshot, &log).unwrap();
        found.differences(text, SOURCE).end().map_or_else(|error| error.to_string(), |()| found.summary())
    }

    #[test]
    fn a_correct_snapshot_passes() {
        let said = "9000 bytes requested, 102440658 live in 2 blocks and 1 segments; most at resnet/main.rs:9, \
                    resnet/model.rs:2";
        assert_eq!(compared(&snapshot(), TEXT), said);
    }

    /// Changes the correct snapshot, and asserts that the check finds the change.
    fn found(change: impl Fn(&mut PickledSnapshot), says: &str) {
        let mut wrong = snapshot();
        change(&mut wrong);
        let said = compared(&wrong, TEXT);
        assert!(said.contains(&format!("\n      {says}")), "{says} is not in {said}");
    }

    #[test]
    fn each_wrong_figure_is_found() {
        found(|s| s.device_traces[0][1].size += 1, "bytes of the model: 102440609, not 102440608");
        found(|s| s.device_traces[0][1].user_metadata = "input".to_owned(), "bytes of the model: 0");
        found(|s| s.device_traces[0][3].size += 1, "bytes requested: 9001, not 9000");
        found(|s| s.device_traces[0][3].frames.clear(), "file of the request: Some(\"?\")");
        found(|s| s.device_traces[0][3].user_metadata.clear(), "the scopes of the request");
        found(|s| s.device_traces[0][3].device_free += 1, "free of the device");
        found(|s| s.segments[0].blocks[1].requested_size += 1, "live bytes: 102440659, not 102440658");
        found(|s| s.segments[0].blocks[1].state = "inactive".to_owned(), "live bytes");
        found(|s| s.segments[0].total_size += 1, "bytes in segments");
        found(|s| s.segments[0].blocks[1].frames.clear(), "bytes without a line of the program: 50, not 0");
        found(|s| s.segments[0].blocks[1].frames[1].line = 1, "resnet/model.rs:1 computes something: false");
        found(|s| s.segments[0].blocks[1].frames[1].line = 1, "the post-mortem names resnet/model.rs:1: false");
        found(|s| drop(s.device_traces[0].remove(0)), "segments allocated: 0, not 1");
    }

    #[test]
    fn a_snapshot_without_a_refusal_is_an_error() {
        let mut none = snapshot();
        none.device_traces[0].pop();
        assert!(RefusalSnapshot::of(&none, &log()).is_err());
    }
}
