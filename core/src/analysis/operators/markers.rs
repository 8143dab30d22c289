//! Phase markers of a series: where forward and backward passes, optimizer steps and outermost scopes begin.

use std::sync::Arc;

use super::calls::Call;
use crate::attribute::Attribution;
use crate::recording::DeviceView;
use crate::snapshot::{ContextId, ContextNode, Fact, Mark, words};

words! {
    /// What a [`Marker`] marks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum MarkerKind {
        /// A forward pass: a scope with `forward` or `fwd` in its name.
        Forward = "forward",
        /// A backward pass, which ends the forward pass: a scope with `backward`, `bwd` or `backprop` in its name.
        /// Without such a scope, the first call of a backward pass.
        Backward = "backward",
        /// An optimizer step: a scope with `optimizer`, `optimiser` or `optim` in its name. Without such a scope, a
        /// call of candle's optimizers.
        Optimizer = "optimizer",
        /// Any other outermost scope.
        Scope = "scope",
    }
}

impl MarkerKind {
    /// The kind of phase that a scope's name indicates.
    fn of(name: &str) -> Self {
        let name = name.to_lowercase();
        let known = |word: &str| match word {
            "forward" | "fwd" => Some(Self::Forward),
            "backward" | "bwd" | "backprop" => Some(Self::Backward),
            "optimizer" | "optimiser" | "optim" => Some(Self::Optimizer),
            _ => None,
        };
        name.split(|c: char| !c.is_alphanumeric()).find_map(known).unwrap_or(Self::Scope)
    }
}

/// The beginning of a phase or a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Marker {
    /// The scope's name; without a scope, the name of the kind.
    pub name: Arc<str>,
    /// The kind of beginning.
    pub kind: MarkerKind,
    /// Index of the call before which it began.
    pub call: usize,
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
}

pub(super) fn markers(device: &DeviceView<'_>, calls: &[Call<'_>]) -> Vec<Marker> {
    let data = device.data();
    let kinds: Vec<Option<MarkerKind>> =
        (0..data.contexts.len() as u32).map(|context| kind(data, ContextId(context))).collect();
    let name = |node: &ContextNode| if node.name.is_empty() { "(unnamed)".into() } else { node.name.as_str().into() };
    let names: Vec<Arc<str>> = data.contexts.iter().map(name).collect();
    let of_scope = |mark: &Mark| {
        let kind = kinds.get(mark.context.0 as usize).copied().flatten().filter(|_| mark.enter)?;
        let name = names.get(mark.context.0 as usize)?.clone();
        let call = calls.partition_point(|call| call.end_ns < mark.time_ns);
        Some(Marker { name, kind, call, time_ns: mark.time_ns })
    };
    let mut markers: Vec<Marker> = device.marks.iter().filter_map(of_scope).collect();
    without_scope(&mut markers, calls, MarkerKind::Backward, |call| call.is_backward);
    without_scope(&mut markers, calls, MarkerKind::Optimizer, |call| {
        !call.is_backward && data.settings.rules.names(Fact::Loop, call.operator)
    });
    markers.sort_by_key(|marker| (marker.call, marker.time_ns));
    markers
}

/// The kind of marker for a scope, if it has one. Only outermost scopes, and the outermost scope of each phase, have
/// one.
fn kind(data: &Attribution<'_>, context: ContextId) -> Option<MarkerKind> {
    let names = data.context_names(context);
    let (name, around) = names.split_last()?;
    let kind = MarkerKind::of(name);
    match kind {
        MarkerKind::Scope => around.is_empty().then_some(kind),
        _ => (!around.iter().any(|name| MarkerKind::of(name) == kind)).then_some(kind),
    }
}

/// Adds a marker before each unbroken sequence of matching calls, except where a scope already marks the sequence.
fn without_scope(markers: &mut Vec<Marker>, calls: &[Call<'_>], kind: MarkerKind, is: impl Fn(&Call<'_>) -> bool) {
    let announced: Vec<usize> = markers.iter().filter(|marker| marker.kind == kind).map(|marker| marker.call).collect();
    let (mut inside, mut since) = (false, 0);
    for (at, call) in calls.iter().enumerate() {
        let (was, now) = (inside, is(call));
        inside = now;
        if now && !was {
            let from = announced.partition_point(|scope| *scope < since);
            let by_scope = announced.get(from).is_some_and(|scope| *scope <= at);
            let marker = Marker { name: kind.word().into(), kind, call: at, time_ns: call.begin_ns };
            markers.extend((!by_scope).then_some(marker));
        }
        if now {
            since = at + 1;
        }
    }
}
