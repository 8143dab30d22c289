//! `flamegraph`: an SVG of the memory at a moment.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use memtrace_core::analysis::Moment;
use memtrace_core::export::{Export, Flamegraph, FlamegraphDiff, Folded, Measure};

use crate::arguments::ReadingArgs;
use crate::failure::CommandFailure;
use crate::{input, moment, output};

/// Draw a flamegraph of what held the peak
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace flamegraph                                      beside the newest recording
  cargo memtrace flamegraph run.memtrace --at step:3 -o step.svg
  cargo memtrace flamegraph run.memtrace --by module --count
  cargo memtrace flamegraph before.memtrace --diff after.memtrace    red: more than before")]
pub(crate) struct FlamegraphArgs {
    #[command(flatten)]
    reading: ReadingArgs,
    /// The moment: peak, end, a time in seconds, step:N, scope:NAME
    #[arg(long, value_name = "MOMENT", default_value = "peak", value_parser = moment::parse)]
    at: Moment,
    /// What stands outermost: stacks alone, or scopes or modules above them
    #[arg(long, value_name = "KEY", default_value = "stack")]
    by: FrameKey,
    /// Count blocks, not bytes
    #[arg(long)]
    count: bool,
    /// Draw this recording, coloured by its difference from FILE: red is more, blue is less
    #[arg(long, value_name = "OTHER")]
    diff: Option<PathBuf>,
    /// The SVG file, or - for the standard output [default: beside FILE]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FrameKey {
    Stack,
    Scope,
    Module,
}

pub(crate) fn run(args: &FlamegraphArgs) -> Result<(), CommandFailure> {
    let selection = &args.reading.selection;
    let recording = input::read_selected(args.reading.file.as_deref(), selection)?;
    let stacks = Folded {
        measure: if args.count { Measure::Count } else { Measure::Bytes },
        device: selection.device,
        moment: args.at.clone(),
        scopes: args.by == FrameKey::Scope,
        modules: args.by == FrameKey::Module,
        ..Folded::default()
    };
    let Some(other) = &args.diff else {
        return written(args, &recording, &Flamegraph(stacks));
    };
    let after = input::read_selected(Some(other), selection)?;
    let moment_before = args.at.clone();
    written(args, &after, &FlamegraphDiff { before: &recording.data, stacks, moment_before })
}

fn written(args: &FlamegraphArgs, recording: &input::RecordingFile, format: &dyn Export) -> Result<(), CommandFailure> {
    let extension = if args.diff.is_some() { "diff.svg" } else { "svg" };
    let path = output::named(args.output.as_ref(), &recording.path, extension)?;
    output::export(&recording.data, format, &path)
}
