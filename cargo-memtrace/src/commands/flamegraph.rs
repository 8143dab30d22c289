//! `flamegraph`: an SVG of what held a moment.

use memtrace_core::export::{Flamegraph, Folded, Measure};

use crate::cli::{FlamegraphArgs, FrameKey};
use crate::failure::CommandFailure;
use crate::{input, output};

pub(crate) fn flamegraph(args: &FlamegraphArgs) -> Result<(), CommandFailure> {
    let recording = input::read_selected(args.reading.file.as_deref(), &args.reading.selection)?;
    let format = Flamegraph(Folded {
        measure: if args.count { Measure::Count } else { Measure::Bytes },
        device: args.reading.selection.device,
        moment: args.at.clone(),
        scopes: args.by == FrameKey::Scope,
        ..Folded::default()
    });
    let path = args.output.clone().unwrap_or_else(|| output::beside(&recording.path, "svg"));
    output::export(&recording.data, &format, &path)
}
