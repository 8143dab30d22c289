//! The command.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::choice::{Choice, choose};
use crate::wish::Wish;
use crate::{ask, needs, skip};

const HELP: &str = include_str!("help.txt");

pub(crate) fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(first) = arguments.next() else { return usage("no program") };
    match first.to_str() {
        Some("--help" | "-h") => say(HELP),
        Some("--version" | "-V") => say(concat!("memtrace-runner ", env!("CARGO_PKG_VERSION"), "\n")),
        Some("--which") => return told(which(arguments.next())),
        Some(ask::ARGUMENT) => return ask::answer(arguments.next()),
        Some(option) if option.starts_with('-') => return usage(&format!("what is {option}?")),
        _ => return told(run(Path::new(&first), &arguments.collect::<Vec<_>>())),
    }
    ExitCode::SUCCESS
}

/// On stdout. Nobody has to read it.
fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

fn usage(wrong: &str) -> ExitCode {
    eprintln!("memtrace-runner: {wrong} (try --help)");
    ExitCode::from(2)
}

fn told(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("memtrace-runner: {message}");
            ExitCode::FAILURE
        }
    }
}

fn which(program: Option<OsString>) -> Result<(), String> {
    let needs = program.map(|program| needs::cuda(Path::new(&program))).unwrap_or_default();
    let wish = Wish::from_env()?;
    let choice = choose(wish.gpu, &needs)?;
    say(&format!("{choice}\n"));
    if let Choice::Simulated(Some(folder), ..) = &choice {
        say(&format!("its driver: {}\n", folder.display()));
    }
    match choice {
        Choice::None(_) if wish.required => Err("MEMTRACE_REQUIRE_GPU=1 asks for a GPU".to_owned()),
        _ => Ok(()),
    }
}

/// Returns only if the program was not started.
fn run(program: &Path, arguments: &[OsString]) -> Result<(), String> {
    let wish = Wish::from_env()?;
    let needs = needs::cuda(program);
    let choice = choose(wish.gpu, &needs)?;
    match &choice {
        Choice::None(why) if wish.required => {
            Err(format!("no GPU for {}, and MEMTRACE_REQUIRE_GPU=1 asks for one: {why}", program.display()))
        }
        Choice::None(why) if !needs.is_empty() => without(program, arguments, why),
        _ => start(program, arguments, &choice),
    }
}

/// For a program that cannot start without a driver.
fn without(program: &Path, arguments: &[OsString], why: &str) -> Result<(), String> {
    if !skip::is_test(program) {
        return Err(format!("{} cannot start without a GPU: {why}", program.display()));
    }
    eprintln!("memtrace-runner: skipped {}: no GPU ({why})", program.display());
    say(&skip::text(arguments));
    Ok(())
}

/// The program takes the place of this process: signals and its end are its own.
fn start(program: &Path, arguments: &[OsString], choice: &Choice) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(arguments).env("MEMTRACE_GPU_USED", choice.word());
    if let Choice::Simulated(Some(folder), ..) = choice {
        command.env("LD_LIBRARY_PATH", ask::in_front(folder)?);
    }
    eprintln!("memtrace-runner: {choice}");
    Err(format!("cannot start {}: {}", program.display(), command.exec()))
}
