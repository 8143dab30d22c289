//! `man`: made from the same definitions as `--help`.

use clap::Args;

use super::definition;
use crate::failure::CommandFailure;
use crate::output;

/// Print the manual page
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace man | man -l -")]
pub(crate) struct ManArgs;

/// Prints the tool's page, then the pages of its commands.
pub(crate) fn run(_: &ManArgs) -> Result<(), CommandFailure> {
    let mut command = definition();
    command.build();
    let mut page = Vec::new();
    let pages = std::iter::once(command.clone()).chain(command.get_subcommands().cloned());
    for command in pages {
        clap_mangen::Man::new(command).render(&mut page).map_err(|error| CommandFailure::usage(error.to_string()))?;
    }
    output::print_shown(&String::from_utf8_lossy(&page))
}
