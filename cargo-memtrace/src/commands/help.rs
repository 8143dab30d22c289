//! `completions` and `man`, from the same definitions as `--help`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::CommandFailure;
use crate::output;

pub(crate) fn completions(shell: Shell) -> Result<(), CommandFailure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cargo-memtrace", &mut script);
    output::print_shown(&String::from_utf8_lossy(&script))
}

/// The page of the tool, then those of its commands.
pub(crate) fn man() -> Result<(), CommandFailure> {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    let pages = std::iter::once(command.clone()).chain(command.get_subcommands().cloned());
    for command in pages {
        clap_mangen::Man::new(command).render(&mut page).map_err(|error| CommandFailure::usage(error.to_string()))?;
    }
    output::print_shown(&String::from_utf8_lossy(&page))
}
