//! Interning table of contexts: each path of scopes is stored once and identified by a small integer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memtrace_core::snapshot::{ContextId, ContextNode};

use super::lock::{Lock, Locked, rank};
use super::memory::{HASHER, OwnTable, OwnVec, System};
use std::hash::BuildHasher;

/// Limit on the number of paths, so that a program whose labels contain a step number does not exhaust memory.
const MAX_CONTEXTS: usize = 1 << 18;

/// There is one table for the whole process, because scopes may be open before a recording begins and after it ends.
#[derive(Debug)]
pub(crate) struct ContextTable {
    paths: Lock<Paths, { rank::CONTEXTS }>,
    refused: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Paths {
    index: OwnTable<u32>,
    /// Entry `n` is context `n + 1`; context 0 is the root.
    nodes: OwnVec<PathNode>,
    names: OwnVec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct PathNode {
    parent: u32,
    start: u32,
    length: u32,
    module: bool,
    hash: u64,
}

impl ContextTable {
    pub(crate) const fn new() -> Self {
        let paths =
            Paths { index: OwnTable::new_in(System), nodes: OwnVec::new_in(System), names: OwnVec::new_in(System) };
        Self { paths: Lock::new(paths), refused: AtomicU64::new(0) }
    }

    /// The path `parent > name`; `parent` if the table is full.
    pub(crate) fn intern(&self, parent: ContextId, name: &str, is_module: bool) -> ContextId {
        match self.lock().intern(parent.0, name.as_bytes(), is_module) {
            Some(index) => ContextId(index + 1),
            None => {
                self.refused.fetch_add(1, Relaxed);
                parent
            }
        }
    }

    /// Calls `each` with the parent of each context from `from` on, in order.
    pub(crate) fn parents_from(&self, from: ContextId, mut each: impl FnMut(ContextId)) {
        let paths = self.lock();
        paths.nodes.iter().skip((from.0 as usize).saturating_sub(1)).for_each(|node| each(ContextId(node.parent)));
    }

    #[cfg(test)]
    pub(crate) fn parent(&self, context: ContextId) -> ContextId {
        let index = (context.0 as usize).wrapping_sub(1);
        self.lock().nodes.get(index).map_or(ContextId::ROOT, |node| ContextId(node.parent))
    }

    /// The path `parent > name`, where `name` is the last label of the path `like`.
    pub(crate) fn intern_like(&self, parent: ContextId, like: ContextId) -> ContextId {
        let mut paths = self.lock();
        let index = (like.0 as usize).wrapping_sub(1);
        let Some(&node) = paths.nodes.get(index) else { return parent };
        match paths.intern_existing(parent.0, node) {
            Some(index) => ContextId(index + 1),
            None => parent,
        }
    }

    /// Copies the last label of a path into `to`, truncated to fit. Returns the number of bytes copied.
    #[cfg(all(feature = "nvtx", unix))]
    pub(crate) fn copy_label(&self, context: ContextId, to: &mut [u8]) -> usize {
        let paths = self.lock();
        let node = paths.nodes.get((context.0 as usize).wrapping_sub(1));
        let label = node.map_or("", |node| std::str::from_utf8(paths.name(*node)).unwrap_or_default());
        let whole = &label.as_bytes()[..label.floor_char_boundary(to.len())];
        to.iter_mut().zip(whole).map(|(to, byte)| *to = *byte).count()
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Number of scopes whose path was not stored.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// All contexts; entry 0 is the root.
    pub(crate) fn nodes(&self) -> Vec<ContextNode> {
        let root = ContextNode { parent: ContextId::ROOT, name: String::new(), module: false };
        std::iter::once(root).chain(self.nodes_from(1)).collect()
    }

    /// The contexts from number `first` on.
    pub(crate) fn nodes_from(&self, first: usize) -> Vec<ContextNode> {
        let paths = self.lock();
        let node = |node: &PathNode| ContextNode {
            parent: ContextId(node.parent),
            name: String::from_utf8_lossy(paths.name(*node)).into_owned(),
            module: node.module,
        };
        paths.nodes.iter().skip(first.saturating_sub(1)).map(node).collect()
    }

    pub(super) fn lock(&self) -> Locked<'_, Paths, { rank::CONTEXTS }> {
        self.paths.lock()
    }
}

impl Paths {
    fn intern(&mut self, parent: u32, name: &[u8], is_module: bool) -> Option<u32> {
        let hash = HASHER.hash_one((parent, name));
        let index = self.find(hash, parent, name).or_else(|| self.insert_new(hash, parent, name))?;
        self.mark(index, is_module);
        Some(index)
    }

    fn insert_new(&mut self, hash: u64, parent: u32, name: &[u8]) -> Option<u32> {
        self.names.try_reserve(name.len()).ok()?;
        let start = u32::try_from(self.names.len()).ok()?;
        let length = u32::try_from(name.len()).ok()?;
        self.names.extend_from_slice(name);
        let inserted = self.insert(PathNode { parent, start, length, module: false, hash });
        if inserted.is_none() {
            self.names.truncate(start as usize);
        }
        inserted
    }

    /// Interns a path whose last label is already stored.
    fn intern_existing(&mut self, parent: u32, like: PathNode) -> Option<u32> {
        let hash = HASHER.hash_one((parent, self.name(like)));
        let index =
            self.find(hash, parent, self.name(like)).or_else(|| self.insert(PathNode { parent, hash, ..like }))?;
        self.mark(index, like.module);
        Some(index)
    }

    /// Once a module's span opened a path, the path stays marked as a module's.
    fn mark(&mut self, index: u32, module: bool) {
        if let Some(node) = self.nodes.get_mut(index as usize) {
            node.module |= module;
        }
    }

    fn find(&self, hash: u64, parent: u32, name: &[u8]) -> Option<u32> {
        let same = |&i: &u32| self.nodes.get(i as usize).is_some_and(|n| n.parent == parent && self.name(*n) == name);
        self.index.find(hash, same).copied()
    }

    fn insert(&mut self, node: PathNode) -> Option<u32> {
        if self.nodes.len() >= MAX_CONTEXTS {
            return None;
        }
        self.nodes.try_reserve(1).ok()?;
        let index = self.nodes.len() as u32;
        self.nodes.push(node);
        let hash_of = |&i: &u32| self.nodes.get(i as usize).map_or(0, |node| node.hash);
        if self.index.try_reserve(1, hash_of).is_err() {
            self.nodes.pop();
            return None;
        }
        self.index.insert_unique(node.hash, index, hash_of);
        Some(index)
    }

    fn name(&self, node: PathNode) -> &[u8] {
        let start = node.start as usize;
        self.names.get(start..start + node.length as usize).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_number_however_often_it_is_entered() {
        let table = ContextTable::new();
        let a = table.intern(ContextId::ROOT, "forward", false);
        let b = table.intern(a, "conv1", false);
        assert_eq!(table.intern(ContextId::ROOT, "forward", false), a);
        assert_eq!(table.intern(a, "conv1", false), b);
        assert_ne!(table.intern(ContextId::ROOT, "conv1", false), b);
        assert_eq!((table.parent(b), table.parent(a)), (a, ContextId::ROOT));
        let names: Vec<String> = table.nodes().into_iter().map(|n| n.name).collect();
        assert_eq!(names, ["", "forward", "conv1", "conv1"]);
    }

    #[test]
    fn a_flood_of_names_is_refused_and_counted() {
        let table = ContextTable::new();
        for n in 0..MAX_CONTEXTS + 10 {
            table.intern(ContextId::ROOT, &n.to_string(), false);
        }
        assert_eq!(table.refused(), 10);
        assert_eq!(table.intern(ContextId(5), "one more", false), ContextId(5));
    }

    #[test]
    fn a_path_can_be_moved_below_another() {
        let table = ContextTable::new();
        let a = table.intern(ContextId::ROOT, "a", false);
        let b = table.intern(a, "b", false);
        let moved = table.intern_like(ContextId::ROOT, b);
        assert_eq!(moved, table.intern(ContextId::ROOT, "b", false));
    }

    #[test]
    fn a_path_that_a_models_span_took_stays_marked_and_so_does_where_it_moves() {
        let table = ContextTable::new();
        let marks = || table.nodes().iter().map(|node| node.module).collect::<Vec<_>>();
        let outer = table.intern(ContextId::ROOT, "outer", false);
        let own = table.intern(outer, "linear", false);
        let known = table.intern(ContextId::ROOT, "linear", false);
        assert_eq!(table.intern(outer, "linear", true), own);
        assert_eq!(marks(), [false, false, true, false]);
        assert_eq!(table.intern(outer, "linear", false), own);
        assert_eq!(table.intern_like(ContextId::ROOT, own), known);
        assert_eq!(marks(), [false, false, true, true]);
    }
}
