//! High-water marks of spans as span fields, for the other layers of the subscriber.

use memtrace_core::snapshot::Device;
use tracing::field::{Field, Value};
use tracing::span::{Id, Record};
use tracing::{Dispatch, Metadata};

use crate::record::guard::Own;
use crate::record::recorder;

/// A field that a span declares, such as `memtrace.cuda0.peak_bytes`.
#[derive(Clone, Debug)]
pub(super) struct PeakField {
    field: Field,
    device: Device,
    /// The largest value so far, over all entries of the span.
    peak: u64,
}

pub(super) type PeakFields = Own<Vec<PeakField>>;

/// The span's fields for peaks; `None` if it has none.
pub(super) fn declared(metadata: &Metadata<'_>) -> Option<PeakFields> {
    let fields = || metadata.fields().iter().filter_map(|field| device_of(field.name()).map(|device| (field, device)));
    fields().next()?;
    Some(Own::make(|| fields().map(|(field, device)| PeakField { field, device, peak: 0 }).collect()))
}

fn device_of(field: &str) -> Option<Device> {
    match field.strip_prefix("memtrace.")?.strip_suffix(".peak_bytes")? {
        "cpu" => Some(Device::Cpu),
        "pinned" => Some(Device::Pinned),
        device => device.strip_prefix("cuda")?.parse().ok().map(Device::Cuda),
    }
}

/// Raises each field's peak to the peak of one entry of the span, if this is higher. `instance` is the number of the
/// entry. Returns the fields that changed.
pub(super) fn raise(fields: &mut PeakFields, instance: u64) -> PeakFields {
    Own::make(|| {
        let peak = |of: &PeakField| recorder::peak_since(of.device, instance);
        let raised = fields.iter_mut().filter_map(|of| {
            let peak = peak(of).filter(|peak| *peak > of.peak)?;
            of.peak = peak;
            Some(of.clone())
        });
        raised.collect()
    })
}

/// Records the fields in the span. This calls the other layers, so the caller must hold no lock on the span and must
/// not be inside own work.
pub(super) fn record(fields: &PeakFields, metadata: &Metadata<'_>, span: &Id, subscriber: &Dispatch) {
    for of in fields.iter() {
        let value = [(&of.field, Some(&of.peak as &dyn Value))];
        subscriber.record(span, &Record::new(&metadata.fields().value_set(&value)));
    }
}
