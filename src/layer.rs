//! `tracing` layer that turns spans into scopes.

mod peaks;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::callsite::Identifier;
use tracing::dispatcher::WeakDispatch;
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, Filtered, filter_fn};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use self::peaks::PeakFields;
use crate::record::guard::Own;
use crate::record::{Leaves, fork, own, recorder};
use crate::scope::{self, LastPath, SpanKey};

/// A layer that makes every span a scope. Allocations made while a span is entered carry the span's name, inside the
/// spans and scopes that are already open on the thread.
///
/// Install it **before the model is loaded**. candle's models create their spans when they are loaded, and a span
/// created without a subscriber can never be entered. candle's spans have level TRACE, so this layer brings its own
/// filter, which accepts spans of every level. Give other layers their filters with `with_filter`, because a filter on
/// the whole subscriber silences this layer, too. The report warns if a model of candle-transformers ran and its spans
/// did not reach the layer.
///
/// Spans of level TRACE are parts of a model, as candle's are. If several with the same name exist at the same time,
/// they are numbered in the order of their creation: `block[1] > attn[1]`. Spans of other levels are work, such as a
/// server's concurrent requests; those with the same name are one scope.
///
/// A span may declare the field `memtrace.cpu.peak_bytes` or `memtrace.cuda0.peak_bytes`. The field gets the most bytes
/// that were live on the device while the span was entered, without blocks below the threshold. Other layers that show
/// fields show this field, too, if they are added after this layer.
///
/// ```
/// let request = tracing::info_span!("request", memtrace.cpu.peak_bytes = tracing::field::Empty);
/// ```
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

/// Whether the span is a part of a model, so that spans of the same name are numbered.
fn is_part(metadata: &Metadata<'_>) -> bool {
    *metadata.level() == Level::TRACE
}

/// Whether the span belongs to one of candle's models. The rules (`rules.txt`) say this, too, but parsing them here
/// would take the program's time.
fn is_model(metadata: &Metadata<'_>) -> bool {
    metadata.target().split("::").next() == Some("candle_transformers")
}

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Whether a layer was ever part of a subscriber in this process.
pub(crate) fn was_installed() -> bool {
    INSTALLED.load(Relaxed)
}

/// Whether no layer can see spans of level TRACE, such as those of candle's models. The reason is a filter on the whole
/// subscriber, or a feature of `tracing` that compiles such spans out.
pub(crate) fn trace_is_silenced() -> bool {
    STATIC_MAX_LEVEL.min(LevelFilter::current()) < LevelFilter::TRACE
}

/// The layer behind [`layer`], which adds a filter.
#[derive(Debug)]
pub struct SpanLayer {
    /// The number of this layer in the process. A span's id alone is ambiguous, because each subscriber numbers its own
    /// spans.
    number: u64,
    /// For each callsite, the numbers of its spans, as in `block[1]`.
    taken: Own<Mutex<HashMap<Identifier, SpanNumbers>>>,
    /// The subscriber that this layer is part of.
    subscriber: OnceLock<WeakDispatch>,
    /// Whether any span declared a field for its peak.
    records_peaks: AtomicBool,
}

/// Numbers for the spans of one callsite that exist at the same time.
#[derive(Debug, Default)]
struct SpanNumbers {
    /// The most numbers that were ever in use at once. If it is more than 1, the names of spans show their numbers.
    most: usize,
    free: BinaryHeap<Reverse<usize>>,
}

impl SpanNumbers {
    fn take(&mut self) -> usize {
        if let Some(Reverse(number)) = self.free.pop() {
            return number;
        }
        self.most += 1;
        self.most - 1
    }
}

/// The layer's data on a span.
#[derive(Debug)]
struct SpanLabel {
    /// The number of the layer that labelled the span. A second memtrace layer on the same subscriber ignores the span.
    layer: u64,
    number: usize,
    /// The name is made when the span is first entered, not when it is created. Only then is it known whether there are
    /// several spans of this callsite, whose names need numbers.
    name: Option<Own<String>>,
    last: LastPath,
    peaks: Option<PeakFields>,
}

impl SpanLayer {
    fn new() -> Self {
        static LAYERS: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the uniqueness of the number matters.
        Self {
            number: LAYERS.fetch_add(1, Relaxed),
            taken: Own::make(Mutex::default),
            subscriber: OnceLock::new(),
            records_peaks: AtomicBool::new(false),
        }
    }

    fn key(&self, id: &Id) -> SpanKey {
        SpanKey { layer: self.number, span: id.into_u64() }
    }

    fn with_numbers<R: Leaves>(
        &self,
        metadata: &'static Metadata<'static>,
        f: impl FnOnce(&mut SpanNumbers) -> R,
    ) -> R {
        own(|| {
            let _no_fork = fork::no_fork();
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            f(taken.entry(metadata.callsite()).or_default())
        })
    }

    /// Records the peaks of a span that is about to be left.
    #[cold]
    fn record_peaks<S: Subscriber + for<'a> LookupSpan<'a>>(&self, id: &Id, context: &Context<'_, S>) {
        let Some(span) = context.span(id).filter(|_| recorder::is_recording()) else { return };
        let Some(instance) = scope::open_instance(self.key(id)) else { return };
        let mut extensions = span.extensions_mut();
        let label = extensions.get_mut::<SpanLabel>().filter(|label| label.layer == self.number);
        let Some(raised) = label.and_then(|label| label.peaks.as_mut()).map(|peaks| peaks::raise(peaks, instance))
        else {
            return;
        };
        // The lock on the span must be free now, because other layers take it when they note the fields.
        drop(extensions);
        if let Some(subscriber) = self.subscriber.get().and_then(WeakDispatch::upgrade) {
            peaks::record(&raised, span.metadata(), id, &subscriber);
        }
    }

    fn name(&self, metadata: &'static Metadata<'static>, number: usize) -> Own<String> {
        let several = is_part(metadata) && self.with_numbers(metadata, |numbers| numbers.most > 1);
        let name = metadata.name();
        Own::make(|| if several { format!("{name}[{number}]") } else { name.to_owned() })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        INSTALLED.store(true, Relaxed);
        let _ = self.subscriber.set(subscriber.downgrade());
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if extensions.get_mut::<SpanLabel>().is_none() {
            let metadata = attributes.metadata();
            let number = if is_part(metadata) { self.with_numbers(metadata, SpanNumbers::take) } else { 0 };
            let peaks = peaks::declared(metadata);
            if peaks.is_some() {
                // Relaxed: whatever hands the span to another thread also makes this store visible there, before the
                // span is left.
                self.records_peaks.store(true, Relaxed);
            }
            extensions.insert(SpanLabel { layer: self.number, number, name: None, last: LastPath::default(), peaks });
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(label) = extensions.get_mut::<SpanLabel>().filter(|label| label.layer == self.number) else { return };
        let SpanLabel { number, name, last, .. } = label;
        let metadata = span.metadata();
        scope::enter_span(self.key(id), last, || {
            (name.get_or_insert_with(|| self.name(metadata, *number)).as_str(), is_model(metadata))
        });
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if self.records_peaks.load(Relaxed) {
            self.record_peaks(id, &context);
        }
        scope::exit_span(self.key(id));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let label = span.extensions().get::<SpanLabel>().map(|label| (label.layer, label.number));
        if let Some((layer, number)) = label
            && layer == self.number
            && is_part(span.metadata())
        {
            self.with_numbers(span.metadata(), |numbers| numbers.free.push(Reverse(number)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_shown_only_if_there_were_several() {
        let mut numbers = SpanNumbers::default();
        assert_eq!((numbers.take(), numbers.most > 1), (0, false));
        numbers.free.push(Reverse(0));
        assert_eq!((numbers.take(), numbers.most > 1), (0, false));
        assert_eq!((numbers.take(), numbers.take(), numbers.most > 1), (1, 2, true));
        numbers.free.push(Reverse(1));
        assert_eq!(numbers.take(), 1);
    }
}
