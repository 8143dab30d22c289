//! A folder of recordings: how its ranks are run and killed, and what else it has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use memtrace_core::export::{Capture, Export, Pickle};
use memtrace_core::{SnapshotData, open};
use serde_json::Value;

use crate::{PROGRAM, WORLD, known};

/// A folder with the recordings of a job, or of two.
pub(super) struct Round {
    pub(super) folder: tempfile::TempDir,
    pub(super) programs: [PathBuf; 2],
    pub(super) random: u64,
}

impl Round {
    /// Runs the ranks of a job with this id and kills each at its own moment.
    pub(super) fn run(&mut self, id: &str) {
        let out = self.folder.path().join(format!("{id}%r.memtrace"));
        let files = || fs::read_dir(self.folder.path()).unwrap().count();
        let before = files();
        let start = |rank: u64| {
            let mut command = Command::new(&self.programs[rank as usize % 2]);
            command.args(PROGRAM).env("RANK", rank.to_string()).env("WORLD_SIZE", WORLD.to_string());
            command.env("MEMTRACE_OUT", &out).env("MEMTRACE_MIN_SIZE", "1MiB").env("TEST_LIFE", "0");
            command.env("TORCHELASTIC_RUN_ID", id).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut running: Vec<_> = (0..WORLD - 1).map(start).collect();
        // All have begun, and one has replaced itself.
        while files() < before + running.len() + 1 {
            std::thread::sleep(Duration::from_millis(10));
        }
        while !running.is_empty() {
            std::thread::sleep(Duration::from_micros(known::random(&mut self.random) as u64 % 80_000));
            let mut rank = running.swap_remove(known::random(&mut self.random) % running.len());
            rank.kill().unwrap();
            rank.wait().unwrap();
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The recording of a file, if it was not killed before its first commit.
    pub(super) fn open(&self, name: &str) -> Option<SnapshotData> {
        open(self.folder.path().join(name)).ok()
    }

    fn write(&self, name: &str, format: &dyn Export, data: &SnapshotData) {
        format.write(data, &mut fs::File::create(self.folder.path().join(name)).unwrap()).unwrap();
    }

    /// The clocks of the hosts of some ranks are 3 s off, as of one host in the future and one in the past.
    pub(super) fn set_clocks(&self) {
        for name in self.names() {
            let Some(mut data) = self.open(&name) else { continue };
            let by: i64 = [0, 3_000_000, -3_000_000][data.process.rank.unwrap() as usize % 3];
            if by != 0 {
                data.process.started_unix_us = data.process.started_unix_us.saturating_add_signed(by);
                self.write(&name, &Capture::default(), &data);
            }
        }
    }

    /// Three snapshots of PyTorch's form, one of which is of the rank that never ran.
    pub(super) fn add_pickles(&self) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace");
        let mut data = open(path).unwrap();
        for (name, more) in [("rank8.pickle", 0), ("early.pickle", 1 << 20), ("late.pickle", 2 << 20)] {
            data.devices.iter_mut().for_each(|device| device.stats.reserved_bytes.peak += more);
            self.write(name, &Pickle::default(), &data);
        }
    }

    pub(super) fn report(&self, job: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
        let arguments = [&["memtrace", "report", ".", "--json"], job].concat();
        let output = command.args(arguments).current_dir(self.folder.path()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }
}

/// This program, and the same as another build of it.
pub(super) fn programs(folder: &Path) -> [PathBuf; 2] {
    let this = std::env::current_exe().unwrap();
    let other = folder.join(this.file_name().unwrap());
    let mut bytes = fs::read(&this).unwrap();
    let note = [&[4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0][..], b"GNU\0"].concat();
    let id = bytes.windows(note.len()).position(|window| *window == note).unwrap() + note.len();
    bytes[id] ^= 1;
    fs::copy(&this, &other).unwrap();
    fs::write(&other, bytes).unwrap();
    [this, other]
}
