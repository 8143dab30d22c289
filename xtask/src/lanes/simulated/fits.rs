//! The lane `fits`: compares the verdicts of `fit` on published architectures with runs on cards of that size. It also
//! compares the plans of `plan` with the same programs changed by hand.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use xshell::cmd;

use super::builds::PROFILE;
use super::command::GpuCommand;
use super::fit::{self, Said};
use crate::checks::Checks;
use crate::lane::{Run, both_streams, output, said};
use crate::programs::Programs;

const SOURCE: &str = "tests/simulated/candle-fits";
const GIB: f64 = (1u64 << 30) as f64;

/// The programs of candle-fits, and on how many GPUs they run.
const PROGRAMS: [(&str, usize); 13] = [
    ("mlp", 1),
    ("lora", 1),
    ("accumulate", 1),
    ("bert", 1),
    ("vit", 1),
    ("whisper", 1),
    ("unet", 1),
    ("vae", 1),
    ("llama-1b", 1),
    ("llama-8b", 1),
    ("llama-70b", 4),
    ("quantized", 1),
    ("server", 1),
];

/// Programs of candle-fits that hold more than they need. With the argument `planned`, they run as changed by hand.
const PLANNED: [&str; 6] =
    ["freed-earlier", "allocated-later", "kept-graphs", "moved-to-host", "between-tokens", "several"];

pub(crate) fn run(run: &Run) -> Result<String> {
    let tool = Programs::built_by(cmd!(run.shell, "cargo build --package cargo-memtrace"))?;
    let program = build(run)?;
    let mut lane = Fits {
        run,
        checks: Checks::default(),
        tool: tool.path("cargo-memtrace")?,
        program: program.path("candle-fits")?,
        beyond: Vec::new(),
    };
    println!("| program | GPUs | live at the peak | needed on an RTX 4090 | of the card |\n|---|--:|--:|--:|--:|");
    let only = std::env::var("MEMTRACE_FITS").ok();
    for (name, gpus) in PROGRAMS.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name)) {
        println!("{}", lane.program(name, *gpus)?);
    }
    println!("{}", lane.deviation());
    for name in PLANNED.iter().filter(|name| only.as_deref().is_none_or(|only| only == **name)) {
        lane.plan(name)?;
    }
    lane.checks.end()
}

fn build(run: &Run) -> Result<Programs> {
    let _there = run.shell.push_dir(run.root.join(SOURCE));
    let target = run.target.join("fits");
    let build = cmd!(run.shell, "cargo build --quiet --locked --profile {PROFILE} --target-dir {target}");
    Programs::built_by(build.envs(run.simulated_gpu()?.variables()))
}

struct Fits<'r> {
    run: &'r Run,
    checks: Checks,
    tool: &'r Path,
    program: &'r Path,
    /// The predicted upper bound minus what recordings on an RTX 4090 show, as shares of the card.
    beyond: Vec<f64>,
}

impl Fits<'_> {
    /// Makes a row of the table.
    fn program(&mut self, name: &str, gpus: usize) -> Result<String> {
        let mut fullest: BTreeMap<String, Said> = BTreeMap::new();
        for said in self.said(name, gpus)? {
            let before = fullest.remove(&said.card).filter(|before| before.need.end > said.need.end);
            fullest.insert(said.card.clone(), before.unwrap_or(said));
        }
        for (seed, card) in (0..).zip(fullest.values()) {
            let log = self.run.scratch("fits")?.join("log");
            fit::at_both_ends(self.run, &mut self.checks, &format!("fit of {name}"), (card, seed), &log, |_| {
                let command = GpuCommand::of(self.run, self.program);
                command.arguments(&[name]).variable("MEMTRACE_CUSIM_DEVICES", gpus)
            })?;
        }
        let card = fullest.get("RTX 4090").context("no RTX 4090")?;
        self.check(name, gpus, card)?;
        let gib = |bytes: u64| format!("{:.3}", bytes as f64 / GIB);
        let width = (card.need.end - card.need.start) as f64 / card.memory as f64 * 100.;
        let [low, high] = [card.need.start, card.need.end].map(gib);
        Ok(format!("| {name} | {gpus} | {} GiB | {low} to {high} GiB | {width:.1} % |", gib(card.live)))
    }

    fn said(&self, name: &str, gpus: usize) -> Result<Vec<Said>> {
        let (tool, program, cards, gpus) = (self.tool, self.program, fit::CARDS, gpus.to_string());
        let command =
            cmd!(self.run.shell, "{tool} fit --exec {program} --count {gpus} --gpus {cards} --json -- {name}");
        let ended = output(command)?;
        Said::all(&String::from_utf8_lossy(&ended.stdout))
            .with_context(|| format!("{name}: {}", String::from_utf8_lossy(&ended.stderr)))
    }

    /// A recording on one card must have no row that exceeds the prediction from a recording on another card.
    fn check(&mut self, name: &str, gpus: usize, card: &Said) -> Result<()> {
        let folder = self.run.scratch(&format!("check-{name}"))?;
        let [first, real] = ["first", "real"].map(|what| folder.join(format!("{what}.memtrace")));
        let (tool, program) = (self.tool, self.program);
        let run = |file: &Path, memory: &str| {
            let memory = vec![memory; gpus].join(",");
            cmd!(self.run.shell, "{tool} run --exec {program} --simulate {memory} -o {file} -- {name}")
        };
        said(run(&first, "1TiB"))?;
        // A card of this size, or as large as the program needs, with memory that another seed has drawn.
        let memory = card.memory.max(card.need.end);
        said(run(&real, &format!("{memory}B")).envs(card.draw(name.len() as u64 + 100)))?;
        let check = cmd!(self.run.shell, "{tool} fit --check {real} --recording {first} --gpus RTX-4090 --json");
        let ended = output(check)?;
        let name = format!("check of {name}");
        self.checks.exit(&name, ended.status, ended.status.success(), &both_streams(&ended));
        let json: Value = serde_json::from_slice(&ended.stdout).context(name.clone())?;
        let rows = json["rows"].as_array().context("no rows")?;
        let bytes = |row: &Value| row["predicted_less_measured_bytes"][1].as_f64().unwrap_or(f64::NAN);
        self.checks.that(&format!("{name}, no row is too low"), rows.iter().all(|row| bytes(row) >= 0.));
        self.beyond.extend(rows.last().map(|row| bytes(row) / card.memory as f64));
        Ok(())
    }

    /// How far the predictions are off.
    fn deviation(&self) -> String {
        let (sum, count) = (self.beyond.iter().sum::<f64>(), self.beyond.len());
        let under = self.beyond.iter().filter(|beyond| **beyond < 0.).count();
        let (mean, most) = (100. * sum / count as f64, 100. * self.beyond.iter().copied().fold(0., f64::max));
        format!(
            "{count} recordings on an RTX 4090: {under} need more than predicted; predicted is on average {mean:.1} % of the card more than needed, at most {most:.1} %"
        )
    }

    /// Makes a plan whose budget is the peak of the program that was changed by hand. The plan must exist, and predict
    /// this peak to the byte.
    fn plan(&mut self, name: &str) -> Result<()> {
        let folder = self.run.scratch(&format!("plan-{name}"))?;
        let [recorded, by_hand] = ["", "planned"].map(|changed| {
            let file = folder.join(format!("{name}{changed}.memtrace"));
            let (tool, program) = (self.tool, self.program);
            let run = cmd!(
                self.run.shell,
                "{tool} run --exec {program} --simulate 16GiB --uses -o {file} -- {name} {changed}"
            );
            said(run).map(|_| file)
        });
        let planned = |file: &Path, budget: &str| -> Result<(Option<i32>, Value)> {
            let tool = self.tool;
            let ended = output(cmd!(self.run.shell, "{tool} plan {file} {budget} --json"))?;
            Ok((ended.status.code(), serde_json::from_slice(&ended.stdout)?))
        };
        let (_, of_changed) = planned(&by_hand?, "1TiB")?;
        let peak = of_changed["recorded_peak_bytes"].as_u64().context("no peak")?;
        let (code, plan) = planned(&recorded?, &format!("{peak}B"))?;
        let before = plan["recorded_peak_bytes"].as_u64();
        let name = format!("plan of {name}: {} by hand of {}", peak, before.unwrap_or(0));
        self.checks.equal(&format!("{name}, exit code"), code, Some(0));
        self.checks.equal(&format!("{name}, predicted"), plan["peak_bytes"].as_u64(), Some(peak));
        self.checks.that(&format!("{name}, it is less"), before > Some(peak));
        Ok(())
    }
}
