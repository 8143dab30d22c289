//! Queries a CUDA driver in a child process: this executable with [`ARGUMENT`], which prints the answer as one line.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::{env, fmt};

use crate::driver::{DetectedGpus, DriverAnswer, detect};
use crate::kit::in_front;

/// The argument that makes this executable the child.
pub(crate) const ARGUMENT: &str = "--query-driver";

/// Queries the driver that the loader finds. A real driver is initialized only if it is `wanted`.
pub(crate) fn installed_driver(wanted: bool) -> Result<DriverAnswer, String> {
    query(env::var_os("LD_LIBRARY_PATH").as_deref(), wanted)
}

pub(crate) fn driver_in(folder: &Path) -> Result<DriverAnswer, String> {
    query(Some(&in_front("LD_LIBRARY_PATH", folder)?), false)
}

/// Starts the child and reads its answer. An invalid value in a variable of the simulated driver is an error.
fn query(library_path: Option<&OsStr>, wanted: bool) -> Result<DriverAnswer, String> {
    let program = env::current_exe().map_err(|error| format!("cannot find its own executable: {error}"))?;
    let mut command = Command::new(program);
    command.arg(ARGUMENT).args(wanted.then_some("wanted"));
    // The simulated driver's log and faults are meant for the program, not for this query.
    command.env_remove("MEMTRACE_CUSIM_LOG").env_remove("MEMTRACE_CUSIM_FAULTS");
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    let output = command.output().map_err(|error| format!("cannot start itself to query the driver: {error}"))?;
    if output.status.success() { Ok(answer_in(&output)) } else { crashed(&output) }
}

fn crashed(output: &Output) -> Result<DriverAnswer, String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    match errors.lines().find_map(|line| line.strip_prefix("memtrace-cusim: ")) {
        Some(message) => Err(format!("the simulated driver says: {message}")),
        None => Ok(DriverAnswer::None(format!("the NVIDIA driver crashes on a query: {}", output.status))),
    }
}

fn answer_in(output: &Output) -> DriverAnswer {
    let text = String::from_utf8_lossy(&output.stdout);
    // A driver may print, too; the answer is the last line.
    let line = text.lines().last().unwrap_or_default();
    parse(line).unwrap_or_else(|| DriverAnswer::None("the NVIDIA driver ends the process on a query".to_owned()))
}

fn parse(line: &str) -> Option<DriverAnswer> {
    let (kind, rest) = line.split_once(' ')?;
    if kind == "none" {
        return Some(DriverAnswer::None(rest.to_owned()));
    }
    let mut words = rest.splitn(3, ' ');
    let (count, memory) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let gpus = DetectedGpus { count, memory, name: words.next()?.to_owned() };
    match kind {
        "real" => Some(DriverAnswer::Real(gpus)),
        "simulated" => Some(DriverAnswer::Simulated(gpus)),
        _ => None,
    }
}

/// The code that runs in the child.
pub(crate) fn child(argument: Option<OsString>) -> ExitCode {
    let line = format!("{}\n", detect(argument.is_some()));
    if io::stdout().write_all(line.as_bytes()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Formats one line, which [`parse`] reads.
impl fmt::Display for DriverAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, gpus) = match self {
            Self::Real(gpus) => ("real", gpus),
            Self::Simulated(gpus) => ("simulated", gpus),
            Self::None(why) => return write!(f, "none {}", why.replace('\n', " ")),
        };
        write!(f, "{kind} {} {} {}", gpus.count, gpus.memory, gpus.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_answer_is_read_back() {
        let gpus = DetectedGpus { count: 2, memory: 80 << 30, name: "NVIDIA H200 x".to_owned() };
        let answers = [
            DriverAnswer::Real(gpus.clone()),
            DriverAnswer::Simulated(gpus),
            DriverAnswer::Simulated(DetectedGpus::default()),
            DriverAnswer::None("no driver here".to_owned()),
        ];
        for answer in answers {
            assert_eq!(parse(&answer.to_string()), Some(answer));
        }
        assert_eq!((parse(""), parse("real"), parse("real x 1 name")), (None, None, None));
    }
}
