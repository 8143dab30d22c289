//! Benchmarks: all of them run, and some have limits.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use xshell::cmd;

use super::shared_lines::SharedLines;
use crate::lane::{Run, said};
use crate::programs::Programs;

/// Runs each benchmark once.
pub(crate) fn run(run: &Run) -> Result<String> {
    let names = ["record", "spans", "cuda", "export", "report", "scale", "unwind"];
    let benches: Vec<&str> = names.iter().flat_map(|name| ["--bench", name]).collect();
    cmd!(run.shell, "cargo bench --quiet {benches...} -- --test").run()?;
    Ok(format!("{} benchmarks", names.len()))
}

const LIMITS: &str = "benches/record/instructions.txt";

/// Compares the instructions for each alloc+free pair, as callgrind counts them, with their limits. Unlike times, these
/// counts do not depend on the machine's load.
pub(crate) fn instructions(run: &Run) -> Result<String> {
    if cmd!(run.shell, "valgrind --version").quiet().ignore_stdout().run().is_err() {
        bail!("valgrind is needed; on Debian and Ubuntu: apt-get install valgrind");
    }
    let built = Programs::built_by(cmd!(run.shell, "cargo bench --quiet --bench record --no-run"))?;
    let (mut rows, mut over) = (Vec::new(), Vec::new());
    for line in run.shell.read_file(LIMITS)?.lines().filter(|line| !line.starts_with('#')) {
        let [case, frames, limit] = line.split(' ').collect::<Vec<_>>()[..] else { bail!("{LIMITS}: {line}") };
        let (limit, counted) =
            (limit.parse::<u64>()?, || instructions_per_pair(run, built.path("record")?, case, frames));
        let mut count = counted()?;
        // On a busy machine a pair takes up to six instructions more, because the recorder's clock depends on the time.
        for _ in 0..2 {
            count = if count > limit { count.min(counted()?) } else { count };
        }
        println!("{case} {frames} {count}");
        if count > limit {
            over.push(format!("{case} {frames}: {count} instructions, over the limit of {limit} in {LIMITS}"));
        } else if count * 10 < limit * 9 {
            println!("{case} {frames}: far below the limit of {limit}; lower it in {LIMITS}");
        }
        rows.push(format!("{case} {frames} {count}"));
    }
    ensure!(over.is_empty(), "{}", over.join("\n"));
    if run.is_full() {
        rows.push(shared_lines(built.path("record")?)?);
    }
    Ok(rows.join(", "))
}

/// The most cache lines that a pair writes and that another thread's pair wrote just before it.
const CONTENDED: f64 = 1.1;

fn shared_lines(bench: &Path) -> Result<String> {
    let lines = |lines: &SharedLines| format!("{:.2} contended, {:.2} shared", lines.contended, lines.shared);
    let (alone, waiting) = (SharedLines::count(bench, false)?, SharedLines::count(bench, true)?);
    println!("lines that pairs of two threads write: {}; in a queue: {}", lines(&alone), lines(&waiting));
    ensure!(waiting.contended < CONTENDED, "over the limit of {CONTENDED} contended lines");
    Ok(format!("lines that pairs of two threads write: {}", lines(&waiting)))
}

/// The difference between two runs whose numbers of pairs differ by 20,000, so that start and end cancel out.
fn instructions_per_pair(run: &Run, bench: &Path, case: &str, frames: &str) -> Result<u64> {
    let count = |pairs: &str| -> Result<u64> {
        let callgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
        let text = said(cmd!(run.shell, "valgrind {callgrind...} {bench} --fixed {case} {frames} {pairs}"))?;
        let collected = text.lines().find_map(|line| line.split_once("Collected : "));
        Ok(collected.context("callgrind counted nothing")?.1.trim().parse()?)
    };
    Ok((count("30000")? - count("10000")?) / 20_000)
}

/// Checks the limits of time, memory and file size for a million records.
pub(crate) fn scale(run: &Run) -> Result<String> {
    let text = said(cmd!(run.shell, "cargo bench --quiet --bench scale -- --check"))?;
    print!("{text}");
    let records = text.lines().find(|line| line.contains(" records, "));
    Ok(format!("within its limits: {}", records.context("the benchmark does not print its number of records")?))
}

/// Checks the limits of a report on a million and on ten million records.
pub(crate) fn reading(run: &Run) -> Result<String> {
    let text = said(cmd!(run.shell, "cargo bench --quiet --bench report -- --check"))?;
    print!("{text}");
    let ratios = text.lines().find(|line| line.contains(" times the records take "));
    Ok(ratios.context("the benchmark does not print its ratios")?.to_owned())
}
