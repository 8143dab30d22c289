//! Settings of dumps: when they are written, and to which file.

use std::path::{Path, PathBuf};

use memtrace_core::analysis::device_or_main;
use memtrace_core::export::{Format, file};
use memtrace_core::units::Bytes;

use super::announce::announce;
use super::outputs::{LOST, Snapshot};
use super::process::{default_name, expand, is_default_name, this_process};
use super::{files, say};
use crate::error::Error;
use crate::write_errors;

#[derive(Clone, Debug, Default)]
pub(super) struct Dumps {
    /// Pattern of the file's path; the extension chooses the format.
    pub(super) path: Option<String>,
    /// The folder in which relative paths start, even if the program changes its working directory.
    pub(super) folder: PathBuf,
    pub(super) at_end: bool,
    pub(super) on_panic: bool,
    /// Whether a refused allocation is dumped. `None`: it is explained on stderr, but no file is written.
    pub(super) on_oom: Option<bool>,
    pub(super) signal: Option<i32>,
}

impl Dumps {
    /// Checks that the path names a format and that the file can be created.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        Format::of(Path::new(path))?;
        let _limit = write_errors::errors_only();
        file::can_be_made(&self.folder.join(expand(path, &this_process())))
            .map_err(|error| error.and("nothing is recorded").into())
    }

    /// If a path but no moment was chosen, a dump is written at the end.
    pub(super) fn settle(&mut self) {
        let at_a_moment = self.at_end || self.on_panic || self.signal.is_some() || self.on_oom == Some(true);
        self.at_end |= self.path.is_some() && !at_a_moment;
    }

    /// Writes a snapshot to a new file and reports it on stderr. False if there is nothing to write, or the file cannot
    /// be written.
    pub(super) fn write(&self, snapshot: &Snapshot, reason: &str) -> bool {
        if snapshot.devices.is_empty() {
            say(&format!("no snapshot {reason}: nothing is being recorded"));
            return false;
        }
        let process = &snapshot.process;
        let path = self.folder.join(match &self.path {
            Some(pattern) => expand(pattern, process),
            None => files::base_dir(&self.folder).join(default_name(process, "pickle")),
        });
        let peak = device_or_main(snapshot, None).map_or(0, |device| device.peak.total());
        let written = snapshot.write(&path);
        let is_written = written.is_ok();
        if self.path.is_none() {
            files::prune(&path, |name| is_default_name(name, process));
        }
        match written {
            Ok(path) => {
                announce(&path);
                say(&format!("wrote {} {reason}; {} at the peak", path.display(), Bytes(peak)));
            }
            Err(error) => say(&error.and(LOST).to_string()),
        }
        is_written
    }
}
