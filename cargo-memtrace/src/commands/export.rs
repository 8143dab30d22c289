//! `export`: a recording in the format of another tool.

#[cfg(all(test, feature = "parquet"))]
mod tests;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use memtrace_core::export::{Export, Format};

use crate::failure::CommandFailure;
use crate::input::RecordingFile;
use crate::tables::{RunTables, TableFormat};
use crate::{input, moment, output, ranks};

/// Write a recording in the format of another tool
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace export run.memtrace --to pytorch -o snapshot.pickle    for pytorch.org/memory_viz
  cargo memtrace export --to chrome -o run.trace.json.gz                for ui.perfetto.dev
  cargo memtrace export --to pprof -o peak.pb.gz                        for go tool pprof
  cargo memtrace export --to parquet -o runs --label commit=1a2b3c4     for DuckDB, beside other runs
  cargo memtrace export ranks/ --to chrome -o traces                    of each recording a file in that folder")]
pub(crate) struct ExportArgs {
    /// The recording [default: the newest one under cargo's target folder]; several, or a folder of them, are written one by one
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    to: String,
    /// The file, compressed if it ends in .gz, or - for the standard output; of tables, and of several recordings, a folder
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

/// The values of `--to`: the core's formats that have a name, and the tables.
fn formats() -> PossibleValuesParser {
    let formats = Format::with_names().map(|format| PossibleValue::new(format.name).help(format.tools));
    let tables = TableFormat::ALL.map(|format| PossibleValue::new(format.name()).help(format.tools()));
    formats.chain(tables).collect::<Vec<_>>().into()
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), CommandFailure> {
    let target = Target::of(args)?;
    let files = input::files(&args.files)?;
    match &files[..] {
        [] | [_] => target.write(args, &input::read(files.first().map(PathBuf::as_path))?, args.output.clone()),
        _ => several(args, &target, &files),
    }
}

/// Writes each recording into the folder of `--output`. One recording is in memory at a time.
fn several(args: &ExportArgs, target: &Target, files: &[PathBuf]) -> Result<(), CommandFailure> {
    let folder = folder(args, files)?;
    let mut unread = 0;
    for file in files {
        match input::read(Some(file)) {
            Ok(recording) => target.write(args, &recording, Some(target.within(&folder, file)))?,
            Err(failure) => {
                output::tell([format!("error: {failure}")]);
                unread += 1;
            }
        }
    }
    ranks::all_read(unread, files.len())
}

/// The requested folder. It must not contain the recordings, because commands would then also read some of the exported
/// files.
fn folder(args: &ExportArgs, files: &[PathBuf]) -> Result<PathBuf, CommandFailure> {
    let folder = args.output.clone().filter(|folder| folder != Path::new("-") && !folder.is_file());
    let folder = folder.ok_or_else(|| {
        CommandFailure::usage(format!("there are {} recordings; give the name of a folder to -o", files.len()))
    })?;
    let is_same = |file: &PathBuf| {
        let own = file.parent().filter(|own| !own.as_os_str().is_empty()).unwrap_or(Path::new("."));
        folder.canonicalize().is_ok_and(|folder| own.canonicalize().is_ok_and(|own| own == folder))
    };
    match files.iter().any(is_same) {
        true => {
            Err(CommandFailure::usage(format!("{} has the recordings; give another folder to -o", folder.display())))
        }
        false => Ok(folder),
    }
}

/// What a recording is written as.
enum Target {
    /// A file with this end of its name.
    File(Box<dyn Export>, &'static str),
    Tables(TableFormat),
}

impl Target {
    fn of(args: &ExportArgs) -> Result<Self, CommandFailure> {
        if let Some(format) = TableFormat::ALL.into_iter().find(|format| format.name() == args.to) {
            return Self::of_tables(args, format);
        }
        let format = Format::with_names().find(|format| format.name == args.to);
        let format = format.ok_or_else(|| CommandFailure::usage(format!("there is no format {}", args.to)))?;
        let export: Box<dyn Export> = match args.max_size {
            Some(max) => Box::new(format.at_most(max).ok_or_else(whole)?),
            None => Box::new(*format),
        };
        if !args.labels.is_empty() {
            return Err(CommandFailure::usage("--label is for tables: --to parquet or --to csv"));
        }
        Ok(Self::File(export, format.end.trim_start_matches('.')))
    }

    fn of_tables(args: &ExportArgs, format: TableFormat) -> Result<Self, CommandFailure> {
        if args.max_size.is_some() {
            return Err(whole());
        }
        if args.output.as_deref() == Some(Path::new("-")) {
            return Err(CommandFailure::usage("tables are several files; give the name of a folder to -o"));
        }
        Ok(Self::Tables(format))
    }

    /// The path of a recording's output in a folder for several recordings. Each recording's tables have a folder of
    /// their own there.
    fn within(&self, folder: &Path, recording: &Path) -> PathBuf {
        match self {
            Self::File(_, end) => folder.join(output::beside(recording, end).file_name().unwrap_or_default()),
            Self::Tables(_) => folder.to_owned(),
        }
    }

    fn write(&self, args: &ExportArgs, from: &RecordingFile, path: Option<PathBuf>) -> Result<(), CommandFailure> {
        let beside = |end: &str| path.clone().unwrap_or_else(|| output::beside(&from.path, end));
        match self {
            Self::File(export, end) => output::export(&from.data, &**export, &beside(end)),
            Self::Tables(format) => {
                let run = RunTables { data: &from.data, recording: &from.path, labels: &args.labels };
                let folder = run.write(*format, &beside(format.name()))?;
                output::say(format!("wrote {}", folder.display()));
                Ok(())
            }
        }
    }
}

/// The error for a format that has no parts to leave out.
fn whole() -> CommandFailure {
    let formats = Format::with_names().filter(|format| format.at_most(0).is_some()).map(|format| format.name);
    let formats = formats.collect::<Vec<_>>().join(", ");
    CommandFailure::usage(format!("--max-size is for --to {formats}; other formats have no parts to leave out"))
}
