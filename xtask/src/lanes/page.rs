//! The offline page. The lane builds its viewer again and compares it, runs its unit tests, and opens pages in headless
//! Chromium.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::{consumers, main_job, simulated};
use crate::lane::{Run, both_streams, genuine_snapshots, said};

/// The viewer as committed.
const VIEWER: &str = "core/src/export/html/page.html";
/// The recording whose page has source text and links.
const SOURCES_OF: &str = "uses";
/// Findings that only a recording with uses has.
const OF_USES: [&str; 3] = ["past_last_use", "never_used", "allocated_early"];

pub(crate) fn run(run: &Run) -> Result<String> {
    let folder = folder(run)?;
    let shell = &run.shell;
    let built = run.scratch("page")?.join("page.html");
    said(cmd!(shell, "node {folder}/build.mjs {built}"))?;
    let is_same = std::fs::read(&built)? == std::fs::read(run.root.join(VIEWER))?;
    ensure!(is_same, "{VIEWER} is not what page/src builds; run `npm ci && node build.mjs` in the folder page");
    // These run at the same time, because the browser mostly waits.
    let types = Background::node(&folder, &["node_modules/typescript/bin/tsc", "--noEmit"])?;
    let tests = Background::node(&folder, &["test.mjs"])?;
    let found = pages(run, &folder)?;
    types.end()?;
    tests.end()?;
    Ok(format!("the viewer is what its sources build; {found}"))
}

fn pages(run: &Run, folder: &Path) -> Result<String> {
    let Some(chromium) = chromium() else { return Ok("NOT RUN: there is no /usr/bin/chromium".to_owned()) };
    let shell = &run.shell;
    let job = main_job::files(run, &["--iterations", "1"])?;
    let _chromium = shell.push_env("MEMTRACE_CHROMIUM", chromium);
    let found = checked(run, folder, &job.join("report.html"), &job.join("report.json"), &[])?;
    if !run.is_full() {
        return Ok(format!("resnet: {found}"));
    }
    let (page, hostile) = (job.join("report.html"), "--hostile");
    said(cmd!(shell, "node {folder}/check.mjs {page} {hostile}"))?;
    cmd!(shell, "cargo build --quiet --package cargo-memtrace").run()?;
    let mut all = vec![format!("resnet: {found}")];
    for (name, files) in recordings(run)? {
        all.push(format!("{name}: {}", page_of(run, folder, &name, &files)?));
    }
    Ok(format!("{}; hostile texts", all.join("; ")))
}

/// A program that runs at the same time as the browser.
struct Background {
    shown: String,
    child: Child,
}

impl Background {
    fn node(folder: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new("node");
        command.current_dir(folder).args(arguments).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Self { shown: format!("node {}", arguments.join(" ")), child })
    }

    fn end(self) -> Result<()> {
        let ended = self.child.wait_with_output()?;
        ensure!(ended.status.success(), "`{}` ended with {}:\n{}", self.shown, ended.status, both_streams(&ended));
        Ok(())
    }
}

pub(super) fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("MEMTRACE_CHROMIUM").map(PathBuf::from);
    Some(named.unwrap_or_else(|| "/usr/bin/chromium".into())).filter(|path| path.exists())
}

/// Recordings of all kinds, each with its name; one entry compares two recordings. Genuine snapshots of PyTorch are
/// included if they are available.
fn recordings(run: &Run) -> Result<Vec<(String, Vec<PathBuf>)>> {
    let scratch = run.scratch("page")?;
    let llama = scratch.join("llama.memtrace");
    simulated::llama(run, &llama)?;
    let uses = scratch.join("uses.memtrace");
    simulated::model_with_uses(run, &uses)?;
    let (server, _) = consumers::server(run, &scratch, "server", "SIGKILL", &["--gpu"])?;
    let two = [main_job::files(run, &["--iterations", "1"])?, main_job::files(run, &["--iterations", "2"])?];
    let mut found: Vec<(String, Vec<PathBuf>)> = vec![
        ("llama".to_owned(), vec![llama]),
        ("uses".to_owned(), vec![uses]),
        ("server".to_owned(), vec![server]),
        ("two runs".to_owned(), two.map(|job| job.join("recording.memtrace")).to_vec()),
        ("everything".to_owned(), vec![run.root.join("tests/golden/everything.memtrace")]),
    ];
    for pickle in genuine_snapshots()? {
        let name = pickle.file_stem().context("a snapshot has a name")?.to_string_lossy().into_owned();
        found.push((name, vec![pickle]));
    }
    Ok(found)
}

/// Makes the page of a recording, or of two, and compares it with the report of the last one.
fn page_of(run: &Run, folder: &Path, name: &str, files: &[PathBuf]) -> Result<String> {
    let scratch = run.scratch("page")?;
    let (page, report) = (scratch.join(format!("{name}.html")), scratch.join(format!("{name}.json")));
    let (shell, program) = (&run.shell, run.target.join("debug/cargo-memtrace"));
    let last = files.last().context("a page has a recording")?;
    let (options, checks): (&[&str], &[&str]) =
        if name == SOURCES_OF { (&["--sources", "--links", "vscode"], &["--sources"]) } else { (&[], &[]) };
    said(cmd!(shell, "{program} memtrace view {files...} -o {page} --no-open {options...}"))?;
    said(cmd!(shell, "{program} memtrace export {last} --to json -o {report}"))?;
    if name == SOURCES_OF {
        let text = shell.read_file(&report)?;
        let is_there = OF_USES.iter().any(|kind| text.contains(&format!("\"kind\": \"{kind}\"")));
        ensure!(is_there, "the recording with uses has no finding of uses");
    }
    checked(run, folder, &page, &report, checks)
}

/// The browser's findings on a page: the last line of its output.
fn checked(run: &Run, folder: &Path, page: &Path, report: &Path, options: &[&str]) -> Result<String> {
    let text = said(cmd!(run.shell, "node {folder}/check.mjs {page} {report} {options...}"))?;
    Ok(text.lines().last().context("nothing was checked")?.to_owned())
}

/// The sources in one folder with the packages of the lock file, which are installed once.
pub(super) fn folder(run: &Run) -> Result<PathBuf> {
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
    for source in shell.read_dir(&page)?.into_iter().filter(|source| !source.ends_with("node_modules")) {
        shell.remove_path(folder.join(source.file_name().context("a source has a name")?))?;
        cmd!(shell, "cp -r {source} {folder}").quiet().run()?;
    }
    Ok(folder)
}
