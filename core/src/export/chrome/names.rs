//! Labels of stacks, contexts and threads in a trace, each made once.

use std::collections::HashMap;

use crate::analysis::frame_location;
use crate::attribute::{AllocationSite, Attribution, Origin, allocation_site, matched_frames};
use crate::export::gathered::quoted;
use crate::snapshot::{ContextId, Frame, SnapshotData, StackId, Thread, ThreadId};

#[derive(Debug, Default)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) json: String,
}

impl Name {
    fn of(text: String) -> Self {
        Self { json: quoted(&text), text }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

pub(super) struct Names {
    /// For each stack, the index of its user line in `lines`.
    line_of: Vec<u32>,
    /// Unique lines; the first is empty.
    lines: Vec<Name>,
    paths: Vec<Name>,
    nothing: Name,
}

impl Names {
    pub(super) fn new(data: &Attribution<'_>) -> Self {
        let (mut lines, mut numbers) = (vec![Name::of(String::new())], HashMap::new());
        let mut line = |stack| {
            let site = allocation_site(data, StackId(stack));
            *numbers.entry(key(site)).or_insert_with(|| {
                lines.push(Name::of(line(data, site)));
                lines.len() as u32 - 1
            })
        };
        let line_of = (0..data.stacks.len() as u32).map(&mut line).collect();
        let path = |context| Name::of(data.context_path(ContextId(context)));
        let paths = (0..data.contexts.len() as u32).map(path).collect();
        Self { line_of, lines, paths, nothing: Name::of(String::new()) }
    }

    /// The user line of a stack; empty if there is none.
    pub(super) fn line(&self, stack: StackId) -> &Name {
        let number = self.line_of.get(stack.0 as usize);
        number.and_then(|number| self.lines.get(*number as usize)).unwrap_or(&self.nothing)
    }

    /// The path of a context; empty outside every scope.
    pub(super) fn path(&self, context: ContextId) -> &Name {
        self.paths.get(context.0 as usize).unwrap_or(&self.nothing)
    }
}

/// A key of a stack's line. Stacks with the same key have the same line.
fn key(site: AllocationSite<'_>) -> (bool, *const Frame) {
    match site {
        AllocationSite::User(frame) => (true, frame),
        AllocationSite::Framework(frame) => (false, frame),
        AllocationSite::Unknown => (false, std::ptr::null()),
    }
}

/// The operator that the user line of each stack called, as JSON; empty if unknown.
pub(super) fn operators(data: &Attribution<'_>) -> Vec<String> {
    (0..data.stacks.len() as u32).map(|stack| quoted(operator(data, StackId(stack)))).collect()
}

/// The thread's name at the time of the snapshot, with the system's thread id.
pub(super) fn thread_name(data: &SnapshotData, thread: ThreadId, known: Option<&Thread>) -> String {
    match known {
        Some(known) if known.os_id == data.process.pid => format!("main ({})", known.os_id),
        Some(known) if !known.name.is_empty() => format!("{} ({})", known.name, known.os_id),
        Some(known) => format!("thread {} ({}, ended)", thread.number(), known.os_id),
        None => format!("thread {}", thread.number()),
    }
}

pub(super) fn scope_name(data: &SnapshotData, context: ContextId) -> &str {
    let name = data.contexts.get(context.0 as usize).map_or("", |node| node.name.as_str());
    match name {
        _ if context == ContextId::ROOT => "(no scope)",
        "" => "(unnamed)",
        name => name,
    }
}

fn line(data: &SnapshotData, site: AllocationSite<'_>) -> String {
    match site {
        AllocationSite::User(frame) => frame_location(frame, &data.process.working_dir),
        AllocationSite::Framework(frame) => {
            format!("{} [no user frame]", frame_location(frame, &data.process.working_dir))
        }
        AllocationSite::Unknown => String::new(),
    }
}

/// The outermost framework function below the user line. If there is none, the user's own function.
fn operator<'d>(data: &'d Attribution<'_>, stack: StackId) -> &'d str {
    let user = match allocation_site(data, stack) {
        AllocationSite::User(frame) => Some(frame),
        AllocationSite::Framework(_) | AllocationSite::Unknown => None,
    };
    let frames = matched_frames(data, stack);
    let inside = frames.take_while(|found| user.is_none_or(|user| !std::ptr::eq(found.frame, user)));
    let called = inside.filter(|found| found.origin() == Origin::Framework).last();
    called.map(|found| found.frame).or(user).map_or("", Frame::function_or_empty)
}
