//! The files that an example leaves behind.

use std::error::Error;
use std::path::{Path, PathBuf};

use memtrace::export::{Flamegraph, Folded, Measure};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PICKLE: &str = "snapshot.pickle";
const FLAMEGRAPH: &str = "peak.svg";
const COUNT_FLAMEGRAPH: &str = "peak-count.svg";
const FOLDED: &str = "peak.folded";
const JSON: &str = "report.json";
const TIMELINE: &str = "timeline.trace.json";
const LAYOUT: &str = "memory.layout.json";
const CATEGORIES: &str = "memory.categories.html";
const CAPTURE: &str = "recording.memtrace";
pub(crate) const FILES: [&str; 9] =
    [PICKLE, FLAMEGRAPH, COUNT_FLAMEGRAPH, FOLDED, JSON, TIMELINE, LAYOUT, CATEGORIES, CAPTURE];

/// Where to write: checked before the work, so that a taken name does not cost a run.
pub(crate) fn folder(example: &str, wanted: Option<&Path>) -> Outcome<PathBuf> {
    let Some(dir) = wanted else { return Ok(memtrace::output_dir(example)?) };
    let taken = |file: &&&str| dir.join(file).exists();
    if let Some(file) = FILES.iter().find(taken) {
        return Err(format!("{} exists already; give another folder to --out", dir.join(file).display()).into());
    }
    std::fs::create_dir_all(dir).map_err(|error| format!("cannot use {} for --out: {error}", dir.display()))?;
    Ok(dir.to_owned())
}

/// Writes every file that can be written; the first failure is told at the end.
pub(crate) fn write(snapshot: &memtrace::Snapshot, out: &Path) -> Outcome<()> {
    let count = Flamegraph(Folded { measure: Measure::Count, ..Default::default() });
    let of = |file| out.join(file);
    let files = [
        (PICKLE, "drop it on https://pytorch.org/memory_viz", snapshot.write_pytorch(of(PICKLE))),
        (FLAMEGRAPH, "open in a browser: bytes at the peak", snapshot.write_flamegraph(of(FLAMEGRAPH))),
        (COUNT_FLAMEGRAPH, "open in a browser: blocks at the peak", snapshot.write_as(of(COUNT_FLAMEGRAPH), &count)),
        (FOLDED, "folded stacks for other flamegraph tools", snapshot.write(of(FOLDED))),
        (TIMELINE, "open on https://ui.perfetto.dev: what happened over time", snapshot.write(of(TIMELINE))),
        (LAYOUT, "the same place: what lay where in memory, step by step", snapshot.write(of(LAYOUT))),
        (CATEGORIES, "open in a browser: what the memory was for, over time", snapshot.write(of(CATEGORIES))),
        (JSON, "the report's numbers, to compare runs", snapshot.write(of(JSON))),
        (CAPTURE, "everything, for memtrace::read_capture", snapshot.write(of(CAPTURE))),
    ];
    println!("Wrote");
    let mut failure = None;
    for (file, purpose, written) in files {
        match written {
            Ok(path) => println!("  {}  {purpose}", path.display()),
            Err(error) => failure = failure.or(Some(format!("{file}: {error}"))),
        }
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}
