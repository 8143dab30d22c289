//! Capture reader for untrusted bytes: it never panics, and `limits` bounds its memory by the size of the file.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;

use super::bytes::{Coded, Ids, Reader, in_range};
use super::codec::{below, small};
use super::limits::{self, Budget};
use super::rebuild::DeviceParts;
use super::{
    CHUNK_HEADER, Commit, Damage, DecodedCapture, HEADER, MAGIC, NAME_VERSION, PrivatePool, StoredNames, StreamPart,
    Tag, VERSION, chunk_head,
};
use crate::snapshot::{
    Block, BlockIdle, BlockName, BlockUses, CallTime, CodeAddress, ContextId, ContextNode, Device, DeviceSnapshot,
    Frame, GraphNode, Health, HostMemory, LONGEST_NAME, LoadedObject, MAX_INTERVAL, Mappings, Mark, ObjectSpans,
    OlderRow, OlderTime, Process, Record, ScopeStats, Segment, SegmentRecord, SnapshotData, Stacks,
};

/// The chunks up to the last commit.
pub(super) struct Chunks<'a> {
    list: Vec<(Tag, &'a [u8])>,
    pub(super) commit: Range<usize>,
    pub(super) ended: bool,
    pub(super) unread: u64,
}

/// Whether a file that begins with these bytes is a capture, of any version.
pub(crate) fn begins_like_one(bytes: &[u8]) -> bool {
    header(bytes).is_some()
}

/// The version of a capture, and the bytes after its header. Versions above 65,535 are refused: they are the
/// letters of a text that begins with the same word.
pub(super) fn header(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let version = u32::from_le_bytes(header.strip_prefix(MAGIC)?.try_into().ok()?);
    (version <= u16::MAX.into()).then_some((version, rest))
}

/// Whether a capture has a commit.
pub(crate) fn is_committed(bytes: &[u8]) -> bool {
    committed(bytes).is_ok()
}

pub(super) fn committed(bytes: &[u8]) -> Result<Chunks<'_>, String> {
    let Some((version, mut rest)) = header(bytes) else {
        return Err("it does not begin with `memtrace` and a version".to_owned());
    };
    if version == NAME_VERSION {
        return Err("it only names a stream, whose parts lie beside it".to_owned());
    }
    if version != VERSION {
        return Err(format!("it has version {version} of the format; this memtrace reads version {VERSION}"));
    }
    let mut chunks = Chunks { list: Vec::new(), commit: 0..0, ended: false, unread: 0 };
    let (mut good, mut unread) = (0, rest.len());
    while let Some((tag, payload, after)) = next_chunk(rest) {
        let chunk = bytes.len() - rest.len()..bytes.len() - after.len();
        rest = after;
        match Tag::of(tag) {
            Some(Tag::End) => (chunks.ended, unread) = (true, rest.len()),
            Some(tag) => chunks.list.push((tag, payload)),
            None => {}
        }
        if tag == Tag::Commit as u8 {
            (good, unread) = (chunks.list.len(), rest.len());
            chunks.commit = chunk;
        }
        if chunks.ended {
            break;
        }
    }
    if good == 0 {
        return Err("it ends before its first commit".to_owned());
    }
    chunks.list.truncate(good);
    chunks.unread = unread as u64;
    Ok(chunks)
}

/// Whether a file has an end mark. Only the heads of the chunks are read.
pub(crate) fn has_end(mut file: impl Read + Seek) -> io::Result<bool> {
    file.seek(SeekFrom::Start(HEADER as u64))?;
    let mut head = [0; CHUNK_HEADER];
    // A truncated head ends the search with an error.
    loop {
        file.read_exact(&mut head)?;
        let length = u64::from_le_bytes(head[1..9].try_into().unwrap_or_default());
        if head[0] == Tag::End as u8 {
            return Ok(true);
        }
        file.seek_relative(i64::try_from(length).map_err(io::Error::other)?)?;
    }
}

/// Tag and payload of a whole, undamaged chunk, and the bytes after it.
pub(super) fn next_chunk(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(CHUNK_HEADER)?;
    let length = u64::from_le_bytes(head.get(1..9)?.try_into().ok()?);
    let (payload, rest) = rest.split_at_checked(length.try_into().ok()?)?;
    let tag = *head.first()?;
    (chunk_head(tag, payload) == head).then_some((tag, payload, rest))
}

/// The content of the chunks read so far.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) data: SnapshotData,
    pub(super) addresses: Vec<u64>,
    pub(super) starts: Vec<u32>,
    pub(super) calls: Vec<u32>,
    /// The frames of all addresses, and the number of frames of each address.
    pub(super) frames: Option<(Vec<Frame>, Vec<u32>)>,
    pub(super) names: StoredNames,
    pub(super) devices: Vec<(Device, DeviceParts)>,
    /// The index in `devices` of each device.
    pub(super) places: HashMap<Device, usize>,
    pub(super) total_bytes: u64,
}

impl Reading {
    pub(super) fn of(chunks: &Chunks<'_>) -> Result<Self, Damage> {
        let mut reading = Self::default();
        chunks.list.iter().try_for_each(|(tag, payload)| reading.chunk(*tag, payload))?;
        Ok(reading)
    }

    fn chunk(&mut self, tag: Tag, payload: &[u8]) -> Result<(), Damage> {
        let ids = Ids { stacks: self.starts.len() + 1, contexts: self.data.contexts.len().max(1) };
        let mut r = Reader::new(payload, ids);
        let data = &mut self.data;
        match tag {
            Tag::Process => {
                let Process { threads, launcher, memory, mappings, .. } = std::mem::take(&mut data.process);
                data.process = Process { threads, launcher, memory, mappings, ..r.get()? };
            }
            Tag::Launcher => data.process.launcher = r.get()?,
            Tag::Settings => {
                let own_folder = data.settings.rules.own_folder().to_owned();
                data.settings = r.get()?;
                data.settings.rules.set_own_folder(&own_folder);
            }
            Tag::OwnFolder => data.settings.rules.set_own_folder(r.text()?),
            Tag::Sampling => data.settings.sample_interval = Some(interval(&mut r)?),
            Tag::Threads => data.process.threads = r.get()?,
            Tag::Objects => data.objects = objects(&mut r)?,
            Tag::Addresses => self.addresses(&mut r)?,
            Tag::Stacks => self.stacks(&mut r)?,
            Tag::Contexts => self.contexts(&mut r)?,
            Tag::Frames => self.frames(&mut r)?,
            Tag::Kinds => (self.names.all_calls, self.names.kinds) = (r.get()?, r.get()?),
            Tag::Commit => {
                let commit: Commit = r.get()?;
                data.process.duration_ns = commit.duration_ns;
                let import_notes = std::mem::take(&mut data.health.import_notes);
                data.health = Health { import_notes, ..commit.health };
            }
            Tag::Kernels => data.gpu_work.get_or_insert_default().kernels.extend(r.get::<Vec<String>>()?),
            Tag::GpuWork => {
                let work = data.gpu_work.get_or_insert_default();
                (work.totals, work.opaque) = (r.get()?, r.get()?);
            }
            Tag::Local => data.gpu_work.get_or_insert_default().local = r.get()?,
            Tag::ImportNotes => data.health.import_notes = r.get()?,
            Tag::HostMemory => {
                data.process.memory = Some(r.get::<HostMemory>()?.after(data.process.memory));
            }
            Tag::Mappings => {
                data.process.mappings = Some(r.get::<Mappings>()?.after(data.process.mappings.take()));
            }
            Tag::Part => drop(r.get::<StreamPart>()?),
            _ => self.of_device(tag, &mut r)?,
        }
        r.end()
    }

    fn addresses(&mut self, r: &mut Reader<'_>) -> Result<(), Damage> {
        let mut last = 0;
        for _ in 0..r.count()? {
            last = r.step(last)?;
            self.addresses.push(last);
        }
        Ok(())
    }

    fn stacks(&mut self, r: &mut Reader<'_>) -> Result<(), Damage> {
        for _ in 0..r.count()? {
            self.starts.push(self.calls.len().try_into().map_err(|_| Damage("too many calls"))?);
            for _ in 0..r.count()? {
                self.calls.push(below(r.get()?, self.addresses.len(), "an address number out of range")?);
            }
        }
        Ok(())
    }

    fn contexts(&mut self, r: &mut Reader<'_>) -> Result<(), Damage> {
        let contexts = &mut self.data.contexts;
        if contexts.is_empty() {
            contexts.push(root());
        }
        for _ in 0..r.count()? {
            let bits = r.raw()?;
            let parent = below(small(bits >> 1)?, contexts.len(), "a parent context out of range")?;
            contexts.push(ContextNode { parent: ContextId(parent), name: r.get()?, module: bits & 1 == 1 });
        }
        Ok(())
    }

    fn frames(&mut self, r: &mut Reader<'_>) -> Result<(), Damage> {
        let mut copied = Budget::of(r.rest.len());
        let texts = (0..r.count()?).map(|_| r.text()).collect::<Result<Vec<&str>, Damage>>()?;
        let mut text = |number: u32| {
            let text = texts.get(number as usize).ok_or(Damage("a text number out of range"))?;
            copied.take(text.len())?;
            Ok(Some((*text).to_owned()).filter(|text| !text.is_empty()))
        };
        let (mut frames, mut counts) = (Vec::new(), Vec::new());
        for _ in 0..self.addresses.len() {
            let count = r.count()?;
            for _ in 0..count {
                let (function, file) = (text(r.get()?)?, text(r.get()?)?);
                let line = r.raw()?;
                let number = u32::try_from(line >> 1).map_err(|_| Damage("a line number of more than 32 bits"))?;
                frames.push(Frame { function, file, line: NonZeroU32::new(number), inlined: line & 1 == 1 });
            }
            counts.push(count as u32);
        }
        self.frames = Some((frames, counts));
        Ok(())
    }

    fn of_device(&mut self, tag: Tag, r: &mut Reader<'_>) -> Result<(), Damage> {
        let device = r.get()?;
        let place = *self.places.entry(device).or_insert(self.devices.len());
        if place == self.devices.len() {
            limits::devices(place + 1)?;
            self.devices.push((device, DeviceParts::default()));
        }
        let (parts, total) = (&mut self.devices[place].1, &mut self.total_bytes);
        match tag {
            Tag::Gap => parts.gap(r.get()?)?,
            Tag::LogStart => parts.start = r.get()?,
            Tag::Skipped => parts.skip(r.get()?, r.get()?, r.get()?),
            Tag::Gaps => parts.device.gaps = r.get()?,
            Tag::Older => parts.device.older = older(r)?,
            Tag::OlderScopes => older_scopes(r, &mut parts.device.older)?,
            Tag::Records => {
                let records = checked(r, |record: &Record| fits(record.address, record.size, total))?;
                parts.new_records().extend(records);
            }
            Tag::Marks => parts.new_marks().extend(r.get::<Vec<Mark>>()?),
            Tag::Live => parts.set_live(checked(r, |block: &Block| fits(block.address, block.size, total))?),
            Tag::Peak => parts.new_peak = Some(checked(r, |block: &Block| fits(block.address, block.size, total))?),
            Tag::Counters => parts.set_counters(r.get()?),
            Tag::Counted => parts.counters.stats.counted = Some(r.get()?),
            Tag::Scopes => parts.scopes = Some(scopes(r)?),
            Tag::Ooms => parts.device.ooms = r.get()?,
            Tag::TotalAtFirst => parts.device.total_at_first = Some(r.get()?),
            Tag::Pool => parts.device.pool = Some(r.get()?),
            Tag::Memory => parts.device.memory = Some(r.get()?),
            Tag::Unified => {
                let memory = parts.device.memory.as_mut().ok_or(Damage("the host's memory without the device's"))?;
                memory.unified = Some(r.get()?);
            }
            Tag::DeviceThreads => {
                let memory = parts.device.memory.as_mut().ok_or(Damage("a device's threads without its memory"))?;
                memory.threads = Some(r.get()?);
            }
            Tag::SegmentRecords => {
                let ends = |record: &SegmentRecord| in_range(record.address + record.size);
                parts.device.segment_records.extend(checked(r, |record| ends(record).map(drop))?);
            }
            Tag::Calls => parts.device.calls = calls(r)?,
            Tag::Names => {
                parts.device.lost_names = in_range(parts.device.lost_names + r.get::<u64>()?)?;
                parts.names.extend(checked(r, is_short)?.into_iter().map(|name| (name.seq, name)));
            }
            Tag::Uses => parts.uses.extend(r.get::<Vec<BlockUses>>()?.into_iter().map(|uses| (uses.seq, uses))),
            Tag::Idle => parts.device.idle.extend(r.get::<Vec<BlockIdle>>()?),
            Tag::GraphNodes => parts.device.graph_nodes.extend(r.get::<Vec<GraphNode>>()?),
            Tag::Segments => {
                let ends = |segment: &Segment| in_range(segment.address + segment.size);
                parts.segments = Some(checked(r, |segment| ends(segment).map(drop))?);
            }
            Tag::PrivatePools => {
                let segments = parts.segments.as_deref_mut().unwrap_or_default();
                r.get::<Vec<PrivatePool>>()?.iter().try_for_each(|pool| pool.put_into(segments))?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn finish(self, length: usize, commit: Range<usize>) -> Result<DecodedCapture, Damage> {
        let Self { mut data, addresses, starts, calls, frames, mut names, devices, total_bytes, .. } = self;
        names.any = frames.is_some();
        let (frames, counts) = frames.unwrap_or_default();
        let (spans, mut start) = (ObjectSpans::of(&data.objects), 0);
        // Addresses that were added after the frames have none.
        let counts = counts.into_iter().chain(std::iter::repeat(0));
        let addresses = addresses.into_iter().zip(counts).map(|(address, count)| {
            let frames = start..start + count;
            start = frames.end;
            CodeAddress { frames, ..CodeAddress::in_objects(address, &data.objects, &spans) }
        });
        data.stacks = Stacks {
            addresses: addresses.collect(),
            starts: std::iter::once(0).chain(starts).collect(),
            calls,
            frames,
        };
        if data.contexts.is_empty() {
            data.contexts.push(root());
        }
        data.settings.uses = data.gpu_work.is_some();
        limits::check(&data, &names, length)?;
        let (contexts, settings) = (&data.contexts, &data.settings);
        let finish = |(device, parts): (Device, DeviceParts)| {
            parts.finish(device, contexts, settings.sampling(device), total_bytes)
        };
        data.devices = devices.into_iter().map(finish).collect::<Result<_, _>>()?;
        let last_opaque = data.gpu_work.as_ref().map_or(0, |work| work.totals.last_opaque);
        data.devices.iter_mut().flat_map(|device| &mut device.uses).for_each(|uses| live_until(uses, last_opaque));
        let missing = |device: &DeviceSnapshot| {
            device.gaps.iter().try_fold(device.overwritten, |sum, gap| in_range(sum + gap.records))
        };
        data.devices.iter().try_fold(0, |sum, device| in_range(sum + missing(device)?))?;
        Ok(DecodedCapture { data, names, commit })
    }
}

/// An opaque operation may have used a live block after the block's uses were written.
fn live_until(uses: &mut BlockUses, last_opaque: u64) {
    if uses.freed_at.is_none() && last_opaque > uses.allocated_at {
        uses.last_opaque = last_opaque;
    }
}

fn root() -> ContextNode {
    ContextNode { parent: ContextId::ROOT, name: String::new(), module: false }
}

/// A block must end within memory, and the sizes of all blocks of the file must add up without overflow.
fn fits(address: u64, size: u64, total: &mut u64) -> Result<(), Damage> {
    in_range(address + size.max(1))?;
    *total = in_range(*total + size)?;
    Ok(())
}

fn checked<T: Coded>(r: &mut Reader<'_>, check: impl FnMut(&T) -> Result<(), Damage>) -> Result<Vec<T>, Damage> {
    let items: Vec<T> = r.get()?;
    items.iter().try_for_each(check)?;
    Ok(items)
}

fn scopes(r: &mut Reader<'_>) -> Result<Vec<ScopeStats>, Damage> {
    let scopes: Vec<ScopeStats> = r.get()?;
    if scopes.is_sorted_by(|a, b| a.context < b.context) { Ok(scopes) } else { Err(Damage("a scope twice")) }
}

/// Limits the length of names, because each record of a block may be shown with its name.
fn is_short(name: &BlockName) -> Result<(), Damage> {
    if name.name.len() > LONGEST_NAME { Err(Damage("a name longer than 256 bytes")) } else { Ok(()) }
}

fn older(r: &mut Reader<'_>) -> Result<Vec<OlderTime>, Damage> {
    let times: Vec<OlderTime> = r.get()?;
    let is_whole = |time: &OlderTime| (time.from_ns..=time.to_ns).contains(&time.highest_ns);
    // The writer keeps 48 times. Reports go through all stacks for each of them.
    if times.len() > 256 {
        return Err(Damage("more older times than a stream keeps"));
    }
    let follow = times.windows(2).all(|pair| pair[0].to_ns <= pair[1].from_ns);
    if follow && times.iter().all(is_whole) { Ok(times) } else { Err(Damage("older times out of order")) }
}

fn older_scopes(r: &mut Reader<'_>, older: &mut [OlderTime]) -> Result<(), Damage> {
    let scopes: Vec<Vec<OlderRow<ContextId>>> = r.get()?;
    if scopes.len() != older.len() {
        return Err(Damage("scopes of other times than the older ones"));
    }
    older.iter_mut().zip(scopes).for_each(|(time, scopes)| time.scopes = scopes);
    Ok(())
}

fn calls(r: &mut Reader<'_>) -> Result<Vec<CallTime>, Damage> {
    let mut sum = 0;
    checked(r, |time: &CallTime| {
        let numbers = [time.allocs, time.alloc_ns, time.growing, time.growing_ns, time.frees, time.free_ns];
        sum = numbers.into_iter().try_fold(sum, |sum, number| in_range(sum + number))?;
        Ok(())
    })
}

fn objects(r: &mut Reader<'_>) -> Result<Vec<LoadedObject>, Damage> {
    let objects: Vec<LoadedObject> = r.get()?;
    // Each object may be a file that is opened.
    if objects.len() > 4096 { Err(Damage("more loaded objects than a program has")) } else { Ok(objects) }
}

fn interval(r: &mut Reader<'_>) -> Result<NonZeroU64, Damage> {
    let known = |interval: &NonZeroU64| interval.is_power_of_two() && interval.get() <= MAX_INTERVAL;
    NonZeroU64::new(r.raw()?).filter(known).ok_or(Damage("an invalid sampling interval"))
}
