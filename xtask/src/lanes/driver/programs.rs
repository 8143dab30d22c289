//! Unmodified programs on cudarc, candle and PyTorch: they must end as without memtrace.

use std::path::{Path, PathBuf};

use anyhow::Result;
use xshell::cmd;

use super::files;
use super::probe::Probe;
use crate::checks::Checks;
use crate::lane::{Run, output};
use crate::lanes::simulated::linked;
use crate::programs::Programs;

/// A program that uses its GPU, if there is one.
pub(super) struct GpuProgram {
    name: &'static str,
    command: Vec<PathBuf>,
    variables: Vec<(&'static str, PathBuf)>,
    /// The folders of its libraries, without the driver's.
    libraries: Vec<PathBuf>,
    /// How it ends without a GPU: with this code and, in its output, this text.
    end: (i32, &'static str),
}

type Ended = (Option<i32>, String, String);

/// PyTorch's program is missing, and noted in `not_had`, if PyTorch is neither in the cache nor available.
pub(super) fn all(run: &Run, not_had: &mut Vec<&'static str>) -> Result<Vec<GpuProgram>> {
    let shell = &run.shell;
    let cudarc = Programs::built_by(cmd!(shell, "cargo build --quiet --package cudarc-loaded"))?;
    let candle = linked(run, &["--bin=candle-train"])?;
    let no_device = (1, "NO_DEVICE");
    let rust = |name, program: &Path, libraries, end| GpuProgram {
        name,
        command: vec![program.to_owned()],
        variables: Vec::new(),
        libraries,
        end,
    };
    // Its cuBLAS is simulated. The driver's folder is in front, so the driver is NVIDIA's.
    let simulated = run.simulated_gpu()?.to_run.iter().flat_map(|(_, path)| std::env::split_paths(path)).collect();
    let mut all = vec![
        rust("cudarc", cudarc.path("cudarc-loaded")?, Vec::new(), no_device),
        rust("candle", candle.path("candle-train")?, simulated, no_device),
    ];
    match files::torch(run, "torch12")? {
        Some(torch) => all.push(GpuProgram {
            name: "PyTorch",
            command: vec!["python3".into(), run.root.join("tests/programs/driver-probe/torch_program.py")],
            variables: vec![("PYTHONPATH", torch)],
            libraries: Vec::new(),
            end: (3, "No CUDA GPUs are available"),
        }),
        None => not_had.push("PyTorch"),
    }
    Ok(all)
}

impl GpuProgram {
    /// Runs the program alone, under the preload library, and recorded.
    pub(super) fn check(
        &self,
        run: &Run,
        checks: &mut Checks,
        version: &str,
        driver: &Path,
        probe: &Probe<'_>,
    ) -> Result<()> {
        let capture = run.scratch("driver")?.join("program.memtrace");
        let (alone, name) = (self.ends(run, driver, &[])?, format!("{version}, {}", self.name));
        let (code, text) = self.end;
        let has_ended = alone.0 == Some(code) && (alone.1.contains(text) || alone.2.contains(text));
        checks.that(&format!("{name}: the program finds no GPU"), has_ended);
        let preload = ("LD_PRELOAD", probe.preload());
        let ours = self.ends(run, driver, &[preload])?;
        checks.equal(&format!("{name}: it ends so under the preload library, too"), ours, alone.clone());
        let record = [preload, ("MEMTRACE_RUN", Path::new("all")), ("MEMTRACE_OUT", &capture)];
        let recorded = self.ends(run, driver, &record)?;
        checks.equal(&format!("{name}: and recorded"), (recorded.0, recorded.1), (alone.0, alone.1));
        checks.that(&format!("{name}: there is a recording of it"), capture.exists());
        run.shell.remove_path(capture)?;
        Ok(())
    }

    fn ends(&self, run: &Run, driver: &Path, more: &[(&str, &Path)]) -> Result<Ended> {
        let (program, arguments) = (&self.command[0], &self.command[1..]);
        let libraries = std::env::join_paths([driver].into_iter().chain(self.libraries.iter().map(PathBuf::as_path)))?;
        let command =
            cmd!(run.shell, "{program} {arguments...}").env("LD_LIBRARY_PATH", libraries).env("RUST_BACKTRACE", "0");
        let command = self.variables.iter().fold(command, |command, (name, value)| command.env(name, value));
        let ended = output(command.envs(more.iter().copied()))?;
        let [said, errors] = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((ended.status.code(), said, errors))
    }
}
