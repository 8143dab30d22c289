//! An unmodified program on cudarc: it must end as without memtrace.

use std::path::Path;

use anyhow::Result;
use xshell::cmd;

use super::probe::Probe;
use crate::checks::Checks;
use crate::lane::{Run, output};
use crate::programs::Programs;

/// Runs the program alone, under the preload library, and recorded. The driver finds no GPU, so the program fails.
pub(super) fn check(run: &Run, checks: &mut Checks, version: &str, driver: &Path, probe: &Probe<'_>) -> Result<()> {
    let shell = &run.shell;
    let built = Programs::built_by(cmd!(shell, "cargo build --quiet --package cudarc-loaded"))?;
    let (program, capture) = (built.path("cudarc-loaded")?, run.scratch("driver")?.join("cudarc.memtrace"));
    let ends = |variables: &[(&str, &Path)]| -> Result<(Option<i32>, String, String)> {
        let command = cmd!(shell, "{program}").env("LD_LIBRARY_PATH", driver).envs(variables.iter().copied());
        let ended = output(command)?;
        let [said, errors] = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((ended.status.code(), said, errors))
    };
    let alone = ends(&[])?;
    checks.that(
        &format!("{version}: a program on cudarc finds no GPU"),
        alone.0 == Some(1) && alone.2.contains("NO_DEVICE"),
    );
    let preload = ("LD_PRELOAD", probe.preload());
    checks.equal(&format!("{version}: it ends so under the preload library, too"), ends(&[preload])?, alone.clone());
    let recorded = ends(&[preload, ("MEMTRACE_RUN", Path::new("all")), ("MEMTRACE_OUT", &capture)])?;
    checks.equal(&format!("{version}: and recorded"), (recorded.0, recorded.1), (alone.0, alone.1));
    checks.that(&format!("{version}: there is a recording of it"), capture.exists());
    shell.remove_path(capture)?;
    Ok(())
}
