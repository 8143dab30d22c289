//! The run that tables describe.

use std::path::Path;

use memtrace_core::snapshot::SnapshotData;

/// The version of the tables.
pub(crate) const VERSION: i64 = 1;

/// A recording, with what its tables say about it.
pub(crate) struct RunTables<'a> {
    pub(crate) data: &'a SnapshotData,
    pub(crate) recording: &'a Path,
    pub(crate) labels: &'a [(String, String)],
}

impl RunTables<'_> {
    /// The run's name: program, start, process and length. No two recordings share all of these, not even two of one
    /// process, such as a dump and the one at the end. A recording without a start has the file's name.
    pub(super) fn name(&self) -> String {
        let process = &self.data.process;
        let name = if process.started_unix_us == 0 {
            self.recording.file_name().unwrap_or_default().to_string_lossy().into_owned()
        } else {
            let ms = process.duration_ns / 1_000_000;
            format!("{}-{}-{}-{ms}ms", process.program, process.started_unix_us, process.pid)
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(200).collect()
    }
}
