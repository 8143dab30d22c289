//! `cargo memtrace`: records programs, and reads, compares and checks recordings.

mod build;
mod cli;
mod commands;
mod elf;
mod failure;
mod input;
mod kit;
mod moment;
mod output;
mod progress;
mod recordings;
mod resident;
mod signals;
mod tables;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use cli::Cli;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(arguments()) {
        Ok(cli) => cli,
        // Help and versions are no errors: clap prints them to the standard output.
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.code()
        }
    }
}

/// Cargo starts `cargo-memtrace memtrace …`; started by hand it is `cargo-memtrace …`.
fn arguments() -> impl Iterator<Item = OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == "memtrace") {
        arguments.remove(1);
    }
    arguments.into_iter()
}
