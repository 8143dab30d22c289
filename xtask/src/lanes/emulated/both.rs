//! The same programs on both kinds of machine. Their recordings must have the same contents, except for what the
//! programs themselves do differently there.

mod rows;

use std::path::{Path, PathBuf};

use anyhow::{Error, Result};
use xshell::{Cmd, cmd};

use self::rows::Rows;
use super::machine::Emulated;
use crate::checks::Checks;
use crate::lane::{Run, said};
use crate::lanes::simulated::{LINKED, PROFILE};
use crate::machine::AARCH64;
use crate::programs::Programs;

/// Each uses the heap or a simulated GPU. Programs with a session write it to the file of `MEMTRACE_OUT`; the last
/// program has none.
const PROGRAMS: [(&str, &[&str]); 9] = [
    ("resnet", &["--iterations=1", "--image=64", "--out=files"]),
    ("resnet", &["--iterations=1", "--image=64", "--out=files", "--device=cuda:0"]),
    ("llama", &["--tokens=4", "--layers=2", "--hidden=128", "--out=files"]),
    ("llama", &["--tokens=4", "--layers=2", "--hidden=128", "--out=files", "--device=cuda:0"]),
    ("attention", &["--sequence=256", "--out=attention.memtrace"]),
    ("attention", &["--sequence=256", "--out=attention.memtrace", "--device=cuda:0"]),
    ("uses", &["mlp"]),
    ("candle-recorded", &[]),
    (WITHOUT_MEMTRACE, &[]),
];
const WITHOUT_MEMTRACE: &str = "candle-train";

pub(super) fn run(run: &Run, emulated: &Emulated<'_>) -> Result<String> {
    cmd!(run.shell, "cargo build --quiet --package cargo-memtrace").run()?;
    let machines = [Machine::here(run)?, Machine::emulated(run, emulated)?];
    let mut checks = Checks::default();
    for (at, (program, arguments)) in PROGRAMS.iter().enumerate() {
        let compared = machines.each_ref().map(|machine| machine.recorded(at, program, arguments));
        let [here, there] = compared;
        let name = format!("{program} {}", arguments.join(" "));
        checks.result(name.trim_end(), here.and_then(|here| here.compare(&there?)));
    }
    let [here, there] = machines.each_ref().map(|machine| said(machine.command("categories")?));
    checks.that("categories: every program has the same bytes right, unknown and wrong", here? == there?);
    checks.end()
}

/// A kind of machine with its programs, and what they need to run.
struct Machine<'r> {
    run: &'r Run,
    programs: Programs,
    preload: PathBuf,
    variables: memtrace_runner::kit::Variables,
    folder: PathBuf,
}

impl<'r> Machine<'r> {
    fn here(run: &'r Run) -> Result<Self> {
        let gpu = run.simulated_gpu()?;
        let build = cmd!(run.shell, "cargo build --quiet --profile {PROFILE} {LINKED...} --bins --examples");
        let programs = Programs::built_by(build.envs(gpu.to_build.clone()))?;
        said(cmd!(run.shell, "cargo build --quiet --package memtrace-preload"))?;
        let preload = run.target.join("debug/libmemtrace_preload.so");
        Ok(Self { run, programs, preload, variables: gpu.to_run, folder: run.scratch("emulated/here")? })
    }

    fn emulated(run: &'r Run, emulated: &Emulated<'_>) -> Result<Self> {
        let gpu = emulated.simulated_gpu()?;
        let build = cmd!(run.shell, "cargo build --quiet --profile {PROFILE} {LINKED...} --bins --examples");
        // The code that is compiled in place of kernels is linked to the programs.
        let build = emulated.cargo(build).envs(gpu.to_build.clone()).env("CC", AARCH64.compiler);
        let programs = Programs::built_by(build.env("CC_x86_64_unknown_linux_gnu", "cc"))?;
        said(emulated.cargo(cmd!(run.shell, "cargo build --quiet --package memtrace-preload")))?;
        let preload = emulated.target().join(AARCH64.target).join("debug/libmemtrace_preload.so");
        Ok(Self { run, programs, preload, variables: gpu.to_run, folder: run.scratch("emulated/there")? })
    }

    /// A command with one thread, so that the program determines the order of blocks.
    fn command(&self, program: &str) -> Result<Cmd<'_>> {
        let path = self.programs.path(program)?;
        let command = cmd!(self.run.shell, "{path}").envs(self.variables.clone()).env("RAYON_NUM_THREADS", "1");
        Ok(match program {
            WITHOUT_MEMTRACE => {
                command.env("LD_PRELOAD", &self.preload).env("MEMTRACE_RUN", std::process::id().to_string())
            }
            _ => command,
        })
    }

    fn recorded(&self, at: usize, program: &str, arguments: &[&str]) -> Result<Rows> {
        let folder = self.run.shell.create_dir(self.folder.join(at.to_string()))?;
        let _folder = self.run.shell.push_dir(&folder);
        let out = folder.join("recording.memtrace");
        said(self.command(program)?.args(arguments).env("MEMTRACE_OUT", &out))?;
        let (tool, tables) = (self.run.target.join("debug/cargo-memtrace"), folder.join("tables"));
        said(cmd!(self.run.shell, "{tool} memtrace export {out} --to csv -o {tables}"))?;
        Rows::read(&only(&tables)?)
    }
}

/// The only entry of a folder.
fn only(folder: &Path) -> Result<PathBuf> {
    let entry = std::fs::read_dir(folder)?.next().ok_or_else(|| Error::msg("nothing was written"))?;
    Ok(entry?.path())
}
