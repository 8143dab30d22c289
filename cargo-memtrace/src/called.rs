//! The name by which users call this program: `cargo memtrace`, or `memtrace` if its file has that name, as in the
//! wheel for Python.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use clap::Command;

/// The program's name in texts that are written for cargo.
const BY_CARGO: &str = "cargo memtrace";
const ALONE: &str = "memtrace";

/// The words with which a command begins.
pub(crate) fn name() -> &'static str {
    static NAME: OnceLock<&str> = OnceLock::new();
    NAME.get_or_init(|| name_for(std::env::args_os().next().as_deref()))
}

pub(crate) fn is_alone() -> bool {
    name() == ALONE
}

fn name_for(program: Option<&OsStr>) -> &'static str {
    let file = program.and_then(|program| Path::new(program).file_name());
    if file.is_some_and(|file| file == ALONE) { ALONE } else { BY_CARGO }
}

/// Replaces the program's name in the help of a command and of all its subcommands.
pub(crate) fn in_help(command: Command) -> Command {
    if is_alone() { renamed(command.name(ALONE).bin_name(ALONE)) } else { command }
}

fn renamed(command: Command) -> Command {
    let examples = command.get_after_help().map(|text| text.to_string().replace(BY_CARGO, ALONE));
    let command = examples.into_iter().fold(command, Command::after_help);
    command.mut_subcommands(renamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_of_this_name_is_called_without_cargo() {
        let names = [Some("/env/bin/memtrace"), Some("memtrace"), Some("/home/memtrace/cargo-memtrace"), None];
        let called = names.map(|name| name_for(name.map(OsStr::new)));
        assert_eq!(called, ["memtrace", "memtrace", "cargo memtrace", "cargo memtrace"]);
    }
}
