//! `tracing` spans as scopes, beside other layers and in futures.

use std::sync::{Arc, Mutex};

use memtrace::{DeviceView, FutureExt, analysis, scope};
use tracing::level_filters::LevelFilter;
use tracing::{Level, span};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;

use crate::support::{MIB, Raw, alone, cpu, record_large};

/// Context paths of the live blocks, in the order of allocation.
fn contexts(session: &memtrace::Session) -> Vec<String> {
    let snapshot = session.snapshot();
    cpu(&snapshot).live.iter().map(|block| snapshot.context_path(block.context)).collect()
}

fn with_layer<R>(f: impl FnOnce() -> R) -> R {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(memtrace::layer()), f)
}

fn block() -> Raw {
    Raw::new(MIB)
}

#[test]
fn spans_of_every_level_are_scopes_and_nest_with_those_of_the_program() {
    let _alone = alone();
    let session = record_large();
    let blocks = with_layer(|| {
        span!(Level::TRACE, "forward").in_scope(|| {
            scope("layer", || span!(Level::INFO, "attention").in_scope(|| vec![block(), scope("softmax", block)]))
        })
    });
    assert_eq!(contexts(&session), ["forward > layer > attention", "forward > layer > attention > softmax"]);
    drop(blocks);
}

#[test]
fn stored_spans_of_one_name_are_numbered_in_the_order_of_creation() {
    let _alone = alone();
    let session = record_large();
    let blocks: Vec<Raw> = with_layer(|| {
        let layers: Vec<_> = (0..3).map(|_| (span!(Level::TRACE, "block"), span!(Level::TRACE, "attn"))).collect();
        layers.iter().rev().map(|(outer, inner)| outer.in_scope(|| inner.in_scope(block))).collect()
    });
    assert_eq!(contexts(&session), ["block[2] > attn[2]", "block[1] > attn[1]", "block[0] > attn[0]"]);
    drop(blocks);
}

#[test]
fn a_span_of_candles_models_is_a_module_and_no_other_is() {
    let _alone = alone();
    let session = record_large();
    let blocks = with_layer(|| {
        let attention = span!(target: "candle_transformers::models::llama", Level::TRACE, "attention");
        let own = span!(target: "candle_transformers_of_mine", Level::TRACE, "own");
        [attention.in_scope(block), own.in_scope(block)]
    });
    let snapshot = session.snapshot();
    let is_module = |name: &str| snapshot.contexts.iter().any(|node| node.name == name && node.module);
    assert_eq!(["attention", "own"].map(is_module), [true, false]);
    drop(blocks);
}

/// Like requests of a server, whose futures are polled alternately.
#[test]
fn concurrent_work_of_one_name_is_one_scope() {
    let _alone = alone();
    let session = record_large();
    let blocks: Vec<Raw> = with_layer(|| {
        let requests: Vec<_> = (0..3).map(|_| span!(Level::INFO, "request")).collect();
        (0..2).flat_map(|_| &requests).map(|request| request.in_scope(block)).collect()
    });
    assert_eq!(contexts(&session), ["request"; 6]);
    let snapshot = session.snapshot();
    let calls: Vec<u64> = cpu(&snapshot).scopes.iter().map(|scope| scope.calls).collect();
    assert_eq!(calls, [6], "one row that says how often it was entered");
    drop(blocks);
}

#[test]
fn a_span_that_is_created_anew_each_time_has_no_number() {
    let _alone = alone();
    let session = record_large();
    let blocks: Vec<Raw> = with_layer(|| (0..3).map(|_| span!(Level::DEBUG, "request").in_scope(block)).collect());
    assert_eq!(contexts(&session), ["request", "request", "request"]);
    drop(blocks);
}

#[test]
fn spans_may_be_left_out_of_order_and_in_a_panic() {
    let _alone = alone();
    let session = record_large();
    let blocks = with_layer(|| {
        let (outer, inner) = (span!(Level::INFO, "outer").entered(), span!(Level::INFO, "inner").entered());
        drop(outer);
        let first = block();
        drop(inner);
        let caught = std::panic::catch_unwind(|| {
            span!(Level::INFO, "doomed").in_scope(|| std::panic::resume_unwind(Box::new("expected")))
        });
        assert!(caught.is_err());
        [first, block()]
    });
    assert_eq!(contexts(&session), ["inner", ""]);
    drop(blocks);
}

#[test]
fn a_span_nests_in_the_scope_that_is_open_at_its_entry() {
    let _alone = alone();
    let session = record_large();
    let blocks: Vec<Raw> = with_layer(|| {
        let span = span!(Level::INFO, "span");
        let mut blocks: Vec<_> = ["a", "a", "b", "a"].map(|name| scope(name, || span.in_scope(block))).into();
        blocks.push(span.in_scope(block));
        blocks
    });
    assert_eq!(contexts(&session), ["a > span", "a > span", "b > span", "a > span", "span"]);
    drop(blocks);
}

#[test]
fn a_recursive_span_is_left_once_for_each_time_it_was_entered() {
    let _alone = alone();
    let session = record_large();
    let blocks = with_layer(|| {
        let span = span!(Level::INFO, "walk");
        span.in_scope(|| [span.in_scope(block), block()])
    });
    assert_eq!(contexts(&session), ["walk > walk", "walk"]);
    drop(blocks);
}

#[test]
fn a_span_beyond_the_nesting_limit_is_left_in_order() {
    let _alone = alone();
    let session = record_large();
    let blocks = with_layer(|| {
        let (outer, walk) = (span!(Level::INFO, "outer"), span!(Level::INFO, "walk"));
        let mut blocks = Vec::new();
        let _outer = outer.enter();
        let mut entered: Vec<_> = (0..100).map(|_| walk.enter()).collect();
        drop(outer.enter());
        while entered.len() > 2 {
            drop(entered.pop());
        }
        blocks.push(block());
        drop(entered);
        blocks.push(block());
        blocks
    });
    assert_eq!(contexts(&session), ["outer > walk > walk", "outer"]);
    drop(blocks);
}

#[test]
fn spans_of_two_subscribers_with_the_same_ids_are_not_confused() {
    let _alone = alone();
    let session = record_large();
    let here = with_layer(|| span!(Level::INFO, "here"));
    let there = with_layer(|| span!(Level::INFO, "there"));
    let (outer, inner) = (here.enter(), there.enter());
    drop(outer);
    let block = block();
    drop(inner);
    assert_eq!(contexts(&session), ["there"]);
    drop(block);
}

#[test]
fn a_second_layer_on_the_same_subscriber_adds_nothing() {
    let _alone = alone();
    let session = record_large();
    let twice = tracing_subscriber::registry().with(memtrace::layer()).with(memtrace::layer());
    let block = tracing::subscriber::with_default(twice, || span!(Level::INFO, "once").in_scope(block));
    assert_eq!(contexts(&session), ["once"]);
    drop(block);
}

#[test]
fn a_span_entered_on_another_thread_is_a_scope_of_that_thread_only() {
    let _alone = alone();
    let session = record_large();
    let subscriber = Arc::new(tracing_subscriber::registry().with(memtrace::layer()));
    let span = tracing::subscriber::with_default(subscriber.clone(), || span!(Level::INFO, "work"));
    let there = std::thread::spawn(move || {
        tracing::subscriber::with_default(subscriber, || {
            let _entered = span.enter();
            block()
        })
    });
    let blocks = [there.join().unwrap(), block()];
    assert_eq!(contexts(&session), ["work", ""]);
    drop(blocks);
}

#[test]
fn without_a_subscriber_spans_do_nothing() {
    let _alone = alone();
    let session = record_large();
    let kept = span!(Level::INFO, "nobody listens").in_scope(block);
    assert_eq!(contexts(&session), [""]);
    drop(kept);
}

/// Another layer, which keeps the names of its spans.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<&'static str>>>);

impl<S: tracing::Subscriber> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _id: &span::Id, _context: Context<'_, S>) {
        self.0.lock().unwrap().push(attributes.metadata().name());
    }
}

#[test]
fn the_filter_of_another_layer_is_its_own() {
    let _alone = alone();
    let session = record_large();
    let seen = Seen::default();
    let subscriber =
        tracing_subscriber::registry().with(memtrace::layer()).with(seen.clone().with_filter(LevelFilter::INFO));
    let kept = tracing::subscriber::with_default(subscriber, || {
        span!(Level::INFO, "loud").in_scope(|| span!(Level::TRACE, "quiet").in_scope(block))
    });
    assert_eq!(contexts(&session), ["loud > quiet"]);
    assert_eq!(*seen.0.lock().unwrap(), ["loud"]);
    drop(kept);
}

#[test]
fn a_span_counts_its_calls_and_its_bytes() {
    let _alone = alone();
    let session = record_large();
    with_layer(|| (0..5).for_each(|_| span!(Level::TRACE, "step").in_scope(|| drop([block(), block()]))));
    let snapshot = session.snapshot();
    let rows = analysis::scopes(&DeviceView::of(&snapshot, cpu(&snapshot)));
    let step = rows.iter().find(|row| row.path == "step").unwrap();
    assert_eq!((step.calls, step.allocations, step.own_peak), (5, 10, 2 * MIB as u64));
}

/// Pends once, so that its task is polled again on another thread.
async fn elsewhere() {
    let mut pended = false;
    std::future::poll_fn(|waker| {
        waker.waker().wake_by_ref();
        if std::mem::replace(&mut pended, true) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[test]
fn a_future_keeps_its_scope_on_every_thread_that_polls_it() {
    let _alone = alone();
    let session = record_large();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let task = {
        let kept = kept.clone();
        let work = async move {
            for _ in 0..3 {
                let block = block();
                kept.lock().unwrap().push(block);
                elsewhere().await;
            }
        };
        scope("server", || work.memtrace("request"))
    };
    let mut task = Box::pin(task);
    for thread in 0..4 {
        task = std::thread::spawn(move || {
            let _other = memtrace::scope_guard(format!("thread {thread}"));
            let done = task.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            assert_eq!(done.is_ready(), thread == 3);
            task
        })
        .join()
        .unwrap();
    }
    assert_eq!(contexts(&session), ["server > request"; 3]);
    drop(kept);
}
