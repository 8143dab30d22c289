//! Cards that use the host's memory: because of `--unified`, or because the recording comes from such a card.

use memtrace_core::analysis::{Card, cards};
use memtrace_core::snapshot::{SnapshotData, UnifiedMemory};

use super::arguments::{FitArgs, card};
use super::available::available_now;
use crate::failure::CommandFailure;
use crate::output;

/// The cards that the arguments name, given the recording that is judged, if there is one.
pub(super) fn cards_of(args: &FitArgs, recorded: Option<&SnapshotData>) -> Result<Vec<Card>, CommandFailure> {
    let recorded = recorded.and_then(recorded_host);
    if recorded.is_some() {
        output::say("the recording is of an integrated GPU, so a size is the host's memory");
    }
    if !args.unified && recorded.is_none() {
        return args.cards();
    }
    if args.count > 1 {
        return Err(CommandFailure::usage("--count: a host has one integrated GPU"));
    }
    match () {
        () if args.free => Ok(vec![available_now("this host")?]),
        () if args.gpus.is_empty() => without_names(args, recorded),
        () => args.gpus.iter().map(|name| named(args, name)).collect(),
    }
}

/// The host's memory in the recording, if the GPU is an integrated one.
fn recorded_host(data: &SnapshotData) -> Option<UnifiedMemory> {
    data.devices.iter().find_map(|device| device.memory?.unified)
}

fn without_names(args: &FitArgs, recorded: Option<UnifiedMemory>) -> Result<Vec<Card>, CommandFailure> {
    let known: Vec<Card> = if args.unified { Vec::new() } else { cards().collect() };
    match recorded {
        Some(UnifiedMemory { system: Some(system), .. }) => {
            let host = Card { source: "MemTotal, as recorded", ..Card::of_host("the recorded host", system.total) };
            Ok([host].into_iter().chain(known).collect())
        }
        Some(_) => {
            Err(undecided("the recording does not say how much memory the host has: give it, as in --gpus 128GiB"))
        }
        None => Err(CommandFailure::usage("--unified: give the host's memory, as in --gpus 128GiB, or --free")),
    }
}

/// A size stands for an integrated card with this memory. Cards of the table have memory of their own, so with
/// `--unified` a name is an error.
fn named(args: &FitArgs, name: &str) -> Result<Card, CommandFailure> {
    match memtrace_core::parse_bytes(name) {
        Ok(memory) => Ok(Card::of_host(name, memory)),
        Err(_) if args.unified => Err(CommandFailure::usage(format!(
            "--unified: {name:?} is no size; give the host's memory, as in --gpus 128GiB"
        ))),
        Err(_) => card(name),
    }
}

fn undecided(why: &str) -> CommandFailure {
    CommandFailure::Undecided(vec![why.to_owned()])
}
