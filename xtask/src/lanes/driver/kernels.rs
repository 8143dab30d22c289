//! The parameters of cuBLAS's kernels: as memtrace reads them in fat binaries, and as NVIDIA's `cuobjdump` prints them.

use anyhow::Result;
use xshell::cmd;

use super::files::{self, CUDAS};
use crate::checks::Checks;
use crate::lane::Run;

/// False if the tool is neither in the cache nor available.
pub(super) fn check(run: &Run, checks: &mut Checks) -> Result<bool> {
    let Some(folder) = files::cuda(run, "cuobjdump")? else { return Ok(false) };
    let tool = folder.join("cuobjdump");
    cmd!(run.shell, "chmod +x {tool}").quiet().run()?;
    for (name, major) in CUDAS {
        let Some(cuda) = files::cuda(run, name)? else { continue };
        let library = cuda.join(format!("libcublas.so.{major}"));
        let paths = format!("{}:{}", tool.display(), library.display());
        let test = "kernels_of_libraries_are_as_nvidias_tool_prints_them";
        let tests =
            cmd!(run.shell, "cargo test --quiet --package candle-memtrace --lib -- {test} --ignored --nocapture");
        let printed = tests.env("MEMTRACE_TEST_LIBRARIES", paths).read()?;
        let is_row = |line: &&str| line.contains(" kernels, ");
        let rows: Vec<&str> = printed.lines().filter(is_row).filter_map(|line| line.rsplit('/').next()).collect();
        checks.that(&format!("kernels as cuobjdump prints them: {}", rows.join("; ")), !rows.is_empty());
    }
    Ok(true)
}
