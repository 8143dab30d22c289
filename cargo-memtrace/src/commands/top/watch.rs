//! Looks at the watched files, and reads those that have grown. One recording is in memory at a time.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_core::analysis::{Key, Look, Looks};
use memtrace_core::report::WatchedFile;
use memtrace_core::symbol::{FoundNames, SymbolSources};
use memtrace_core::{Device, ReadOptions, Recording};

use super::targets::Targets;
use crate::failure::CommandFailure;
use crate::{input, recordings};

/// The watched files, and the results of the looks.
pub(super) struct Watch {
    targets: Targets,
    device: Option<Device>,
    sources: SymbolSources,
    paths: Vec<PathBuf>,
    files: Vec<WatchedFile>,
    /// The last reading of each file.
    read: Vec<Reading>,
}

/// What the next reading of a file needs to know.
#[derive(Default)]
struct Reading {
    /// The newest part and its length.
    length: (PathBuf, u64),
    found: FoundNames,
}

impl Watch {
    /// Watches the files that exist now.
    pub(super) fn of(targets: Targets, device: Option<Device>, sources: SymbolSources) -> Result<Self, CommandFailure> {
        let (paths, files, read) = (targets.recordings(true)?, Vec::new(), Vec::new());
        Ok(Self { targets, device, sources, paths, files, read })
    }

    /// Looks at all files, and finds the rows of tables by these keys.
    pub(super) fn look(&mut self, keys: &[Key]) -> Result<&[WatchedFile], CommandFailure> {
        for path in self.targets.recordings(false)? {
            if !self.paths.contains(&path) {
                self.paths.push(path);
            }
        }
        self.files.resize_with(self.paths.len(), WatchedFile::default);
        self.read.resize_with(self.paths.len(), Reading::default);
        for (file, name) in self.files.iter_mut().zip(input::names_of(&self.paths)) {
            file.file = name;
        }
        (0..self.paths.len()).for_each(|at| self.look_at(at, keys));
        Ok(&self.files)
    }

    fn look_at(&mut self, at: usize, keys: &[Key]) {
        let (path, file, last) = (&self.paths[at], &mut self.files[at], &mut self.read[at]);
        // The end and the length are asked for before the file is read. Whatever is written afterwards belongs to the
        // next look.
        file.has_ended = recordings::has_ended(path);
        let length = recordings::length_of(path);
        let is_same = length == last.length && file.problem.is_none();
        if let Some(looks) = file.looks.as_mut().filter(|looks| is_same && looks.last().keys == keys) {
            return looks.add_unchanged();
        }
        let read = ReadOptions::default().sources(self.sources.clone()).found(&mut last.found).open(path);
        let look = read.map(|data| Look::of(&Recording::new(&data), &file.file, self.device, keys));
        file.problem = look.as_ref().err().map(ToString::to_string);
        if let Ok(look) = look {
            last.length = length;
            match &mut file.looks {
                Some(looks) => looks.add(look),
                none => *none = Some(Looks::begin(look)),
            }
        }
    }
}

/// The result of a look, and how long the look took.
pub(super) struct Seen {
    pub(super) files: Vec<WatchedFile>,
    pub(super) cost: Duration,
}

/// A thread that looks on request, so that keys need not wait.
pub(super) struct Looker {
    ask: Sender<Vec<Key>>,
    seen: Receiver<Result<Seen, CommandFailure>>,
}

impl Looker {
    pub(super) fn begin(mut watch: Watch) -> Self {
        let ((ask, asked), (tell, seen)) = (mpsc::channel::<Vec<Key>>(), mpsc::channel());
        thread::spawn(move || {
            for keys in asked {
                let began = Instant::now();
                let files = watch.look(&keys).map(<[WatchedFile]>::to_vec);
                let told = files.map(|files| Seen { files, cost: began.elapsed() });
                if tell.send(told).is_err() {
                    return;
                }
            }
        });
        Self { ask, seen }
    }

    /// Requests a look with these keys.
    pub(super) fn ask(&self, keys: &[Key]) {
        let _ = self.ask.send(keys.to_vec());
    }

    /// The result of the look, if it has finished.
    pub(super) fn seen(&self) -> Option<Result<Seen, CommandFailure>> {
        match self.seen.try_recv() {
            Ok(seen) => Some(seen),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => {
                Some(Err(CommandFailure::usage("the thread that reads has ended")))
            }
        }
    }
}
