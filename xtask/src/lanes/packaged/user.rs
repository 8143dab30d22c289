//! A user's terminal: runs commands, checks what they print, and keeps a transcript.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::checks::Checks;

/// Lines of cargo's progress.
const PROGRESS: [&str; 13] = [
    "Compiling",
    "Checking",
    "Adding",
    "Locking",
    "Updating",
    "Finished",
    "Installing",
    "Installed",
    "Replacing",
    "Replaced",
    "Running",
    "Blocking",
    "Fresh",
];

pub(super) struct User {
    home: PathBuf,
    package: PathBuf,
    /// The folder from which the package's files are copied.
    sources: PathBuf,
    pub(super) checks: Checks,
    pub(super) transcript: String,
}

impl User {
    /// `home` contains cargo's folder, the cache and the package.
    pub(super) fn new(home: &Path, sources: &Path) -> Self {
        let (home, package, sources) = (home.to_owned(), home.join("digits"), sources.to_owned());
        Self { home, package, sources, checks: Checks::default(), transcript: String::new() }
    }

    pub(super) fn write(&mut self, text: &str) {
        self.transcript.push_str(text);
        self.transcript.push_str("\n\n");
    }

    /// Runs a command, which must end with this code and print all these texts.
    pub(super) fn run(&mut self, command: &str, code: i32, expected: &[&str]) -> Result<()> {
        println!("$ {command}");
        let output = self.command(command).output().with_context(|| format!("cannot run {command}"))?;
        let text = self.shown(&String::from_utf8_lossy(&output.stdout));
        self.checks.exit(command, output.status, output.status.code() == Some(code), &text);
        expected.iter().for_each(|part| self.checks.says(command, &text, part));
        self.checks.that(&format!("{command}: has names"), !text.contains("(no names)"));
        let ended = if code == 0 { String::new() } else { format!("\n[exit code {code}]") };
        Ok(write!(self.transcript, "```console\n$ {command}\n{}{ended}\n```\n\n", text.trim_end())?)
    }

    /// Adds a file to the package.
    pub(super) fn add(&mut self, file: &str) -> Result<()> {
        // The repository's file has another name, because a Cargo.toml would make it a package of the workspace.
        let text = std::fs::read_to_string(self.sources.join(file.replace("Cargo.toml", "Package.toml")))?;
        let path = self.package.join(file);
        std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        std::fs::write(path, &text)?;
        let language = if file.ends_with(".rs") { "rust" } else { "toml" };
        Ok(write!(self.transcript, "`{file}`:\n\n```{language}\n{text}```\n\n")?)
    }

    /// Replaces text in a file of the package.
    pub(super) fn edit(&mut self, file: &str, from: &str, to: &str) -> Result<()> {
        let path = self.package.join(file);
        let text = std::fs::read_to_string(&path)?;
        ensure!(text.contains(from), "{file} has no {from:?}");
        std::fs::write(&path, text.replacen(from, to, 1))?;
        let lines = |sign: char, text: &str| text.lines().map(|line| format!("{sign} {line}\n")).collect::<String>();
        let (removed, added) = (lines('-', from), lines('+', to));
        Ok(write!(self.transcript, "In `{file}`:\n\n```diff\n{removed}{added}```\n\n")?)
    }

    fn command(&self, command: &str) -> Command {
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(format!("exec 2>&1; {command}")).current_dir(&self.package);
        let inherited = |name: &str| {
            ["CARGO", "RUSTFLAGS", "RUSTC", "MEMTRACE", "CUDA", "LD_"].iter().any(|front| name.starts_with(front))
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(inherited)) {
            bash.env_remove(name);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        bash.env("PATH", format!("{}:{path}", self.home.join(".cargo/bin").display()));
        bash.env("CARGO_HOME", self.home.join(".cargo")).env("XDG_CACHE_HOME", self.home.join(".cache"));
        bash.env("COLUMNS", "100").env("NO_COLOR", "1").env("CARGO_TERM_COLOR", "never");
        // The build takes a third of the time, and the allocations are the same.
        bash.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
        bash
    }

    /// Output as in the transcript: the home folder is `~`, and cargo's progress is left out.
    fn shown(&self, output: &str) -> String {
        let output = output.replace(&self.home.display().to_string(), "~");
        let is_progress = |line: &&str| {
            line.starts_with("   ") && PROGRESS.contains(&line.split_whitespace().next().unwrap_or_default())
        };
        let lines: Vec<&str> = output.lines().filter(|line| !is_progress(line)).map(str::trim_end).collect();
        lines.join("\n")
    }
}
