//! Spans of the `tracing` crate as scopes, and futures that carry their scopes along.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::callsite::Identifier;
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, Filtered, filter_fn};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::record::guard::{Own, own_work};
use crate::scope;

/// A layer that makes every span a scope: what is allocated while a span is entered carries its name,
/// below the spans and scopes that are open on the thread.
///
/// Install it **before the model is loaded**: models keep the spans they make when they are loaded,
/// and a span that was made without a subscriber can never be entered. candle's spans are at level
/// TRACE, so this layer brings a filter of its own that takes spans of every level; give the other
/// layers their filters by `with_filter`, for a filter on the whole subscriber silences this one too.
///
/// Spans of the same name that exist side by side are numbered in the order in which they were made:
/// `block[1] > attn[1]`.
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
    SpanLayer { taken: Own::make(Mutex::default) }.with_filter(filter_fn(is_span))
}

fn is_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
}

/// What [`layer`] is made of.
#[derive(Debug)]
pub struct SpanLayer {
    /// Which numbers are taken, by the place in the source that makes spans.
    taken: Own<Mutex<HashMap<Identifier, Numbers>>>,
}

/// The spans of one callsite that exist now.
#[derive(Debug, Default)]
struct Numbers {
    taken: Vec<bool>,
    /// More than one existed at a time: numbers are shown.
    several: bool,
}

impl Numbers {
    /// The smallest free number.
    fn take(&mut self) -> usize {
        let number = self.taken.iter().position(|taken| !taken).unwrap_or(self.taken.len());
        match self.taken.get_mut(number) {
            Some(slot) => *slot = true,
            None => self.taken.push(true),
        }
        self.several |= number > 0;
        number
    }

    fn give_back(&mut self, number: usize) {
        if let Some(slot) = self.taken.get_mut(number) {
            *slot = false;
        }
    }
}

/// What a span carries.
#[derive(Debug)]
struct Label {
    number: usize,
    /// Made when it is entered for the first time: only then is it known whether there are several.
    name: Option<Own<String>>,
}

impl SpanLayer {
    fn numbers(&self) -> MutexGuard<'_, HashMap<Identifier, Numbers>> {
        // Nothing done under this lock panics.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, metadata: &'static Metadata<'static>, number: usize) -> Own<String> {
        let several = self.numbers().get(&metadata.callsite()).is_some_and(|numbers| numbers.several);
        let name = metadata.name();
        Own::make(|| if several { format!("{name}[{number}]") } else { name.to_owned() })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let number = {
            let _work = own_work();
            self.numbers().entry(attributes.metadata().callsite()).or_default().take()
        };
        span.extensions_mut().insert(Label { number, name: None });
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(label) = extensions.get_mut::<Label>() else { return };
        let number = label.number;
        let name = label.name.get_or_insert_with(|| self.name(span.metadata(), number));
        scope::enter_span(id.into_u64(), name);
    }

    fn on_exit(&self, id: &Id, _context: Context<'_, S>) {
        scope::exit_span(id.into_u64());
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let number = span.extensions().get::<Label>().map(|label| label.number);
        if let (Some(number), Some(numbers)) = (number, self.numbers().get_mut(&span.metadata().callsite())) {
            numbers.give_back(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_shown_only_if_there_were_several() {
        let mut numbers = Numbers::default();
        assert_eq!((numbers.take(), numbers.several), (0, false));
        numbers.give_back(0);
        assert_eq!((numbers.take(), numbers.several), (0, false));
        assert_eq!((numbers.take(), numbers.take(), numbers.several), (1, 2, true));
        numbers.give_back(1);
        assert_eq!(numbers.take(), 1);
    }
}
