//! Which arm of a backward pass handles the results of an operator.

use crate::snapshot::GraphNodeKind;

/// Beginnings of operators' names, with their arms. The first that fits counts. Other operators may have any arm.
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

/// Operators whose arms have their names. The results of these have the size of their operands.
const ELEMENTWISE: &[&str] = &[
    "add", "sub", "mul", "div", "minimum", "maximum", "affine", "log", "sin", "cos", "tanh", "abs", "exp", "neg",
    "recip", "gelu", "erf", "gelu_erf", "relu", "silu", "elu", "powf", "sqr", "sqrt",
];

/// Others whose arms have their names.
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

/// Arms whose results are views, and those whose results may be views. `narrow` has no row in the table of arms: its lines
/// count as those of `recip`, before it.
const VIEWS: &[&str] = &["transpose", "permute", "broadcast", "narrow"];
const MAYBE_VIEWS: &[&str] = &["reshape", "recip"];

/// Arms, beside those of element-wise operators, whose node has the size of each sum.
const SAME_SIZE: &[&str] = &["transpose", "permute", "reshape", "copy", "where_cond"];

/// The arm of an operator's results, if it has only one.
pub(super) fn arm_of(operator: &str) -> Option<&'static str> {
    let operator = operator.strip_prefix("broadcast_").unwrap_or(operator);
    let named = ELEMENTWISE.iter().chain(OTHERS).find(|name| **name == operator).copied();
    named.or_else(|| ARMS.iter().find(|(begin, _)| operator.starts_with(begin)).map(|(_, arm)| *arm))
}

/// Can the arm be that of a node? The table of arms joins several words by `|` where they share an arm.
pub(super) fn fits(arm: &str, kind: GraphNodeKind, known: Option<&str>) -> bool {
    match kind {
        GraphNodeKind::View => VIEWS.contains(&arm) || MAYBE_VIEWS.contains(&arm),
        GraphNodeKind::Result if VIEWS.contains(&arm) => false,
        GraphNodeKind::Result => known.is_none_or(|known| arm.split('|').any(|word| word == known)),
        GraphNodeKind::Variable | GraphNodeKind::End => false,
    }
}

/// Has a node of this arm the size of each sum in its step?
pub(super) fn keeps_size(arm: &str, kind: GraphNodeKind) -> bool {
    // Of views, `recip` is `narrow`.
    let is_elementwise = kind == GraphNodeKind::Result && arm.split('|').all(|word| ELEMENTWISE.contains(&word));
    is_elementwise || SAME_SIZE.contains(&arm)
}
