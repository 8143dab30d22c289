//! Asks a driver in a process of its own: this executable once more, which answers with a line.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::{env, fmt};

use crate::answer::{Answer, Gpus};
use crate::driver;

/// The argument that makes this executable answer.
pub(crate) const ARGUMENT: &str = "--ask-driver";

/// Asks the driver that the loader finds here. A real one is only started if it is `wanted`.
pub(crate) fn here(wanted: bool) -> Result<Answer, String> {
    ask(env::var_os("LD_LIBRARY_PATH").as_deref(), wanted)
}

/// Asks the driver in this folder.
pub(crate) fn folder(folder: &Path) -> Result<Answer, String> {
    ask(Some(&in_front(folder)?), false)
}

/// `LD_LIBRARY_PATH` with this folder in front.
pub(crate) fn in_front(folder: &Path) -> Result<OsString, String> {
    let mut path = folder.as_os_str().to_owned();
    if path.as_encoded_bytes().iter().any(|byte| matches!(byte, b':' | b';')) {
        return Err(format!("{} has a character in it that separates folders; rename it", folder.display()));
    }
    if let Some(rest) = env::var_os("LD_LIBRARY_PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    Ok(path)
}

/// An error is a variable of the simulated driver that makes no sense.
fn ask(library_path: Option<&OsStr>, wanted: bool) -> Result<Answer, String> {
    let program = env::current_exe().map_err(|error| format!("cannot find its own executable: {error}"))?;
    let mut command = Command::new(program);
    command.arg(ARGUMENT).args(wanted.then_some("wanted"));
    // The log and the faults are the program's.
    command.env_remove("MEMTRACE_CUSIM_LOG").env_remove("MEMTRACE_CUSIM_FAULTS");
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    let output = command.output().map_err(|error| format!("cannot start itself to ask the driver: {error}"))?;
    if output.status.success() { Ok(read(&output)) } else { crashed(&output) }
}

fn crashed(output: &Output) -> Result<Answer, String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    match errors.lines().find_map(|line| line.strip_prefix("memtrace-cusim: ")) {
        Some(wrong) => Err(format!("the simulated driver says: {wrong}")),
        None => Ok(Answer::None(format!("the NVIDIA driver crashes when it is asked: {}", output.status))),
    }
}

fn read(output: &Output) -> Answer {
    let text = String::from_utf8_lossy(&output.stdout);
    // A driver may write, too; the answer is the last line.
    let line = text.lines().last().unwrap_or_default();
    parse(line).unwrap_or_else(|| Answer::None("the NVIDIA driver ends the process when it is asked".to_owned()))
}

fn parse(line: &str) -> Option<Answer> {
    if let Some(why) = line.strip_prefix("none ") {
        return Some(Answer::None(why.to_owned()));
    }
    let mut words = line.splitn(4, ' ');
    let kind = words.next()?;
    let (count, memory) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let gpus = Gpus { count, memory, name: words.next()?.to_owned() };
    match kind {
        "real" => Some(Answer::Real(gpus)),
        "simulated" => Some(Answer::Simulated(gpus)),
        _ => None,
    }
}

/// In the process of its own.
pub(crate) fn answer(argument: Option<OsString>) -> ExitCode {
    let line = format!("{}\n", driver::look(argument.is_some()));
    if io::stdout().write_all(line.as_bytes()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One line, which [`parse`] reads.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real(gpus) => write!(f, "real {} {} {}", gpus.count, gpus.memory, gpus.name),
            Self::Simulated(gpus) => write!(f, "simulated {} {} {}", gpus.count, gpus.memory, gpus.name),
            Self::None(why) => write!(f, "none {}", why.replace('\n', " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_answered_is_what_is_read() {
        let gpus = Gpus { count: 2, memory: 80 << 30, name: "NVIDIA H200 x".to_owned() };
        let answers = [
            Answer::Real(gpus.clone()),
            Answer::Simulated(gpus),
            Answer::Simulated(Gpus::default()),
            Answer::None("no driver here".to_owned()),
        ];
        for answer in answers {
            assert_eq!(parse(&answer.to_string()), Some(answer));
        }
        assert_eq!((parse(""), parse("real"), parse("real x 1 name")), (None, None, None));
    }
}
