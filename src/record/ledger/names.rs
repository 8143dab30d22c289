//! Names that the program gives to one device's blocks. A name is stored under the log position of its block's alloc.
//! So records stay small, and a reused address does not inherit a name.

use std::num::NonZeroU64;

use memtrace_core::snapshot::{BlockName, Category, LONGEST_NAME};

use super::super::memory::{OwnMap, OwnVec, own_map, try_copy, with_room};

/// Limit on the number of names. Beyond it, names of freed blocks make room.
pub(super) const MAX_NAMES: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct NameTable {
    by_seq: OwnMap<u64, GivenName>,
    /// Number of names ever given.
    given: u64,
    refused: u64,
    /// Idle names (those that nobody needs any more) are not searched for again before `refused` reaches this value.
    look_at: u64,
}

#[derive(Debug)]
struct GivenName {
    address: u64,
    /// Position among all names ever given, from 0.
    number: u64,
    text: OwnVec<u8>,
    category: Category,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLabel<'a> {
    pub(crate) name: &'a str,
    /// `Unknown` keeps the previous category.
    pub(crate) category: Category,
    /// Do nothing if the block already has a name.
    pub(crate) if_new: bool,
}

impl<'a> From<&'a str> for BlockLabel<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, category: Category::Unknown, if_new: false }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameCursor {
    given: u64,
    refused: u64,
}

impl NameCursor {
    pub(crate) fn has_reached(&self, end: &Self) -> bool {
        self.given >= end.given && self.refused >= end.refused
    }
}

impl NameTable {
    pub(crate) fn new() -> Self {
        Self { by_seq: own_map(), given: 0, refused: 0, look_at: 0 }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.by_seq.len() >= MAX_NAMES
    }

    pub(crate) fn has(&self, seq: u64) -> bool {
        self.by_seq.contains_key(&seq)
    }

    /// Names a block, replacing its previous name. If there is no room, counts the refusal and returns false.
    pub(crate) fn give(&mut self, seq: u64, address: u64, label: BlockLabel<'_>) -> bool {
        let (known, name) = (self.by_seq.get(&seq), cut(label.name));
        let before = known.map_or(Category::Unknown, |known| known.category);
        let category = if label.category == Category::Unknown { before } else { label.category };
        let is_same = |known: &GivenName| known.text == name.as_bytes() && known.category == category;
        if known.is_some_and(|known| label.if_new || is_same(known)) {
            return true;
        }
        let room = known.is_some() || !self.is_full() && self.by_seq.try_reserve(1).is_ok();
        let Some(text) = try_copy(name.as_bytes()).filter(|_| room) else {
            self.refused += 1;
            return false;
        };
        self.by_seq.insert(seq, GivenName { address, number: self.given, text, category });
        self.given += 1;
        true
    }

    /// Forgets the older half of the idle names: those for which `needed` is false. `needed` gets the log position of
    /// a block's alloc, and the block's address.
    pub(crate) fn make_room(&mut self, needed: impl Fn(u64, u64) -> bool) {
        if self.refused < self.look_at {
            return;
        }
        let Some(mut idle) = with_room(self.by_seq.len()) else { return };
        idle.extend(self.by_seq.iter().map(|(seq, known)| (*seq, known.address)).filter(|(s, a)| !needed(*s, *a)));
        // There are few idle names, so wait instead of searching again for each new name.
        if idle.len() < MAX_NAMES / 16 {
            self.look_at = self.refused + MAX_NAMES as u64 / 16;
            return;
        }
        idle.sort_unstable();
        idle.iter().take(idle.len() / 2).for_each(|(seq, _)| drop(self.by_seq.remove(seq)));
    }

    /// Keeps only the names for which `needed` is true.
    pub(crate) fn restart(&mut self, needed: impl Fn(u64, u64) -> bool) {
        self.by_seq.retain(|seq, known| needed(*seq, known.address));
        self.refused = 0;
        self.look_at = 0;
    }

    /// All names, sorted by position, and how many were refused.
    pub(crate) fn copy(&self) -> (Vec<BlockName>, u64) {
        self.since(&mut NameCursor::default())
    }

    pub(crate) fn end(&self) -> NameCursor {
        NameCursor { given: self.given, refused: self.refused }
    }

    /// Names given after `cursor`, sorted by position, and how many were refused since. Advances the cursor.
    pub(crate) fn since(&self, cursor: &mut NameCursor) -> (Vec<BlockName>, u64) {
        let refused = self.refused.saturating_sub(cursor.refused);
        let mut names = Vec::new();
        if self.given > cursor.given {
            let new = self.by_seq.iter().filter(|(_, known)| known.number >= cursor.given);
            let name = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
            let named = |(seq, known): (&u64, &GivenName)| {
                Some(BlockName { seq: NonZeroU64::new(*seq)?, name: name(&known.text), category: known.category })
            };
            names.extend(new.filter_map(named));
            names.sort_unstable_by_key(|name| name.seq);
        }
        *cursor = self.end();
        (names, refused)
    }
}

fn cut(name: &str) -> &str {
    name.get(..name.floor_char_boundary(LONGEST_NAME)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(seq: u64, name: &str, category: Category) -> BlockName {
        BlockName { seq: NonZeroU64::new(seq).unwrap(), name: name.into(), category }
    }

    fn listed(names: &NameTable) -> Vec<(u64, String)> {
        names.copy().0.into_iter().map(|name| (name.seq.get(), name.name)).collect()
    }

    #[test]
    fn the_last_name_counts_and_is_read_once() {
        let mut names = NameTable::new();
        let mut cursor = NameCursor::default();
        assert!(names.give(7, 0x70, "seven".into()) && names.give(3, 0x30, "three".into()));
        assert_eq!(names.since(&mut cursor).0.len(), 2);
        assert!(names.give(7, 0x70, "seven".into()) && names.since(&mut cursor).0.is_empty());
        assert!(names.give(7, 0x70, "7".into()));
        assert_eq!(names.since(&mut cursor).0, [said(7, "7", Category::Unknown)]);
        assert_eq!(listed(&names), [(3, "three".into()), (7, "7".into())]);
    }

    #[test]
    fn a_category_stays_until_another_is_given_and_what_is_known_can_be_left() {
        let mut names = NameTable::new();
        let of = |category, if_new| BlockLabel { name: "w", category, if_new };
        names.give(1, 0x10, of(Category::Parameter, false));
        names.give(1, 0x10, "weights".into());
        assert_eq!(names.copy().0, [said(1, "weights", Category::Parameter)]);
        assert!(names.give(1, 0x10, of(Category::Gradient, true)));
        assert_eq!(names.copy().0, [said(1, "weights", Category::Parameter)]);
        names.give(1, 0x10, of(Category::Gradient, false));
        names.give(2, 0x20, of(Category::Gradient, true));
        assert_eq!(names.copy().0, [1, 2].map(|seq| said(seq, "w", Category::Gradient)));
    }

    #[test]
    fn a_long_name_is_cut_where_a_character_begins() {
        let mut names = NameTable::new();
        names.give(1, 0, "ä".repeat(LONGEST_NAME).as_str().into());
        names.give(2, 0, format!("x{}", "ä".repeat(LONGEST_NAME)).as_str().into());
        assert_eq!(listed(&names).iter().map(|(_, name)| name.len()).collect::<Vec<_>>(), [256, 255]);
    }

    #[test]
    fn a_flood_of_names_drops_the_oldest_idle_ones_and_is_refused_when_there_are_none() {
        let mut names = NameTable::new();
        (0..MAX_NAMES as u64).for_each(|seq| assert!(names.give(seq, seq, "x".into())));
        assert!(!names.give(1 << 20, 0, "y".into()) && names.copy().1 == 1);
        assert!(names.give(5, 5, "renamed".into()), "a block that has a name can be given another");
        names.make_room(|_, _| true);
        assert!(names.is_full());
        // A search without a result is not repeated until many names were refused.
        names.make_room(|_, _| false);
        assert!(names.is_full());
        (1..MAX_NAMES as u64 / 16).for_each(|_| assert!(!names.give(1 << 20, 0, "y".into())));
        names.make_room(|_, _| false);
        assert!(names.is_full());
        assert!(!names.give(1 << 20, 0, "y".into()));
        let idle = |seq: u64, address: u64| seq == address && (100..60_100).contains(&seq);
        names.make_room(|seq, address| !idle(seq, address));
        assert_eq!(names.by_seq.len(), MAX_NAMES - 30_000);
        assert!(names.by_seq.contains_key(&99) && !names.by_seq.contains_key(&100));
        assert!(!names.by_seq.contains_key(&30_099) && names.by_seq.contains_key(&30_100));
        assert!(names.give(1 << 20, 0, "y".into()));
    }

    #[test]
    fn idle_names_make_room_from_the_4096th_on() {
        for (idle, left) in [(MAX_NAMES / 16 - 1, MAX_NAMES), (MAX_NAMES / 16, MAX_NAMES - MAX_NAMES / 32)] {
            let mut names = NameTable::new();
            (0..MAX_NAMES as u64).for_each(|seq| assert!(names.give(seq, seq, "x".into())));
            names.make_room(|seq, _| seq >= idle as u64);
            assert_eq!(names.by_seq.len(), left);
        }
    }

    #[test]
    fn a_cursor_has_reached_an_end_only_with_names_and_refusals() {
        let cursor = |given, refused| NameCursor { given, refused };
        let reached = [(2, 2), (3, 2), (2, 3), (1, 2), (2, 1)]
            .map(|(given, refused)| cursor(given, refused).has_reached(&cursor(2, 2)));
        assert_eq!(reached, [true, true, true, false, false]);
    }
}
