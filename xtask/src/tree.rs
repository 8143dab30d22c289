//! The repository's files, as git lists them, so that a check of them misses none.

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::lane::Run;

/// Files that git tracks or would add, relative to the root.
pub(crate) fn files(run: &Run) -> Result<Vec<String>> {
    let listed = cmd!(run.shell, "git ls-files --cached --others --exclude-standard").quiet().read()?;
    let files: Vec<String> = listed.lines().filter(|file| run.root.join(file).exists()).map(str::to_owned).collect();
    ensure!(!files.is_empty(), "git lists no file");
    Ok(files)
}
