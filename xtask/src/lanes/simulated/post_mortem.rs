//! Post-mortem of a refused allocation in a program under the preloaded library.

use anyhow::Result;

use super::command::{GpuCommand, ProgramOutput};
use super::preloaded::{AllowedExit, Preloaded};

/// Checks both reports: the post-mortem's, which is written first, and the one at the program's end.
pub(super) fn out_of_memory(
    lane: &mut Preloaded<'_>,
    name: &str,
    command: &GpuCommand<'_>,
    source: &str,
) -> Result<ProgramOutput> {
    let command = command.clone().variable("MEMTRACE_DUMP_ON_OOM", 1);
    let ended = lane.both(name, &command, AllowedExit::SuccessOrError)?;
    lane.checks.line_that_begins(name, &ended.stderr, "memtrace: cuda:0 is out of memory");
    lane.recorded(&format!("{name}, at the end"), Some(source), "report-2.json");
    lane.recorded(&format!("{name}, at the refusal"), Some(source), "report.json");
    Ok(ended)
}
