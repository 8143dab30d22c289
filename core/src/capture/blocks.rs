//! Records, blocks, marks and scopes of a capture, read.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::Damage;
use super::bytes::{Reader, in_range};
use crate::snapshot::{
    Block, BlockName, CallTime, Category, ContextId, Gap, LONGEST_NAME, Mark, MemoryKind, OutOfMemory, Record,
    RecordKind, ScopeStats, Segment, SegmentRecord, StackId, ThreadId,
};

/// How many stacks and contexts stand in the file so far, the empty ones included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    pub(super) stacks: usize,
    pub(super) contexts: usize,
}

impl Ids {
    fn stack(self, r: &mut Reader<'_>) -> Result<StackId, Damage> {
        let number = r.small()?;
        if (number as usize) < self.stacks { Ok(StackId(number)) } else { Err(Damage("the number of no stack")) }
    }

    fn context(self, r: &mut Reader<'_>) -> Result<ContextId, Damage> {
        let number = r.small()?;
        if (number as usize) < self.contexts { Ok(ContextId(number)) } else { Err(Damage("the number of no context")) }
    }
}

/// The record or block before, from which the next one steps.
#[derive(Default)]
struct Last {
    time_ns: u64,
    address: u64,
    seq: u64,
}

impl Last {
    fn time(&mut self, r: &mut Reader<'_>) -> Result<u64, Damage> {
        self.time_ns = r.step(self.time_ns).and_then(in_range)?;
        Ok(self.time_ns)
    }

    fn address(&mut self, r: &mut Reader<'_>) -> Result<u64, Damage> {
        self.address = r.step(self.address).and_then(in_range)?;
        Ok(self.address)
    }

    fn seq(&mut self, r: &mut Reader<'_>) -> Result<Option<NonZeroU64>, Damage> {
        self.seq = r.step(self.seq).and_then(in_range)?;
        Ok(NonZeroU64::new(self.seq))
    }
}

/// The size of a block at an address. Sizes add up to `total`, over the whole file, without overflow.
fn size(r: &mut Reader<'_>, address: u64, total: &mut u64) -> Result<u64, Damage> {
    let size = r.number()?;
    in_range(address + size.max(1))?;
    *total = in_range(*total + size)?;
    Ok(size)
}

pub(super) fn records(r: &mut Reader<'_>, ids: Ids, out: &mut Vec<Record>, total: &mut u64) -> Result<(), Damage> {
    let mut last = Last::default();
    for _ in 0..r.count()? {
        out.push(record(r, ids, &mut last, total)?);
    }
    Ok(())
}

fn record(r: &mut Reader<'_>, ids: Ids, last: &mut Last, total: &mut u64) -> Result<Record, Damage> {
    let bits = r.raw()?;
    let (time_ns, address) = (last.time(r)?, last.address(r)?);
    let size = size(r, address, total)?;
    let stack = ids.stack(r)?;
    let alloc_stack = if bits & 2 == 0 { ids.stack(r)? } else { stack };
    Ok(Record {
        time_ns,
        address,
        size,
        stack,
        alloc_stack,
        context: ids.context(r)?,
        thread: ThreadId(r.small()?),
        alloc_seq: last.seq(r)?,
        stream: r.small()?,
        kind: kind(bits),
        memory: memory(bits >> 2)?,
    })
}

fn kind(bits: u64) -> RecordKind {
    if bits & 1 == 0 { RecordKind::Alloc } else { RecordKind::Free }
}

fn memory(number: u64) -> Result<MemoryKind, Damage> {
    let kind = usize::try_from(number).ok().and_then(|number| MemoryKind::ALL.get(number));
    kind.copied().ok_or(Damage("a kind of memory that this memtrace does not know"))
}

pub(super) fn blocks(r: &mut Reader<'_>, ids: Ids, total: &mut u64) -> Result<Vec<Block>, Damage> {
    let (mut last, count) = (Last::default(), r.count()?);
    let block = |_| {
        let address = last.address(r)?;
        let size = size(r, address, total)?;
        let (seq, time_ns) = (last.seq(r)?, last.time(r)?);
        let (stack, context) = (ids.stack(r)?, ids.context(r)?);
        let (thread, stream) = (ThreadId(r.small()?), r.raw()?);
        let memory = memory(stream & 15)?;
        let stream = (stream >> 4).try_into().map_err(|_| Damage("a stream number of more than 32 bits"))?;
        Ok(Block { address, size, seq, time_ns, stack, context, thread, stream, memory })
    };
    (0..count).map(block).collect()
}

pub(super) fn marks(r: &mut Reader<'_>, ids: Ids, out: &mut Vec<Mark>) -> Result<(), Damage> {
    let mut last = Last::default();
    for _ in 0..r.count()? {
        let time_ns = last.time(r)?;
        let thread = r.raw()?;
        let number = (thread >> 1).try_into().map_err(|_| Damage("a thread number of more than 32 bits"))?;
        out.push(Mark { time_ns, context: ids.context(r)?, thread: ThreadId(number), enter: thread & 1 == 1 });
    }
    Ok(())
}

pub(super) fn ooms(r: &mut Reader<'_>, ids: Ids) -> Result<Vec<OutOfMemory>, Damage> {
    let mut last = Last::default();
    let count = r.count()?;
    let oom = |_| {
        Ok(OutOfMemory {
            time_ns: last.time(r)?,
            size: r.number()?,
            device_free: r.number()?.checked_sub(1),
            device_total: r.number()?.checked_sub(1),
            stack: ids.stack(r)?,
            context: ids.context(r)?,
            thread: ThreadId(r.small()?),
        })
    };
    (0..count).map(oom).collect()
}

pub(super) fn gaps(r: &mut Reader<'_>) -> Result<Vec<Gap>, Damage> {
    let (count, mut at, mut time) = (r.count()?, 0, 0);
    let gap = |_| {
        at = r.step(at)?;
        let records = r.number()?;
        let from_ns = r.step(time)?;
        time = in_range(r.step(from_ns)?)?;
        Ok(Gap { at: at as usize, records, from_ns, to_ns: time })
    };
    (0..count).map(gap).collect()
}

pub(super) fn scopes(r: &mut Reader<'_>, ids: Ids) -> Result<Vec<ScopeStats>, Damage> {
    let (count, mut next) = (r.count()?, 0);
    let scope = |_| {
        let context = ids.context(r)?;
        if context.0 < std::mem::replace(&mut next, context.0 + 1) {
            return Err(Damage("a scope twice"));
        }
        Ok(ScopeStats {
            context,
            calls: r.number()?,
            allocations: r.number()?,
            allocated_bytes: r.number()?,
            own_peak: r.number()?,
            total_peak: r.number()?.checked_sub(1),
        })
    };
    (0..count).map(scope).collect()
}

/// Adds names; `lost` is how many were not kept so far.
pub(super) fn names(
    r: &mut Reader<'_>,
    names: &mut BTreeMap<NonZeroU64, BlockName>,
    lost: &mut u64,
) -> Result<(), Damage> {
    *lost = in_range(*lost + r.number()?)?;
    let mut last = Last::default();
    for _ in 0..r.count()? {
        let (seq, name, category) = (last.seq(r)?, r.text()?, r.raw()?);
        let seq = seq.ok_or(Damage("a name of no block"))?;
        // Each record of the block may be shown with it.
        if name.len() > LONGEST_NAME {
            return Err(Damage("a name longer than any"));
        }
        let known = usize::try_from(category).ok().and_then(|number| Category::ALL.get(number));
        let category = *known.ok_or(Damage("a category that there is not"))?;
        names.insert(seq, BlockName { seq, name: name.to_owned(), category });
    }
    Ok(())
}

pub(super) fn segments(r: &mut Reader<'_>) -> Result<Vec<Segment>, Damage> {
    let (mut last, count) = (Last::default(), r.count()?);
    let segment = |_| {
        let (address, size) = (last.address(r)?, r.number()?);
        in_range(address + size)?;
        Ok(Segment { address, size, estimated: r.raw()? != 0 })
    };
    (0..count).map(segment).collect()
}

pub(super) fn segment_records(r: &mut Reader<'_>, ids: Ids, out: &mut Vec<SegmentRecord>) -> Result<(), Damage> {
    let mut last = Last::default();
    for _ in 0..r.count()? {
        let (time_ns, address, size) = (last.time(r)?, last.address(r)?, r.number()?);
        in_range(address + size)?;
        let bits = r.raw()?;
        let (stack, context, thread) = (ids.stack(r)?, ids.context(r)?, ThreadId(r.small()?));
        let (kind, estimated) = (kind(bits), bits & 2 != 0);
        out.push(SegmentRecord { time_ns, address, size, kind, estimated, stack, context, thread });
    }
    Ok(())
}

pub(super) fn calls(r: &mut Reader<'_>, ids: Ids) -> Result<Vec<CallTime>, Damage> {
    let (count, mut sum) = (r.count()?, 0);
    let call = |_| {
        let (stack, context) = (ids.stack(r)?, ids.context(r)?);
        let mut number = || {
            let number = r.number()?;
            sum = in_range(sum + number)?;
            Ok(number)
        };
        let (allocs, alloc_ns, growing, growing_ns) = (number()?, number()?, number()?, number()?);
        Ok(CallTime { stack, context, allocs, alloc_ns, growing, growing_ns, frees: number()?, free_ns: number()? })
    };
    (0..count).map(call).collect()
}
