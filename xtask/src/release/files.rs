//! The folder of a release, in the target folder, and the checksums of its files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::cmd;

use crate::lane::Run;

pub(super) struct ReleaseFolder {
    folder: PathBuf,
    pub(super) version: String,
}

impl ReleaseFolder {
    /// Creates the empty folder.
    pub(super) fn new(run: &Run, version: &str) -> Result<Self> {
        let folder = run.target.join("release-files");
        run.shell.remove_path(&folder)?;
        Ok(Self { folder: run.shell.create_dir(&folder)?, version: version.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    /// The archive's name without its extension, which is also the name of its only folder.
    pub(super) fn archive_name(&self, target: &str) -> String {
        format!("memtrace-{}-{target}", self.version)
    }

    pub(super) fn archive(&self, target: &str) -> PathBuf {
        self.folder.join(self.archive_name(target) + ".tar.gz")
    }

    /// The names of the folder's files, sorted.
    fn names(&self) -> Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.folder)?.collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<String> = entries.iter().map(|it| it.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Writes the file that `sha256sum --check SHA256SUMS` reads.
    pub(super) fn write_checksums(&self, run: &Run) -> Result<()> {
        let names = self.names()?;
        let _folder = run.shell.push_dir(&self.folder);
        let sums = cmd!(run.shell, "sha256sum {names...}").quiet().read()?;
        Ok(run.shell.write_file("SHA256SUMS", sums + "\n")?)
    }

    pub(super) fn listing(&self) -> Result<String> {
        let line = |name: String| {
            let bytes = self.folder.join(&name).metadata().context("a file of the release")?.len();
            Ok(format!("{bytes:>10}  {name}\n"))
        };
        self.names()?.into_iter().map(line).collect()
    }
}
