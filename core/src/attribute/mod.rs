//! Attribution: who allocated a block, and for what. The stack gives the user line, the operator and the library. The
//! context gives the module. All of these and the block's lifetime give the category.
//!
//! Knowledge of frameworks comes from the rules ([`Rules`](crate::Rules)).

mod allocator;
mod arms;
mod backward;
mod categories;
mod copies;
mod elementwise;
mod frame_place;
mod gradients;
mod growing;
mod hint;
mod history;
mod library;
mod lifetimes;
mod matched_frame;
mod model_functions;
mod operator;
mod origin;
mod passes;
mod reordered;
mod spanned;
mod torch;
mod torch_gradients;
#[cfg(test)]
mod training_tests;
mod use_flow;
mod workers;

pub use allocator::allocator;
#[doc(hidden)]
pub use arms::learn_backward_pass;
pub use backward::{PairedBy, Pairing, Pairings};
pub use categories::{Categories, Either};
pub(crate) use elementwise::{Elementwise, elementwise};
pub(crate) use hint::{is_made_anew, is_of_optimizer};
pub use library::library;
pub(crate) use library::{is_interpreter, is_memtraces, name_of_library};
pub(crate) use lifetimes::HintedLifetime;
pub use matched_frame::Attribution;
pub(crate) use matched_frame::matched_frames;
pub use operator::{Operator, operator};
pub(crate) use operator::{allocates_once, has_backward_pass, has_variables, is_pool, squared_by};
pub use origin::Origin;
pub(crate) use origin::package_and_path;
pub use spanned::belongs_to_a_span;
pub(crate) use torch::is_native;

use crate::snapshot::{ContextId, Frame, StackId};

/// The allocation site of a block: the user line, if its stack contains one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocationSite<'a> {
    /// The innermost frame of the user's own code, or else of a library that is not a framework.
    User(&'a Frame),
    /// The innermost framework frame, if the stack has no frame of user code or of another library (as in worker
    /// threads).
    Framework(&'a Frame),
    /// The stack does not tell the site.
    Unknown,
}

/// The line of the model: the innermost frame in the user's workspace or in a library of models such as
/// candle-transformers. Frames of frameworks do not count.
pub fn model_line<'d>(data: &'d Attribution<'_>, stack: StackId) -> Option<&'d Frame> {
    let mut frames = matched_frames(data, stack);
    let found = frames.find(|frame| matches!(frame.origin(), Origin::Workspace | Origin::Library));
    found.map(|found| found.frame)
}

/// The module path of a context: the names of its modules, outermost first, joined by ` > `.
pub fn module(data: &Attribution<'_>, context: ContextId) -> Option<String> {
    let node = |id: ContextId| data.contexts.get(id.0 as usize).filter(|node| node.module);
    let names: Vec<&str> = data.context_ids(context).into_iter().filter_map(node).map(|node| &*node.name).collect();
    (!names.is_empty()).then(|| names.join(" > "))
}

/// The user line of a stack: the innermost frame outside std, memtrace, cudarc and candle's own crates. A frame of the
/// user's workspace takes precedence over a library's.
pub fn allocation_site<'d>(data: &'d Attribution<'_>, stack: StackId) -> AllocationSite<'d> {
    site_of(matched_frames(data, stack).map(|frame| (frame.origin(), frame.frame)))
}

fn site_of<'a>(frames: impl Iterator<Item = (Origin, &'a Frame)>) -> AllocationSite<'a> {
    let (mut library, mut framework) = (None, None);
    for (origin, frame) in frames {
        match origin {
            Origin::Workspace => return AllocationSite::User(frame),
            Origin::Library => library = library.or(Some(frame)),
            Origin::Framework => framework = framework.or(Some(frame)),
            Origin::Std | Origin::Memtrace | Origin::Unknown => {}
        }
    }
    match (library, framework) {
        (Some(frame), _) => AllocationSite::User(frame),
        (None, Some(frame)) => AllocationSite::Framework(frame),
        (None, None) => AllocationSite::Unknown,
    }
}
