//! Peaks of spans as fields that the subscriber's other layers see.

use std::sync::{Arc, Mutex};

use crate::support::{MIB, Raw, alone, bytes_before_recording, cpu, record_large};
use tracing::field::{Empty, Field, Visit};
use tracing::span::{Id, Record};
use tracing::{Subscriber, info_span};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

/// Notes the fields that are recorded on spans.
#[derive(Clone, Default)]
struct RecordedFields(Arc<Mutex<Vec<(String, u64)>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RecordedFields {
    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        // Layers that format spans lock them.
        context.span(id).unwrap().extensions_mut().replace(());
        values.record(&mut self.clone());
    }
}

impl Visit for RecordedFields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.lock().unwrap().push((field.name().to_owned(), value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        panic!("{field} is {value:?}, not a number");
    }
}

fn recorded(f: impl FnOnce()) -> Vec<(String, u64)> {
    let fields = RecordedFields::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(memtrace::layer()).with(fields.clone()), f);
    let recorded = fields.0.lock().unwrap();
    recorded.clone()
}

#[test]
fn a_span_that_declares_the_field_gets_the_peak_of_the_report() {
    let _alone = alone();
    let leftover = bytes_before_recording();
    let session = record_large();
    let before = Raw::new(MIB);
    let fields = recorded(|| {
        let request =
            info_span!("request", user = 7, memtrace.cpu.peak_bytes = Empty, memtrace.cuda0.peak_bytes = Empty);
        request.in_scope(|| drop(Raw::new(4 * MIB)));
        info_span!("after").in_scope(|| drop(Raw::new(9 * MIB)));
    });
    let snapshot = session.snapshot();
    let rows = &cpu(&snapshot).scopes;
    let request = rows.iter().find(|scope| snapshot.context_path(scope.context) == "request").unwrap();
    let peak = request.total_peak.unwrap();
    assert!((5 * MIB as u64..6 * MIB as u64).contains(&(peak - leftover)), "{peak} with {leftover} from before");
    assert_eq!(fields, [("memtrace.cpu.peak_bytes".to_owned(), peak)]);
    drop(before);
}

#[test]
fn a_span_that_is_entered_again_keeps_its_largest_peak() {
    let _alone = alone();
    let leftover = bytes_before_recording();
    let session = record_large();
    let fields = recorded(|| {
        let request = info_span!("request", memtrace.cpu.peak_bytes = Empty);
        for blocks in [3, 1, 5] {
            request.in_scope(|| drop(Raw::new(blocks * MIB)));
        }
    });
    let mebibytes: Vec<u64> = fields.iter().map(|(_, bytes)| (bytes - leftover) / MIB as u64).collect();
    assert_eq!(mebibytes, [3, 5], "the second entry raises nothing");
    drop(session);
}

#[test]
fn spans_have_no_field_unless_they_declare_it_and_something_is_recorded() {
    let _alone = alone();
    let session = record_large();
    let undeclared = || info_span!("request", memtrace.peak = 1, peak_bytes = Empty).in_scope(|| drop(Raw::new(MIB)));
    assert_eq!(recorded(undeclared), []);
    drop(session);
    let declared = || info_span!("request", memtrace.cpu.peak_bytes = Empty).in_scope(|| drop(Raw::new(MIB)));
    assert_eq!(recorded(declared), []);
}
