//! `replay`: what an allocator would reserve for a recording's requests, and where it would run out of memory.

use clap::Args;
use memtrace_core::analysis::{AllocatorModel, Curve, CurveColumn, WhatIf};
use memtrace_core::export::what_if_json;
use memtrace_core::report::{
    Report, packing_line, what_if_answer, what_if_choice, what_if_holders, what_if_notes, what_if_section,
};
use memtrace_core::{Bytes, DeviceView, Recording};

use super::timeline;
use crate::arguments::ReadingArgs;
use crate::failure::CommandFailure;
use crate::{input, moment, output};

/// Replay a recording's requests through a model of an allocator
#[derive(Args)]
#[command(after_help = "ALLOCATOR is one of
  driver-pool[,threshold=SIZE|max]                     cuMemAllocAsync's default pool, with its release threshold
  pytorch[,expandable][,max_split=SIZE][,roundup=N]    PyTorch's caching allocator, with its settings
Without --allocator, the usual ones are compared. All are models: docs/replay.md.

Examples:
  cargo memtrace replay                                what allocators would reserve, side by side
  cargo memtrace replay snapshot.pickle --memory 16GiB    whether that fits, or when it runs out and what is live then
  cargo memtrace replay run.memtrace --allocator driver-pool,threshold=1GiB
  cargo memtrace replay snapshot.pickle --allocator pytorch,expandable --memory 16GiB")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    reading: ReadingArgs,
    /// The allocator, with its settings; several are compared
    #[arg(long, value_name = "ALLOCATOR", value_parser = model)]
    allocator: Vec<AllocatorModel>,
    /// The memory that the allocator may reserve [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = moment::size)]
    memory: Option<u64>,
}

fn model(text: &str) -> Result<AllocatorModel, String> {
    text.parse().map_err(|error: memtrace_core::Error| error.to_string())
}

/// Number of columns of the curve in JSON.
const COLUMNS: usize = 1000;

pub(crate) fn run(args: &ReplayArgs) -> Result<(), CommandFailure> {
    let selection = &args.reading.selection;
    let recording = input::read_selected(args.reading.file.as_deref(), selection)?;
    let views = Recording::new(&recording.data);
    let device = input::device_of(&views, selection)?;
    let columns = if selection.json { COLUMNS } else { output::columns().clamp(40, 160) - 12 };
    let models = if args.allocator.is_empty() { compared(device) } else { args.allocator.clone() };
    let all: Vec<WhatIf> =
        models.into_iter().map(|model| device.what_if(model, args.memory, columns)).collect::<Result<_, _>>()?;
    let main = main_of(args, device, &all);
    print(args, device, &all, main, recording.notes.clone())?;
    match main.runs_out {
        Some(_) => Err(CommandFailure::Check(vec![format!("memory runs out with {}", main.model)])),
        None => Ok(()),
    }
}

/// The usual allocators, and the program's own allocator, with its settings, if it is not among them.
fn compared(device: &DeviceView<'_>) -> Vec<AllocatorModel> {
    let (own, mut all) = (device.own_allocator(), AllocatorModel::all());
    if !all.contains(&own) {
        all.insert(0, own);
    }
    all
}

/// The allocator that the answer is about: the first that the user named, or else the one that the program used.
fn main_of<'a>(args: &ReplayArgs, device: &DeviceView<'_>, all: &'a [WhatIf]) -> &'a WhatIf {
    let own = all.iter().find(|found| args.allocator.is_empty() && found.model == device.own_allocator());
    own.unwrap_or(&all[0])
}

/// Prints the result. `notes` say what a time window left out.
fn print(
    args: &ReplayArgs,
    device: &DeviceView<'_>,
    all: &[WhatIf],
    main: &WhatIf,
    mut notes: Vec<String>,
) -> Result<(), CommandFailure> {
    let selection = &args.reading.selection;
    let mut answer = what_if_answer(device, main, args.memory);
    let choice = what_if_choice(all, main.model).filter(|_| all.len() > 1);
    answer.extend(choice.map(|choice| choice_line(choice, main)));
    let packing = device.packing()?;
    answer.extend(packing_line(&packing));
    notes.extend(what_if_notes(device, all));
    if selection.json {
        return output::print_shown(&what_if_json(device, args.memory, all, choice, packing, (&answer, &notes))?);
    }
    output::print_lines(answer)?;
    output::print_lines(picture(device, main).lines())?;
    let table = (all.len() > 1).then(|| what_if_section(all));
    let holders = main.runs_out.as_ref().map(|out| what_if_holders(device, out, selection.top));
    output::print(
        &Report { notes, sections: holders.into_iter().chain(table).collect(), ..Report::default() },
        None,
        selection,
    )
}

fn choice_line(choice: &WhatIf, main: &WhatIf) -> String {
    if choice.runs_out.is_some() {
        return "It runs out with every setting that was tried.".to_owned();
    }
    if choice.model == main.model {
        return "No other setting that was tried reserves less.".to_owned();
    }
    let less = Bytes(main.reserved_peak.saturating_sub(choice.reserved_peak));
    let what = if main.runs_out.is_some() { "does not run out".to_owned() } else { format!("reserves {less} less") };
    format!("The setting to choose: {} {what}; {}.", choice.model, choice.model.how())
}

fn picture(device: &DeviceView<'_>, found: &WhatIf) -> String {
    let columns = found.columns.iter().map(|bytes| CurveColumn { lowest: *bytes, highest: *bytes }).collect();
    let (from_ns, to_ns) = device.log_span_ns();
    let title = format!("Reserved on {} over time, with {}", device.device, found.model);
    timeline::picture(&title, &Curve { from_ns, to_ns, columns })
}
