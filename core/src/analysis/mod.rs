//! Analysis: pure functions from a snapshot to tables, series and findings. They use no clock, no environment and no
//! I/O.

mod absence;
mod accumulation;
mod allocators;
mod balance;
mod breakdown;
mod category_timeline;
mod columns;
mod curve;
mod diff;
mod driver_time;
mod explain;
mod fit;
mod fragmentation;
mod growth;
mod host_balance;
mod key_labels;
mod key_timeline;
mod labels;
mod layers;
mod live;
pub(crate) mod log;
mod looks;
mod main_device;
mod moment;
mod older;
mod operators;
mod pairs;
mod parts;
mod pool;
mod post_mortem;
mod ranks;
mod ranks_diff;
pub(crate) mod reserved;
mod rows;
#[doc(hidden)]
pub mod runs;
mod scopes;
mod spanless;
mod tables;
mod temporaries;
mod twice;
mod waste;
mod window;

pub use accumulation::{AccumulatingLine, accumulation};
pub use allocators::{Allocator, AllocatorModel, ComparedWithFile, Packing, PyTorchSettings, RunsOut, WhatIf};
pub use balance::{Balance, BalanceItem, BalanceRow};
pub use breakdown::{NOT_IN_SAMPLE, by_allocator};
pub(crate) use breakdown::{below_label, label_of_rest, operator_of_row};
pub use category_timeline::{CategoryBytes, CategoryStep, CategoryTimeline, category_timeline};
pub use curve::{Curve, CurveColumn, curve};
pub use diff::{Diff, DiffRow, DiffSide};
pub(crate) use diff::{difference, without_numbers};
pub use driver_time::{Churn, TimeRow, churn, time_by_line, time_by_scope, time_in_driver};
pub use explain::{Explained, Subject, explain};
pub(crate) use fit::least_room;
pub use fit::{AskedFor, Card, DriftRow, Fit, FitVerdict, NeedRow, cards, drift};
pub use fragmentation::{Fragmentation, fragmentation, fragmentation_by_pool};
pub use growth::{GrowingRow, Growth, RowGrowth};
pub use host_balance::{MappedRow, at_reading, balance, host_balance, mapped};
pub use key_labels::{NO_PARAMETER, UNNAMED};
pub use key_timeline::{KeyTimeline, TimelineRow, key_timeline};
pub use labels::BEFORE_RECORDING;
pub(crate) use labels::{
    BACKWARD_PASS, KeySource, Labels, NO_NAMES, NO_STACK, NO_USER_FRAME, bytes_by_line, line_label, place,
};
pub use labels::{frame_location, shorten_path};
#[doc(hidden)]
pub use labels::{line_and_callers, operator_label};
pub use live::LiveSet;
#[doc(hidden)]
pub use log::running_totals;
pub use log::start_ns as log_start_ns;
pub use looks::{DeviceLook, Look, LookOrder, LookRow, Looks};
pub use main_device::{device_or_main, main_device};
pub use moment::{Moment, Since};
pub use older::{OlderHolder, OlderPeak, older_peaks};
pub(crate) use operators::{Call, Texts, calls, name as call_name};
pub use operators::{Marker, MarkerKind, OperatorCall, OperatorSeries, operators};
pub use pairs::OperatorPairs;
pub use parts::{CostRow, Part, Parts};
pub use pool::{PoolBalance, pool_balance};
pub use post_mortem::{PostMortem, post_mortem};
pub use ranks::{
    DevicePeak, RankSummary, Ranks, SecondFile, SpreadRow, UnreadFile, job_with_ranks, jobs, rank_of_name,
};
pub use ranks_diff::{RankChange, RanksDiff, RanksDiffRow};
pub use rows::{Breakdown, Key, Row};
pub use scopes::{ScopeRow, scopes};
pub(crate) use scopes::{name_pattern, scopes_by_pattern};
pub use spanless::{Spanless, spanless, spanless_note};
pub(crate) use tables::{BreakdownTable, ON_REQUEST, Shown, TABLES};
pub use temporaries::{SOON, TemporaryRow, temporaries};
pub use twice::LiveTwice;
pub(crate) use twice::live_twice;
pub use waste::{
    Checkpoint, IdleMemory, InPlace, OperatorTemporaries, Plan, PlanStep, UseCoverage, Waste, WasteKind, checkpoints,
    idle_memory, in_place, operator_temporaries, use_coverage, waste, waste_at_peak,
};
pub(crate) use waste::{
    Graphs, PlannedChange, Ungraphed, is_left_by_a_pass, past_their_pass, peak_if_replaced, peak_in_parts,
    peak_with_own_step, peak_without_graphs, step_temporaries, without_a_pass,
};
pub use window::{window, window_notes};
