//! Files with snapshots that nobody called for: which, when and where.

use std::path::{Path, PathBuf};

use super::outputs::{LOST, Snapshot};
use super::process::{default_name, expand, this_process};
use super::{output, say};
use crate::error::Error;
use crate::export::Format;
use crate::export::file;
use crate::units::Bytes;
use crate::write_errors;

/// Which of them, and where to.
#[derive(Clone, Debug, Default)]
pub(super) struct Dumps {
    /// Pattern of the file's path; its extension says the format.
    pub(super) path: Option<String>,
    /// Where relative paths begin, wherever the program goes.
    pub(super) folder: PathBuf,
    pub(super) at_end: bool,
    pub(super) on_panic: bool,
    /// Where nobody said anything, an allocation that fails is explained and no file is written.
    pub(super) on_oom: Option<bool>,
    pub(super) signal: Option<i32>,
}

/// A snapshot that nobody called for.
#[derive(Debug)]
pub(super) struct Dumped {
    pub(super) snapshot: Snapshot,
    /// There is a file with it.
    pub(super) is_written: bool,
}

impl Dumps {
    /// The path must name a format, and a place where a file can be made.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        if let Some(path) = &self.path {
            Format::of(Path::new(path))?;
            let _limit = write_errors::errors_only();
            file::can_be_made(&self.folder.join(expand(path, &this_process())))
                .map_err(|error| error.and("nothing is recorded"))?;
        }
        Ok(())
    }

    /// Who says where to and not when means the end.
    pub(super) fn settle(&mut self) {
        let at_a_moment = self.at_end || self.on_panic || self.signal.is_some() || self.on_oom == Some(true);
        self.at_end |= self.path.is_some() && !at_a_moment;
    }

    /// Writes a snapshot beside any that are there already, and says so.
    pub(super) fn write(&self, snapshot: impl FnOnce() -> Snapshot, reason: &str) -> Option<Dumped> {
        let snapshot = snapshot();
        let path = self.folder.join(match &self.path {
            Some(pattern) => expand(pattern, &this_process()),
            None => output::base_dir(&self.folder).join(default_name(&this_process(), "pickle")),
        });
        if snapshot.devices.is_empty() {
            say(&format!("no snapshot {reason}: nothing is being recorded"));
            return None;
        }
        let peak = snapshot.devices.iter().map(|device| device.peak.total()).max().unwrap_or_default();
        let written = snapshot.write(&path);
        let is_written = written.is_ok();
        if self.path.is_none() {
            let process = this_process();
            let names = format!("{}_{}_", process.host, process.program);
            output::prune(&path, |name| name.starts_with(&names) && name.ends_with(".pickle"));
        }
        match written {
            Ok(path) => say(&format!("wrote {} {reason}; {} at the peak", path.display(), Bytes(peak))),
            Err(error) => say(&error.and(LOST).to_string()),
        }
        Some(Dumped { snapshot, is_written })
    }
}
