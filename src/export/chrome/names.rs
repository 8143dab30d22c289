//! What the parts of a snapshot are called in a trace: each name is made once.

use crate::analysis::frame_location;
use crate::attribute::{Origin, Place, place};
use crate::snapshot::{ContextId, Frame, SnapshotData, StackId, ThreadId};

/// The names of all stacks and contexts.
pub(super) struct Names {
    lines: Vec<String>,
    operators: Vec<String>,
    paths: Vec<String>,
}

impl Names {
    pub(super) fn new(data: &SnapshotData) -> Self {
        let stacks = || (0..data.stacks.len() as u32).map(StackId);
        Self {
            lines: stacks().map(|stack| line(data, stack)).collect(),
            operators: stacks().map(|stack| operator(data, stack).to_owned()).collect(),
            paths: (0..data.contexts.len() as u32).map(|context| data.context_path(ContextId(context))).collect(),
        }
    }

    /// The length of the longest line and the longest path together.
    pub(super) fn longest(&self) -> usize {
        let longest = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
        longest(&self.lines) + longest(&self.paths)
    }

    /// The user line of a stack; empty if there is none.
    pub(super) fn line(&self, stack: StackId) -> &str {
        self.lines.get(stack.0 as usize).map_or("", String::as_str)
    }

    /// What the user line called; empty if unknown.
    pub(super) fn operator(&self, stack: StackId) -> &str {
        self.operators.get(stack.0 as usize).map_or("", String::as_str)
    }

    /// The path of a context; empty outside every scope.
    pub(super) fn path(&self, context: ContextId) -> &str {
        self.paths.get(context.0 as usize).map_or("", String::as_str)
    }
}

/// What a thread is called: the name it had when the snapshot was taken, and the system's number for it.
pub(super) fn thread_name(data: &SnapshotData, thread: ThreadId) -> String {
    let process = &data.process;
    match process.threads.iter().find(|known| known.number == thread) {
        Some(known) if known.os_id == process.pid => format!("main ({})", known.os_id),
        Some(known) if !known.name.is_empty() => format!("{} ({})", known.name, known.os_id),
        Some(known) => format!("thread {} ({}, ended)", thread.number(), known.os_id),
        None => format!("thread {}", thread.number()),
    }
}

/// The innermost scope of a context.
pub(super) fn scope_name(data: &SnapshotData, context: ContextId) -> &str {
    data.context_names(context).pop().unwrap_or("(no scope)")
}

fn line(data: &SnapshotData, stack: StackId) -> String {
    match place(data, stack) {
        Place::User(frame) => frame_location(frame, &data.process.working_dir),
        Place::Framework(frame) => format!("{} [no user frame]", frame_location(frame, &data.process.working_dir)),
        Place::Unknown => String::new(),
    }
}

/// The outermost framework function inside the user line; the user's own function if it allocates
/// without one.
fn operator(data: &SnapshotData, stack: StackId) -> &str {
    let user = match place(data, stack) {
        Place::User(frame) => Some(frame),
        Place::Framework(_) | Place::Unknown => None,
    };
    let inside = data.stacks.frames(stack).take_while(|frame| user.is_none_or(|user| !std::ptr::eq(*frame, user)));
    let called: Option<&Frame> =
        inside.filter(|frame| Origin::of(&data.settings.rules, frame) == Origin::Framework).last();
    called.or(user).map_or("", |frame| frame.function.as_str())
}
