//! Steps that many calls have in common.

use super::abi::Out;
use super::process::{pause, with};
use super::thread::current;
use crate::SimMachine;
use crate::code::Answer;
use crate::faults::CallKind;

/// Fails unless work can be submitted to the stream.
pub(super) fn check_stream(stream: u64) -> Answer {
    with(|machine| machine.context_of(stream, current()).map(|_| ()))
}

/// Runs an action now, or adds a node to the graph if the stream is being captured.
pub(super) fn unless_captured(stream: u64, kind: u32, action: impl FnOnce() -> Answer) -> Answer {
    check_stream(stream)?;
    if with(|machine| machine.captures(stream, kind))? { Ok(()) } else { action() }
}

/// Runs an action that needs a current context.
pub(super) fn in_context(action: impl FnOnce() -> Answer) -> Answer {
    current()?;
    action()
}

/// An allocation in the current context: stores its address or handle.
pub(super) fn allocating(to: Out<u64>, action: impl FnOnce(&mut SimMachine, u64) -> Answer<u64>) -> Answer {
    pause(CallKind::Alloc);
    let context = current()?;
    to.set_with(|machine| action(machine, context))
}

/// A free in the current context.
pub(super) fn freeing(action: impl FnOnce(&mut SimMachine, u64) -> Answer) -> Answer {
    pause(CallKind::Free);
    let context = current()?;
    with(|machine| action(machine, context))
}
