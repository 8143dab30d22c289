//! Binary serialization: each structure's fields in the order of the format, declared once for writing and reading.
//!
//! When you change a list here, change the table in [`super`] as well.

use std::num::NonZeroU64;
use std::ops::Range;

use super::bytes::{Coded, Payload, Reader, in_range};
use super::part::LogStart;
use super::{Commit, Counters, Damage, MAX_ORDINALS, PrivatePool, StreamPart};
use crate::snapshot::{
    Action, Block, BlockIdle, BlockName, BlockUse, BlockUses, CallTime, Category, ContextId, Counted, CudaHooks,
    CudaState, DeadWrite, Device, DeviceMemory, DeviceThreads, Enabled, Gap, GpuTotals, GraphMemory, GraphNode,
    GraphNodeKind, Health, HostMemory, IdleTime, KernelId, Launcher, LoadedObject, LocalMemory, Mapping, MappingKind,
    Mappings, Mark, MemoryKind, MemoryStats, OlderRow, OlderTime, Operands, OutOfMemory, Peak, Pool, Process, Record,
    RecordKind, ResidentMemory, Rules, ScopeStats, Segment, SegmentRecord, Settings, Spans, StackContext, StackId,
    StackKind, Stat, SystemMemory, Thread, ThreadId, UnifiedMemory, UnseenCalls,
};
use crate::symbol::AddressKind;

/// `field` is encoded as its type. `field: method` is encoded by the methods of that name of [`Payload`] and
/// [`Reader`]. Fields after `..` are in other chunks.
macro_rules! coded {
    ($($type:ty { $($field:ident $(: $method:ident)?),* $(, ..$rest:expr)? })*) => {$(
        impl Coded for $type {
            fn put(&self, p: &mut Payload) {
                $(coded!(@put p, self.$field $(, $method)?);)*
            }

            fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
                Ok(Self { $($field: coded!(@get r $(, $method)?),)* $(..$rest)? })
            }
        }
    )*};
    (@put $p:ident, $value:expr) => { $p.put(&$value) };
    (@put $p:ident, $value:expr, $method:ident) => { $p.$method($value) };
    (@get $r:ident) => { $r.get()? };
    (@get $r:ident, $method:ident) => { $r.$method()? };
}

coded! {
    Process { program, host, pid, rank, working_dir, started_unix_us, ..Self::default() }
    Launcher { world_size, job }
    Settings {
        enabled, context, stacks, max_entries, min_size, stack_depth, device, skip_actions, rules, ..Self::default()
    }
    Thread { number, os_id, name }
    HostMemory { time_ns, resident, resident_high, files, files_high, swapped }
    Mappings { time_ns, below_threshold, own, rows }
    Mapping { kind, start: raw, size, resident, count, path, stack }
    LoadedObject { path, build_id, base: raw, range }
    Commit { duration_ns, health }
    StreamPart { run: raw, number: raw }
    LogStart { marks, time_ns }
    CudaHooks { state, imports, refused_imports, looked_up, unseen_calls }
    UnseenCalls { function, calls }
    OutOfMemory { time_ns: time, size, device_free, device_total, stack, context, thread }
    Gap { at: at, records, from_ns: time, to_ns: time }
    OlderTime { from_ns: time, to_ns: time, records, lacks_records, highest, highest_ns: time, stacks, ..Self::default() }
    ScopeStats { context, calls, allocations, allocated_bytes, own_peak, total_peak }
    BlockName { seq: block, name, category }
    GraphNode { time_ns: time, thread, place, kind, bytes, block }
    Segment { address: address, size, estimated, ..Self::default() }
    CallTime { stack, context, allocs, alloc_ns, growing, growing_ns, frees, free_ns }
    Counters { not_recorded, below_threshold, peak, stats }
    Peak { bytes, time_ns, seq, not_recorded, below_threshold, ..Self::default() }
    MemoryStats {
        allocated_bytes, active_bytes, reserved_bytes, allocations, below_threshold, num_ooms, num_alloc_retries,
        ..Self::default()
    }
    Stat { current, peak, allocated, freed }
    Counted { now, at_peak, before }
    Pool { used, used_high, reserved, reserved_high, release_threshold: raw, used_before }
    DeviceMemory { free, total, own_pools_used, own_pools_reserved, own_pools, graphs, ..Self::default() }
    UnifiedMemory { system, process }
    DeviceThreads { count, stack }
    LocalMemory { kernel, bytes, stack }
    SystemMemory { total, available, free }
    ResidentMemory { resident, files }
    GraphMemory { used, used_high, reserved, reserved_high }
    GpuTotals { operations, launches, laid_out, copies, fills, graphs, last_opaque, lost }
    BlockUse { operation, time_ns: time, after_alloc, frees_after, stack, kernel, stream }
    IdleTime { operations, from_ns: time, to_ns: time, from_alloc, to_alloc }
    DeadWrite { bytes, first, second, stack }
    BlockIdle { seq: block, time }
    OlderRow<StackId> { of, least, at_highest }
    OlderRow<ContextId> { of, least, at_highest }
}

/// Enumerations, encoded as the positions of their values in a list.
macro_rules! choices {
    ($($type:ident: $values:expr, $damage:literal;)*) => {$(
        impl Coded for $type {
            fn put(&self, p: &mut Payload) {
                p.raw($values.iter().position(|value| value == self).unwrap_or(0) as u64);
            }

            fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
                $values.get(r.get::<u32>()? as usize).copied().ok_or(Damage($damage))
            }
        }
    )*};
}

choices! {
    Enabled: [Self::Off, Self::State, Self::All], "a setting that this version does not know";
    StackContext: [Self::None, Self::State, Self::Alloc, Self::All], "a setting that this version does not know";
    StackKind: [Self::Rust, Self::All], "a setting that this version does not know";
    Action: [Self::Alloc, Self::FreeRequested, Self::FreeCompleted], "a setting that this version does not know";
    Spans: [Self::NoLayer, Self::Heard, Self::Silenced], "a state of spans that this version does not know";
    CudaState: [
        Self::NotLoaded, Self::Active, Self::TurnedOff, Self::AnotherCopy, Self::NotSupported, Self::Simulated,
    ], "a state of CUDA that this version does not know";
    MappingKind: Self::ALL, "a kind of mapping that this version does not know";
    Category: Self::ALL, "a category that this version does not know";
    GraphNodeKind: Self::ALL, "a kind of node that this version does not know";
}

/// Declares how types are written and read.
macro_rules! coded_by {
    ($($($type:ty)|+: |$value:ident, $p:ident| $put:expr, |$r:ident| $get:expr;)*) => {$($(
        impl Coded for $type {
            fn put(&self, $p: &mut Payload) {
                let $value = self;
                $put;
            }

            fn get($r: &mut Reader<'_>) -> Result<Self, Damage> {
                $get
            }
        }
    )+)*};
}

coded_by! {
    u8: |byte, p| p.bytes.push(*byte), |r| r.byte();
    u32: |number, p| p.raw((*number).into()), |r| r.raw().and_then(small);
    u64: |number, p| p.raw(*number), |r| r.raw().and_then(in_range);
    usize: |number, p| p.count(*number), |r| Ok(r.get::<u64>()? as Self);
    bool: |flag, p| p.raw((*flag).into()), |r| Ok(r.raw()? != 0);
    String: |text, p| p.text(text), |r| Ok(r.text()?.to_owned());
    Range<u64>: |range, p| { p.raw(range.start); p.raw(range.end) }, |r| Ok(r.raw()?..r.raw()?);
    Device: |device, p| p.raw(device_number(*device)), |r| r.raw().and_then(device);
    ThreadId: |thread, p| p.put(&thread.0), |r| r.get().map(Self);
    AddressKind: |kind, p| p.raw(with_flag(kind.unknown.into(), kind.native)), |r| {
        let bits: u32 = r.get()?;
        Ok(Self { native: bits & 1 == 1, unknown: bits >> 1 & 1 == 1 })
    };
    StackId: |stack, p| p.put(&stack.0), |r| below(r.get()?, r.ids.stacks, "a stack number out of range").map(Self);
    KernelId: |kernel, p| p.put(&kernel.0), |r| r.get().map(Self);
    PrivatePool: |of, p| { p.count(of.segment); p.raw(of.id.0); p.raw(of.id.1) }, |r| Ok(Self { segment: r.get()?, id: (r.raw()?, r.raw()?) });
    (KernelId, u64): |counted, p| { p.put(&counted.0); p.put(&counted.1) }, |r| Ok((r.get()?, r.get()?));
    ContextId: |context, p| p.put(&context.0), |r| below(r.get()?, r.ids.contexts, "a context number out of range").map(Self);
    // 0 for `None`, otherwise the value plus 1.
    Option<u64>: |value, p| p.raw(value.map_or(0, |value| value.saturating_add(1))), |r| Ok(r.get::<u64>()?.checked_sub(1));
    // 0 for `None`.
    Option<NonZeroU64>: |value, p| p.raw(value.map_or(0, NonZeroU64::get)), |r| Ok(NonZeroU64::new(r.get()?));
    // Empty for `None`.
    Option<String>: |text, p| p.text(text.as_deref().unwrap_or_default()), |r| Ok(Some(r.get()?).filter(|text: &String| !text.is_empty()));
    Option<u32>: |value, p| p.put(&value.map(u64::from)), |r| r.get::<Option<u64>>()?.map(small).transpose();
    Option<Device>: |value, p| p.put(&value.map(device_number)), |r| r.get::<Option<u64>>()?.map(device).transpose();
    Option<GraphMemory> | Option<SystemMemory> | Option<ResidentMemory>: |memory, p| {
        p.put(&memory.is_some());
        memory.iter().for_each(|memory| p.put(memory))
    }, |r| if r.get()? { r.get().map(Some) } else { Ok(None) };
    Rules: |rules, p| p.text(rules.added()), |r| {
        let mut rules = Self::default();
        let added = rules.add(r.text()?);
        added.map(|()| rules).map_err(|_| Damage("rules that this version does not know"))
    };
}

/// The number, if it fits into 32 bits.
pub(super) fn small(number: u64) -> Result<u32, Damage> {
    number.try_into().map_err(|_| Damage("a number of more than 32 bits"))
}

/// The number, if it is below `count`: the file numbers things of this kind from 0 to `count - 1`.
pub(super) fn below(number: u32, count: usize, damage: &'static str) -> Result<u32, Damage> {
    if (number as usize) < count { Ok(number) } else { Err(Damage(damage)) }
}

pub(super) fn device_number(device: Device) -> u64 {
    match device {
        Device::Cpu => 0,
        Device::Cuda(ordinal) => 1 + u64::from(ordinal),
        Device::Pinned => 1 + MAX_ORDINALS,
        Device::Managed => 2 + MAX_ORDINALS,
        Device::Imported => 3 + MAX_ORDINALS,
    }
}

pub(super) fn device(number: u64) -> Result<Device, Damage> {
    let others = [Device::Pinned, Device::Managed, Device::Imported];
    match number.checked_sub(1) {
        None => Ok(Device::Cpu),
        Some(ordinal @ 0..MAX_ORDINALS) => Ok(Device::Cuda(ordinal as u32)),
        Some(other) => others.get((other - MAX_ORDINALS) as usize).copied().ok_or(Damage("an unknown device number")),
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn put(&self, p: &mut Payload) {
        p.list(self);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
        let count = r.count()?;
        (0..count).map(|_| r.get()).collect()
    }
}

impl Coded for Health {
    fn put(&self, p: &mut Payload) {
        p.list(&self.counters().map(|(_, count)| count).collect::<Vec<u64>>());
        p.put(&self.unreadable_objects);
        p.put(&self.spans);
        p.put(&self.no_line_numbers);
        p.put(&self.cut_off);
        p.put(&self.cuda);
        p.put(&self.no_allocator);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
        let mut health = Self::default();
        // An older version may have fewer counters, a newer one more.
        let counts: Vec<u64> = r.get()?;
        health.counters_mut().zip(counts).for_each(|(counter, count)| *counter = count);
        health.unreadable_objects = r.get()?;
        health.spans = r.get()?;
        health.no_line_numbers = r.get()?;
        health.cut_off = r.get()?;
        health.cuda = r.get()?;
        health.no_allocator = r.get()?;
        Ok(health)
    }
}

/// A number of 32 bits, shifted up by one bit, with a flag in the lowest bit.
pub(super) fn with_flag(number: u32, flag: bool) -> u64 {
    u64::from(number) << 1 | u64::from(flag)
}

fn kind(bits: u64) -> RecordKind {
    if bits & 1 == 0 { RecordKind::Alloc } else { RecordKind::Free }
}

fn memory(number: u64) -> Result<MemoryKind, Damage> {
    let kind = usize::try_from(number).ok().and_then(|number| MemoryKind::ALL.get(number));
    kind.copied().ok_or(Damage("a kind of memory that this version does not know"))
}

impl Coded for Record {
    fn put(&self, p: &mut Payload) {
        let (is_free, same) = (self.kind == RecordKind::Free, self.stack == self.alloc_stack);
        p.raw(u64::from(is_free) | u64::from(same) << 1 | (self.memory as u64) << 2);
        p.time(self.time_ns);
        p.address(self.address);
        p.put(&self.size);
        p.put(&self.stack);
        if !same {
            p.put(&self.alloc_stack);
        }
        p.put(&self.context);
        p.put(&self.thread);
        p.seq(self.alloc_seq);
        p.put(&self.stream);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
        let bits = r.raw()?;
        let (time_ns, address, size, stack) = (r.time()?, r.address()?, r.get()?, r.get()?);
        Ok(Self {
            time_ns,
            address,
            size,
            stack,
            alloc_stack: if bits & 2 == 0 { r.get()? } else { stack },
            context: r.get()?,
            thread: r.get()?,
            alloc_seq: r.seq()?,
            stream: r.get()?,
            kind: kind(bits),
            memory: memory(bits >> 2)?,
        })
    }
}

impl Coded for Block {
    fn put(&self, p: &mut Payload) {
        p.address(self.address);
        p.put(&self.size);
        p.seq(self.seq);
        p.time(self.time_ns);
        p.put(&self.stack);
        p.put(&self.context);
        p.put(&self.thread);
        p.raw(u64::from(self.stream) << 4 | self.memory as u64);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
        let (address, size, seq, time_ns) = (r.address()?, r.get()?, r.seq()?, r.time()?);
        let (stack, context, thread, bits) = (r.get()?, r.get()?, r.get()?, r.raw()?);
        let (memory, stream) = (memory(bits & 15)?, bits >> 4);
        let stream = stream.try_into().map_err(|_| Damage("a stream number of more than 32 bits"))?;
        Ok(Self { address, size, seq, time_ns, stack, context, thread, stream, memory })
    }
}

impl Coded for BlockUses {
    fn put(&self, p: &mut Payload) {
        p.block(self.seq);
        p.put(&self.allocated_at);
        p.put(&self.freed_at);
        [self.count, self.reads, self.writes, self.last_opaque].iter().for_each(|number| p.put(number));
        let used = self.first.zip(self.last);
        let has_operands = self.operands != Operands::default();
        let flags = [self.opaque_first, self.escaped, used.is_some(), self.idle.is_some(), self.dead_write.is_some()];
        let flags = flags.into_iter().chain([has_operands]);
        p.raw(flags.rev().fold(0, |bits, flag| bits << 1 | u64::from(flag)));
        used.iter().for_each(|(first, last)| {
            p.put(first);
            p.put(last);
        });
        self.idle.iter().for_each(|idle| p.put(idle));
        self.dead_write.iter().for_each(|dead| p.put(dead));
        if has_operands {
            p.put(&self.operands);
        }
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
        let (seq, allocated_at, freed_at) = (r.block()?, r.get()?, r.get()?);
        let [count, reads, writes, last_opaque] = [r.get()?, r.get()?, r.get()?, r.get()?];
        let bits = r.raw()?;
        let has = |bit: u32| bits >> bit & 1 == 1;
        let used: Option<(BlockUse, BlockUse)> = if has(2) { Some((r.get()?, r.get()?)) } else { None };
        Ok(Self {
            seq,
            allocated_at,
            freed_at,
            count,
            reads,
            writes,
            first: used.map(|(first, _)| first),
            last: used.map(|(_, last)| last),
            idle: if has(3) { Some(r.get()?) } else { None },
            last_opaque,
            opaque_first: has(0),
            escaped: has(1),
            dead_write: if has(4) { Some(r.get()?) } else { None },
            operands: if has(5) { r.get()? } else { Operands::default() },
        })
    }
}

impl Coded for Operands {
    fn put(&self, p: &mut Payload) {
        let distances: Vec<i32> = self.distances().collect();
        p.raw(distances.len() as u64);
        distances.into_iter().for_each(|distance| p.step(0, i64::from(distance).cast_unsigned()));
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
        let count = r.raw()?.min(Self::MOST as u64 + 1);
        let mut distances = Vec::new();
        for _ in 0..count {
            distances.push(r.step(0)?.cast_signed().try_into().map_err(|_| Damage("an operand that is too far away"))?);
        }
        Self::of_distances(&distances).ok_or(Damage("too many operands"))
    }
}

impl Coded for Mark {
    fn put(&self, p: &mut Payload) {
        p.time(self.time_ns);
        p.raw(with_flag(self.thread.0, self.enter));
        p.put(&self.context);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
        let (time_ns, bits) = (r.time()?, r.raw()?);
        Ok(Self { time_ns, thread: ThreadId(small(bits >> 1)?), enter: bits & 1 == 1, context: r.get()? })
    }
}

impl Coded for SegmentRecord {
    fn put(&self, p: &mut Payload) {
        p.time(self.time_ns);
        p.address(self.address);
        p.put(&self.size);
        p.raw(u64::from(self.kind == RecordKind::Free) | u64::from(self.estimated) << 1);
        p.put(&self.stack);
        p.put(&self.context);
        p.put(&self.thread);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Damage> {
        let (time_ns, address, size, bits) = (r.time()?, r.address()?, r.get()?, r.raw()?);
        let (kind, estimated) = (kind(bits), bits & 2 != 0);
        let (stack, context, thread) = (r.get()?, r.get()?, r.get()?);
        Ok(Self { time_ns, address, size, kind, estimated, stack, context, thread })
    }
}
