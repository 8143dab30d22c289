//! Output files of the examples.

use std::error::Error;
use std::path::{Path, PathBuf};

use memtrace::export::{Flamegraph, Folded, Measure};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Each file and its purpose.
pub(crate) const FILES: [(&str, &str); 9] = [
    ("snapshot.pickle", "drop it on https://pytorch.org/memory_viz"),
    ("peak.svg", "open in a browser: bytes at the peak"),
    (COUNT_FLAMEGRAPH, "open in a browser: blocks at the peak"),
    ("peak.folded", "folded stacks for other flamegraph tools"),
    ("timeline.trace.json", "open on https://ui.perfetto.dev: allocations over time"),
    ("memory.layout.json", "open on https://ui.perfetto.dev: address ranges of blocks over time"),
    ("report.html", "open in a browser: the page that answers what held the memory"),
    ("report.json", "the report's numbers, to compare runs"),
    ("recording.memtrace", "everything, for memtrace::open"),
];
const COUNT_FLAMEGRAPH: &str = "peak-count.svg";

/// Checks the output folder before the work, so that a file with its name does not waste a run.
pub(crate) fn folder(example: &str, wanted: Option<&Path>) -> Outcome<PathBuf> {
    let Some(dir) = wanted else { return Ok(memtrace::output_dir(example)?) };
    if let Some((file, _)) = FILES.iter().find(|(file, _)| dir.join(file).exists()) {
        return Err(format!("{} already exists; choose another folder with --out", dir.join(file).display()).into());
    }
    std::fs::create_dir_all(dir).map_err(|error| format!("cannot use {} for --out: {error}", dir.display()))?;
    Ok(dir.to_owned())
}

/// Writes every file, even after a failure; returns the first error.
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
