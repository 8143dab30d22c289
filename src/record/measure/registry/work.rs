//! Whose work a thread does.

use super::Registry;
use super::owner::{Owner, Space};
use crate::record::measure::accounts::MeasurementState;
use crate::record::measure::id::Id;
use crate::record::measure::lineage::{self, Family};
use crate::record::measure::others::WorkOwner;
use crate::record::unwind;

impl Registry {
    /// Whether a block with this owner is another thread's, allocated while the measurement was open but not counted
    /// in it.
    pub(super) fn may_be_for(&self, id: Id, owner: &Owner) -> bool {
        id <= owner.of_other && !self.contains(id, self.nearest_open(owner.measure))
    }

    fn family(&self, id: Id) -> Family {
        self.measures.get(&id).map_or(Family::UNKNOWN, |measure| measure.family)
    }

    /// Whether a thread of this family may work for any open measurement.
    pub(crate) fn is_related(&self, family: Family) -> bool {
        self.measures.values().any(|measure| measure.open && family.may_work_for(measure.family))
    }

    /// The measurement that owns a block; 0 for none.
    pub(crate) fn owner(&self, key: (Space, u64)) -> Id {
        self.owners.get(&key).map_or(0, |owner| self.nearest_open(owner.measure))
    }

    /// The measurement that a block certainly belongs to, not only by evidence; 0 for none.
    pub(crate) fn certain_owner(&self, key: (Space, u64)) -> Id {
        let certain = self.owners.get(&key).filter(|owner| !owner.handed);
        certain.map_or(0, |owner| self.nearest_open(owner.measure))
    }

    /// Decides whose work a thread does, from the words in its registers and on its stack. A thread that works for a
    /// measurement has addresses of the measurement's blocks or stacks.
    pub(in crate::record::measure) fn work_owner(
        &self,
        family: Family,
        each_word: impl FnOnce(&mut dyn FnMut(u64, u64)),
    ) -> WorkOwner {
        let mut work_owner = WorkOwner::Nobody;
        let all = self.heap.and(self.stacks.span());
        each_word(&mut |word, at| {
            if !all.contains(word) {
                return;
            }
            let stack = self.stacks.at(word);
            let id = stack.map_or_else(|| self.owner_at(word), |stack| self.nearest_open(stack.id));
            // Most words belong to the measurement that was already found. Words of a measurement of the whole process
            // prove nothing, as it contains everything.
            let is_known = id == 0 || work_owner == WorkOwner::One(id) || self.is_of_whole_process(id);
            if is_known || !family.may_work_for(self.family(id)) {
                return;
            }
            // A thread starts with addresses of its parent's stack, which prove nothing.
            let is_from_then = |os_thread| unwind::was_held_at_start(word, at, lineage::may_be_started_by(os_thread));
            if stack.is_none_or(|stack| !is_from_then(stack.os_thread)) {
                work_owner = work_owner.and(id, |outer, inner| self.contains(outer, inner));
            }
        });
        work_owner
    }

    /// The measurement that owns the heap block at this address.
    fn owner_at(&self, word: u64) -> Id {
        let may_be = self.heap.contains(word) && word.is_multiple_of(size_of::<usize>() as u64);
        if may_be { self.owner((Space::Heap, word)) } else { 0 }
    }

    /// Which measurement becomes active when work that carries one runs where `current` is active: the carried one,
    /// unless the current one is inside it.
    pub(crate) fn active_for(&self, current: Id, carried: Id) -> Id {
        let carried = self.nearest_open(carried);
        if carried == 0 || self.contains(carried, self.nearest_open(current)) { current } else { carried }
    }

    /// Whether work that carries this measurement belongs to an open measurement.
    pub(crate) fn is_carried(&self, id: Id) -> bool {
        self.nearest_open(id) != 0
    }

    /// Whether a measurement is open inside this one. If this one is closed, the innermost open one around it decides.
    pub(crate) fn has_open_inside(&self, id: Id) -> bool {
        let id = self.nearest_open(id);
        let is_inside =
            |(inner, measure): (&Id, &MeasurementState)| *inner != id && measure.open && self.contains(id, *inner);
        self.open > 1 && self.measures.iter().any(is_inside)
    }
}
