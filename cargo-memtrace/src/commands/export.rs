//! `export`: a recording in the format of another tool.

#[cfg(all(test, feature = "parquet"))]
mod tests;

use memtrace_core::export::{
    ChromeTrace, Dhat, Export, Firefox, Folded, Json, MemoryLayout, Pickle, Pprof, Speedscope,
};

use crate::cli::{ExportArgs, Target};
use crate::failure::CommandFailure;
use crate::tables::{RunTables, TableFormat};
use crate::{input, output};

pub(crate) fn export(args: &ExportArgs) -> Result<(), CommandFailure> {
    let format: &dyn Export = match args.to {
        Target::Pytorch => &Pickle::default(),
        Target::Chrome => &ChromeTrace::default(),
        Target::Layout => &MemoryLayout::default(),
        Target::Folded => &Folded::default(),
        Target::Pprof => &Pprof::default(),
        Target::Speedscope => &Speedscope::default(),
        Target::Dhat => &Dhat::default(),
        Target::Firefox => &Firefox::default(),
        Target::Json => &Json::default(),
        Target::Parquet => return tables(args, TableFormat::Parquet),
        Target::Csv => return tables(args, TableFormat::Csv),
    };
    if !args.labels.is_empty() {
        return Err(CommandFailure::usage("--label is for tables: --to parquet or --to csv"));
    }
    let recording = input::read(args.file.as_deref())?;
    output::export(&recording.data, format, &args.output)
}

fn tables(args: &ExportArgs, format: TableFormat) -> Result<(), CommandFailure> {
    let recording = input::read(args.file.as_deref())?;
    let run = RunTables { data: &recording.data, recording: &recording.path, labels: &args.labels };
    let folder = run.write(format, &args.output)?;
    output::say(format!("wrote {}", folder.display()));
    Ok(())
}
