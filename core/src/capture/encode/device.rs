//! What a capture holds of one device.

use std::io::{self, Write};
use std::num::NonZeroU64;

use super::{Encoder, RECORDS_IN_A_CHUNK, list};
use crate::capture::bytes::Payload;
use crate::capture::{Counters, Driver, Tag, device_number};
use crate::snapshot::{
    Block, BlockName, CallTime, Counted, Device, DeviceMemory, DeviceSnapshot, Gap, GraphMemory, Mark, OutOfMemory,
    Pool, Record, RecordKind, ScopeStats, Segment, SegmentRecord, Stat,
};

impl<W: Write> Encoder<W> {
    /// Forgets the device's records so far and says how many more are missing.
    pub(crate) fn gap(&mut self, device: Device, records: u64) -> io::Result<()> {
        self.chunk(Tag::Gap, |p| {
            p.number(device_number(device));
            p.number(records);
        })
    }

    /// Says how many records and marks were not written before this moment. What is live then follows.
    pub fn skipped(&mut self, device: Device, records: u64, marks: u64, time_ns: u64) -> io::Result<()> {
        self.chunk(Tag::Skipped, |p| {
            [device_number(device), records, marks, time_ns].into_iter().for_each(|n| p.number(n));
        })
    }

    /// Those behind the oldest records, which are left out.
    fn gaps(&mut self, device: Device, gaps: &[Gap], left_out: usize) -> io::Result<()> {
        let kept: Vec<Gap> = gaps.iter().filter(|gap| gap.at >= left_out).copied().collect();
        if kept.is_empty() {
            return Ok(());
        }
        let (mut at, mut time) = (left_out as u64, 0);
        self.device_list(Tag::Gaps, device, &kept, |p, gap| {
            p.step(std::mem::replace(&mut at, gap.at as u64), gap.at as u64);
            p.number(gap.records);
            p.step(std::mem::replace(&mut time, gap.from_ns), gap.from_ns);
            p.step(std::mem::replace(&mut time, gap.to_ns), gap.to_ns);
        })
    }

    /// Allocs and frees since the last.
    pub fn records(&mut self, device: Device, records: &[Record]) -> io::Result<()> {
        for part in records.chunks(RECORDS_IN_A_CHUNK) {
            let mut last = Last::default();
            self.device_list(Tag::Records, device, part, |p, record| last.record(p, record))?;
        }
        Ok(())
    }

    /// Scopes entered and left since the last.
    pub fn marks(&mut self, device: Device, marks: &[Mark]) -> io::Result<()> {
        for part in marks.chunks(RECORDS_IN_A_CHUNK) {
            let mut last = 0;
            self.device_list(Tag::Marks, device, part, |p, mark| {
                p.step(std::mem::replace(&mut last, mark.time_ns), mark.time_ns);
                p.number(u64::from(mark.thread.0) << 1 | u64::from(mark.enter));
                p.number(mark.context.0.into());
            })?;
        }
        Ok(())
    }

    /// Blocks that are live at the commit.
    pub fn live(&mut self, device: Device, blocks: &[Block]) -> io::Result<()> {
        let mut last = Last::default();
        self.device_list(Tag::Live, device, blocks, |p, block| last.block(p, block))
    }

    /// Blocks that were live at the peak.
    pub fn peak(&mut self, device: Device, blocks: &[Block]) -> io::Result<()> {
        let mut last = Last::default();
        self.device_list(Tag::Peak, device, blocks, |p, block| last.block(p, block))
    }

    /// Totals of scopes.
    pub fn scopes(&mut self, device: Device, scopes: &[ScopeStats]) -> io::Result<()> {
        self.device_list(Tag::Scopes, device, scopes, |p, scope| {
            p.number(scope.context.0.into());
            p.number(scope.calls);
            p.number(scope.allocations);
            p.number(scope.allocated_bytes);
            p.number(scope.own_peak);
            p.number(scope.total_peak.map_or(0, |bytes| 1 + bytes));
        })
    }

    /// Names of blocks, in any order, and how many more were not kept.
    pub fn names(&mut self, device: Device, names: &[BlockName], lost: u64) -> io::Result<()> {
        if names.is_empty() && lost == 0 {
            return Ok(());
        }
        let mut last = 0;
        self.chunk(Tag::Names, |p| {
            p.number(device_number(device));
            p.number(lost);
            list(p, names.iter(), |p, name| {
                let seq = name.seq.get();
                p.step(std::mem::replace(&mut last, seq), seq);
                p.text(&name.name);
                p.number(name.category as u64);
            });
        })
    }

    /// All refused allocations that are kept.
    pub fn ooms(&mut self, device: Device, ooms: &[OutOfMemory]) -> io::Result<()> {
        if ooms.is_empty() {
            return Ok(());
        }
        let maybe = |bytes: Option<u64>| bytes.map_or(0, |bytes| bytes.saturating_add(1));
        let mut last = 0;
        self.device_list(Tag::Ooms, device, ooms, |p, oom| {
            p.step(std::mem::replace(&mut last, oom.time_ns), oom.time_ns);
            [oom.size, maybe(oom.device_free), maybe(oom.device_total)].into_iter().for_each(|n| p.number(n));
            [oom.stack.0, oom.context.0, oom.thread.0].into_iter().for_each(|n| p.number(n.into()));
        })
    }

    pub(crate) fn segments(&mut self, device: Device, segments: &[Segment]) -> io::Result<()> {
        let mut last = 0;
        self.device_list(Tag::Segments, device, segments, |p, segment| {
            p.step(std::mem::replace(&mut last, segment.address), segment.address);
            p.number(segment.size);
            p.number(segment.estimated.into());
        })
    }

    /// More segments that came and went.
    pub fn segment_records(&mut self, device: Device, records: &[SegmentRecord]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let (mut time, mut address) = (0, 0);
        self.device_list(Tag::SegmentRecords, device, records, |p, record| {
            p.step(std::mem::replace(&mut time, record.time_ns), record.time_ns);
            p.step(std::mem::replace(&mut address, record.address), record.address);
            p.number(record.size);
            p.number(u64::from(record.kind == RecordKind::Free) | u64::from(record.estimated) << 1);
            [record.stack.0, record.context.0, record.thread.0].into_iter().for_each(|n| p.number(n.into()));
        })
    }

    /// All that is known of time in the allocator.
    pub fn calls(&mut self, device: Device, calls: &[CallTime]) -> io::Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        self.device_list(Tag::Calls, device, calls, |p, time| {
            let CallTime { stack, context, allocs, alloc_ns, growing, growing_ns, frees, free_ns } = *time;
            [stack.0, context.0].into_iter().for_each(|n| p.number(n.into()));
            [allocs, alloc_ns, growing, growing_ns, frees, free_ns].into_iter().for_each(|n| p.number(n));
        })
    }

    /// Numbers that records do not tell.
    pub fn counters(&mut self, device: Device, counters: &Counters) -> io::Result<()> {
        let peak = &counters.peak;
        self.chunk(Tag::Counters, |p| {
            p.number(device_number(device));
            p.number(counters.not_recorded);
            p.number(counters.below_threshold);
            [peak.bytes, peak.time_ns, peak.seq.map_or(0, NonZeroU64::get), peak.not_recorded, peak.below_threshold]
                .into_iter()
                .for_each(|n| p.number(n));
            let stats = &counters.stats;
            for stat in [stats.allocated_bytes, stats.active_bytes, stats.reserved_bytes, stats.allocations] {
                let Stat { current, peak, allocated, freed } = stat;
                [current, peak, allocated, freed].into_iter().for_each(|n| p.number(n));
            }
            p.number(stats.below_threshold);
            p.number(stats.num_ooms);
            p.number(stats.num_alloc_retries);
        })?;
        counters.stats.counted.map_or(Ok(()), |counted| self.counted(device, counted))
    }

    fn counted(&mut self, device: Device, counted: Counted) -> io::Result<()> {
        self.chunk(Tag::Counted, |p| {
            let Counted { now, at_peak, before } = counted;
            [device_number(device), now, at_peak, before].into_iter().for_each(|n| p.number(n));
        })
    }

    pub(super) fn device(&mut self, snapshot: &DeviceSnapshot, records: usize) -> io::Result<()> {
        let device = snapshot.device;
        let left_out = snapshot.records.len().saturating_sub(records);
        self.gap(device, snapshot.overwritten + left_out as u64)?;
        self.records(device, snapshot.records.get(left_out..).unwrap_or_default())?;
        self.marks(device, &snapshot.marks)?;
        self.gaps(device, &snapshot.gaps, left_out)?;
        self.live(device, &snapshot.live)?;
        self.peak(device, &snapshot.peak.blocks)?;
        self.counters(device, &Counters::of(snapshot))?;
        self.scopes(device, &snapshot.scopes)?;
        self.names(device, &snapshot.names, snapshot.lost_names)?;
        self.segment_records(device, &snapshot.segment_records)?;
        self.calls(device, &snapshot.calls)?;
        self.segments(device, &snapshot.segments)?;
        self.ooms(device, &snapshot.ooms)?;
        self.driver(device, Driver { pool: snapshot.pool, memory: snapshot.memory })
    }

    /// What the driver says of the device.
    pub fn driver(&mut self, device: Device, driver: Driver) -> io::Result<()> {
        driver.pool.map_or(Ok(()), |pool| self.pool(device, pool))?;
        driver.memory.map_or(Ok(()), |memory| self.memory(device, memory))
    }

    fn memory(&mut self, device: Device, memory: DeviceMemory) -> io::Result<()> {
        self.chunk(Tag::Memory, |p| {
            p.number(device_number(device));
            let DeviceMemory { free, total, own_pools_used, own_pools_reserved, own_pools, graphs } = memory;
            [free, total, own_pools_used, own_pools_reserved, own_pools].into_iter().for_each(|n| p.number(n));
            p.number(graphs.is_some().into());
            if let Some(GraphMemory { used, used_high, reserved, reserved_high }) = graphs {
                [used, used_high, reserved, reserved_high].into_iter().for_each(|n| p.number(n));
            }
        })
    }

    /// What the driver says of the device's pool.
    fn pool(&mut self, device: Device, pool: Pool) -> io::Result<()> {
        self.chunk(Tag::Pool, |p| {
            p.number(device_number(device));
            let Pool { used, used_high, reserved, reserved_high, release_threshold, used_before } = pool;
            [used, used_high, reserved, reserved_high].into_iter().for_each(|n| p.number(n));
            p.number(release_threshold);
            p.number(used_before.map_or(0, |used| used.saturating_add(1)));
        })
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
    fn record(&mut self, p: &mut Payload, record: &Record) {
        let same = record.stack == record.alloc_stack;
        p.number(u64::from(record.kind == RecordKind::Free) | u64::from(same) << 1 | (record.memory as u64) << 2);
        p.step(std::mem::replace(&mut self.time_ns, record.time_ns), record.time_ns);
        p.step(std::mem::replace(&mut self.address, record.address), record.address);
        p.number(record.size);
        p.number(record.stack.0.into());
        if !same {
            p.number(record.alloc_stack.0.into());
        }
        p.number(record.context.0.into());
        p.number(record.thread.0.into());
        p.step(std::mem::replace(&mut self.seq, record.raw_seq()), record.raw_seq());
        p.number(record.stream.into());
    }

    fn block(&mut self, p: &mut Payload, block: &Block) {
        p.step(std::mem::replace(&mut self.address, block.address), block.address);
        p.number(block.size);
        p.step(std::mem::replace(&mut self.seq, block.raw_seq()), block.raw_seq());
        p.step(std::mem::replace(&mut self.time_ns, block.time_ns), block.time_ns);
        p.number(block.stack.0.into());
        p.number(block.context.0.into());
        p.number(block.thread.0.into());
        p.number(u64::from(block.stream) << 4 | block.memory as u64);
    }
}
