//! The lane `simulated`: candle and cudarc programs run to completion and free everything they allocate, and memtrace's
//! recordings equal the simulator's log.

use std::path::PathBuf;

use anyhow::Result;
use xshell::cmd;

use super::command::GpuCommand;
use super::fit::{self, Example};
use super::log::{ProgramTotals, SimulatorLog};
use super::{builds, oom};
use crate::checks::{Checks, number_before};
use crate::lane::Run;
use crate::programs::Programs;

/// Refuses some allocations and frees of a program with four threads.
pub(super) const FAULTS: &str = "oom@alloc:100;oom@alloc:400;fail@free:50;fail@free:51";
/// The longest test of the hooks, which takes longer than all others together.
const LONGEST: &str = "threads::an_address_that_is_used_again_at_once_is_nobody_elses";

pub(crate) fn run(run: &Run) -> Result<String> {
    let mut lane = SimulatedLane::new(run)?;
    lane.candle()?;
    lane.candle_fails()?;
    lane.cudarc()?;
    lane.hooks()?;
    lane.gpu_check()?;
    lane.refused("unwind", &lane.linked("cudarc-linked")?)?;
    lane.recorded()?;
    lane.categories()?;
    lane.out_of_memory()?;
    lane.fits()?;
    if run.is_full() {
        lane.refused_and_abort()?;
        lane.llama()?;
    }
    lane.checks.end()
}

struct SimulatedLane<'r> {
    run: &'r Run,
    checks: Checks,
    linked: Programs,
    /// The folder of programs that are not linked against the driver.
    loaded: PathBuf,
    log: PathBuf,
    out: PathBuf,
}

impl<'r> SimulatedLane<'r> {
    fn new(run: &'r Run) -> Result<Self> {
        let mut targets = vec![
            "--bin=candle-train",
            "--bin=candle-recorded",
            "--bin=categories",
            "--bin=cudarc-linked",
            "--test=hooks",
            "--example=resnet",
        ];
        if run.is_full() {
            targets.push("--example=llama");
        }
        let out = run.scratch("simulated")?;
        let (linked, loaded) = (builds::linked(run, &targets)?, builds::loaded(run)?);
        Ok(Self { run, checks: Checks::default(), linked, loaded, log: out.join("log"), out })
    }

    fn linked(&self, program: &str) -> Result<GpuCommand<'r>> {
        Ok(GpuCommand::of(self.run, self.linked.path(program)?))
    }

    fn loaded(&self, program: &str) -> GpuCommand<'r> {
        GpuCommand::of(self.run, &self.loaded.join(program))
    }

    /// Checks that the program succeeds and calls only functions that are simulated.
    fn succeeds(&mut self, name: &str, command: &GpuCommand<'_>) -> Result<String> {
        let said = self.ends(name, command, true)?;
        for line in said.lines().filter(|line| line.contains("is not simulated")) {
            self.checks.fail(&format!("{name}: calls a function that is not simulated: {line}"));
        }
        Ok(said)
    }

    /// Runs a command that should succeed or fail, and returns its output.
    fn ends(&mut self, name: &str, command: &GpuCommand<'_>, success: bool) -> Result<String> {
        let ended = command.run(self.run, &self.log)?;
        let said = ended.both_streams();
        self.checks.exit(name, ended.status(), ended.succeeded() == success, &said);
        Ok(said)
    }

    /// Checks that the log has at least this number of allocations, none refused and all freed.
    fn balanced(&mut self, name: &str, least: usize) -> Result<()> {
        let ProgramTotals { allocations, frees, refused, leaked } = SimulatorLog::read(&self.log)?.totals();
        let holds = allocations >= least && frees == allocations && refused == 0 && leaked == 0;
        let numbers = format!(
            "{allocations} allocations of at least {least}, {frees} frees, {refused} refused, {leaked} bytes leaked"
        );
        self.checks.that(&format!("{name}: {numbers}"), holds);
        Ok(())
    }

    fn candle(&mut self) -> Result<()> {
        let train = self.linked("candle-train")?;
        let name = "candle trains";
        let said = self.succeeds(name, &train)?;
        self.checks.line_that_ends(name, &said, "convolutions: step 4, loss 0");
        self.checks.line_that_ends(name, &said, "done on 1");
        self.balanced(name, 2000)?;
        let name = "candle on two GPUs of 1 GiB";
        let two = train
            .clone()
            .variable("MEMTRACE_CUSIM_DEVICES", "2")
            .variable("MEMTRACE_CUSIM_MEMORY", "1GiB")
            .arguments(&["2"]);
        let said = self.succeeds(name, &two)?;
        self.checks.line_that_ends(name, &said, "done on 2");
        self.balanced(name, 4000)?;
        let name = "candle without pools";
        self.succeeds(name, &train.variable("MEMTRACE_CUSIM_POOLS", 0))?;
        self.balanced(name, 2000)
    }

    fn candle_fails(&mut self) -> Result<()> {
        let train = self.linked("candle-train")?;
        let name = "candle out of memory";
        let said = self.ends(name, &train.clone().variable("MEMTRACE_CUSIM_FAULTS", "oom@alloc:500"), false)?;
        let is_error = |line: &str| line.contains("OUT_OF_MEMORY") || line.contains("out of memory");
        self.checks.line(name, &said, "with the error for memory", is_error);
        let name = "cuInit fails";
        let said = self.ends(name, &train.variable("MEMTRACE_CUSIM_FAULTS", "fail@init"), false)?;
        let is_error = |line: &str| line.contains("CUDA_ERROR_UNKNOWN") || line.contains("unknown error");
        self.checks.line(name, &said, "with the unknown error", is_error);
        Ok(())
    }

    fn cudarc(&mut self) -> Result<()> {
        let loaded = self.loaded("cudarc-loaded");
        let name = "cudarc on streams and threads";
        let said = self.succeeds(name, &loaded)?;
        self.checks.line_that_ends(name, &said, ", 0 left over");
        self.balanced(name, 800)?;
        let mut requests = said.lines().filter(|line| line.starts_with("asked for "));
        let requested = requests.find_map(|line| number_before(line, " bytes"));
        let logged = SimulatorLog::read(&self.log)?.requested_of_pools();
        self.checks.equal("cudarc: bytes requested from pools", Some(logged), requested);
        let name = "addresses used again at once";
        self.succeeds(name, &loaded.variable("MEMTRACE_CUSIM_FAULTS", "reuse=immediate"))?;
        self.balanced(name, 800)
    }

    /// Runs the tests of the hooks in a program that is linked against the driver.
    fn hooks(&mut self) -> Result<()> {
        let name = "the hooks' tests, linked";
        let folder = self.run.root.join("tests/simulated/cudarc-linked");
        let longest = if self.run.is_full() { &[][..] } else { &["--skip", LONGEST] };
        let tests = self.linked("hooks")?.folder(&folder).arguments(&["--skip", "unlinked::"]).arguments(longest);
        let said = self.ends(name, &tests, true)?;
        self.checks.number(name, &said, 10..=999, " passed; 0 failed");
        Ok(())
    }

    /// Categories must be right or unknown in programs that state the purpose of their tensors.
    fn categories(&mut self) -> Result<()> {
        let said = self.succeeds("categories", &self.linked("categories")?)?;
        let sums: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("in all")).take(2).collect();
        let none_wrong = sums.len() == 2 && sums.iter().all(|line| line.contains(" 0 wrong"));
        self.checks.that(&format!("categories: {}", sums.join("; ")), none_wrong);
        // The program itself fails if a category is wrong, or if uses bring no improvement.
        let options: &[&str] = if self.run.is_full() { &["--uses"] } else { &["--uses", "lazy", "lazy_vars"] };
        self.succeeds("categories with uses", &self.linked("categories")?.arguments(options))?;
        let options: &[&str] = if self.run.is_full() { &["--cpu"] } else { &["--cpu", "experts"] };
        self.succeeds("categories on the CPU", &self.linked("categories")?.arguments(options))?;
        Ok(())
    }

    /// Runs the check for real GPUs, to see that it works.
    fn gpu_check(&mut self) -> Result<()> {
        let said = self.ends(
            "gpu-check",
            &self
                .loaded("gpu-check")
                .variable("MEMTRACE_CUSIM_FAULTS", "reuse=immediate")
                .variable("MEMTRACE_CUSIM_STACKS", 1),
            true,
        )?;
        self.checks.number("gpu-check", &said, 56..=59, " ok, 0 FAIL");
        Ok(())
    }

    /// Runs the command with and without a recording. With panic=abort, a panic in a hook would end the program.
    fn refused(&mut self, panic: &str, command: &GpuCommand<'_>) -> Result<()> {
        let command = command.clone().variable("MEMTRACE_CUSIM_FAULTS", FAULTS);
        let name = format!("linked, panic={panic}, recorded");
        let said = self.succeeds(&name, &command)?;
        self.checks.says(&name, &said, "2 frees refused");
        self.checks.number(&name, &said, 2..=9, " allocations refused");
        let name = format!("linked, panic={panic}, not recorded");
        let said = self.succeeds(&name, &command.arguments(&["off"]))?;
        self.checks.number(&name, &said, 2..=9, " allocations refused");
        Ok(())
    }

    /// The build names only one package, so that candle is not built again.
    fn refused_and_abort(&mut self) -> Result<()> {
        let _abort = self.run.shell.push_env("CARGO_PROFILE_SIMULATED_PANIC", "abort");
        let options = ["--package=cudarc-linked", "--features=cuda", "--bin=cudarc-linked"];
        let program = builds::with_toolkit(self.run, &options)?;
        self.refused("abort", &GpuCommand::of(self.run, program.path("cudarc-linked")?))
    }

    fn recorded(&mut self) -> Result<()> {
        let name = "candle recorded";
        let command = self.linked("candle-recorded")?.variable("MEMTRACE_CUSIM_CUBLAS_WORKSPACE", 8 << 20);
        let command = command.variable("MEMTRACE_USES", 1);
        let said = self.succeeds(name, &command)?;
        self.checks.number(name, &said, 1..=u64::MAX, " records equal the driver");
        for line in [
            "live: 8388608 bytes in \"device\", -",
            "tagged: true",
            "live: 65536 bytes in \"load\", hidden.weight f32[64, 256]",
            "live: 4000 bytes in \"\", state f32[1000]",
        ] {
            self.checks.line(name, &said, &format!("{line:?}"), |found| found == line);
        }
        let is_heading =
            |line: &str| line.contains("memory of ") && line.contains("candle-recorded on cuda:0, a simulated GPU");
        self.checks.line(name, &said, "\"memory of …candle-recorded on cuda:0, a simulated GPU\"", is_heading);
        self.checks.says(name, &said, "uses: the arguments of 100.0 % of ");
        self.checks.says(name, &said, "the last use of 100.0 % of the bytes allocated on GPUs is known");
        let is_explained = |line: &str| line.ends_with(", 0 bytes not recorded") || line.contains("rounding explains");
        self.checks.line(name, &said, "that explains the driver's additional bytes", is_explained);
        Ok(())
    }

    /// Checks the post-mortem of a training step on a GPU that is too small for it.
    fn out_of_memory(&mut self) -> Result<()> {
        let name = format!("resnet on {}", oom::MEMORY.0);
        let (snapshot, out) = (self.out.join("oom.pickle"), self.out.join("oom").display().to_string());
        let command = self.linked("resnet")?.variable("MEMTRACE_CUSIM_MEMORY", oom::MEMORY.0);
        let command = command.variable("MEMTRACE_DUMP_ON_OOM", 1).variable("MEMTRACE_OUT", snapshot.display());
        let said = self.ends(&name, &command.arguments(&["--device", "cuda:0", "--out", &out]), false)?;
        self.checks.result(&name, oom::check(&self.run.shell, &snapshot, &self.log, &said));
        Ok(())
    }

    /// Checks the verdicts of `fit` at both ends of the predicted range.
    fn fits(&mut self) -> Result<()> {
        let tool = Programs::built_by(cmd!(self.run.shell, "cargo build --package cargo-memtrace"))?;
        let tool = tool.path("cargo-memtrace")?.to_owned();
        let (all, seeds): (&[(&str, &[&str])], _) = match self.run.is_full() {
            true => (
                &[
                    ("resnet", &["--iterations", "2"]),
                    ("resnet", &["--iterations", "1", "--batch", "4", "--image", "64"]),
                    ("llama", &["--layers", "2", "--hidden", "1024"]),
                    ("llama", &["--layers", "8", "--hidden", "512", "--dtype", "f16"]),
                    ("llama", &["--layers", "1", "--hidden", "4096"]),
                ],
                0..12,
            ),
            false => (&[("resnet", &["--iterations", "1", "--image", "64"])], 0..1),
        };
        for (number, (program, arguments)) in all.iter().enumerate() {
            let (folder, log) = (self.run.scratch(&format!("fit-{number}"))?, self.log.clone());
            let example = Example { name: program, path: self.linked.path(program)?, arguments };
            fit::check(self.run, &mut self.checks, &example, (&tool, &folder, &log), seeds.clone())?;
        }
        if self.run.is_full() {
            fit::check_runs(self.run, &mut self.checks, &tool, &self.loaded.join("needs"))?;
        }
        Ok(())
    }

    /// Checks the bytes that each token adds in the example llama.
    fn llama(&mut self) -> Result<()> {
        let out = self.out.join("llama").display().to_string();
        let size = ["--device", "cuda:0", "--layers", "2", "--hidden", "128", "--tokens", "8"];
        let arguments = [&size[..], &["--out", &out]].concat();
        let said = self.ends("llama", &self.linked("llama")?.arguments(&arguments), true)?;
        let each = "Each token 1024 1024 1.00 times theory; from 1024 to 1024";
        let is_each = |line: &str| line.split_whitespace().eq(each.split(' '));
        self.checks.line("llama", &said, &format!("{each:?}"), is_each);
        self.checks.says("llama", &said, "block[1]");
        Ok(())
    }
}
