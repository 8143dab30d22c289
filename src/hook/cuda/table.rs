//! Handle table with undo. It maps the driver's objects that the program has, by handle or address, to memtrace's data
//! about them.
//!
//! When a call destroys an object, the driver may give the object's handle to another thread before that call is over.
//! So an entry is removed before the driver is called, and the [`Undo`] puts it back if the driver refuses.

use std::ffi::c_int;
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::attention;
use super::driver::SUCCESS;
use crate::record::fork;
use crate::record::lock::lock;
use crate::record::memory::{OwnMap, OwnVec, own_map, own_vec};

/// A map with a count of uses for each entry.
///
/// Entries are in memtrace's own memory. If there is no memory for a new entry, it is left out. The process does not
/// fork while a table is locked. A closure that runs under the lock must not use another table, because all tables
/// share the lock that prevents forks.
pub(super) struct HandleTable<K, V> {
    entries: Mutex<OwnMap<K, HandleEntry<V>>>,
    has_entries: AtomicBool,
    draws_attention: bool,
}

struct HandleEntry<V> {
    value: V,
    uses: u32,
}

impl<K: Copy + Eq + Hash, V> HandleTable<K, V> {
    pub(super) const fn new() -> Self {
        Self { entries: Mutex::new(own_map()), has_entries: AtomicBool::new(false), draws_attention: false }
    }

    /// Makes the table's entries a reason for the hooks to examine calls without a recording.
    pub(super) const fn draws_attention(mut self) -> Self {
        self.draws_attention = true;
        self
    }

    /// Whether the table is empty. One load.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_entries.load(Ordering::Acquire)
    }

    fn with<T>(&self, act: impl FnOnce(&mut OwnMap<K, HandleEntry<V>>) -> T) -> T {
        let _no_fork = fork::no_fork();
        let mut entries = lock(&self.entries);
        let answer = act(&mut entries);
        let has_entries = !entries.is_empty();
        if self.has_entries.swap(has_entries, Ordering::AcqRel) != has_entries && self.draws_attention {
            attention::set_reason(has_entries);
        }
        answer
    }

    /// Inserts an entry with one use, which replaces an entry with the same key. Returns true if there was no such
    /// entry.
    pub(super) fn insert(&self, key: K, value: V) -> bool {
        self.with(|entries| insert(entries, key, value))
    }

    /// Adds a use to the key's entry, or inserts the entry with one use. Returns true if there was no such entry.
    pub(super) fn retain_or_insert(&self, key: K, value: V) -> bool {
        self.with(|entries| retain(entries, &key).is_none() && insert(entries, key, value))
    }

    pub(super) fn retain(&self, key: K) -> Option<V>
    where
        V: Copy,
    {
        self.with(|entries| retain(entries, &key).copied())
    }

    /// Removes a use of an entry, or the entry itself if it had only one use.
    pub(super) fn remove(&'static self, key: K) -> Undo<K, V> {
        let remove = |entries: &mut OwnMap<K, HandleEntry<V>>| match entries.get_mut(&key) {
            Some(entry) if entry.uses > 1 => {
                entry.uses -= 1;
                Removed::Use
            }
            _ => entries.remove(&key).map_or(Removed::Nothing, |entry| Removed::Entry(entry.value)),
        };
        let removed = if self.is_empty() { Removed::Nothing } else { self.with(remove) };
        Undo { table: self, key, removed }
    }

    /// Removes a use, and returns the callback to run with the driver's result.
    pub(super) fn destroying(&'static self, key: K) -> impl FnOnce(c_int) {
        let undo = self.remove(key);
        move |result| undo.finish(result)
    }

    pub(super) fn forget(&self, key: K) {
        self.with(|entries| entries.remove(&key));
    }

    pub(super) fn change<T>(&self, key: K, act: impl FnOnce(&mut V) -> T) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        self.with(|entries| entries.get_mut(&key).map(|entry| act(&mut entry.value)))
    }

    /// Runs a closure on an entry. Inserts the entry first if there is none.
    pub(super) fn change_or_insert(&self, key: K, new: impl FnOnce() -> V, act: impl FnOnce(&mut V)) {
        self.with(|entries| {
            if entries.try_reserve(1).is_ok() {
                act(&mut entries.entry(key).or_insert_with(|| HandleEntry { value: new(), uses: 1 }).value);
            }
        });
    }

    pub(super) fn get(&self, key: K) -> Option<V>
    where
        V: Copy,
    {
        self.change(key, |value| *value)
    }

    pub(super) fn change_all(&self, mut act: impl FnMut(&mut V)) {
        if !self.is_empty() {
            self.with(|entries| entries.values_mut().for_each(|entry| act(&mut entry.value)));
        }
    }

    pub(super) fn pick<T>(&self, mut pick: impl FnMut(K, &V) -> Option<T>) -> OwnVec<T> {
        self.with(|entries| own_vec(entries.iter().filter_map(|(key, entry)| pick(*key, &entry.value))))
    }

    /// Removes the matching entries with all their uses.
    pub(super) fn take_all(&self, is_meant: impl Fn(&V) -> bool) -> OwnVec<V> {
        self.with(|entries| {
            own_vec(entries.extract_if(|_, entry| is_meant(&entry.value)).map(|(_, entry)| entry.value))
        })
    }
}

fn insert<K: Eq + Hash, V>(entries: &mut OwnMap<K, HandleEntry<V>>, key: K, value: V) -> bool {
    entries.try_reserve(1).is_err() || entries.insert(key, HandleEntry { value, uses: 1 }).is_none()
}

fn retain<'a, K: Eq + Hash, V>(entries: &'a mut OwnMap<K, HandleEntry<V>>, key: &K) -> Option<&'a V> {
    let entry = entries.get_mut(key)?;
    entry.uses += 1;
    Some(&entry.value)
}

/// The use or entry that a call removed from a table before the driver was called.
#[must_use = "`finish` puts the entry back if the driver refuses"]
pub(super) struct Undo<K: 'static, V: 'static> {
    table: &'static HandleTable<K, V>,
    key: K,
    removed: Removed<V>,
}

enum Removed<V> {
    Nothing,
    Use,
    Entry(V),
}

impl<K: Copy + Eq + Hash, V> Undo<K, V> {
    /// The entry, if the removed use was its last one.
    pub(super) fn entry(&self) -> Option<&V> {
        if let Removed::Entry(value) = &self.removed { Some(value) } else { None }
    }

    pub(super) fn leaves_uses(&self) -> bool {
        matches!(self.removed, Removed::Use)
    }

    /// Takes the driver's result. If the driver refused, puts back the use or entry.
    pub(super) fn finish(self, result: c_int) {
        if result == SUCCESS {
            return;
        }
        let Self { table, key, removed } = self;
        match removed {
            Removed::Nothing => {}
            Removed::Use => table.with(|entries| _ = retain(entries, &key)),
            Removed::Entry(value) => _ = table.insert(key, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: c_int = 1;

    #[test]
    fn what_the_driver_refuses_to_take_back_is_there_again() {
        static TABLE: HandleTable<u64, char> = HandleTable::new();
        assert!(TABLE.is_empty() && TABLE.remove(1).entry().is_none());
        assert!(TABLE.insert(1, 'a') && TABLE.insert(2, 'b') && !TABLE.insert(2, 'c'));
        let undo = TABLE.remove(1);
        assert_eq!((undo.entry(), TABLE.get(1)), (Some(&'a'), None));
        undo.finish(REFUSED);
        assert_eq!(TABLE.get(1), Some('a'));
        TABLE.remove(1).finish(SUCCESS);
        assert_eq!((TABLE.get(1), TABLE.get(2)), (None, Some('c')));
        TABLE.remove(1).finish(REFUSED);
        assert_eq!(TABLE.get(1), None, "there was nothing to be put back");
    }

    /// The driver may give the handle to another thread before the call that returned it to the driver is over.
    #[test]
    fn a_handle_that_comes_again_at_once_is_not_forgotten() {
        static TABLE: HandleTable<u64, char> = HandleTable::new();
        TABLE.insert(1, 'a');
        let undo = TABLE.remove(1);
        assert!(TABLE.insert(1, 'b'));
        undo.finish(SUCCESS);
        assert_eq!(TABLE.get(1), Some('b'));
    }

    #[test]
    fn an_entry_is_there_until_its_last_use() {
        static TABLE: HandleTable<u64, char> = HandleTable::new();
        assert!(TABLE.retain(1).is_none() && TABLE.retain_or_insert(1, 'a') && !TABLE.retain_or_insert(1, 'b'));
        assert_eq!(TABLE.retain(1), Some('a'));
        let [first, second, third] = [0; 3].map(|_| TABLE.remove(1));
        assert!(first.leaves_uses() && second.leaves_uses() && third.entry() == Some(&'a'));
        assert!(TABLE.is_empty());
        [third, second].into_iter().for_each(|undo| undo.finish(REFUSED));
        assert!(TABLE.remove(1).leaves_uses() && TABLE.remove(1).entry().is_some());
    }

    #[test]
    fn entries_are_found_by_what_they_are() {
        static TABLE: HandleTable<u64, char> = HandleTable::new();
        [(1, 'a'), (2, 'b'), (3, 'a')].into_iter().for_each(|(key, value)| _ = TABLE.insert(key, value));
        let mut keys = TABLE.pick(|key, value| (*value == 'a').then_some(key));
        keys.sort_unstable();
        assert_eq!(keys.as_slice(), [1, 3]);
        TABLE.retain(1);
        assert_eq!(TABLE.take_all(|value| *value == 'a').as_slice(), ['a'; 2]);
        assert_eq!((TABLE.get(1), TABLE.get(2)), (None, Some('b')));
    }

    #[test]
    fn hooks_look_at_calls_as_long_as_there_are_such_entries() {
        static TABLE: HandleTable<u64, ()> = HandleTable::new().draws_attention();
        [1, 2, 1].into_iter().for_each(|key| _ = TABLE.insert(key, ()));
        TABLE.remove(1).finish(SUCCESS);
        assert!(attention::is_wanted());
        TABLE.remove(2).finish(REFUSED);
        assert!(attention::is_wanted());
        TABLE.remove(2).finish(SUCCESS);
        assert!(TABLE.is_empty());
    }

    #[test]
    fn a_child_is_not_forked_while_another_thread_uses_a_table() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static TABLE: HandleTable<u64, ()> = HandleTable::new();
        fork::watch();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) && TABLE.get(1).is_none() {
                    std::hint::spin_loop();
                }
            });
            let all = (0..300).all(|_| child_can_look(&TABLE));
            done.store(true, Ordering::Relaxed);
            assert!(all, "a child hung");
        });
    }

    #[expect(unsafe_code, reason = "forks")]
    fn child_can_look(table: &HandleTable<u64, ()>) -> bool {
        // SAFETY: the child only reads the table and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child if it hangs.
            unsafe { libc::alarm(5) };
            // SAFETY: ends the process without running any code of the parent's.
            unsafe { libc::_exit(table.get(1).is_some().into()) };
        }
        let mut status = -1;
        // SAFETY: waits for our child; `status` is valid for writes.
        unsafe { libc::waitpid(child, &mut status, 0) };
        status == 0
    }
}
