//! `export`: a recording in the format of another tool.

#[cfg(all(test, feature = "parquet"))]
mod tests;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use memtrace_core::export::{Export, Format};

use crate::failure::CommandFailure;
use crate::tables::{RunTables, TableFormat};
use crate::{input, moment, output};

/// Write a recording in the format of another tool
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace export run.memtrace --to pytorch -o snapshot.pickle    for pytorch.org/memory_viz
  cargo memtrace export --to chrome -o run.trace.json.gz                for ui.perfetto.dev
  cargo memtrace export --to pprof -o peak.pb.gz                        for go tool pprof
  cargo memtrace export --to parquet -o runs --label commit=1a2b3c4     for DuckDB, beside other runs")]
pub(crate) struct ExportArgs {
    /// The recording [default: the newest one under cargo's target folder]
    file: Option<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    to: String,
    /// The file, compressed if it ends in .gz, or - for the standard output; of tables the folder of all runs
    /// [default: beside FILE]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// What the tables say of the run, such as its commit; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Largest size of the file, before compression, for pytorch, chrome, layout, folded and json; beyond it, small blocks or
    /// rows are left out [default: 32 MiB of json, 128 MiB of chrome and layout]
    #[arg(long, value_name = "SIZE", value_parser = moment::size)]
    max_size: Option<u64>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// What `--to` takes: the formats of core with a name, and the tables.
fn formats() -> PossibleValuesParser {
    let formats = Format::with_names().map(|format| PossibleValue::new(format.name).help(format.tools));
    let tables = TableFormat::ALL.map(|format| PossibleValue::new(format.name()).help(format.tools()));
    formats.chain(tables).collect::<Vec<_>>().into()
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), CommandFailure> {
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
