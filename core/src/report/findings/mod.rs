//! Findings: what could be better, its cost, how certain it is, and how to fix it. Each kind has a function and a row
//! in [`DETECTORS`].

mod device;
mod finding;
mod graphs;
mod growth;
mod model;
mod planned;
#[cfg(test)]
mod tests;
mod uses;

use self::device::{fragmented, given_out_in_parts, one_library, release_threshold};
pub use self::finding::{Confidence, Cost, Finding, FindingKind};
use self::graphs::{kept_by_variables, kept_graph, kept_loss};
use self::growth::growth;
use self::model::{checkpoint, optimizer_transient, square, twice};
pub use self::planned::planned;
use self::uses::{idle, over_inputs, temporaries, wasted, written_twice};
use crate::recording::DeviceView;

type Detector = fn(&DeviceView<'_>) -> Vec<Finding>;

const DETECTORS: &[Detector] = &[
    twice,
    optimizer_transient,
    kept_graph,
    kept_by_variables,
    kept_loss,
    growth,
    square,
    given_out_in_parts,
    one_library,
    release_threshold,
    fragmented,
    wasted,
    written_twice,
    idle,
    over_inputs,
    temporaries,
    checkpoint,
];

/// The findings on a device, most expensive first. But a growth finding comes after another finding at the same line,
/// which is its cause.
pub fn findings(device: &DeviceView<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = DETECTORS.iter().flat_map(|find| find(device)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.rank()));
    if let Some(growth) = found.iter().position(|finding| finding.kind == FindingKind::Growth)
        && let Some(cause) =
            found.iter().rposition(|finding| finding.line == found[growth].line && finding.line.is_some())
        && cause > growth
    {
        found[growth..=cause].rotate_left(1);
    }
    found
}
