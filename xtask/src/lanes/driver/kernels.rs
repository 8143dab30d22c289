//! The parameters of cuBLAS's kernels: as memtrace reads them in fat binaries, and as NVIDIA's `cuobjdump` prints them.

use std::path::Path;

use anyhow::Result;
use xshell::cmd;

use super::files::{self, CUDAS};
use crate::checks::Checks;
use crate::lane::Run;

pub(crate) fn run(run: &Run) -> Result<String> {
    let (mut checks, mut not_had) = (Checks::default(), Vec::new());
    let tool = files::cuda(run, "cuobjdump")?.map(|folder| folder.join("cuobjdump"));
    for (name, major) in CUDAS {
        match tool.as_ref().zip(files::cuda(run, name)?) {
            Some((tool, cuda)) => compare(run, &mut checks, tool, &cuda.join(format!("libcublas.so.{major}")))?,
            None => not_had.push(name),
        }
    }
    let compared = checks.end()?;
    if not_had.is_empty() { Ok(compared) } else { Ok(format!("{compared}; no network for {}", not_had.join(", "))) }
}

/// Runs the test that reads all kernels of a library.
fn compare(run: &Run, checks: &mut Checks, tool: &Path, library: &Path) -> Result<()> {
    const TEST: &str = "kernels_of_libraries_are_as_nvidias_tool_prints_them";
    cmd!(run.shell, "chmod +x {tool}").quiet().run()?;
    let paths = format!("{}:{}", tool.display(), library.display());
    let test = cmd!(run.shell, "cargo test --quiet --package candle-memtrace --lib -- {TEST} --ignored --nocapture");
    let printed = test.env("MEMTRACE_TEST_LIBRARIES", paths).read()?;
    let is_row = |line: &&str| line.ends_with(" kernels");
    let rows: Vec<&str> = printed.lines().filter(is_row).filter_map(|line| line.rsplit('/').next()).collect();
    checks.that(&rows.join("; "), !rows.is_empty());
    Ok(())
}
