//! Command line of the runner.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::choice::{GpuChoice, choose};
use crate::kit::{Kit, SimulatedGpu, cache, in_front};
use crate::settings::RunnerSettings;
use crate::{needs, query, simulated, skip};

const HELP: &str = include_str!("help.txt");

pub(crate) fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(first) = arguments.next() else { return usage_error("no program") };
    let result = match first.to_str() {
        Some("--help" | "-h") => print(HELP),
        Some("--version" | "-V") => print(concat!("memtrace-runner ", env!("CARGO_PKG_VERSION"), "\n")),
        Some("--which") => which(arguments.next()),
        Some("--simulate") => match arguments.next() {
            Some(command) => simulate(&command, arguments),
            None => return usage_error("no command"),
        },
        Some(query::ARGUMENT) => return query::child(arguments.next()),
        Some(option) if option.starts_with('-') => return usage_error(&format!("unknown option {option}")),
        _ => run(Path::new(&first), &arguments.collect::<Vec<_>>()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say(&message);
            ExitCode::FAILURE
        }
    }
}

/// Prints to stdout. A closed stdout is no error.
fn print(text: &str) -> Result<(), String> {
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Prints a line on the standard error. If nobody reads it, or the disk is full, the program still starts.
fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "memtrace-runner: {line}");
}

fn usage_error(message: &str) -> ExitCode {
    say(format!("{message} (try --help)"));
    ExitCode::from(2)
}

/// `--which`: prints which GPU is chosen.
fn which(program: Option<OsString>) -> Result<(), String> {
    let needs = program.map(|program| needs::cuda_libraries(Path::new(&program))).unwrap_or_default();
    let settings = RunnerSettings::from_env()?;
    let choice = choose(settings.gpu, &needs)?;
    print(&format!("{choice}\n"))?;
    if let GpuChoice::Simulated { folder: Some(folder), .. } = &choice {
        print(&format!("its driver: {}\n", folder.display()))?;
    }
    match choice {
        GpuChoice::None(_) if settings.required => Err("MEMTRACE_REQUIRE_GPU=1 requires a GPU".to_owned()),
        _ => Ok(()),
    }
}

/// `--simulate`: replaces this process with a command that builds for a simulated GPU and runs there.
fn simulate(command: &OsString, arguments: impl Iterator<Item = OsString>) -> Result<(), String> {
    let named = env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let target = named.map_or_else(|| Ok(cache()?.join("target")), Ok::<_, String>)?;
    let gone = "the sources that this runner was installed from are gone: install it again, see docs/testing-gpu.md";
    let kit = Kit::of(&simulated::sources().ok_or(gone)?)?;
    let gpu = SimulatedGpu::of(&kit, &target.join("simulated"))?;
    let error = Command::new(command).args(arguments).envs(gpu.variables()).exec();
    Err(format!("cannot start {}: {error}", command.display()))
}

/// Returns only if the program could not be started.
fn run(program: &Path, arguments: &[OsString]) -> Result<(), String> {
    let settings = RunnerSettings::from_env()?;
    let needs = needs::cuda_libraries(program);
    let choice = choose(settings.gpu, &needs)?;
    match &choice {
        GpuChoice::None(why) if settings.required => {
            Err(format!("no GPU for {}, and MEMTRACE_REQUIRE_GPU=1 requires one: {why}", program.display()))
        }
        GpuChoice::None(why) if !needs.is_empty() => skip_test(program, arguments, why),
        _ => start(program, arguments, &choice),
    }
}

/// Skips a test that cannot start without a driver; any other program is an error.
fn skip_test(program: &Path, arguments: &[OsString], why: &str) -> Result<(), String> {
    if !skip::is_test(program) {
        return Err(format!("{} cannot start without a GPU: {why}", program.display()));
    }
    say(format!("skipped {}: no GPU ({why})", program.display()));
    print(&skip::text(arguments))
}

/// Replaces this process with the program, which keeps its signals and exit status.
fn start(program: &Path, arguments: &[OsString], choice: &GpuChoice) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(arguments).env("MEMTRACE_GPU_USED", choice.word());
    if let GpuChoice::Simulated { folder: Some(folder), .. } = choice {
        command.env("LD_LIBRARY_PATH", in_front("LD_LIBRARY_PATH", folder)?);
    }
    say(choice);
    Err(format!("cannot start {}: {}", program.display(), command.exec()))
}
