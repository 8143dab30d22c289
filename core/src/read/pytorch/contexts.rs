//! Contexts from annotations (`record_function`, optimizer steps) and from the metadata of entries.

use std::collections::{BTreeMap, HashMap};

use super::fields::{DictFields, number};
use super::rows::SnapshotValues;
use super::trace::LATEST_US;
use crate::pytorch_words as words;
use crate::read::pickle::{PickleValue, Refusal};
use crate::snapshot::{ContextId, ContextNode, Mark, ThreadId};

/// The deepest nesting of scopes in a path.
const DEEPEST: u32 = 64;
/// The most annotations that are open at once.
const MOST_OPEN: usize = 1024;
/// The separator of the scopes in a path.
const SEPARATOR: &str = " > ";

/// The beginning of the names of annotations that are memtrace's advice, not scopes.
const ADVICE: &str = "memtrace advice: ";

/// The tree of contexts, and the annotations of each device.
pub(super) struct Contexts {
    pub(super) nodes: Vec<ContextNode>,
    depths: Vec<u32>,
    ids: HashMap<(ContextId, String), ContextId>,
    /// Annotations by device number, in the order of time.
    annotations: BTreeMap<u64, Vec<Annotation>>,
    /// True if memtrace wrote the file. Then names are complete paths, and every entry has its own path.
    pub(super) are_paths: bool,
}

#[derive(Debug)]
struct Annotation {
    time_us: u64,
    name: String,
    enter: bool,
}

impl Contexts {
    /// Reads the annotations of a snapshot.
    pub(super) fn of(
        annotations: Option<PickleValue>,
        are_paths: bool,
        values: &SnapshotValues<'_>,
    ) -> Result<Self, Refusal> {
        let root = ContextNode { parent: ContextId::ROOT, name: String::new(), module: false };
        let mut contexts =
            Self { nodes: vec![root], depths: vec![0], ids: HashMap::new(), annotations: BTreeMap::new(), are_paths };
        for annotation in annotations.map_or(&[][..], |annotations| values.list(annotations)) {
            contexts.annotation(&DictFields(values.dict(*annotation)), values);
        }
        contexts
            .annotations
            .values_mut()
            .for_each(|annotations| annotations.sort_by_key(|annotation| annotation.time_us));
        Ok(contexts)
    }

    /// Adds an annotation, if it has all needed fields.
    fn annotation(&mut self, fields: &DictFields<'_>, values: &SnapshotValues<'_>) {
        let numbered = |key| fields.find(key).and_then(|value| number(value, values));
        let time_us = numbered(words::TIME_US).filter(|time_us| *time_us < LATEST_US);
        let name = fields.find(words::NAME).and_then(|name| values.text(name));
        let enter = match fields.find(words::STAGE) {
            Some(PickleValue::Text(words::START)) => true,
            Some(PickleValue::Text(words::END)) => false,
            _ => return,
        };
        // memtrace's own advice is not a scope.
        let name = name.filter(|name| !(self.are_paths && name.starts_with(ADVICE)));
        if let (Some(device), Some(time_us), Some(name)) = (numbered(words::DEVICE), time_us, name) {
            let annotation = Annotation { time_us, name: name.to_owned(), enter };
            self.annotations.entry(device).or_default().push(annotation);
        }
    }

    /// The time of the first annotation.
    pub(super) fn first_us(&self) -> Option<u64> {
        self.annotations.values().flatten().map(|annotation| annotation.time_us).min()
    }

    /// The time of the last annotation.
    pub(super) fn last_us(&self) -> Option<u64> {
        self.annotations.values().flatten().map(|annotation| annotation.time_us).max()
    }

    /// The marks of a device. Annotations that end without having begun are left out.
    pub(super) fn marks(&mut self, device: u64, started_us: u64) -> Vec<Mark> {
        let (mut open, mut marks): (Vec<(String, ContextId)>, Vec<Mark>) = Default::default();
        for Annotation { time_us, name, enter } in self.annotations.remove(&device).unwrap_or_default() {
            let context = if enter {
                if open.len() == MOST_OPEN {
                    continue;
                }
                let around = open.last().map_or(ContextId::ROOT, |(_, context)| *context);
                let context = if self.are_paths { self.path(&name) } else { self.below(around, &name) };
                open.push((name, context));
                context
            } else {
                let Some(at) = open.iter().rposition(|(begun, _)| *begun == name) else { continue };
                open.remove(at).1
            };
            let time_ns = time_us.saturating_sub(started_us).saturating_mul(1000);
            marks.push(Mark { time_ns, context, thread: ThreadId::default(), enter });
        }
        marks
    }

    /// The context of an entry with this metadata. `around` is the innermost open annotation.
    pub(super) fn with_metadata(&mut self, around: ContextId, metadata: &str) -> ContextId {
        if self.are_paths { self.path(metadata) } else { self.below(around, metadata) }
    }

    fn path(&mut self, path: &str) -> ContextId {
        path.split(SEPARATOR).fold(ContextId::ROOT, |around, name| self.below(around, name))
    }

    /// The scope of this name inside `parent`. Returns `parent` if the name is empty, or if scopes are nested too
    /// deeply.
    fn below(&mut self, parent: ContextId, name: &str) -> ContextId {
        let depth = self.depths.get(parent.0 as usize).copied().unwrap_or(0) + 1;
        if depth > DEEPEST || name.is_empty() {
            return parent;
        }
        let next = ContextId(self.nodes.len() as u32);
        let id = *self.ids.entry((parent, name.to_owned())).or_insert(next);
        if id == next {
            self.nodes.push(ContextNode { parent, name: name.to_owned(), module: false });
            self.depths.push(depth);
        }
        id
    }
}
