//! Python's wheel. The lane builds it and uses it as a PyTorch user does: in a new environment, from an empty folder,
//! without cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::page;
use super::pytorch::torch::{Torch, VERSIONS};
use crate::cached::python_environment;
use crate::checks::Checks;
use crate::lane::{Run, both_streams, genuine_snapshots, said};
use crate::machine::{HERE, Machine};

/// Commands on a snapshot, their exit codes, and a text that each must print for any snapshot. `fit` cannot know what
/// PyTorch's libraries take.
const COMMANDS: [(&str, i32, &str); 5] = [
    ("report SNAPSHOT", 0, "Peak "),
    ("view SNAPSHOT --no-open -o page.html", 0, "wrote page"),
    ("diff SNAPSHOT SNAPSHOT", 0, "Change"),
    ("replay SNAPSHOT", 0, "reserve"),
    ("fit --gpus A10G --recording SNAPSHOT", 3, "undecided: the recording does not say what is needed"),
];

/// Python code that checks that the helper's page is complete, and that its frame contains the whole page.
const HELPER: &str = "\
import base64, sys, tensor_memtrace as tm
html = tm.page(sys.argv[1])
assert html.lstrip().lower().startswith(b'<!doctype html'), html[:80]
frame = tm.show(sys.argv[1])
kind, data = frame.src.split(',', 1)
assert kind == 'data:text/html;base64' and base64.b64decode(data) == html
print('the frame has', len(html), 'bytes')
";

/// Python code with which PyTorch writes a snapshot, and the helper shows it.
const WITH_PYTORCH: &str = "\
import sys, torch, tensor_memtrace as tm
torch.cuda.memory._record_memory_history(max_entries=1_000_000)
model = torch.nn.Linear(1024, 1024).cuda()
model(torch.zeros(64, 1024, device='cuda')).sum().backward()
frame = tm.show()
assert frame.src.startswith('data:text/html;base64,'), frame.src[:80]
print(torch.__version__, 'wrote', tm.dump(sys.argv[1]))
";

/// A notebook whose only cell shows a snapshot.
const NOTEBOOK: &str = r#"{
    "cells": [{ "cell_type": "code", "execution_count": null, "id": "show", "metadata": {}, "outputs": [], "source": ["import tensor_memtrace\n", "tensor_memtrace.show('SNAPSHOT')"] }],
    "metadata": { "kernelspec": { "display_name": "Python 3", "language": "python", "name": "python3" }, "language_info": { "name": "python" } },
    "nbformat": 4,
    "nbformat_minor": 5
}"#;

pub(crate) fn run(run: &Run) -> Result<String> {
    let wheel = make(run, HERE, &run.scratch("wheel")?)?;
    let mut user = User::new(run, &wheel)?;
    user.runs("--version", 0, "memtrace ")?;
    let help = user.runs("--help", 0, "Usage: memtrace <COMMAND>")?;
    user.checks.that("its help does not speak of cargo memtrace", !help.contains("cargo memtrace"));
    let mut snapshots = snapshots(&mut user, &run.root)?;
    snapshots.extend(user.snapshot_of_pytorch(run)?);
    for snapshot in &snapshots {
        for (command, code, part) in COMMANDS {
            user.runs(&command.replace("SNAPSHOT", snapshot), code, part)?;
        }
        user.python(HELPER, &[snapshot], "the frame has")?;
    }
    user.notebook(run, &snapshots)?;
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(format!("{name}, {} snapshots: {}", snapshots.len(), user.checks.end()?))
}

/// Builds the wheel with the tag of the oldest glibc that it runs on.
pub(crate) fn make(run: &Run, machine: Machine, out: &Path) -> Result<PathBuf> {
    let maturin = python_environment(run, "wheel")?.join("maturin");
    let (shell, manifest) = (&run.shell, run.root.join("python/Cargo.toml"));
    said(machine.builds(cmd!(
        shell,
        "{maturin} build --quiet --profile dist --locked --manifest-path {manifest} --out {out}"
    )))?;
    let wheels: Vec<PathBuf> =
        shell.read_dir(out)?.into_iter().filter(|it| it.extension().is_some_and(|end| end == "whl")).collect();
    let [wheel] = &wheels[..] else { anyhow::bail!("maturin made {} wheels", wheels.len()) };
    ensure!(wheel.display().to_string().contains("-manylinux_"), "{} is for this machine only", wheel.display());
    Ok(wheel.clone())
}

/// A generated snapshot, and the genuine ones in the folder that MEMTRACE_PYTORCH_SNAPSHOTS names.
fn snapshots(user: &mut User, root: &Path) -> Result<Vec<String>> {
    let capture = root.join("tests/golden/everything.memtrace").display().to_string();
    user.runs(&format!("export {capture} --to pytorch -o generated.pickle"), 0, "wrote generated.pickle")?;
    let generated = user.folder.join("generated.pickle");
    Ok(std::iter::once(generated).chain(genuine_snapshots()?).map(|path| path.display().to_string()).collect())
}

struct User {
    folder: PathBuf,
    environment: PathBuf,
    checks: Checks,
}

impl User {
    /// A new environment with the wheel, and an empty folder.
    fn new(run: &Run, wheel: &Path) -> Result<Self> {
        let (shell, environment) = (&run.shell, run.scratch("user")?.join("environment"));
        cmd!(shell, "python3 -m venv {environment}").run()?;
        let python = environment.join("bin/python");
        cmd!(shell, "{python} -m pip install --quiet {wheel} jupyterlab").run()?;
        Ok(Self { folder: run.scratch("here")?, environment, checks: Checks::default() })
    }

    /// A program of the environment, without cargo in PATH.
    fn command(&self, program: &str) -> Command {
        let programs = self.environment.join("bin");
        let mut command = Command::new(programs.join(program));
        command.current_dir(&self.folder).env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).env("HOME", &self.folder);
        command
    }

    /// Runs a command of memtrace, which must end with this code and print this text. Returns its output.
    fn runs(&mut self, arguments: &str, code: i32, part: &str) -> Result<String> {
        let output = self.command("memtrace").args(arguments.split(' ')).output().context("memtrace does not start")?;
        let (name, text) = (format!("memtrace {arguments}"), both_streams(&output));
        self.checks.exit(&name, output.status, output.status.code() == Some(code), &text);
        self.checks.says(&name, &text, part);
        Ok(text)
    }

    fn python(&mut self, code: &str, arguments: &[&str], says: &str) -> Result<()> {
        let output = self.command("python").arg("-c").arg(code).args(arguments).output()?;
        let text = both_streams(&output);
        self.checks.exit("python", output.status, output.status.success(), &text);
        self.checks.says("python", &text, says);
        Ok(())
    }

    /// A snapshot that PyTorch writes on the simulated GPU. `None` without PyTorch's wheels.
    fn snapshot_of_pytorch(&mut self, run: &Run) -> Result<Option<String>> {
        let Some(torch) = Torch::of(run, VERSIONS[0])? else {
            println!("a snapshot that PyTorch writes NOT RUN: no network for its wheels");
            return Ok(None);
        };
        let snapshot = self.folder.join("pytorch.pickle");
        let mut python = self.command("python");
        python.args(["-W", "ignore", "-c", WITH_PYTORCH]).arg(&snapshot).envs(torch.variables());
        let output = python.output()?;
        let text = both_streams(&output);
        self.checks.exit("python with PyTorch", output.status, output.status.success(), &text);
        self.checks.says("python with PyTorch", &text, &format!("{}+", torch.version));
        Ok(Some(snapshot.display().to_string()))
    }

    /// Checks that JupyterLab in a browser shows the whole pages.
    fn notebook(&mut self, run: &Run, snapshots: &[String]) -> Result<()> {
        let Some(chromium) = page::chromium() else {
            println!("notebooks NOT RUN: there is no /usr/bin/chromium");
            return Ok(());
        };
        let script = page::folder(run)?.join("notebook.mjs");
        for snapshot in snapshots {
            run.shell.write_file(self.folder.join("show.ipynb"), NOTEBOOK.replace("SNAPSHOT", snapshot))?;
            let mut node = self.command("/usr/bin/env");
            let output =
                node.arg("node").arg(&script).arg(&self.folder).env("MEMTRACE_CHROMIUM", &chromium).output()?;
            let text = both_streams(&output);
            self.checks.exit("node notebook.mjs", output.status, output.status.success(), &text);
            self.checks.says("node notebook.mjs", &text, "views in a notebook, which they cannot reach");
        }
        Ok(())
    }
}
