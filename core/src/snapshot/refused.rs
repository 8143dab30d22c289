//! Undo records of refused frees. The recorder logs a free before the driver answers; if the driver refuses it, the
//! recorder logs an alloc of the same block with [`AGAIN`] set in its number. Readers drop both records.

use std::num::NonZeroU64;

use super::record::{Block, Record, RecordKind};
use crate::hashed::HashMap;

/// The bit in an alloc's number that marks the undo record of a refused free.
const AGAIN: u64 = 1 << 61;

impl Record {
    /// The undo record of the last free of this block.
    #[inline]
    pub fn again(block: &Block) -> Self {
        Self { alloc_seq: NonZeroU64::new(block.raw_seq() | AGAIN), ..Self::alloc_of(block) }
    }

    /// The block whose free was refused, if this is an undo record.
    pub fn refused(&self) -> Option<Block> {
        let is_again = self.kind == RecordKind::Alloc && self.raw_seq() & AGAIN != 0;
        is_again.then(|| Block { seq: NonZeroU64::new(self.raw_seq() & !AGAIN), ..self.block() })
    }
}

/// The positions of a refused free and of its undo record. `free` is `None` if the log has lost the free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub(crate) free: Option<usize>,
    pub(crate) again: usize,
}

/// All refused frees, in no particular order.
pub fn refused_frees(records: &[Record]) -> Vec<Refused> {
    let mut waiting: HashMap<(u64, Option<NonZeroU64>), Vec<usize>> = HashMap::default();
    let mut found = Vec::new();
    for (index, record) in records.iter().enumerate().rev() {
        if let Some(block) = record.refused() {
            waiting.entry((block.address, block.seq)).or_default().push(index);
        } else if record.kind == RecordKind::Free
            && !waiting.is_empty()
            && let Some(again) = waiting.get_mut(&(record.address, record.alloc_seq)).and_then(Vec::pop)
        {
            found.push(Refused { free: Some(index), again });
        }
    }
    found.extend(waiting.into_values().flatten().map(|again| Refused { free: None, again }));
    found
}

/// The positions of these frees and of their undo records, sorted.
pub fn positions(refused: &[Refused]) -> Vec<usize> {
    let mut positions: Vec<usize> = refused.iter().flat_map(|pair| pair.free.into_iter().chain([pair.again])).collect();
    positions.sort_unstable();
    positions
}

/// Removes the records at these positions.
pub fn leave_out(records: &mut Vec<Record>, positions: &[usize]) {
    let (mut index, mut next) = (0, positions.iter().peekable());
    records.retain(|_| {
        let stays = next.next_if(|position| **position == index).is_none();
        index += 1;
        stays
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64, seq: u64) -> Block {
        Block { address, size: 10, seq: NonZeroU64::new(seq), ..Block::default() }
    }

    fn free(block: &Block) -> Record {
        Record { kind: RecordKind::Free, ..Record::alloc_of(block) }
    }

    #[test]
    fn a_refused_free_and_what_says_so_are_left_out_and_nothing_else() {
        let (a, b, unknown) = (block(1, 1), block(2, 2), block(3, 0));
        let (alloc_a, alloc_b) = (Record::alloc_of(&a), Record::alloc_of(&b));
        let mut records = vec![
            Record::again(&block(9, 9)),
            alloc_a,
            free(&a),
            free(&unknown),
            alloc_b,
            Record::again(&unknown),
            Record::again(&a),
            free(&a),
            Record::again(&a),
            free(&a),
            free(&b),
        ];
        let refused = refused_frees(&records);
        assert_eq!(refused.len(), 4);
        assert!(refused.contains(&Refused { free: Some(2), again: 6 }));
        assert!(refused.contains(&Refused { free: None, again: 0 }));
        leave_out(&mut records, &positions(&refused));
        assert_eq!(records, [alloc_a, alloc_b, free(&a), free(&b)]);
    }

    #[test]
    fn a_block_is_what_it_was() {
        let whole = Block { time_ns: 5, ..block(7, 3) };
        assert_eq!(Record::again(&whole).refused(), Some(whole));
        assert_eq!((Record::alloc_of(&whole).refused(), free(&whole).refused()), (None, None));
    }
}
