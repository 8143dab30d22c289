//! Markers: the range that ends in the peak, scopes, and refused allocations.

use std::collections::HashMap;
use std::rc::Rc;

use super::history::BlockHistory;
use super::tables::ThreadTables;
use crate::error::Error;
use crate::export::chrome::{end_ns, nested};
use crate::export::gathered::{Gathered, quoted};
use crate::snapshot::{ContextId, DeviceSnapshot, Mark, SnapshotData, ThreadId};

/// What the profiler shows of each type of marker.
pub(super) const SCHEMA: &str = concat!(
    r#"[{"name":"memtrace-peak","display":["marker-chart","marker-table","timeline-overview"],"#,
    r#""chartLabel":"{marker.name}","tableLabel":"until the peak of {marker.data.bytes}","#,
    r#""fields":[{"key":"bytes","label":"Live bytes","format":"bytes"}]},"#,
    r#"{"name":"memtrace-scope","display":["marker-chart","marker-table","timeline-overview"],"#,
    r#""chartLabel":"{marker.name}","tableLabel":"{marker.data.path}","fields":["#,
    r#"{"key":"path","label":"Scope","format":"string","searchable":true},"#,
    r#"{"key":"thread","label":"Thread","format":"string","searchable":true}]},"#,
    r#"{"name":"memtrace-refused","display":["marker-chart","marker-table","timeline-overview"],"#,
    r#""chartLabel":"{marker.name}","tableLabel":"refused: {marker.data.bytes}","#,
    r#""fields":[{"key":"bytes","label":"Requested","format":"bytes"}]}]"#
);

struct ProfileMarker {
    name: usize,
    from_ns: u64,
    /// None for a moment.
    to_ns: Option<u64>,
    /// It ends half a nanosecond later, before the next record.
    ends_after: bool,
    /// The fields of its type as JSON.
    fields: String,
}

pub(super) struct ProfileMarkers(Vec<ProfileMarker>);

impl ProfileMarkers {
    pub(super) fn of(
        data: &SnapshotData,
        device: &DeviceSnapshot,
        history: &BlockHistory,
        tables: &mut ThreadTables<'_>,
    ) -> Self {
        let bytes = device.peak.total();
        let mut markers = vec![ProfileMarker {
            name: tables.string("peak"),
            from_ns: 0,
            to_ns: Some(history.peak_ns),
            ends_after: true,
            fields: format!("\"type\":\"memtrace-peak\",\"bytes\":{bytes}"),
        }];
        for refused in &device.ooms {
            markers.push(ProfileMarker {
                name: tables.string("refused allocation"),
                from_ns: refused.time_ns,
                to_ns: None,
                ends_after: false,
                fields: format!("\"type\":\"memtrace-refused\",\"bytes\":{}", refused.size),
            });
        }
        scopes(data, tables, &mut markers);
        markers.sort_by_key(|marker| marker.from_ns);
        Self(markers)
    }

    pub(super) fn write(&self, out: &mut Gathered<'_>) -> Result<(), Error> {
        let markers = &self.0;
        out.put(format!(",\n\"markers\":{{\"length\":{}", markers.len()));
        out.column("name", markers, |marker, out| out.number(marker.name as u64))?;
        out.column("startTime", markers, |marker, out| out.millis(marker.from_ns))?;
        out.column("endTime", markers, |marker, out| match marker.to_ns {
            Some(to_ns) if marker.ends_after => {
                out.put(format!("{}.{:06}5", to_ns / 1_000_000, to_ns % 1_000_000));
            }
            Some(to_ns) => out.millis(to_ns),
            None => out.put("null"),
        })?;
        out.column("phase", markers, |marker, out| out.number(marker.to_ns.is_some().into()))?;
        out.column("category", markers, |_, out| out.put("0"))?;
        out.column("data", markers, |marker, out| {
            out.put("{");
            out.put(&marker.fields);
            out.put("}");
        })?;
        out.put("}");
        Ok(())
    }
}

/// Bytes of a path: each time that a scope is entered, it is written again.
const LONGEST_PATH: usize = 1024;

/// The innermost scopes of a path that is too long.
fn shortened(path: String) -> String {
    match path.len().checked_sub(LONGEST_PATH) {
        Some(most) if most > 0 => format!("…{}", &path[path.ceil_char_boundary(most)..]),
        _ => path,
    }
}

/// Every scope of every thread: a device has no threads of its own.
fn scopes(data: &SnapshotData, tables: &mut ThreadTables<'_>, markers: &mut Vec<ProfileMarker>) {
    let threads: HashMap<ThreadId, &str> =
        data.process.threads.iter().map(|thread| (thread.number, &*thread.name)).collect();
    let mut known: HashMap<ContextId, (usize, Rc<str>)> = HashMap::new();
    let mut open: HashMap<ThreadId, Vec<Mark>> = HashMap::new();
    let mut close = |begin: Mark, to_ns: u64| {
        let (name, path) = known.entry(begin.context).or_insert_with(|| {
            let name = data.contexts.get(begin.context.0 as usize).map_or("", |node| &node.name);
            let path = quoted(&shortened(data.context_path(begin.context)));
            (tables.string(if name.is_empty() { "(unnamed)" } else { name }), path.into())
        });
        let number = begin.thread.number();
        let thread = threads.get(&begin.thread).map_or_else(|| format!("thread {number}"), |name| (*name).to_owned());
        let fields = format!("\"type\":\"memtrace-scope\",\"path\":{path},\"thread\":{}", quoted(&thread));
        markers.push(ProfileMarker {
            name: *name,
            from_ns: begin.time_ns,
            to_ns: Some(to_ns),
            ends_after: false,
            fields,
        });
    };
    for mark in nested(data) {
        let of_thread = open.entry(mark.thread).or_default();
        if mark.enter {
            of_thread.push(mark);
        } else if let Some(begin) = of_thread.pop() {
            close(begin, mark.time_ns);
        }
    }
    let left = open.into_values().flatten().filter(|mark| mark.context != ContextId::ROOT);
    left.for_each(|begin| close(begin, end_ns(data)));
}
