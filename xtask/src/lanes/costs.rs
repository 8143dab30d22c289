//! The cost of reading: every command on recordings that have much of one thing, and on recordings twice as large.

mod commands;
mod cost;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use xshell::cmd;

use self::commands::commands;
use self::cost::{cpu_time, instructions};
use crate::lane::{Run, output, said};
use crate::programs::Programs;

/// The most that a command may take for twice the recording, as a multiple. n log n takes 2.1 times, n² four times. If
/// the time is over this limit, the number of instructions must be within it.
const MOST: f64 = 2.6;
/// Recordings double until a command takes this long, so that the growing part of the cost dominates.
const FLOOR: Duration = Duration::from_millis(200);
/// The amount in the smallest recording.
const FIRST: u64 = 4096;
/// The amount in the largest one. A command that takes less than [`FLOOR`] here has no cost that matters.
const LAST: u64 = 1 << 18;
/// If one run was too slow, the fastest of this many counts.
const RUNS: usize = 3;
/// Shapes that readers must refuse. They must read all others.
const REFUSED: [&str; 5] = ["times.pickle", "negative.pickle", "huge.pickle", "cyclic.pickle", "deep.pickle"];
/// The shapes of the small form, which only looks for crashes.
const SMALL: [&str; 2] = ["chain.memtrace", "nested-scopes.memtrace"];

/// Runs every reading command of `cargo memtrace` on each shape of the example `shapes`, with a stack that is as small
/// as a thread's.
pub(crate) fn run(run: &Run) -> Result<String> {
    let tool = Programs::built_by(cmd!(run.shell, "cargo build --release --package cargo-memtrace"))?;
    let shapes = Programs::built_by(cmd!(run.shell, "cargo build --release --package memtrace-core --example shapes"))?;
    let (tool, shapes) = (tool.path("cargo-memtrace")?, shapes.path("shapes")?);
    let names = said(run.shell.cmd(shapes))?;
    let (mut measured, mut worst, mut failed) = (0, (0.0, String::new()), Vec::new());
    for shape in names.lines().filter(|shape| run.is_full() || SMALL.contains(shape)) {
        let mut files = ShapeFiles { run, program: shapes, shape, folder: run.scratch(shape)? };
        let is_read = output(run.shell.cmd(tool).arg("report").arg(files.with(FIRST)?))?.status.success();
        if is_read == REFUSED.contains(&shape) {
            failed.push(format!("{shape}: {}", if is_read { "is read" } else { "is refused" }));
        }
        for command in commands() {
            let label = format!("{shape} {}", command.join(" "));
            let found =
                if run.is_full() { ratio(tool, &mut files, &command) } else { once(tool, &mut files, &command) };
            match found {
                Ok(Some(Ratio { number, of, more, ratio })) => {
                    measured += 1;
                    println!("{ratio:.2} {label}: {of:?} for {number}, {more:?} for twice as much");
                    if ratio > MOST {
                        failed.push(format!("{label}: {ratio:.2} times for twice as much ({of:?} for {number})"));
                    }
                    if ratio > worst.0 {
                        worst = (ratio, label);
                    }
                }
                Ok(None) => measured += 1,
                Err(error) => failed.push(format!("{label}: {error:#}")),
            }
        }
        run.shell.remove_path(&files.folder)?;
    }
    ensure!(failed.is_empty(), "{} of {measured}:\n{}", failed.len(), failed.join("\n"));
    ensure!(measured > 0, "nothing was measured");
    Ok(format!("{measured} commands and shapes; at most {:.2} times for twice as much: {}", worst.0, worst.1))
}

/// Recordings of one shape, made when they are needed.
struct ShapeFiles<'a> {
    run: &'a Run,
    program: &'a Path,
    shape: &'a str,
    folder: PathBuf,
}

impl ShapeFiles<'_> {
    fn with(&mut self, number: u64) -> Result<PathBuf> {
        let file = self.folder.join(format!("{number}-{}", self.shape));
        if !file.exists() {
            let (program, shape, number) = (self.program, self.shape, number.to_string());
            cmd!(self.run.shell, "{program} {shape} {number} {file}").quiet().run()?;
        }
        Ok(file)
    }
}

/// The cost of twice the recording.
struct Ratio {
    number: u64,
    of: Duration,
    more: Duration,
    ratio: f64,
}

/// `None` if the command takes less than [`FLOOR`] for every recording.
fn ratio(tool: &Path, files: &mut ShapeFiles<'_>, command: &[&str]) -> Result<Option<Ratio>> {
    let mut number = FIRST;
    let mut of = cpu_time(tool, command, &files.with(number)?)?;
    while of < FLOOR && number < LAST {
        number *= 2;
        of = cpu_time(tool, command, &files.with(number)?)?;
    }
    if of < FLOOR {
        return Ok(None);
    }
    let first = doubled(tool, files, command, number, of)?;
    if first.ratio <= MOST {
        return Ok(Some(first));
    }
    // If an output reaches its size limit, the cost rises by one step, which does not repeat in the next doubling.
    let again = doubled(tool, files, command, 2 * number, first.more)?;
    let mut best = if again.ratio < first.ratio { again } else { first };
    if best.ratio > MOST {
        // Time grows faster when the data no longer fits into the caches.
        let (one, two) = (files.with(best.number)?, files.with(2 * best.number)?);
        let counts = (instructions(tool, command, &one)?, instructions(tool, command, &two)?);
        println!("{:.2} by time, {} and {} instructions", best.ratio, counts.0, counts.1);
        best.ratio = counts.1 as f64 / counts.0 as f64;
    }
    Ok(Some(best))
}

fn doubled(tool: &Path, files: &mut ShapeFiles<'_>, command: &[&str], number: u64, mut of: Duration) -> Result<Ratio> {
    let (one, two) = (files.with(number)?, files.with(2 * number)?);
    let mut more = cpu_time(tool, command, &two)?;
    for _ in 1..RUNS {
        if more.as_secs_f64() > MOST * of.as_secs_f64() {
            more = more.min(cpu_time(tool, command, &two)?);
            of = of.min(cpu_time(tool, command, &one)?);
        }
    }
    Ok(Ratio { number, of, more, ratio: more.as_secs_f64() / of.as_secs_f64() })
}

fn once(tool: &Path, files: &mut ShapeFiles<'_>, command: &[&str]) -> Result<Option<Ratio>> {
    cpu_time(tool, command, &files.with(FIRST)?)?;
    Ok(None)
}
