//! Capture writer: chunks, each with a checksum. [`super`] documents the bytes.

use std::io::{self, Write};
use std::num::NonZeroU32;

use super::bytes::{Coded, Payload};
use super::codec::with_flag;
use super::part::LogStart;
use super::{Commit, Counters, Driver, MAGIC, PrivatePool, StreamPart, Tag, VERSION};
use crate::numbered::Numbered;
use crate::snapshot::{
    Block, BlockIdle, BlockName, BlockUses, CallTime, CodeAddress, ContextNode, Device, DeviceSnapshot, Gap, GpuWork,
    GraphNode, HostMemory, Launcher, LoadedObject, Mappings, Mark, OlderTime, OutOfMemory, Process, Record, ScopeStats,
    Segment, SegmentRecord, Settings, SnapshotData, Stacks, Thread,
};
use crate::symbol::{AddressKind, label};

/// The most records in one chunk. If a chunk is damaged, a reader can read none of its records.
const RECORDS_IN_A_CHUNK: usize = 4096;

/// Writes chunks to `out`, one after another.
#[derive(Debug)]
pub struct Encoder<W> {
    out: W,
}

/// Writes a whole snapshot, with the newest `records` of each device's log.
pub fn write(data: &SnapshotData, records: usize, out: impl Write) -> io::Result<()> {
    let mut encoder = Encoder::begin(out)?;
    encoder.process(&data.process)?;
    encoder.settings(&data.settings)?;
    encoder.threads(&data.process.threads)?;
    encoder.objects(&data.objects)?;
    encoder.addresses(data.stacks.addresses.iter().map(|address| address.address))?;
    encoder.stacks(data.stacks.each_calls().skip(1))?;
    encoder.contexts(data.contexts.get(1..).unwrap_or_default())?;
    encoder.frames(&data.stacks)?;
    let kinds = kinds_of(data);
    if kinds.iter().any(|kind| kind.unknown) {
        encoder.kinds(false, &kinds)?;
    }
    if let Some(work) = &data.gpu_work {
        encoder.kernels(&work.kernels)?;
        encoder.gpu_work(work)?;
    }
    data.devices.iter().try_for_each(|device| encoder.device(device, records))?;
    if !data.health.import_notes.is_empty() {
        encoder.chunk(Tag::ImportNotes, |p| p.list(&data.health.import_notes))?;
    }
    encoder.host_memory(data.process.memory)?;
    data.process.mappings.iter().try_for_each(|mappings| encoder.mappings(mappings))?;
    encoder.commit(&Commit { duration_ns: data.process.duration_ns, health: data.health.clone() })?;
    encoder.end()
}

/// The chunks with the names of the addresses of a streamed capture, whose stacks have all calls.
pub(super) fn names(stacks: &Stacks, kinds: &[AddressKind]) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder { out: Vec::new() };
    encoder.frames(stacks)?;
    encoder.kinds(true, kinds)?;
    Ok(encoder.out)
}

/// Which addresses of a snapshot have only a label, such as `libc.so.6+0x1234`. A reader may still find names for
/// them.
fn kinds_of(data: &SnapshotData) -> Vec<AddressKind> {
    let kind = |address: &CodeAddress| {
        let object = address.object.and_then(|object| data.objects.get(object as usize));
        let label = label(address.address, object);
        let unknown = data.stacks.frames_at(address) == label.frames;
        AddressKind { unknown, native: unknown && label.native }
    };
    data.stacks.addresses.iter().map(kind).collect()
}

/// Lists of a device, each in chunks of its own.
macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident: $item:ty, $tag:path, $write:ident;)*) => {
        #[doc(hidden)]
        impl<W: Write> Encoder<W> {$(
            $(#[$doc])*
            pub fn $name(&mut self, device: Device, items: &[$item]) -> io::Result<()> {
                self.$write($tag, device, items)
            }
        )*}
    };
}

lists! {
    /// Writes the records since the previous chunk.
    records: Record, Tag::Records, parts_of_device;
    /// Writes the scopes entered and left since the previous chunk.
    marks: Mark, Tag::Marks, parts_of_device;
    live: Block, Tag::Live, list_of_device;
    peak: Block, Tag::Peak, list_of_device;
    scopes: ScopeStats, Tag::Scopes, list_of_device;
    ooms: OutOfMemory, Tag::Ooms, some_of_device;
    /// Writes uses of blocks, in any order.
    uses: BlockUses, Tag::Uses, parts_of_device;
    /// Writes the idle times of blocks since the previous chunk.
    idle: BlockIdle, Tag::Idle, parts_of_device;
    /// Writes the nodes of graphs since the previous chunk.
    graph_nodes: GraphNode, Tag::GraphNodes, parts_of_device;
    /// Writes the segments reserved and released since the previous chunk.
    segment_records: SegmentRecord, Tag::SegmentRecords, some_of_device;
    /// Writes the time in the driver's calls so far.
    calls: CallTime, Tag::Calls, some_of_device;
}

#[doc(hidden)]
impl<W: Write> Encoder<W> {
    pub fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        Ok(Self { out })
    }

    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    fn chunk(&mut self, tag: Tag, fill: impl FnOnce(&mut Payload)) -> io::Result<()> {
        let mut payload = Payload::default();
        fill(&mut payload);
        self.out.write_all(&super::chunk_head(tag as u8, &payload.bytes))?;
        self.out.write_all(&payload.bytes)
    }

    fn of_device(&mut self, tag: Tag, device: Device, values: &impl Coded) -> io::Result<()> {
        self.chunk(tag, |p| {
            p.put(&device);
            p.put(values);
        })
    }

    fn list_of_device<T: Coded>(&mut self, tag: Tag, device: Device, items: &[T]) -> io::Result<()> {
        self.chunk(tag, |p| {
            p.put(&device);
            p.list(items);
        })
    }

    fn parts_of_device<T: Coded>(&mut self, tag: Tag, device: Device, items: &[T]) -> io::Result<()> {
        items.chunks(RECORDS_IN_A_CHUNK).try_for_each(|part| self.list_of_device(tag, device, part))
    }

    /// Like [`list_of_device`](Self::list_of_device), but writes no chunk for an empty list.
    fn some_of_device<T: Coded>(&mut self, tag: Tag, device: Device, items: &[T]) -> io::Result<()> {
        if items.is_empty() { Ok(()) } else { self.list_of_device(tag, device, items) }
    }

    pub fn process(&mut self, process: &Process) -> io::Result<()> {
        self.chunk(Tag::Process, |p| p.put(process))?;
        match &process.launcher {
            launcher if *launcher == Launcher::default() => Ok(()),
            launcher => self.chunk(Tag::Launcher, |p| p.put(launcher)),
        }
    }

    pub fn settings(&mut self, settings: &Settings) -> io::Result<()> {
        self.chunk(Tag::Settings, |p| p.put(settings))?;
        match settings.rules.own_folder() {
            "" => {}
            folder => self.chunk(Tag::OwnFolder, |p| p.text(folder))?,
        }
        match settings.sample_interval {
            None => Ok(()),
            interval => self.chunk(Tag::Sampling, |p| p.put(&interval)),
        }
    }

    pub fn threads(&mut self, threads: &[Thread]) -> io::Result<()> {
        self.chunk(Tag::Threads, |p| p.list(threads))
    }

    pub fn objects(&mut self, objects: &[LoadedObject]) -> io::Result<()> {
        self.chunk(Tag::Objects, |p| p.list(objects))
    }

    /// Writes more code addresses. Stacks refer to them by position.
    pub fn addresses(&mut self, addresses: impl ExactSizeIterator<Item = u64>) -> io::Result<()> {
        self.chunk(Tag::Addresses, |p| {
            p.count(addresses.len());
            addresses.for_each(|address| p.address(address));
        })
    }

    /// Writes more stacks. The calls of each are positions of addresses.
    pub fn stacks<'a>(&mut self, stacks: impl ExactSizeIterator<Item = &'a [u32]>) -> io::Result<()> {
        self.chunk(Tag::Stacks, |p| {
            p.count(stacks.len());
            stacks.for_each(|calls| p.list(calls));
        })
    }

    /// Writes more contexts, without the root.
    pub fn contexts(&mut self, contexts: &[ContextNode]) -> io::Result<()> {
        self.chunk(Tag::Contexts, |p| {
            p.count(contexts.len());
            for node in contexts {
                p.raw(with_flag(node.parent.0, node.module));
                p.text(&node.name);
            }
        })
    }

    fn frames(&mut self, stacks: &Stacks) -> io::Result<()> {
        let mut texts = Numbered::<&str>::default();
        for frame in &stacks.frames {
            texts.number(frame.function_or_empty());
            texts.number(frame.file_or_empty());
        }
        self.chunk(Tag::Frames, |p| {
            p.count(texts.keys().len());
            texts.keys().for_each(|text| p.text(text));
            for address in &stacks.addresses {
                let frames = stacks.frames_at(address);
                p.count(frames.len());
                for frame in frames {
                    p.count(texts.number(frame.function_or_empty()));
                    p.count(texts.number(frame.file_or_empty()));
                    p.raw(with_flag(frame.line.map_or(0, NonZeroU32::get), frame.inlined));
                }
            }
        })
    }

    fn kinds(&mut self, all_calls: bool, kinds: &[AddressKind]) -> io::Result<()> {
        self.chunk(Tag::Kinds, |p| {
            p.put(&all_calls);
            p.list(kinds);
        })
    }

    pub fn host_memory(&mut self, memory: Option<HostMemory>) -> io::Result<()> {
        memory.map_or(Ok(()), |memory| self.chunk(Tag::HostMemory, |p| p.put(&memory)))
    }

    pub fn mappings(&mut self, mappings: &Mappings) -> io::Result<()> {
        self.chunk(Tag::Mappings, |p| p.put(mappings))
    }

    /// Makes everything that was written so far valid.
    pub fn commit(&mut self, commit: &Commit) -> io::Result<()> {
        self.chunk(Tag::Commit, |p| p.put(commit))
    }

    /// Writes the mark of a recording that ended in order.
    pub fn end(&mut self) -> io::Result<()> {
        self.chunk(Tag::End, |_| {})
    }

    /// Writes that readers drop the device's records so far, and how many more are missing.
    pub fn gap(&mut self, device: Device, records: u64) -> io::Result<()> {
        self.of_device(Tag::Gap, device, &records)
    }

    /// Writes which part of a stream the file is. This must be the first chunk.
    pub fn part(&mut self, part: StreamPart) -> io::Result<()> {
        self.chunk(Tag::Part, |p| p.put(&part))
    }

    /// Writes how many marks of the run precede this part, and when its log begins. This chunk must follow the
    /// device's *gap*.
    pub fn log_start(&mut self, device: Device, marks: u64, time_ns: u64) -> io::Result<()> {
        self.of_device(Tag::LogStart, device, &LogStart { marks, time_ns })
    }

    /// Writes how many records and marks before this moment were left out. The blocks that were live then must follow.
    pub fn skipped(&mut self, device: Device, records: u64, marks: u64, time_ns: u64) -> io::Result<()> {
        self.chunk(Tag::Skipped, |p| {
            p.put(&device);
            p.raw(records);
            p.raw(marks);
            p.raw(time_ns);
        })
    }

    /// Writes the summaries of the time spans before the device's log.
    pub fn older(&mut self, device: Device, times: &[OlderTime]) -> io::Result<()> {
        self.some_of_device(Tag::Older, device, times)?;
        let scopes: Vec<_> = times.iter().map(|time| time.scopes.clone()).collect();
        self.some_of_device(Tag::OlderScopes, device, &scopes)
    }

    /// Writes names of blocks, in any order, and how many more were dropped.
    pub fn names(&mut self, device: Device, names: &[BlockName], lost: u64) -> io::Result<()> {
        if names.is_empty() && lost == 0 {
            return Ok(());
        }
        self.chunk(Tag::Names, |p| {
            p.put(&device);
            p.put(&lost);
            p.list(names);
        })
    }

    /// Writes more names of kernels.
    pub fn kernels(&mut self, names: &[String]) -> io::Result<()> {
        if names.is_empty() { Ok(()) } else { self.chunk(Tag::Kernels, |p| p.list(names)) }
    }

    /// Writes the GPU operations so far, without the names of kernels.
    pub fn gpu_work(&mut self, work: &GpuWork) -> io::Result<()> {
        self.chunk(Tag::GpuWork, |p| {
            p.put(&work.totals);
            p.list(&work.opaque);
        })?;
        if work.local.is_empty() { Ok(()) } else { self.chunk(Tag::Local, |p| p.list(&work.local)) }
    }

    /// Writes the numbers that cannot be computed from the records.
    pub fn counters(&mut self, device: Device, counters: &Counters) -> io::Result<()> {
        self.of_device(Tag::Counters, device, counters)?;
        counters.stats.counted.map_or(Ok(()), |counted| self.of_device(Tag::Counted, device, &counted))
    }

    /// Writes the bytes that the device has, as the driver reported when its first block was recorded.
    pub fn total_at_first(&mut self, device: Device, total: Option<u64>) -> io::Result<()> {
        total.map_or(Ok(()), |total| self.of_device(Tag::TotalAtFirst, device, &total))
    }

    pub fn driver(&mut self, device: Device, driver: Driver) -> io::Result<()> {
        driver.pool.map_or(Ok(()), |pool| self.of_device(Tag::Pool, device, &pool))?;
        driver.memory.map_or(Ok(()), |memory| self.of_device(Tag::Memory, device, &memory))?;
        let unified = driver.memory.and_then(|memory| memory.unified);
        unified.map_or(Ok(()), |unified| self.of_device(Tag::Unified, device, &unified))?;
        let threads = driver.memory.and_then(|memory| memory.threads);
        threads.map_or(Ok(()), |threads| self.of_device(Tag::DeviceThreads, device, &threads))
    }

    fn device(&mut self, snapshot: &DeviceSnapshot, records: usize) -> io::Result<()> {
        let device = snapshot.device;
        let left_out = snapshot.records.len().saturating_sub(records);
        let gaps = snapshot.gaps.iter().filter_map(|gap| Some(Gap { at: gap.at.checked_sub(left_out)?, ..*gap }));
        self.gap(device, snapshot.overwritten + left_out as u64)?;
        self.older(device, &snapshot.older)?;
        self.records(device, snapshot.records.get(left_out..).unwrap_or_default())?;
        self.marks(device, &snapshot.marks)?;
        self.some_of_device(Tag::Gaps, device, &gaps.collect::<Vec<_>>())?;
        self.live(device, &snapshot.live)?;
        self.peak(device, &snapshot.peak.blocks)?;
        self.counters(device, &Counters::of(snapshot))?;
        self.scopes(device, &snapshot.scopes)?;
        self.names(device, &snapshot.names, snapshot.lost_names)?;
        self.uses(device, &snapshot.uses)?;
        self.idle(device, &snapshot.idle)?;
        self.graph_nodes(device, &snapshot.graph_nodes)?;
        self.segment_records(device, &snapshot.segment_records)?;
        self.calls(device, &snapshot.calls)?;
        self.list_of_device::<Segment>(Tag::Segments, device, &snapshot.segments)?;
        self.some_of_device(Tag::PrivatePools, device, &PrivatePool::of(&snapshot.segments))?;
        self.ooms(device, &snapshot.ooms)?;
        self.total_at_first(device, snapshot.total_at_first)?;
        self.driver(device, Driver { pool: snapshot.pool, memory: snapshot.memory })
    }
}

impl Counters {
    pub(super) fn of(snapshot: &DeviceSnapshot) -> Self {
        Self {
            not_recorded: snapshot.not_recorded,
            below_threshold: snapshot.below_threshold,
            peak: crate::snapshot::Peak { blocks: Vec::new(), ..snapshot.peak },
            stats: snapshot.stats,
        }
    }
}
