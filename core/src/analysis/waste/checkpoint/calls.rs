//! Calls of modules.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::analysis::scopes::name_pattern;
use crate::attribute::module;
use crate::recording::DeviceView;
use crate::snapshot::{ContextId, ThreadId};

#[derive(Clone, Debug)]
pub(super) struct ModuleCall {
    pub(super) path: String,
    pub(super) thread: ThreadId,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// Records of the call, and those of other threads in between.
    pub(super) records: Range<usize>,
}

/// The calls of modules. Calls whose paths differ only in numbers are in the same group.
pub(super) fn families(device: &DeviceView<'_>) -> Vec<Vec<ModuleCall>> {
    let data = device.data();
    let is_module = |context: ContextId| data.contexts.get(context.0 as usize).is_some_and(|node| node.module);
    let mut found: BTreeMap<String, Vec<ModuleCall>> = BTreeMap::new();
    let mut open: HashMap<(ThreadId, ContextId), u64> = HashMap::new();
    for mark in device.marks.iter().filter(|mark| is_module(mark.context)) {
        let key = (mark.thread, mark.context);
        if mark.enter {
            open.insert(key, mark.time_ns);
            continue;
        }
        let Some((from_ns, path)) = open.remove(&key).zip(module(data, mark.context)) else { continue };
        let at = |ns| device.records.partition_point(|record| record.time_ns <= ns);
        let (to_ns, records) = (mark.time_ns, at(from_ns)..at(mark.time_ns));
        let pattern = name_pattern(&path);
        found.entry(pattern).or_default().push(ModuleCall { path, thread: mark.thread, from_ns, to_ns, records });
    }
    found.into_values().collect()
}
