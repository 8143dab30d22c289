//! Which arm of the backward pass's `match` (see the [parent module](super)) handles the results of each operator.

use crate::snapshot::GraphNodeKind;

/// Prefixes of operator names, each with the arm of such operators. The first prefix that matches counts. An
/// operator that no table here contains may have any arm.
const ARMS: &[(&str, &str)] = &[
    ("avg_pool2d", "avg_pool2d"),
    ("max_pool2d", "max_pool2d"),
    ("conv_transpose1d", "conv_transpose1d"),
    ("conv_transpose2d", "conv_transpose2d"),
    ("conv1d", "conv1d"),
    ("conv2d", "conv2d"),
    ("mean", "sum"),
    ("sum", "sum"),
    ("max_", "max"),
    ("min_", "min"),
    ("contiguous", "copy"),
    ("force_contiguous", "copy"),
    ("cat", "cat"),
];

/// Operators whose arms have the same names. Their results have the size of their operands.
const ELEMENTWISE: &[&str] = &[
    "add", "sub", "mul", "div", "minimum", "maximum", "affine", "log", "sin", "cos", "tanh", "abs", "exp", "neg",
    "recip", "gelu", "erf", "gelu_erf", "relu", "silu", "elu", "powf", "sqr", "sqrt",
];

/// Other operators whose arms have the same names.
const OTHERS: &[&str] = &[
    "where_cond",
    "gather",
    "scatter",
    "scatter_add",
    "index_add",
    "index_select",
    "matmul",
    "to_dtype",
    "reshape",
    "copy",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "slice_scatter0",
];

/// Arms whose results are views, and arms whose results may be views. `narrow` has no row in the table of arms. Its
/// lines count as those of `recip`, the arm before it.
const VIEWS: &[&str] = &["transpose", "permute", "broadcast", "narrow"];
const MAYBE_VIEWS: &[&str] = &["reshape", "recip"];

/// Arms, besides those of element-wise operators, whose node is as large as each sum of gradients in their steps.
const SAME_SIZE: &[&str] = &["transpose", "permute", "reshape", "copy", "where_cond"];

/// The arm that handles an operator's results, if only one arm can.
pub(super) fn arm_of(operator: &str) -> Option<&'static str> {
    let operator = operator.strip_prefix("broadcast_").unwrap_or(operator);
    let named = ELEMENTWISE.iter().chain(OTHERS).find(|name| **name == operator).copied();
    named.or_else(|| ARMS.iter().find(|(begin, _)| operator.starts_with(begin)).map(|(_, arm)| *arm))
}

/// Whether the arm can handle the node. If several operators share an arm, the table joins their names by `|`.
pub(super) fn fits(arm: &str, kind: GraphNodeKind, known: Option<&str>) -> bool {
    match kind {
        GraphNodeKind::View => VIEWS.contains(&arm) || MAYBE_VIEWS.contains(&arm),
        GraphNodeKind::Result if VIEWS.contains(&arm) => false,
        GraphNodeKind::Result => known.is_none_or(|known| arm.split('|').any(|word| word == known)),
        GraphNodeKind::Variable | GraphNodeKind::End => false,
    }
}

/// Whether a node of this arm has the size of each sum in its step.
pub(super) fn keeps_size(arm: &str, kind: GraphNodeKind) -> bool {
    // For a view, `recip` stands for `narrow`.
    let is_elementwise = kind == GraphNodeKind::Result && arm.split('|').all(|word| ELEMENTWISE.contains(&word));
    is_elementwise || SAME_SIZE.contains(&arm)
}

/// Whether the node of this arm is certainly a view.
pub(super) fn is_view(arm: &str) -> bool {
    VIEWS.contains(&arm)
}

/// Whether the arm adds to gradients. Other arms replace the sum by their result.
pub(super) fn adds(arm: &str) -> bool {
    !arm.starts_with("upsample")
}

/// Which operands the gradients of an arm belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gradients {
    /// The only operand.
    OfOne,
    /// Two operands that the arm does not read: the first gradient belongs to the first one.
    InOrder,
    /// Two operands: each gradient is computed from the other operand.
    OfTheOther,
}

/// Arms with one operand, besides the element-wise ones.
const OF_ONE: [&str; 8] = ["sum", "max", "min", "copy", "to_dtype", "avg_pool2d", "max_pool2d", "reshape"];
const IN_ORDER: [&str; 3] = ["add", "sub", "where_cond"];
const OF_THE_OTHER: [&str; 9] =
    ["mul", "div", "matmul", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "index_select", "gather"];

/// Which operands the gradients of this arm belong to; `None` if it is not known.
pub(super) fn gradients_of(arm: &str) -> Option<Gradients> {
    match arm {
        _ if IN_ORDER.contains(&arm) => Some(Gradients::InOrder),
        _ if OF_THE_OTHER.contains(&arm) => Some(Gradients::OfTheOther),
        _ if OF_ONE.contains(&arm) => Some(Gradients::OfOne),
        "minimum" | "maximum" => None,
        _ => ELEMENTWISE.contains(&arm).then_some(Gradients::OfOne),
    }
}
