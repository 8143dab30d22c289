//! `export`: a recording in the format of another tool.

use memtrace_core::export::{
    ChromeTrace, Dhat, Export, Firefox, Folded, Json, MemoryLayout, Pickle, Pprof, Speedscope,
};

use crate::cli::{ExportArgs, Target};
use crate::failure::CommandFailure;
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
    };
    let recording = input::read(args.file.as_deref())?;
    output::export(&recording.data, format, &args.output)
}
