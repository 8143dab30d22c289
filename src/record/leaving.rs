//! Frees that are under way and may yet be refused. Until it is known what came of one, the block stays where it is;
//! should another be entered at its address meanwhile, it was freed.

use super::memory::{OwnVec, System, try_push};

/// What there is to do for each of them.
#[derive(Debug)]
pub(crate) struct Leaving<K, T> {
    list: OwnVec<(u64, K, T)>,
    last: u64,
}

/// A free that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun<T> {
    /// 0 if there was no memory to remember it.
    number: u64,
    free: T,
}

impl<K: PartialEq, T: Copy> Leaving<K, T> {
    pub(crate) const fn new() -> Self {
        Self { list: OwnVec::new_in(System), last: 0 }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn begin(&mut self, key: K, free: T) -> Begun<T> {
        let remembered = try_push(&mut self.list, (self.last + 1, key, free));
        self.last += u64::from(remembered);
        Begun { number: if remembered { self.last } else { 0 }, free }
    }

    /// It came to its end: what is to be done now, unless that was done before.
    pub(crate) fn end(&mut self, begun: &Begun<T>) -> Option<T> {
        let is_it = |known: &(u64, K, T)| known.0 == begun.number;
        match self.list.iter().position(is_it) {
            Some(at) => Some(self.list.swap_remove(at).2),
            None => Some(begun.free).filter(|_| begun.number == 0),
        }
    }

    /// The one of a block whose place is taken, and which is gone therefore.
    #[cold]
    pub(crate) fn end_at(&mut self, key: &K) -> Option<T> {
        let at = self.list.iter().position(|(_, known, _)| known == key)?;
        Some(self.list.swap_remove(at).2)
    }
}
