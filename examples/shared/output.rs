//! The files that an example leaves behind.

use std::error::Error;
use std::path::{Path, PathBuf};

use memtrace::export::{Flamegraph, Folded, Measure};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Each file, and what it is for.
pub(crate) const FILES: [(&str, &str); 9] = [
    ("snapshot.pickle", "drop it on https://pytorch.org/memory_viz"),
    ("peak.svg", "open in a browser: bytes at the peak"),
    (COUNT_FLAMEGRAPH, "open in a browser: blocks at the peak"),
    ("peak.folded", "folded stacks for other flamegraph tools"),
    ("timeline.trace.json", "open on https://ui.perfetto.dev: what happened over time"),
    ("memory.layout.json", "the same place: what lay where in memory, step by step"),
    ("memory.categories.html", "open in a browser: what the memory was for, over time"),
    ("report.json", "the report's numbers, to compare runs"),
    ("recording.memtrace", "everything, for memtrace::read_capture"),
];
const COUNT_FLAMEGRAPH: &str = "peak-count.svg";

/// Where to write: checked before the work, so that a taken name does not cost a run.
pub(crate) fn folder(example: &str, wanted: Option<&Path>) -> Outcome<PathBuf> {
    let Some(dir) = wanted else { return Ok(memtrace::output_dir(example)?) };
    if let Some((file, _)) = FILES.iter().find(|(file, _)| dir.join(file).exists()) {
        return Err(format!("{} exists already; give another folder to --out", dir.join(file).display()).into());
    }
    std::fs::create_dir_all(dir).map_err(|error| format!("cannot use {} for --out: {error}", dir.display()))?;
    Ok(dir.to_owned())
}

/// Writes every file that can be written; the first failure is told at the end.
pub(crate) fn write(snapshot: &memtrace::Snapshot, out: &Path) -> Outcome<()> {
    let count = Flamegraph(Folded { measure: Measure::Count, ..Default::default() });
    println!("Wrote");
    let mut failure = None;
    for (file, purpose) in FILES {
        let path = out.join(file);
        let by_count = file == COUNT_FLAMEGRAPH;
        match if by_count { snapshot.write_as(path, &count) } else { snapshot.write(path) } {
            Ok(path) => println!("  {}  {purpose}", path.display()),
            Err(error) => failure = failure.or(Some(format!("{file}: {error}"))),
        }
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}
