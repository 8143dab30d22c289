//! `cargo memtrace`: records programs, and reads, compares and checks recordings. The program is a library because two
//! executables use it: `cargo-memtrace`, which cargo starts, and `memtrace` in Python's wheel, which needs no cargo.
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "names become visible in `output`")]

mod arguments;
mod build;
mod called;
mod cargo_runner;
mod commands;
mod elf;
mod failure;
mod input;
mod kit;
mod links;
mod moment;
mod one_rank;
mod output;
mod progress;
mod ranks;
mod recordings;
mod resident;
mod signals;
mod tables;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use memtrace_core::visible;

use crate::failure::CommandFailure;

/// The whole program. Help and messages call it by the name of the file that was started.
pub fn main() -> ExitCode {
    signals::files_too_large_are_errors();
    let command = match commands::understood(arguments()) {
        Ok(command) => command,
        Err(error) => return not_understood(error),
    };
    match command.run() {
        Ok(code) => code,
        Err(failure) => ended(&failure),
    }
}

fn ended(failure: &CommandFailure) -> ExitCode {
    output::tell(failure.lines().iter().map(|line| format!("{}: {line}", failure.word())));
    failure.code()
}

/// Prints what clap reports. Help and versions are no errors; clap prints them to the standard output. An error quotes
/// arguments, which may come from file names, so they are made visible first.
fn not_understood(error: clap::Error) -> ExitCode {
    let visible = arguments().map(|argument| visible::line(&argument.to_string_lossy()).into_owned());
    let printed = commands::understood(visible).err().unwrap_or_else(|| clap::Error::new(error.kind())).print();
    if error.use_stderr() {
        return ExitCode::from(2);
    }
    match output::printed(printed.and_then(|()| io::stdout().flush())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ended(&failure),
    }
}

/// The arguments. Cargo starts `cargo-memtrace memtrace …`, a user starts `cargo-memtrace …`.
fn arguments() -> impl Iterator<Item = OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == "memtrace") {
        arguments.remove(1);
    }
    arguments.into_iter()
}
