//! Analysis: pure functions from a snapshot to tables, series and findings. No clock, no environment, no I/O.

mod accumulation;
mod balance;
mod breakdown;
mod category_timeline;
mod curve;
mod diff;
mod driver_time;
mod explain;
mod fit;
mod fragmentation;
mod host_balance;
mod key_timeline;
mod known;
mod labels;
pub(crate) mod log;
mod moment;
mod operators;
mod pairs;
mod pool;
mod post_mortem;
pub(crate) mod reserved;
#[doc(hidden)]
pub mod runs;
mod scopes;
mod spanless;
mod stack_test;
mod tables;
mod temporaries;
mod twice;
mod waste;
mod window;

pub use accumulation::{AccumulatingLine, accumulation};
pub use balance::{Balance, BalanceItem, BalanceRow};
pub use breakdown::{
    Breakdown, NO_PARAMETER, NOT_IN_SAMPLE, Row, UNNAMED, by_age, by_allocator, by_category, by_crate, by_function,
    by_line, by_model_line, by_module, by_name, by_operator, by_parameter, by_scope, by_stream, by_thread,
    live_by_line, live_by_scope,
};
pub(crate) use breakdown::{
    UNKNOWN_THREAD, label_of_rest, operator_of_line, parameter_label, stream_label, thread_names,
};
pub use category_timeline::{CategoryBytes, CategoryStep, CategoryTimeline, category_timeline};
pub use curve::{Curve, CurveColumn, curve};
pub(crate) use diff::without_numbers;
pub use diff::{Diff, DiffKey, DiffRow};
pub use driver_time::{Churn, TimeRow, churn, time_by_line, time_by_scope, time_in_driver};
pub use explain::{BlockLife, Explained, Subject, explain};
pub use fit::{Card, Fit, FitVerdict, NeedRow, cards};
pub use fragmentation::{Fragmentation, fragmentation, fragmentation_by_pool};
pub use host_balance::{MappedRow, at_reading, mapped};
pub use key_timeline::{KeyTimeline, TimelineKey, TimelineRow, key_timeline};
pub use known::{KnownBlock, known_blocks};
pub use labels::BEFORE_RECORDING;
pub(crate) use labels::{NO_NAMES, NO_STACK, NO_USER_FRAME, function_label, line_label, module_label, scope_label};
pub use labels::{frame_location, shorten_path};
#[doc(hidden)]
pub use labels::{line_and_callers, operator_label};
#[doc(hidden)]
pub use log::running_totals;
pub use log::start_ns as log_start_ns;
pub use moment::{Moment, Since};
pub(crate) use operators::{Call, Texts, calls, name as call_name};
pub use operators::{Marker, MarkerKind, OperatorCall, OperatorSeries, operators};
pub use pairs::OperatorPairs;
pub use pool::{PoolBalance, pool_balance};
pub use post_mortem::{PostMortem, post_mortem};
pub use scopes::{ScopeRow, scopes};
pub(crate) use scopes::{name_pattern, scopes_by_pattern};
pub use spanless::{Spanless, spanless, spanless_note};
pub(crate) use stack_test::StackTest;
pub(crate) use tables::{BreakdownTable, ON_REQUEST, Shown, TABLES};
pub use temporaries::{SOON, TemporaryRow, temporaries};
pub use twice::{LiveTwice, live_twice};
pub use waste::{
    IdleMemory, InPlace, OperatorTemporaries, UseCoverage, Waste, WasteKind, idle_memory, in_place,
    operator_temporaries, use_coverage, waste, waste_at_peak,
};
pub(crate) use waste::{
    Ungraphed, is_left_by_a_pass, past_their_pass, peak_if_replaced, peak_in_parts, peak_with_own_step,
    peak_without_graphs, without_a_pass,
};
pub use window::{window, window_notes};

use crate::snapshot::{Device, DeviceSnapshot, SnapshotData};

/// The balance of a CUDA device, or for the heap's device that of the process; `None` if it is not known.
pub fn balance(data: &SnapshotData, device: &DeviceSnapshot) -> Option<Balance> {
    balance::device_balance(data, device).or_else(|| host_balance::host_balance(data, device))
}

/// The default device of a report: the one with the largest peak, CUDA devices before host memory.
pub fn main_device(data: &SnapshotData) -> Option<Device> {
    let on_gpu = |device: &DeviceSnapshot| matches!(device.device, Device::Cuda(_)) && device.peak.total() > 0;
    let largest = data.devices.iter().rev().max_by_key(|device| (on_gpu(device), device.peak.total()));
    largest.map(|device| device.device)
}

/// The named device, or else the main device.
pub fn device_or_main(data: &SnapshotData, device: Option<Device>) -> Option<&DeviceSnapshot> {
    device.or_else(|| main_device(data)).and_then(|device| data.device(device))
}
