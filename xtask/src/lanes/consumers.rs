//! Opens formats of other tools in these tools. Each tool computes the bytes at the peak and the bytes of the largest
//! line; both must equal the report's. The scripts in xtask/consumers drive the tools.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::cmd;

use super::{main_job, simulated, tables};
use crate::checks::counted;
use crate::lane::{Run, genuine_snapshots, said};

/// Files of a recording: format and name.
const FILES: [(&str, &str); 5] = [
    ("json", "report.json"),
    ("pprof", "peak.pb.gz"),
    ("folded", "peak.folded"),
    ("dhat", "run.dhat.json"),
    ("parquet", "runs"),
];

/// Debian's packages of the consumers: a file that shows whether the package is installed, and the package's name.
const PACKAGES: [(&str, &str); 3] = [
    ("/usr/bin/go", "golang-go"),
    ("/usr/bin/chromium", "chromium"),
    ("/usr/libexec/valgrind/dh_view.html", "valgrind"),
];

pub(crate) fn run(run: &Run) -> Result<String> {
    let python = if run.is_full() { tables::python(run)? } else { PathBuf::new() };
    let mut lane = ConsumersLane { run, checks: 0, modules: modules(run)?, python, scratch: run.scratch("consumers")? };
    if !run.is_full() {
        // With the same features as in the lane `tests`, so that nothing is built again.
        cmd!(run.shell, "cargo test --quiet --workspace --test commands --no-run").run()?;
        lane.opened("everything", &run.root.join("tests/golden/everything.memtrace"))?;
        return Ok(format!("{} figures of the smallest recording", lane.checks));
    }
    cmd!(run.shell, "cargo build --quiet --package cargo-memtrace").run()?;
    install(run)?;
    let main_job = main_job::files(run, &["--iterations", "1"])?;
    lane.opened("resnet", &main_job.join("recording.memtrace"))?;
    let llama = lane.scratch.join("llama.memtrace");
    simulated::llama(run, &llama)?;
    lane.opened("llama", &llama)?;
    for (name, end, on) in [("server", "SIGINT", &["--gpu"][..]), ("killed", "SIGKILL", &[])] {
        let recording = lane.server(name, end, on)?;
        lane.opened(name, &recording)?;
    }
    let genuine = genuine_snapshots()?.into_iter().next();
    lane.opened("pickle", &genuine.unwrap_or_else(|| main_job.join("snapshot.pickle")))?;
    Ok(format!("{} figures of five recordings", lane.checks))
}

struct ConsumersLane<'r> {
    run: &'r Run,
    checks: usize,
    /// The folder `node_modules`. In the small form it has no consumers.
    modules: PathBuf,
    /// A Python with DuckDB; empty in the small form.
    python: PathBuf,
    scratch: PathBuf,
}

impl ConsumersLane<'_> {
    /// Exports a recording and opens the files.
    fn opened(&mut self, name: &str, recording: &Path) -> Result<()> {
        let Self { run, modules, python, scratch, .. } = self;
        let folder = run.shell.create_dir(scratch.join(name))?;
        let program = run.target.join("debug/cargo-memtrace");
        for (format, file) in FILES {
            let file = folder.join(file);
            run.shell.remove_path(&file)?;
            said(cmd!(run.shell, "{program} memtrace export {recording} --to {format} -o {file}"))?;
        }
        let size = if run.is_full() { "full" } else { "small" };
        let scripts = run.root.join("xtask/consumers");
        let text = said(cmd!(run.shell, "node {scripts}/check.mjs {size} {modules} {python} {scratch} {folder}"))?;
        self.checks += counted(&text)?;
        Ok(())
    }

    /// Records the example server and returns the capture.
    fn server(&mut self, name: &str, end: &str, arguments: &[&str]) -> Result<PathBuf> {
        let (recording, said) = server(self.run, &self.scratch, name, end, arguments)?;
        if end == "SIGINT" {
            self.checks += counted(&said)?;
        }
        Ok(recording)
    }
}

/// Runs the example server until the signal. Returns its capture, in `scratch`, and the output. With SIGINT, profiles
/// are also fetched with the Go tools.
pub(super) fn server(
    run: &Run,
    scratch: &Path,
    name: &str,
    end: &str,
    arguments: &[&str],
) -> Result<(PathBuf, String)> {
    let (recording, scripts) = (scratch.join(format!("{name}.memtrace")), run.root.join("xtask/consumers"));
    let program = server_program(run)?;
    let variable = format!("MEMTRACE_OUT={}", recording.display());
    let node =
        cmd!(run.shell, "node {scripts}/server.mjs {end} {scratch} env {variable} {program} --port 0 {arguments...}");
    Ok((recording, said(node.envs(run.simulated_gpu()?.variables()))?))
}

/// Builds the example server.
pub(super) fn server_program(run: &Run) -> Result<PathBuf> {
    let (target, manifest) = (run.target.join("server"), run.root.join("examples/server/Cargo.toml"));
    cmd!(run.shell, "cargo build --quiet --manifest-path {manifest} --target-dir {target}").run()?;
    Ok(target.join("debug/server"))
}

/// Installs the consumers from npm into the cache; the small form needs none.
fn modules(run: &Run) -> Result<PathBuf> {
    let (shell, cache) = (&run.shell, run.cache()?.join("consumers"));
    let modules = cache.join("node_modules");
    if !run.is_full() {
        return Ok(modules);
    }
    let lock = run.root.join("xtask/consumers/package-lock.json");
    let ready = cache.join("ready");
    let content = shell.read_file(&lock)?;
    if shell.read_file(&ready).is_ok_and(|known| known == content) {
        return Ok(modules);
    }
    shell.create_dir(&cache)?;
    shell.copy_file(&lock, &cache)?;
    shell.copy_file(run.root.join("xtask/consumers/package.json"), &cache)?;
    cmd!(shell, "npm ci --silent --no-audit --no-fund --prefix {cache}").run()?;
    shell.write_file(ready, content)?;
    Ok(modules)
}

fn install(run: &Run) -> Result<()> {
    let missing: Vec<&str> =
        PACKAGES.iter().filter(|(file, _)| !Path::new(file).exists()).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        let command = "apt-get update --quiet --quiet; exec apt-get install --yes --quiet --quiet \"$@\"";
        let names = missing.join(", ");
        cmd!(run.shell, "sh -c {command} install {missing...}").run().with_context(|| format!("install {names}"))?;
    }
    Ok(())
}
