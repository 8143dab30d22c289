//! PyTorch from its wheels, on the simulated GPU.

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};
use memtrace_runner::kit::{SimulatedGpu, Variables};
use serde_json::Value;
use xshell::cmd;

use crate::checks::Checks;
use crate::lane::{Run, both_streams, output};
use crate::lanes::driver::files;

/// PyTorch's versions, with their lists of wheels in `xtask/driver`: the newest one, and one for CUDA 12.
pub(crate) const VERSIONS: [(&str, &str); 2] = [("2.15.0", "torch13"), ("2.8.0", "torch12")];

const PROGRAM: &str = "tests/programs/pytorch/snapshot.py";

pub(crate) struct Torch<'r> {
    pub(crate) version: &'static str,
    run: &'r Run,
    /// The folder for `PYTHONPATH`.
    packages: PathBuf,
    on_simulated_gpu: Variables,
    tool: PathBuf,
}

/// What PyTorch itself counts, as `torch.cuda.memory_stats()` has it.
pub(super) struct Counts {
    pub(super) peak: u64,
    pub(super) current: u64,
    pub(super) reserved_peak: u64,
    pub(super) allocations: u64,
    pub(super) refused: u64,
}

impl<'r> Torch<'r> {
    /// `None` if its wheels are neither in the cache nor available.
    pub(crate) fn of(run: &'r Run, (version, list): (&'static str, &str)) -> Result<Option<Self>> {
        let Some(packages) = files::torch(run, list)? else { return Ok(None) };
        let [(_, libraries)] = &run.simulated_gpu()?.to_run[..] else {
            anyhow::bail!("one variable finds the libraries")
        };
        let folder = std::env::split_paths(libraries).next().context("the first folder is the simulated GPU's")?;
        let on_simulated_gpu = SimulatedGpu::to_run_any(&folder).map_err(Error::msg)?;
        cmd!(run.shell, "cargo build --quiet --package cargo-memtrace").run()?;
        let tool = run.target.join("debug/cargo-memtrace");
        Ok(Some(Self { version, run, packages, on_simulated_gpu, tool }))
    }

    /// With these variables, Python finds PyTorch, and PyTorch the simulated GPU.
    pub(crate) fn variables(&self) -> Variables {
        let mut all = self.on_simulated_gpu.clone();
        all.push(("PYTHONPATH", self.packages.clone().into()));
        all
    }

    /// Runs the program. Returns its snapshot and its counts.
    pub(super) fn run(&self, way: &str, setting: &str, memory: &str) -> Result<(PathBuf, Counts)> {
        let (snapshot, counts) = self.files(&format!("{way}-{setting}"))?;
        let program = self.run.root.join(PROGRAM);
        let command = cmd!(self.run.shell, "python3 -W ignore {program} {way} {snapshot} {counts}")
            .envs(self.variables())
            .env("MEMTRACE_CUSIM_MEMORY", memory)
            .env("PYTORCH_CUDA_ALLOC_CONF", setting);
        let ended = output(command)?;
        ensure!(ended.status.success(), "PyTorch {} {way} {setting}: {}", self.version, both_streams(&ended));
        Ok((snapshot, self.counts(&counts)?))
    }

    /// Checks that under `run --exec --simulate`, too, the unmodified program trains, and that the driver's memory is
    /// what PyTorch reserves.
    pub(super) fn check_recorded(&self, checks: &mut Checks) -> Result<()> {
        let (snapshot, counts) = self.files("recorded")?;
        let (tool, recording) = (&self.tool, snapshot.with_extension("memtrace"));
        let program = self.run.root.join(PROGRAM);
        // The interpreter itself: a script in front of it has a recording of its own.
        let python = cmd!(self.run.shell, "python3 -c 'import sys; print(sys.executable)'").read()?;
        let command = cmd!(
            self.run.shell,
            "{tool} memtrace run --exec {python} --simulate 24GiB -o {recording} -- -W ignore {program} train {snapshot} {counts}"
        );
        let ended = output(command.env("PYTHONPATH", &self.packages))?;
        let name = format!("{} train, recorded", self.version);
        checks.exit(&name, ended.status, ended.status.success(), &both_streams(&ended));
        let report = self.json(&["report", "--json"], &recording)?;
        let devices = report["devices"].as_array().context("a report has devices")?;
        let gpu = devices.iter().find(|device| device["device"] == "cuda:0").context("the GPU is recorded")?;
        let counts = self.counts(&counts)?;
        checks.equal(
            &format!("{name}: the driver's peak is PyTorch's"),
            gpu["peak"]["total_bytes"].as_u64(),
            Some(counts.reserved_peak),
        );
        Ok(())
    }

    pub(super) fn replay(&self, snapshot: &Path, options: &[&str]) -> Result<Value> {
        self.json(&[&["replay", "--json"], options].concat(), snapshot)
    }

    /// What a command prints about a file; it may end with any code.
    pub(super) fn json(&self, command: &[&str], file: &Path) -> Result<Value> {
        let tool = &self.tool;
        let ended = output(cmd!(self.run.shell, "{tool} memtrace {command...} {file}"))?;
        serde_json::from_slice(&ended.stdout).with_context(|| both_streams(&ended))
    }

    fn files(&self, name: &str) -> Result<(PathBuf, PathBuf)> {
        let folder = self.run.scratch("pytorch")?;
        let name = format!("{}-{}", self.version, name.replace([':', ','], "-"));
        Ok((folder.join(format!("{name}.pickle")), folder.join(format!("{name}.json"))))
    }

    fn counts(&self, file: &Path) -> Result<Counts> {
        let told: Value = serde_json::from_str(&self.run.shell.read_file(file)?)?;
        let number = |name: &str| told[name].as_u64().with_context(|| format!("{name} in {told}"));
        Ok(Counts {
            peak: number("requested_bytes.all.peak")?,
            current: number("requested_bytes.all.current")?,
            reserved_peak: number("reserved_bytes.all.peak")?,
            allocations: number("allocation.all.allocated")?,
            refused: number("num_ooms")?,
        })
    }
}
