//! `export`: a recording in the format of another tool.

#[cfg(all(test, feature = "parquet"))]
mod tests;

use std::path::Path;

use clap::builder::{PossibleValue, PossibleValuesParser};
use memtrace_core::export::{Export, Format};

use crate::cli::ExportArgs;
use crate::failure::CommandFailure;
use crate::tables::{RunTables, TableFormat};
use crate::{input, output};

/// What `--to` takes: the formats of core with a name, and the tables.
pub(crate) fn formats() -> PossibleValuesParser {
    let formats = Format::with_names().map(|format| PossibleValue::new(format.name).help(format.tools));
    let tables = TableFormat::ALL.map(|format| PossibleValue::new(format.name()).help(format.tools()));
    formats.chain(tables).collect::<Vec<_>>().into()
}

pub(crate) fn export(args: &ExportArgs) -> Result<(), CommandFailure> {
    if let Some(format) = TableFormat::ALL.into_iter().find(|format| format.name() == args.to) {
        return tables(args, format);
    }
    let format = Format::with_names().find(|format| format.name == args.to);
    let format = format.ok_or_else(|| CommandFailure::usage(format!("there is no format {}", args.to)))?;
    let limited = args.max_size.map(|max| format.at_most(max).ok_or_else(whole)).transpose()?;
    let export: &dyn Export = match &limited {
        Some(limited) => limited,
        None => format,
    };
    if !args.labels.is_empty() {
        return Err(CommandFailure::usage("--label is for tables: --to parquet or --to csv"));
    }
    let recording = input::read(args.file.as_deref())?;
    let path =
        args.output.clone().unwrap_or_else(|| output::beside(&recording.path, format.end.trim_start_matches('.')));
    output::export(&recording.data, export, &path)
}

/// The format has no parts to leave out.
fn whole() -> CommandFailure {
    let formats = Format::with_names().filter(|format| format.at_most(0).is_some()).map(|format| format.name);
    let formats = formats.collect::<Vec<_>>().join(", ");
    CommandFailure::usage(format!("--max-size is for --to {formats}; other formats have no parts to leave out"))
}

fn tables(args: &ExportArgs, format: TableFormat) -> Result<(), CommandFailure> {
    if args.max_size.is_some() {
        return Err(whole());
    }
    if args.output.as_deref() == Some(Path::new("-")) {
        return Err(CommandFailure::usage("tables are several files; give the name of a folder to -o"));
    }
    let recording = input::read(args.file.as_deref())?;
    let run = RunTables { data: &recording.data, recording: &recording.path, labels: &args.labels };
    let folder = args.output.clone().unwrap_or_else(|| output::beside(&recording.path, format.name()));
    let folder = run.write(format, &folder)?;
    output::say(format!("wrote {}", folder.display()));
    Ok(())
}
