//! Writes captures. The bytes are documented at [`super`].

use std::collections::HashMap;
use std::io::{self, Write};

use super::bytes::Payload;
use super::{CUDA_STATES, Commit, Counters, Driver, MAGIC, Tag, VERSION, device_number};
use crate::snapshot::{
    Action, Block, BlockName, CallTime, CodeAddress, ContextNode, CudaHooks, CudaState, Device, DeviceMemory,
    DeviceSnapshot, Frame, GraphMemory, Health, Mark, Module, OutOfMemory, Pool, Process, Record, RecordKind,
    ScopeStats, Segment, SegmentRecord, Settings, SnapshotData, Stacks, Stat, Thread,
};

/// Records in one chunk: what is lost with it if the file is damaged there.
const RECORDS_IN_A_CHUNK: usize = 4096;

/// Writes one chunk after another to `out`.
#[derive(Debug)]
pub(crate) struct Encoder<W> {
    out: W,
}

/// Writes a whole snapshot; of each device's log the newest `records`.
pub(crate) fn write(data: &SnapshotData, records: usize, out: impl Write) -> io::Result<()> {
    let mut encoder = Encoder::begin(out)?;
    encoder.process(&data.process)?;
    encoder.settings(&data.settings)?;
    encoder.threads(&data.process.threads)?;
    encoder.modules(&data.modules)?;
    encoder.addresses(data.stacks.addresses.iter().map(|address| address.address))?;
    encoder.stacks(data.stacks.each_calls().skip(1))?;
    encoder.contexts(data.contexts.get(1..).unwrap_or_default())?;
    encoder.frames(&data.stacks)?;
    data.devices.iter().try_for_each(|device| encoder.device(device, records))?;
    encoder.commit(&Commit { duration_ns: data.process.duration_ns, health: data.health.clone() })?;
    encoder.end()
}

impl<W: Write> Encoder<W> {
    /// Writes the file's header.
    pub(crate) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        Ok(Self { out })
    }

    /// Where it writes to.
    pub(crate) fn out(&mut self) -> &mut W {
        &mut self.out
    }

    fn chunk(&mut self, tag: Tag, fill: impl FnOnce(&mut Payload)) -> io::Result<()> {
        let mut payload = Payload::default();
        fill(&mut payload);
        let head = super::chunk_head(tag as u8, &payload.0);
        self.out.write_all(&head)?;
        self.out.write_all(&payload.0)
    }

    fn list<T>(
        &mut self,
        tag: Tag,
        items: impl ExactSizeIterator<Item = T>,
        each: impl FnMut(&mut Payload, T),
    ) -> io::Result<()> {
        self.chunk(tag, |p| list(p, items, each))
    }

    fn device_list<T>(
        &mut self,
        tag: Tag,
        device: Device,
        items: &[T],
        each: impl FnMut(&mut Payload, &T),
    ) -> io::Result<()> {
        self.chunk(tag, |p| {
            p.number(device_number(device));
            list(p, items.iter(), each);
        })
    }

    pub(crate) fn process(&mut self, process: &Process) -> io::Result<()> {
        self.chunk(Tag::Process, |p| {
            p.text(&process.program);
            p.text(&process.host);
            p.number(process.pid.into());
            p.number(process.rank.map_or(0, |rank| 1 + u64::from(rank)));
            p.text(&process.working_dir);
            p.number(process.started_unix_us);
        })
    }

    pub(crate) fn settings(&mut self, settings: &Settings) -> io::Result<()> {
        self.chunk(Tag::Settings, |p| {
            p.number(settings.enabled as u64);
            p.number(settings.context as u64);
            p.number(settings.stacks as u64);
            p.count(settings.max_entries);
            p.number(settings.min_size);
            p.count(settings.stack_depth);
            p.number(settings.device.map_or(0, |device| 1 + device_number(device)));
            list(p, settings.skip_actions.iter(), |p, action| p.number(action_number(*action)));
        })
    }

    pub(crate) fn threads(&mut self, threads: &[Thread]) -> io::Result<()> {
        self.list(Tag::Threads, threads.iter(), |p, thread| {
            p.number(thread.number.0.into());
            p.number(thread.os_id.into());
            p.text(&thread.name);
        })
    }

    pub(crate) fn modules(&mut self, modules: &[Module]) -> io::Result<()> {
        self.list(Tag::Modules, modules.iter(), |p, module| {
            p.text(&module.path);
            p.bytes(&module.build_id);
            p.number(module.base);
            p.number(module.range.start);
            p.number(module.range.end);
        })
    }

    pub(crate) fn addresses(&mut self, addresses: impl ExactSizeIterator<Item = u64>) -> io::Result<()> {
        let mut last = 0;
        self.list(Tag::Addresses, addresses, |p, address| p.step(std::mem::replace(&mut last, address), address))
    }

    /// The calls of each stack, as numbers of addresses.
    pub(crate) fn stacks<'a>(&mut self, stacks: impl ExactSizeIterator<Item = &'a [u32]>) -> io::Result<()> {
        self.list(Tag::Stacks, stacks, |p, calls| {
            list(p, calls.iter(), |p, call| p.number((*call).into()));
        })
    }

    /// Contexts without the root.
    pub(crate) fn contexts(&mut self, contexts: &[ContextNode]) -> io::Result<()> {
        self.list(Tag::Contexts, contexts.iter(), |p, node| {
            p.number(u64::from(node.parent.0) << 1 | u64::from(node.model_span));
            p.text(&node.name);
        })
    }

    fn frames(&mut self, stacks: &Stacks) -> io::Result<()> {
        let texts = Texts::of(&stacks.frames);
        self.chunk(Tag::Frames, |p| {
            list(p, texts.list.iter(), |p, text| p.text(text));
            for address in &stacks.addresses {
                list(p, frames_of(stacks, address).iter(), |p, frame| {
                    p.number(texts.number(&frame.function));
                    p.number(texts.number(&frame.file));
                    p.number(u64::from(frame.line) << 1 | u64::from(frame.inlined));
                });
            }
        })
    }

    /// Forgets the device's records so far and says how many more are missing.
    pub(crate) fn gap(&mut self, device: Device, records: u64) -> io::Result<()> {
        self.chunk(Tag::Gap, |p| {
            p.number(device_number(device));
            p.number(records);
        })
    }

    pub(crate) fn records(&mut self, device: Device, records: &[Record]) -> io::Result<()> {
        for part in records.chunks(RECORDS_IN_A_CHUNK) {
            let mut last = Last::default();
            self.device_list(Tag::Records, device, part, |p, record| last.record(p, record))?;
        }
        Ok(())
    }

    pub(crate) fn marks(&mut self, device: Device, marks: &[Mark]) -> io::Result<()> {
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

    pub(crate) fn live(&mut self, device: Device, blocks: &[Block]) -> io::Result<()> {
        let mut last = Last::default();
        self.device_list(Tag::Live, device, blocks, |p, block| last.block(p, block))
    }

    pub(crate) fn peak(&mut self, device: Device, blocks: &[Block]) -> io::Result<()> {
        let mut last = Last::default();
        self.device_list(Tag::Peak, device, blocks, |p, block| last.block(p, block))
    }

    pub(crate) fn scopes(&mut self, device: Device, scopes: &[ScopeStats]) -> io::Result<()> {
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
    pub(crate) fn names(&mut self, device: Device, names: &[BlockName], lost: u64) -> io::Result<()> {
        if names.is_empty() && lost == 0 {
            return Ok(());
        }
        let mut last = 0;
        self.chunk(Tag::Names, |p| {
            p.number(device_number(device));
            p.number(lost);
            list(p, names.iter(), |p, name| {
                p.step(std::mem::replace(&mut last, name.seq), name.seq);
                p.text(&name.name);
            });
        })
    }

    /// All refused allocations that are kept.
    pub(crate) fn ooms(&mut self, device: Device, ooms: &[OutOfMemory]) -> io::Result<()> {
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
    pub(crate) fn segment_records(&mut self, device: Device, records: &[SegmentRecord]) -> io::Result<()> {
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
    pub(crate) fn calls(&mut self, device: Device, calls: &[CallTime]) -> io::Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        self.device_list(Tag::Calls, device, calls, |p, time| {
            let CallTime { stack, context, allocs, alloc_ns, growing, growing_ns, frees, free_ns } = *time;
            [stack.0, context.0].into_iter().for_each(|n| p.number(n.into()));
            [allocs, alloc_ns, growing, growing_ns, frees, free_ns].into_iter().for_each(|n| p.number(n));
        })
    }

    pub(crate) fn counters(&mut self, device: Device, counters: &Counters) -> io::Result<()> {
        let peak = &counters.peak;
        self.chunk(Tag::Counters, |p| {
            p.number(device_number(device));
            p.number(counters.not_recorded);
            p.number(counters.below_threshold);
            [peak.bytes, peak.time_ns, peak.seq, peak.not_recorded, peak.below_threshold]
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
        })
    }

    /// What came before counts from here on.
    pub(crate) fn commit(&mut self, commit: &Commit) -> io::Result<()> {
        let Health { lost_blocks, lost_stacks, shortened_stacks, missed_frees, lost_scopes, .. } = commit.health;
        let health = &commit.health;
        self.chunk(Tag::Commit, |p| {
            p.number(commit.duration_ns);
            [lost_blocks, lost_stacks, shortened_stacks, missed_frees, lost_scopes]
                .into_iter()
                .for_each(|n| p.number(n));
            p.number(health.no_line_numbers.into());
            p.number(health.unknown_addresses);
            list(p, health.unreadable_modules.iter(), |p, module| p.text(module));
            p.number(health.spans as u64);
            p.number(health.cut_off.into());
            p.number(health.unread_bytes);
            p.number(health.unknown_frees);
            p.number(health.refused_frees);
            cuda_hooks(p, &health.cuda);
        })
    }

    /// The recording was ended in order.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.chunk(Tag::End, |_| {})
    }

    fn device(&mut self, snapshot: &DeviceSnapshot, records: usize) -> io::Result<()> {
        let device = snapshot.device;
        let left_out = snapshot.records.len().saturating_sub(records);
        self.gap(device, snapshot.overwritten + left_out as u64)?;
        self.records(device, snapshot.records.get(left_out..).unwrap_or_default())?;
        self.marks(device, &snapshot.marks)?;
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
    pub(crate) fn driver(&mut self, device: Device, driver: Driver) -> io::Result<()> {
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

fn cuda_hooks(p: &mut Payload, hooks: &CudaHooks) {
    p.number(state_number(hooks.state));
    [hooks.imports, hooks.refused_imports, hooks.looked_up].into_iter().for_each(|n| p.number(n));
    list(p, hooks.unseen_calls.iter(), |p, unseen| {
        p.text(&unseen.function);
        p.number(unseen.calls);
    });
}

fn state_number(state: CudaState) -> u64 {
    CUDA_STATES.iter().position(|known| *known == state).unwrap_or(0) as u64
}

impl Counters {
    pub(super) fn of(snapshot: &DeviceSnapshot) -> Self {
        let peak = &snapshot.peak;
        Self {
            not_recorded: snapshot.not_recorded,
            below_threshold: snapshot.below_threshold,
            peak: crate::snapshot::Peak { blocks: Vec::new(), ..*peak },
            stats: snapshot.stats,
        }
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
        p.step(std::mem::replace(&mut self.seq, record.alloc_seq), record.alloc_seq);
        p.number(record.stream.into());
    }

    fn block(&mut self, p: &mut Payload, block: &Block) {
        p.step(std::mem::replace(&mut self.address, block.address), block.address);
        p.number(block.size);
        p.step(std::mem::replace(&mut self.seq, block.seq), block.seq);
        p.step(std::mem::replace(&mut self.time_ns, block.time_ns), block.time_ns);
        p.number(block.stack.0.into());
        p.number(block.context.0.into());
        p.number(block.thread.0.into());
        p.number(u64::from(block.stream) << 4 | block.memory as u64);
    }
}

fn list<T>(p: &mut Payload, items: impl ExactSizeIterator<Item = T>, mut each: impl FnMut(&mut Payload, T)) {
    p.count(items.len());
    items.for_each(|item| each(p, item));
}

fn action_number(action: Action) -> u64 {
    match action {
        Action::Alloc => 0,
        Action::FreeRequested => 1,
        Action::FreeCompleted => 2,
    }
}

fn frames_of<'a>(stacks: &'a Stacks, address: &CodeAddress) -> &'a [Frame] {
    stacks.frames.get(address.frames.start as usize..address.frames.end as usize).unwrap_or_default()
}

/// Functions and files, each once, in the order in which they occur.
struct Texts<'a> {
    list: Vec<&'a str>,
    numbers: HashMap<&'a str, u64>,
}

impl<'a> Texts<'a> {
    fn of(frames: &'a [Frame]) -> Self {
        let mut texts = Self { list: Vec::new(), numbers: HashMap::new() };
        for text in frames.iter().flat_map(|frame| [frame.function.as_str(), frame.file.as_str()]) {
            let next = texts.list.len() as u64;
            texts.numbers.entry(text).or_insert_with(|| {
                texts.list.push(text);
                next
            });
        }
        texts
    }

    fn number(&self, text: &str) -> u64 {
        self.numbers.get(text).copied().unwrap_or(0)
    }
}
