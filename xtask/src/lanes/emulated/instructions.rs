//! How many instructions a recorded pair takes on the emulated machine. QEMU writes a line for each.

use anyhow::Result;
use xshell::cmd;

use super::machine::Emulated;
use crate::lane::Run;
use crate::programs::Programs;

const QEMU: &str = "qemu-aarch64-static -singlestep -d exec,nochain -D /dev/stdout";

/// The difference between two runs whose numbers of pairs differ by 400, so that start and end cancel out.
pub(super) fn run(run: &Run, emulated: &Emulated<'_>) -> Result<String> {
    let bench = Programs::built_by(emulated.cargo(cmd!(run.shell, "cargo bench --quiet --bench record --no-run")))?;
    let bench = bench.path("record")?;
    let count = |pairs: usize| -> Result<usize> {
        let counted = format!("{QEMU} {} --fixed full 21 {pairs} | grep --count ^Trace", bench.display());
        Ok(cmd!(run.shell, "bash -c {counted}").read()?.parse()?)
    };
    Ok(format!("{} instructions for a pair of 21 frames", (count(600)? - count(200)?) / 400))
}
