//! `export`: a recording in the format of another tool.

#[cfg(all(test, feature = "parquet"))]
mod tests;

use std::path::Path;

use memtrace_core::export::{
    ChromeTrace, Dhat, Export, Firefox, Folded, Json, MemoryLayout, Pickle, Pprof, Speedscope,
};

use crate::cli::{ExportArgs, Target};
use crate::failure::CommandFailure;
use crate::tables::{RunTables, TableFormat};
use crate::{input, output};

pub(crate) fn export(args: &ExportArgs) -> Result<(), CommandFailure> {
    let most = |usual: Option<u64>| args.max_size.or(usual);
    let (pickle, folded, json) = (Pickle::default(), Folded::default(), Json::default());
    let (chrome, layout) = (ChromeTrace::default(), MemoryLayout::default());
    let format: &dyn Export = match args.to {
        Target::Pytorch => &Pickle { max_bytes: most(pickle.max_bytes), ..pickle },
        Target::Chrome => &ChromeTrace { max_bytes: most(chrome.max_bytes), ..chrome },
        Target::Layout => &MemoryLayout { max_bytes: most(layout.max_bytes), ..layout },
        Target::Folded => &Folded { max_bytes: most(folded.max_bytes), ..folded },
        Target::Json => &Json { max_bytes: most(json.max_bytes), ..json },
        _ if args.max_size.is_some() => {
            let formats = "pytorch, chrome, layout, folded and json";
            return Err(CommandFailure::usage(format!(
                "--max-size is for --to {formats}; other formats have no parts to leave out"
            )));
        }
        Target::Pprof => &Pprof::default(),
        Target::Speedscope => &Speedscope::default(),
        Target::Dhat => &Dhat::default(),
        Target::Firefox => &Firefox::default(),
        Target::Parquet => return tables(args, TableFormat::Parquet),
        Target::Csv => return tables(args, TableFormat::Csv),
    };
    if !args.labels.is_empty() {
        return Err(CommandFailure::usage("--label is for tables: --to parquet or --to csv"));
    }
    let recording = input::read(args.file.as_deref())?;
    let path = args.output.clone().unwrap_or_else(|| output::beside(&recording.path, extension(args.to)));
    output::export(&recording.data, format, &path)
}

/// How files of a format are called.
fn extension(to: Target) -> &'static str {
    match to {
        Target::Pytorch => "pickle",
        Target::Chrome => "trace.json",
        Target::Layout => "layout.json",
        Target::Folded => "folded",
        Target::Pprof => "pb.gz",
        Target::Speedscope => "speedscope.json",
        Target::Dhat => "dhat.json",
        Target::Firefox => "firefox.json.gz",
        Target::Parquet => "parquet",
        Target::Csv => "csv",
        Target::Json => "json",
    }
}

fn tables(args: &ExportArgs, format: TableFormat) -> Result<(), CommandFailure> {
    if args.output.as_deref() == Some(Path::new("-")) {
        return Err(CommandFailure::usage("tables are several files; give the name of a folder to -o"));
    }
    let recording = input::read(args.file.as_deref())?;
    let run = RunTables { data: &recording.data, recording: &recording.path, labels: &args.labels };
    let folder = args.output.clone().unwrap_or_else(|| output::beside(&recording.path, extension(args.to)));
    let folder = run.write(format, &folder)?;
    output::say(format!("wrote {}", folder.display()));
    Ok(())
}
