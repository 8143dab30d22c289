//! Checks the verdicts of `fit`. Programs run on simulated cards whose contexts, kernel stacks, modules and workspaces
//! are drawn at random and unknown to the verdict. One card has as much memory as the verdict says is enough, another
//! has less than it says is needed.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use xshell::cmd;

use super::command::GpuCommand;
use crate::checks::Checks;
use crate::lane::{Run, both_streams, output, said};

const MIB: u64 = 1 << 20;
pub(super) const CARDS: &str = "T4,RTX-4090,B200";
/// The most modules of a program.
const MODULES: u64 = 16;

/// The tool's figures for a card: the need, and the part of it for the context with its kernel stacks.
pub(super) struct Said {
    pub(super) card: String,
    pub(super) memory: u64,
    pub(super) live: u64,
    pub(super) need: Range<u64>,
    context: Range<u64>,
}

/// An example that writes its recording to a new folder.
pub(super) struct Example<'a> {
    pub(super) name: &'a str,
    pub(super) path: &'a Path,
    pub(super) arguments: &'a [&'a str],
}

impl Example<'_> {
    fn command<'a>(&'a self, run: &Run, out: &'a str) -> GpuCommand<'a> {
        GpuCommand::of(run, self.path).arguments(self.arguments).arguments(&["--device", "cuda:0", "--out", out])
    }
}

/// Tries each of these seeds. The program's first run is on a card that takes no such memory.
pub(super) fn check(
    run: &Run,
    checks: &mut Checks,
    example: &Example<'_>,
    (tool, folder, log): (&Path, &Path, &Path),
    seeds: Range<u64>,
) -> Result<()> {
    let name = format!("fit of {} {}", example.name, example.arguments.join(" "));
    let first = folder.join("first").display().to_string();
    let ended = example.command(run, &first).variable("MEMTRACE_CUSIM_MEMORY", "1TiB").run(run, log)?;
    checks.exit(&name, ended.status(), ended.succeeded(), &ended.both_streams());
    let recording = format!("{first}/recording.memtrace");
    let json = said(cmd!(run.shell, "{tool} fit --gpus {CARDS} --recording {recording} --json").ignore_status())?;
    let cards = Said::all(&json)?;
    for (seed, card) in seeds.zip(cards.iter().cycle()) {
        let outs = ["less", "enough"].map(|what| folder.join(format!("{seed}-{what}")).display().to_string());
        at_both_ends(run, checks, &name, (card, seed), log, |fits| example.command(run, &outs[usize::from(fits)]))?;
    }
    Ok(())
}

/// Runs a program on two simulated cards. One has the most memory that the program may need, which must be enough. The
/// other has less than the least that the program needs.
pub(super) fn at_both_ends<'a>(
    run: &Run,
    checks: &mut Checks,
    name: &str,
    (card, seed): (&Said, u64),
    log: &Path,
    command: impl Fn(bool) -> GpuCommand<'a>,
) -> Result<()> {
    let drawn = card.draw(seed);
    for (what, memory, fits) in [("enough", card.need.end, true), ("less", card.need.start - MIB, false)] {
        let command = command(fits).variable("MEMTRACE_CUSIM_MEMORY", format!("{memory}B"));
        let command = drawn.iter().fold(command, |command, (name, value)| command.variable(name, value));
        let ended = command.run(run, log)?;
        let name = format!("{name}, {}, seed {seed}, {what}: {} MiB", card.card, memory / MIB);
        let said = ended.both_streams();
        let is_full = said.contains("OUT_OF_MEMORY") || said.contains("out of memory");
        checks.exit(&name, ended.status(), if fits { ended.succeeded() } else { is_full }, &said);
    }
    Ok(())
}

/// Tests programs that need several runs: one whose need depends on values, and one whose need falls again. `needs` is
/// the program.
pub(super) fn check_runs(run: &Run, checks: &mut Checks, tool: &Path, needs: &Path) -> Result<()> {
    let mut fit = |name: &str, arguments: &[&str], code: i32, expected: &[&str]| -> Result<()> {
        let command = cmd!(run.shell, "{tool} fit --exec {needs} {arguments...}").ignore_status();
        let ended = output(command)?;
        let said = both_streams(&ended);
        checks.exit(name, ended.status, ended.status.code() == Some(code), &said);
        expected.iter().for_each(|text| checks.says(name, &said, text));
        Ok(())
    };
    let undecided = [
        "undecided: it requested other memory when the GPU gave values other than zeros: a peak of 260.0 MiB instead of 4.000 MiB",
    ];
    fit("fit of a need that depends on values", &["--gpus", "T4", "--", "values"], 3, &undecided)?;
    fit("the same where it does not fit anyway", &["--gpus", "32MiB", "--", "values"], 1, &["does not fit, "])?;
    let endless = ["undecided: it did not end when the GPU gave other values than zeros"];
    fit("fit of a program that ends by a value", &["--gpus", "T4", "--", "endless"], 3, &endless)?;
    let largest = ["For SIZE=6:", "; largest SIZE: 6"];
    // This is between the needs of one and of two blocks, including all that CUDA may take.
    let vary = ["--gpus", "1900MiB", "--vary", "SIZE=1,2,3,4,5,6", "--", "falling"];
    fit("fit of a need that falls again", &vary, 0, &largest)?;
    let ignored = ["--gpus", "T4", "--vary", "NOTHING=1,2", "--", "integrated"];
    let same = ["the peak is the same with all 2 values of NOTHING: perhaps the program does not read it"];
    fit("fit with a variable that the program does not read", &ignored, 0, &same)?;
    let on_host = ["64GiB (64.00 GiB of the host's memory): fits", "process's own memory: "];
    let unified = ["--unified", "--gpus", "64GiB", "--vary", "SIZE=5,6", "--", "falling"];
    fit("fit where the GPU's memory is the host's", &unified, 0, &on_host)?;
    let (apart, one) = (["--gpus", "64GiB", "--", "integrated"], ["--unified", "--gpus", "64GiB", "--", "integrated"]);
    fit("fit of a program that asks whose the memory is", &apart, 0, &["4.000 MiB  4.000 MiB  live at the peak"])?;
    fit("the same where it is the host's", &one, 0, &["260.0 MiB  260.0 MiB  live at the peak"])
}

impl Said {
    /// Each card in the tool's JSON, for each GPU of the program.
    pub(super) fn all(json: &str) -> Result<Vec<Self>> {
        let json: Value = serde_json::from_str(json).with_context(|| format!("the tool's JSON: {json}"))?;
        json["cards"].as_array().context("no cards")?.iter().map(Self::of).collect()
    }

    fn of(card: &Value) -> Result<Self> {
        let rows = card["rows"].as_array().context("no rows")?;
        let sum = |end: &str, of: &dyn Fn(&str) -> bool| {
            let rows = rows.iter().filter(|row| row["what"].as_str().is_some_and(of));
            rows.filter_map(|row| row[end].as_u64()).sum::<u64>()
        };
        let range = |of: &dyn Fn(&str) -> bool| sum("low_bytes", of)..sum("high_bytes", of);
        let is_context = |what: &str| ["kernel stacks", "rest of the context"].contains(&what);
        Ok(Self {
            card: card["card"].as_str().context("no card")?.to_owned(),
            memory: card["memory_bytes"].as_u64().context("no memory")?,
            live: sum("low_bytes", &|what| what == "live at the peak"),
            need: range(&|_| true),
            context: range(&is_context),
        })
    }

    /// What makes a simulated card take more than the program asks for. Within the rows: the context with its stacks; a workspace
    /// of 0, 4 or 32 MiB, modules of up to 48 MiB in all.
    pub(super) fn draw(&self, seed: u64) -> [(&'static str, String); 3] {
        let mut random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |most: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % (most + 1)
        };
        let workspace = [0, 4 * MIB, 32 * MIB][next(2) as usize];
        let Range { start, end } = self.context;
        [
            ("MEMTRACE_CUSIM_CONTEXT", start + next(end - start)),
            ("MEMTRACE_CUSIM_MODULE", next(48 * MIB / MODULES)),
            ("MEMTRACE_CUSIM_CUBLAS_WORKSPACE", workspace),
        ]
        .map(|(name, bytes)| (name, bytes.to_string()))
    }
}
