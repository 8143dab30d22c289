//! `flamegraph`: an SVG of what held a moment.

use memtrace_core::export::{Export, Flamegraph, FlamegraphDiff, Folded, Measure};

use crate::cli::{FlamegraphArgs, FrameKey};
use crate::failure::CommandFailure;
use crate::{input, output};

pub(crate) fn flamegraph(args: &FlamegraphArgs) -> Result<(), CommandFailure> {
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
