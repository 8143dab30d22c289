//! The list of breakdown tables, which reports, failed assertions and JSON share.

use super::layers::Layers;
use super::live::LiveSet;
use super::rows::{Breakdown, Key};
use crate::attribute::{module, operator};
use crate::snapshot::ContextId;

pub(crate) struct BreakdownTable {
    /// The table's key in JSON, which has all tables.
    pub(crate) key: &'static str,
    pub(crate) by: Key,
    pub(crate) shown: Shown,
    /// Whether the table adds anything to the other tables.
    pub(crate) matters: fn(&LiveSet<'_>) -> bool,
    /// The text that is shown if the table is requested but does not matter.
    pub(crate) nothing: &'static str,
}

/// Which texts show a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Always,
    InReports,
    /// Failed assertions; reports have more detail elsewhere.
    InFailures,
    Never,
    /// Reports of moments other than the peak.
    AtMoments,
    /// Reports of the peak, after all other tables.
    AtEnd,
}

/// The tables in the order in which texts show them.
pub(crate) const TABLES: [BreakdownTable; 11] = [
    of(Key::Line, Shown::Always, |_| true),
    of(Key::ModelLine, Shown::Always, is_other).or_says("the lines of the model are the lines above"),
    of(Key::Function, Shown::InReports, |_| true),
    of(Key::Operator, Shown::Always, has_tensors).or_says("no operators of tensors are recorded"),
    of(Key::Category, Shown::Always, has_tensors).or_says("no tensors are recorded, so no block has a category"),
    of(Key::Module, Shown::InReports, has_modules).or_says("no modules are recorded: modules are spans of a model"),
    of(Key::Parameter, Shown::Never, has_modules).or_says("no modules are recorded, so no parameters"),
    of(Key::Name, Shown::Always, |live| !live.device.names.is_empty())
        .or_says("no names are recorded: `memtrace::name` names a block"),
    of(Key::Scope, Shown::InFailures, has_scopes)
        .or_says("no block was allocated in a scope: `memtrace::scope` opens one"),
    of(Key::Age, Shown::AtMoments, |_| true),
    BreakdownTable { key: "live_by_line", ..of(Key::Line, Shown::AtEnd, |_| true) },
];

/// Tables that are shown only on request. JSON does not have them.
pub(crate) const ON_REQUEST: [BreakdownTable; 5] = [
    of(Key::ForwardLine, Shown::InReports, has_pairings).or_says(NO_ORDER),
    of(Key::Layer, Shown::InReports, |live| has_pairings(live) && has_layers(live)).or_says(NO_LAYERS),
    of(Key::Thread, Shown::Never, |_| true),
    of(Key::Stream, Shown::Never, |_| true),
    of(Key::Crate, Shown::Never, |_| true),
];

const NO_ORDER: &str = "not known: `memtrace::candle::backward` records the order of a backward pass; on a GPU, recorded uses give it, too";

const NO_LAYERS: &str = "no layers are known: `memtrace::candle::backward` records the order of a backward pass, and spans or names \
                         (`tag_varmap`, `tag_grads`) name the layers";

const fn of(by: Key, shown: Shown, matters: fn(&LiveSet<'_>) -> bool) -> BreakdownTable {
    BreakdownTable { key: by.section(), by, shown, matters, nothing: "" }
}

impl BreakdownTable {
    const fn or_says(self, nothing: &'static str) -> Self {
        Self { nothing, ..self }
    }

    /// The table of a live set. An `AtEnd` table instead shows what is live at the end of the recording.
    pub(crate) fn of(&self, live: &LiveSet<'_>) -> Breakdown {
        match self.shown {
            Shown::AtEnd => live.device.at_end().by(self.by).into_owned(),
            _ => live.by(self.by).into_owned(),
        }
    }
}

/// Whether model lines differ from user lines.
fn is_other(live: &LiveSet<'_>) -> bool {
    live.by(Key::ModelLine) != live.by(Key::Line)
}

fn has_tensors(live: &LiveSet<'_>) -> bool {
    live.blocks.iter().any(|block| operator(live.device.data(), block.stack).is_some())
}

fn has_modules(live: &LiveSet<'_>) -> bool {
    live.blocks.iter().any(|block| module(live.device.data(), block.context).is_some())
}

fn has_pairings(live: &LiveSet<'_>) -> bool {
    !live.device.pairings().is_empty()
}

fn has_layers(live: &LiveSet<'_>) -> bool {
    has_modules(live) || Layers::of(live.device).are_known()
}

fn has_scopes(live: &LiveSet<'_>) -> bool {
    live.blocks.iter().any(|block| block.context != ContextId::ROOT)
}
