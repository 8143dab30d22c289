//! The processor time of a command.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};

use super::commands::{FILE, NEW};
use crate::checks::last_lines;

/// The stack's size in kilobytes, which is a thread's.
const STACK: &str = "2048";

/// The tool's processor time. The tool may refuse a file or find something, but must not crash.
pub(super) fn cpu_time(tool: &Path, words: &[&str], file: &Path) -> Result<Duration> {
    Ok(run(&[tool.as_os_str()], words, file)?.0)
}

/// The tool's instructions, as callgrind counts them. Other programs and full caches do not change this number.
pub(super) fn instructions(tool: &Path, words: &[&str], file: &Path) -> Result<u64> {
    let program: [&OsStr; 4] =
        ["valgrind".as_ref(), "--tool=callgrind".as_ref(), "--callgrind-out-file=/dev/null".as_ref(), tool.as_os_str()];
    let said = run(&program, words, file)?.1;
    let collected = said.split_once("Collected :").context("callgrind counted nothing; is valgrind installed?")?.1;
    Ok(collected.split_whitespace().next().context("callgrind said no number")?.parse()?)
}

/// Processor time and the standard error of a program with the tool's arguments.
fn run(program: &[&OsStr], words: &[&str], file: &Path) -> Result<(Duration, String)> {
    let new = file.with_extension("tables");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -s $0; exec \"$@\"", STACK]).args(program);
    for word in words {
        match *word {
            FILE => command.arg(file),
            NEW => command.arg(&new),
            word => command.arg(word),
        };
    }
    let before = of_children()?;
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    let took = of_children()?.saturating_sub(before);
    if new.exists() {
        std::fs::remove_dir_all(&new)?;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if !matches!(output.status.code(), Some(0..=3)) || said.contains("panicked") {
        bail!("ended with {}: {}", output.status, last_lines(&said));
    }
    Ok((took, said.into_owned()))
}

fn of_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time =
        |time: nix::sys::time::TimeVal| Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()) as u64);
    Ok(time(usage.user_time()) + time(usage.system_time()))
}
