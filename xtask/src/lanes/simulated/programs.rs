//! The lane `simulated`: programs on candle and on cudarc run to their end; what they allocate is what they free, and what
//! memtrace records is what the simulator's log has.

use std::path::PathBuf;

use anyhow::Result;

use super::account::{Balance, Log};
use super::builds::{self, Programs};
use super::gpu::Call;
use super::{oom, text};
use crate::checks::{Checks, last_lines};
use crate::lane::Run;

/// Some calls are refused, on four threads.
pub(super) const FAULTS: &str = "oom@alloc:100;oom@alloc:400;fail@free:50;fail@free:51";
/// Of the hooks' tests: it takes longer than all others together.
const LONGEST: &str = "threads::an_address_that_is_used_again_at_once_is_nobody_elses";

pub(crate) fn run(run: &Run) -> Result<String> {
    let mut lane = Lane::new(run)?;
    lane.candle()?;
    lane.candle_fails()?;
    lane.cudarc()?;
    lane.hooks()?;
    lane.gpu_check()?;
    lane.refused("unwind", &lane.linked("cudarc-linked")?)?;
    lane.recorded()?;
    lane.categories()?;
    lane.out_of_memory()?;
    if run.is_full() {
        lane.refused_and_abort()?;
        lane.llama()?;
    }
    lane.checks.end()
}

struct Lane<'r> {
    run: &'r Run,
    checks: Checks,
    linked: Programs,
    /// Folder of the programs that are not linked against the driver.
    loaded: PathBuf,
    log: PathBuf,
    out: PathBuf,
}

impl<'r> Lane<'r> {
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

    fn linked(&self, program: &str) -> Result<Call<'r>> {
        Ok(Call::of(self.run, self.linked.path(program)?))
    }

    fn loaded(&self, program: &str) -> Call<'r> {
        Call::of(self.run, &self.loaded.join(program))
    }

    /// It ends well, and calls nothing that is not simulated.
    fn succeeds(&mut self, name: &str, call: &Call<'_>) -> Result<String> {
        let ended = self.ends(name, call, true)?;
        let missing = ended.lines().find(|line| line.contains("is not simulated"));
        missing.iter().for_each(|line| self.checks.fail(&format!("{name}: calls what is not simulated: {line}")));
        Ok(ended)
    }

    /// Runs it; what it said.
    fn ends(&mut self, name: &str, call: &Call<'_>, well: bool) -> Result<String> {
        let ended = call.run(self.run, &self.log)?;
        let (is_well, how, text) = (ended.is_well(), ended.how(), ended.text());
        match is_well == well {
            true => self.checks.ok(&format!("{name}: ends with {how}")),
            false => self.checks.fail(&format!("{name}: ends with {how}:\n{}", last_lines(&text))),
        }
        Ok(text)
    }

    /// The log has at least so many allocations; all were granted, and all freed.
    fn balanced(&mut self, name: &str, least: usize) -> Result<()> {
        let balance = Log::read(&self.log)?.balance();
        let Balance { allocations, frees, refused, left } = balance;
        let holds = allocations >= least && frees == allocations && refused == 0 && left == 0;
        let numbers = format!(
            "{allocations} allocations of at least {least}, {frees} frees, {refused} refused, {left} bytes left"
        );
        self.checks.that(&format!("{name}: {numbers}"), holds);
        Ok(())
    }

    fn candle(&mut self) -> Result<()> {
        let train = self.linked("candle-train")?;
        let name = "candle trains";
        let said = self.succeeds(name, &train)?;
        self.ends_a_line(name, &said, "convolutions: step 4, loss 0");
        self.ends_a_line(name, &said, "done on 1");
        self.balanced(name, 2000)?;
        let name = "candle on two GPUs of 1 GiB";
        let two = train.clone().options(&["--devices", "2", "--memory", "1GiB"]).arguments(&["2"]);
        let said = self.succeeds(name, &two)?;
        self.ends_a_line(name, &said, "done on 2");
        self.balanced(name, 4000)?;
        let name = "candle without pools";
        self.succeeds(name, &train.variable("MEMTRACE_CUSIM_POOLS", 0))?;
        self.balanced(name, 2000)
    }

    fn ends_a_line(&mut self, name: &str, said: &str, end: &str) {
        let what = format!("that ends with {end:?}");
        text::line(&mut self.checks, name, said, &what, |line| line.ends_with(end));
    }

    /// A line has one of these.
    fn says_one(&mut self, name: &str, said: &str, parts: [&str; 2]) {
        let what = format!("with one of {parts:?}");
        text::line(&mut self.checks, name, said, &what, |line| parts.iter().any(|part| line.contains(part)));
    }

    fn candle_fails(&mut self) -> Result<()> {
        let train = self.linked("candle-train")?;
        let name = "candle out of memory";
        let said = self.ends(name, &train.clone().options(&["--faults", "oom@alloc:500"]), false)?;
        self.says_one(name, &said, ["OUT_OF_MEMORY", "out of memory"]);
        let name = "cuInit fails";
        let said = self.ends(name, &train.options(&["--faults", "fail@init"]), false)?;
        self.says_one(name, &said, ["CUDA_ERROR_UNKNOWN", "unknown error"]);
        Ok(())
    }

    fn cudarc(&mut self) -> Result<()> {
        let loaded = self.loaded("cudarc-loaded");
        let name = "cudarc on streams and threads";
        let said = self.succeeds(name, &loaded)?;
        self.ends_a_line(name, &said, ", 0 left over");
        self.balanced(name, 800)?;
        let asked =
            said.lines().filter(|line| line.starts_with("asked for ")).find_map(|line| text::before(line, " bytes"));
        self.checks.equal(
            "cudarc: the bytes in pools that it asked for",
            Log::read(&self.log)?.asked_of_pools(),
            asked,
        );
        let name = "addresses used again at once";
        self.succeeds(name, &loaded.options(&["--faults", "reuse=immediate"]))?;
        self.balanced(name, 800)
    }

    /// Their tests once more, in a program that is linked against the driver.
    fn hooks(&mut self) -> Result<()> {
        let name = "the hooks' tests, linked";
        let folder = self.run.root.join("tests/simulated/cudarc-linked");
        let longest = if self.run.is_full() { &[][..] } else { &["--skip", LONGEST] };
        let tests = self.linked("hooks")?.folder(&folder).arguments(&["--skip", "unlinked::"]).arguments(longest);
        let said = self.ends(name, &tests, true)?;
        text::number(&mut self.checks, name, &said, 10..=999, " passed; 0 failed");
        Ok(())
    }

    /// Categories are right or unknown in programs that know what their tensors are for.
    fn categories(&mut self) -> Result<()> {
        let said = self.succeeds("categories", &self.linked("categories")?)?;
        let sums: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("in all")).take(2).collect();
        self.checks
            .that(&format!("categories: {}", sums.join("; ")), sums.iter().all(|line| line.contains(" 0 wrong")));
        Ok(())
    }

    /// The check for real GPUs: here it shows only that it works.
    fn gpu_check(&mut self) -> Result<()> {
        let said = self.ends("gpu-check", &self.loaded("gpu-check").options(&["--faults", "reuse=immediate"]), true)?;
        text::number(&mut self.checks, "gpu-check", &said, 50..=59, " ok, 0 FAIL");
        Ok(())
    }

    /// With a recording and without one; a panic in a hook ends a program that was built with panic=abort.
    fn refused(&mut self, panic: &str, call: &Call<'_>) -> Result<()> {
        let call = call.clone().options(&["--faults", FAULTS]);
        let name = format!("linked, panic={panic}, recorded");
        let said = self.succeeds(&name, &call)?;
        self.checks.says(&name, &said, "2 frees refused");
        text::number(&mut self.checks, &name, &said, 2..=9, " allocations refused");
        let name = format!("linked, panic={panic}, not recorded");
        let said = self.succeeds(&name, &call.arguments(&["off"]))?;
        text::number(&mut self.checks, &name, &said, 2..=9, " allocations refused");
        Ok(())
    }

    /// Named alone: candle is not built once more for this.
    fn refused_and_abort(&mut self) -> Result<()> {
        let _abort = self.run.shell.push_env("CARGO_PROFILE_SIMULATED_PANIC", "abort");
        let options = ["--package=cudarc-linked", "--features=cuda", "--bin=cudarc-linked"];
        let program = builds::with_toolkit(self.run, &options)?;
        self.refused("abort", &Call::of(self.run, program.path("cudarc-linked")?))
    }

    fn recorded(&mut self) -> Result<()> {
        let name = "candle recorded";
        let call = self.linked("candle-recorded")?.variable("MEMTRACE_CUSIM_CUBLAS_WORKSPACE", 8 << 20);
        let said = self.succeeds(name, &call)?;
        text::number(&mut self.checks, name, &said, 1..=u64::MAX, " records equal the driver");
        for line in [
            "live: 8388608 bytes in \"device\", -",
            "tagged: true",
            "live: 65536 bytes in \"load\", hidden.weight f32[64, 256]",
            "live: 4000 bytes in \"\", state f32[1000]",
        ] {
            text::line(&mut self.checks, name, &said, &format!("{line:?}"), |found| found == line);
        }
        let is_heading =
            |line: &str| line.contains("memory of ") && line.contains("candle-recorded on cuda:0, a simulated GPU");
        text::line(
            &mut self.checks,
            name,
            &said,
            "\"memory of …candle-recorded on cuda:0, a simulated GPU\"",
            is_heading,
        );
        let is_explained =
            |line: &str| line.trim_start().starts_with("0 bytes more") || line.contains("rounding explains");
        text::line(&mut self.checks, name, &said, "that explains what the driver has more", is_explained);
        Ok(())
    }

    /// A GPU that is too small for a training step: the snapshot from inside the refused call.
    fn out_of_memory(&mut self) -> Result<()> {
        let name = format!("resnet on {}", oom::MEMORY.0);
        let (snapshot, out) = (self.out.join("oom.pickle"), self.out.join("oom").display().to_string());
        let call = self.linked("resnet")?.options(&["--memory", oom::MEMORY.0]).variable("MEMTRACE_DUMP_ON_OOM", 1);
        let arguments = ["--device", "cuda:0", "--out", &out];
        let call = call.variable("MEMTRACE_OUT", snapshot.display());
        let said = self.ends(&name, &call.arguments(&arguments), false)?;
        self.checks.result(&name, oom::check(&self.run.shell, &snapshot, &self.log, &said));
        Ok(())
    }

    /// The example llama: what a token adds, to the byte.
    fn llama(&mut self) -> Result<()> {
        let out = self.out.join("llama").display().to_string();
        let size = ["--device", "cuda:0", "--layers", "2", "--hidden", "128", "--tokens", "8"];
        let arguments = [&size[..], &["--out", &out]].concat();
        let said = self.ends("llama", &self.linked("llama")?.arguments(&arguments), true)?;
        let each = "Each token 1024 1024 1.00 times theory; from 1024 to 1024";
        text::line(&mut self.checks, "llama", &said, &format!("{each:?}"), |line| text::words(line).join(" ") == each);
        self.checks.says("llama", &said, "block[1]");
        Ok(())
    }
}
