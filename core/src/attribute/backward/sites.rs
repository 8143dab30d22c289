//! The place in the backward pass where each stack allocates.

use super::super::frame_place::FramePlace;
use super::super::matched_frame::matched_frames;
use super::super::operator::allocates_once;
use super::super::{Attribution, Origin, operator};
use crate::memo::Memo;
use crate::snapshot::{Fact, StackId};

/// The function that begins the sum of a tensor's gradients.
const ZERO_FILL: &str = "or_insert";

/// A place in the backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site<'a> {
    /// The operator of its arm of the `match`.
    pub(super) arm: &'a str,
    pub(super) line: u32,
    /// Whether it fills a new gradient with zeros.
    pub(super) is_zero_fill: bool,
    /// Whether it adds to a gradient.
    pub(super) is_sum: bool,
    /// Whether a step allocates with this stack only once.
    pub(super) is_once: bool,
}

/// The sites of stacks, computed on demand.
pub(super) type Sites<'a> = Memo<'a, StackId, Option<Site<'a>>>;

/// The site of a stack. `None` if the stack is not in an arm of the backward pass's `match` on operators (like that of the
/// loss's gradient, which is made before the `match`), or if the block is a list or a table and not a tensor's data.
pub(super) fn site<'a>(data: &'a Attribution<'a>, stack: StackId) -> Option<Site<'a>> {
    let mut within = Vec::new();
    let pass = matched_frames(data, stack).find(|frame| {
        within.push(*frame);
        frame.is(Fact::Pass)
    })?;
    within.pop();
    let innermost = within.iter().find(|frame| frame.origin() == Origin::Framework);
    if innermost.is_some_and(|frame| frame.is(Fact::Structure)) {
        return None;
    }
    let (place, line) = (FramePlace::of(pass.frame), pass.frame.line?.get());
    let arm = data.settings.rules.backward(&place.package, place.version, line)?;
    let (root, leaf) = operator(data, stack).map_or(("", ""), |operator| (operator.root, operator.leaf));
    let is_in_fill = within.last().is_some_and(|frame| frame.function() == ZERO_FILL);
    // The table of gradients also grows in this function.
    let is_zero_fill = is_in_fill && root.starts_with("zeros");
    // `affine` adds a number to a tensor, which is not a sum of gradients.
    let is_sum = !is_zero_fill && leaf != "affine" && data.settings.rules.is_gradient(root, arm);
    Some(Site { arm, line, is_zero_fill, is_sum, is_once: allocates_once(data, stack, root) })
}
