//! Spans of the `tracing` crate as scopes, and futures that carry their scopes along.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use tracing::callsite::Identifier;
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, Filtered, filter_fn};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::record::guard::Own;
use crate::record::{Leaves, fork, own};
use crate::scope::{self, LastPath, SpanKey};

/// A layer that makes every span a scope: what is allocated while a span is entered carries its name,
/// below the spans and scopes that are open on the thread.
///
/// Install it **before the model is loaded**: models keep the spans they make when they are loaded,
/// and a span that was made without a subscriber can never be entered. candle's spans are at level
/// TRACE, so this layer brings a filter of its own that takes spans of every level; give the other
/// layers their filters by `with_filter`, for a filter on the whole subscriber silences this one too.
/// The report says so where a model of candle-transformers ran and its spans were not heard.
///
/// Spans of level TRACE of the same name that exist side by side are numbered in the order in which they were made:
/// `block[1] > attn[1]`. They are the parts of a model, as candle's. Spans of other levels are work, such as the requests that a
/// server has at once: those of one name are one scope.
///
/// ```
/// use tracing_subscriber::prelude::*;
///
/// tracing_subscriber::registry().with(memtrace::layer()).init();
/// let span = tracing::trace_span!("forward");
/// span.in_scope(|| { /* allocations in here carry the context "forward" */ });
/// ```
pub fn layer<S>() -> Filtered<SpanLayer, FilterFn, S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    SpanLayer::new().with_filter(filter_fn(is_span))
}

fn is_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
}

/// Is it one of the parts of a model, which are told apart? candle's are at this level.
fn is_part(metadata: &Metadata<'_>) -> bool {
    *metadata.level() == Level::TRACE
}

/// Is it a span of one of candle's models? The table of rules says so, too; it is not read here, in the program's own work.
fn is_model(metadata: &Metadata<'_>) -> bool {
    metadata.target().split("::").next() == Some("candle_transformers")
}

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Was a layer ever part of a subscriber in this process?
pub(crate) fn was_installed() -> bool {
    INSTALLED.load(Relaxed)
}

/// Are spans at level TRACE, such as those of candle's models, kept from all layers? By a filter on
/// the whole subscriber, or by a feature of `tracing` that leaves them out of the program.
pub(crate) fn trace_is_silenced() -> bool {
    STATIC_MAX_LEVEL.min(LevelFilter::current()) < LevelFilter::TRACE
}

/// What [`layer`] is made of.
#[derive(Debug)]
pub struct SpanLayer {
    /// Tells its spans from those of another layer: each subscriber numbers its own.
    number: u64,
    /// Which numbers are taken, by the place in the source that makes spans.
    taken: Own<Mutex<HashMap<Identifier, Numbers>>>,
}

/// The spans of one callsite that exist now.
#[derive(Debug, Default)]
struct Numbers {
    /// How many were ever taken at a time; if more than one, numbers are shown.
    most: usize,
    /// Those of them that are free.
    free: BinaryHeap<Reverse<usize>>,
}

impl Numbers {
    /// The smallest free number.
    fn take(&mut self) -> usize {
        if let Some(Reverse(number)) = self.free.pop() {
            return number;
        }
        self.most += 1;
        self.most - 1
    }

    fn give_back(&mut self, number: usize) {
        self.free.push(Reverse(number));
    }

    fn several(&self) -> bool {
        self.most > 1
    }
}

/// What a span carries.
#[derive(Debug)]
struct Label {
    /// The layer that labelled it: a second one on the same subscriber leaves it alone.
    layer: u64,
    number: usize,
    /// Made when it is entered for the first time: only then is it known whether there are several.
    name: Option<Own<String>>,
    last: LastPath,
}

impl SpanLayer {
    fn new() -> Self {
        static LAYERS: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the uniqueness of the number matters.
        Self { number: LAYERS.fetch_add(1, Relaxed), taken: Own::make(Mutex::default) }
    }

    fn key(&self, id: &Id) -> SpanKey {
        SpanKey { layer: self.number, span: id.into_u64() }
    }

    /// Does something with the numbers of a callsite's spans, as memtrace's own work.
    fn with_numbers<R: Leaves>(&self, metadata: &'static Metadata<'static>, f: impl FnOnce(&mut Numbers) -> R) -> R {
        own(|| {
            let _no_fork = fork::no_fork();
            // Nothing done under this lock panics.
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            f(taken.entry(metadata.callsite()).or_default())
        })
    }

    fn name(&self, metadata: &'static Metadata<'static>, number: usize) -> Own<String> {
        let several = is_part(metadata) && self.with_numbers(metadata, |numbers| numbers.several());
        let name = metadata.name();
        Own::make(|| if several { format!("{name}[{number}]") } else { name.to_owned() })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_register_dispatch(&self, _subscriber: &Dispatch) {
        INSTALLED.store(true, Relaxed);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if extensions.get_mut::<Label>().is_none() {
            let metadata = attributes.metadata();
            let number = if is_part(metadata) { self.with_numbers(metadata, Numbers::take) } else { 0 };
            extensions.insert(Label { layer: self.number, number, name: None, last: LastPath::default() });
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(label) = extensions.get_mut::<Label>().filter(|label| label.layer == self.number) else { return };
        let Label { number, name, last, .. } = label;
        let metadata = span.metadata();
        scope::enter_span(self.key(id), last, || {
            (name.get_or_insert_with(|| self.name(metadata, *number)).as_str(), is_model(metadata))
        });
    }

    fn on_exit(&self, id: &Id, _context: Context<'_, S>) {
        scope::exit_span(self.key(id));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let label = span.extensions().get::<Label>().map(|label| (label.layer, label.number));
        if let Some((layer, number)) = label
            && layer == self.number
            && is_part(span.metadata())
        {
            self.with_numbers(span.metadata(), |numbers| numbers.give_back(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_shown_only_if_there_were_several() {
        let mut numbers = Numbers::default();
        assert_eq!((numbers.take(), numbers.several()), (0, false));
        numbers.give_back(0);
        assert_eq!((numbers.take(), numbers.several()), (0, false));
        assert_eq!((numbers.take(), numbers.take(), numbers.several()), (1, 2, true));
        numbers.give_back(1);
        assert_eq!(numbers.take(), 1);
    }
}
