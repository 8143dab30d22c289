//! Who is responsible for a block: the user's line, the operation, the library, from the frames of its stack.
//!
//! Knows the names of frameworks, not of file formats.

mod library;
mod operator;
mod origin;
mod spanned;

pub use library::library;
pub(crate) use library::{is_memtraces, name_of_library};
pub use operator::{Operator, operator};
pub use origin::Origin;
pub use spanned::belongs_to_a_span;

use crate::snapshot::{Frame, SnapshotData, StackId};

/// Where a block came from, as far as its stack tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place<'a> {
    /// The innermost frame in the user's own code, or else in a library that is not a framework.
    User(&'a Frame),
    /// The stack never leaves the framework (a worker thread's): its innermost framework frame.
    Framework(&'a Frame),
    /// No frame says anything.
    Unknown,
}

/// The user line of a stack: the innermost frame outside std, memtrace, cudarc and candle's own
/// crates; of several, one in the user's workspace goes before one in a library.
pub fn place(data: &SnapshotData, stack: StackId) -> Place<'_> {
    let (mut library, mut framework) = (None, None);
    for frame in data.stacks.frames(stack) {
        match Origin::of(frame) {
            Origin::Workspace => return Place::User(frame),
            Origin::Library => library = library.or(Some(frame)),
            Origin::Framework => framework = framework.or(Some(frame)),
            Origin::Std | Origin::Memtrace | Origin::Unknown => {}
        }
    }
    match (library, framework) {
        (Some(frame), _) => Place::User(frame),
        (None, Some(frame)) => Place::Framework(frame),
        (None, None) => Place::Unknown,
    }
}
