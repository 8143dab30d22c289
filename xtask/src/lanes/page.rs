//! The offline page: its viewer is built again and compared, its unit tests run, and headless Chromium opens a page.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::main_job;
use crate::lane::{Run, said};

/// The viewer as committed.
const VIEWER: &str = "core/src/export/html/page.html";
/// Sources, copied beside the installed packages.
const SOURCES: [&str; 8] =
    ["src", "test", "browser.mjs", "build.mjs", "check.mjs", "hostile.mjs", "test.mjs", "tsconfig.json"];

pub(crate) fn run(run: &Run) -> Result<String> {
    let folder = folder(run)?;
    let shell = &run.shell;
    let built = run.scratch("page")?.join("page.html");
    said(cmd!(shell, "node {folder}/build.mjs {built}"))?;
    let is_same = std::fs::read(&built)? == std::fs::read(run.root.join(VIEWER))?;
    ensure!(is_same, "{VIEWER} is not what page/src builds; run `npm ci && node build.mjs` in the folder page");
    said(cmd!(shell, "node {folder}/node_modules/typescript/bin/tsc --project {folder} --noEmit"))?;
    said(cmd!(shell, "node {folder}/test.mjs"))?;
    let Some(chromium) = chromium() else {
        return Ok("the viewer is what its sources build; NOT RUN: there is no /usr/bin/chromium".to_owned());
    };
    let job = main_job::files(run, &["--iterations", "1"])?;
    let _chromium = shell.push_env("MEMTRACE_CHROMIUM", chromium);
    let found = checked(run, &folder, &job.join("report.html"), Some(&job.join("report.json")))?;
    if !run.is_full() {
        return Ok(format!("the viewer is what its sources build; resnet: {found}"));
    }
    let (page, hostile) = (job.join("report.html"), "--hostile");
    said(cmd!(shell, "node {folder}/check.mjs {page} {hostile}"))?;
    let others = recordings(run);
    for recording in &others {
        page_of(run, &folder, recording)?;
    }
    Ok(format!(
        "the viewer is what its sources build; resnet: {found}; {} other recordings, hostile texts",
        others.len()
    ))
}

fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("MEMTRACE_CHROMIUM").map(PathBuf::from);
    Some(named.unwrap_or_else(|| "/usr/bin/chromium".into())).filter(|path| path.exists())
}

/// The golden recording, and genuine snapshots of PyTorch where they are at hand.
fn recordings(run: &Run) -> Vec<PathBuf> {
    let folder = std::env::var_os("MEMTRACE_PYTORCH_SNAPSHOTS").map(PathBuf::from);
    let files = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let pickles = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "pickle"));
    std::iter::once(run.root.join("tests/golden/everything.memtrace")).chain(pickles).collect()
}

/// Makes the page of a recording and compares it with the recording's report.
fn page_of(run: &Run, folder: &Path, recording: &Path) -> Result<()> {
    let stem = recording.file_stem().context("a recording has a name")?;
    let (page, report) = (run.scratch("page")?.join(stem), run.scratch("page")?.join(stem));
    let (page, report) = (page.with_extension("html"), report.with_extension("json"));
    let shell = &run.shell;
    said(cmd!(shell, "cargo run --quiet -p cargo-memtrace -- memtrace view {recording} -o {page} --no-open"))?;
    said(cmd!(shell, "cargo run --quiet -p cargo-memtrace -- memtrace export {recording} --to json -o {report}"))?;
    checked(run, folder, &page, Some(&report)).map(drop)
}

/// What the browser finds on a page: its last line.
fn checked(run: &Run, folder: &Path, page: &Path, report: Option<&Path>) -> Result<String> {
    let text = said(cmd!(run.shell, "node {folder}/check.mjs {page}").args(report))?;
    Ok(text.lines().last().context("nothing was checked")?.to_owned())
}

/// The sources beside the packages of the lock file, which are installed once.
fn folder(run: &Run) -> Result<PathBuf> {
    let (shell, page) = (&run.shell, run.root.join("page"));
    let folder = run.cache()?.join("page");
    let lock = shell.read_file(page.join("package-lock.json"))?;
    let is_installed = std::fs::read_to_string(folder.join("installed.json")).is_ok_and(|installed| installed == lock);
    if !is_installed {
        shell.remove_path(&folder)?;
        shell.create_dir(&folder)?;
        for file in ["package.json", "package-lock.json", ".npmrc"] {
            shell.copy_file(page.join(file), folder.join(file))?;
        }
        said(cmd!(shell, "npm ci --prefix {folder}"))?;
        shell.write_file(folder.join("installed.json"), &lock)?;
    }
    for source in SOURCES {
        shell.remove_path(folder.join(source))?;
        let from = page.join(source);
        cmd!(shell, "cp -r {from} {folder}").quiet().run()?;
    }
    Ok(folder)
}
