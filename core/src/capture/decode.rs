//! Reads captures. Whatever the bytes are, it neither panics nor takes more memory than `limits` allows
//! for so many of them.

use std::num::{NonZeroU32, NonZeroU64};

use super::bytes::{LARGEST, Reader, in_range};
use super::limits::{self, Budget};
use super::rebuild::DeviceParts;
use super::{
    CHUNK_HEADER, CUDA_STATES, Capture, Counters, Damage, HEADER, MAGIC, MAX_ORDINALS, Tag, VERSION, blocks,
    chunk_head, refused,
};
use crate::error::Error;
use crate::snapshot::{
    Action, CodeAddress, ContextId, ContextNode, Counted, CudaHooks, Device, DeviceMemory, DeviceSnapshot, Enabled,
    Frame, GraphMemory, Health, LoadedObject, MAX_INTERVAL, ObjectSpans, Peak, Pool, Process, Rules, Settings,
    SnapshotData, Spans, StackContext, StackKind, Stacks, Stat, Thread, ThreadId, UnseenCalls,
};

/// Reads a capture up to its last commit before the end or the first damage.
///
/// # Errors
/// If it is no capture, a newer one, or nothing in it can be trusted.
pub(crate) fn read(bytes: &[u8]) -> Result<Capture, Error> {
    let chunks = committed(bytes)?;
    let mut reading = Reading::default();
    for (tag, payload) in &chunks.list {
        reading.chunk(*tag, payload).map_err(|Damage(what)| refused(format!("it holds {what}")))?;
    }
    let mut capture = reading.finish(bytes.len()).map_err(|Damage(what)| refused(format!("it holds {what}")))?;
    let health = &mut capture.data.health;
    health.cut_off |= !chunks.ended;
    health.unread_bytes = health.unread_bytes.saturating_add(chunks.unread).min(LARGEST);
    Ok(capture)
}

/// The chunks up to the last commit.
struct Chunks<'a> {
    list: Vec<(Tag, &'a [u8])>,
    ended: bool,
    unread: u64,
}

fn committed(bytes: &[u8]) -> Result<Chunks<'_>, Error> {
    let Some((header, mut rest)) = bytes.split_at_checked(HEADER).filter(|(header, _)| header.starts_with(MAGIC))
    else {
        return Err(refused("it does not begin like one"));
    };
    let version = header[MAGIC.len()..].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
    if version != VERSION {
        return Err(refused(format!("it has version {version} of the format; this memtrace reads version {VERSION}")));
    }
    let mut chunks = Chunks { list: Vec::new(), ended: false, unread: 0 };
    let (mut good, mut unread) = (0, rest.len());
    while let Some((tag, payload, after)) = next_chunk(rest) {
        rest = after;
        match Tag::of(tag) {
            Some(Tag::End) => (chunks.ended, unread) = (true, rest.len()),
            Some(tag) => chunks.list.push((tag, payload)),
            None => {}
        }
        if tag == Tag::Commit as u8 {
            (good, unread) = (chunks.list.len(), rest.len());
        }
        if chunks.ended {
            break;
        }
    }
    if good == 0 {
        return Err(refused("it ends before its first commit"));
    }
    chunks.list.truncate(good);
    chunks.unread = unread as u64;
    Ok(chunks)
}

/// Tag and payload of a whole, undamaged chunk, and what follows.
fn next_chunk(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(CHUNK_HEADER)?;
    let length = u64::from_le_bytes(head.get(1..9)?.try_into().ok()?);
    let (payload, rest) = rest.split_at_checked(length.try_into().ok()?)?;
    let tag = *head.first()?;
    (chunk_head(tag, payload) == head).then_some((tag, payload, rest))
}

/// What has been read so far.
#[derive(Default)]
struct Reading {
    data: SnapshotData,
    addresses: Vec<u64>,
    starts: Vec<u32>,
    calls: Vec<u32>,
    /// Frames of all addresses and how many each has.
    frames: Option<(Vec<Frame>, Vec<u32>)>,
    devices: Vec<DeviceParts>,
    total_bytes: u64,
}

impl Reading {
    fn chunk(&mut self, tag: Tag, payload: &[u8]) -> Result<(), Damage> {
        let mut r = Reader(payload);
        match tag {
            Tag::Process => process(&mut r, &mut self.data.process)?,
            Tag::Settings => self.data.settings = settings(&mut r)?,
            Tag::Sampling => self.data.settings.sample_interval = Some(interval(&mut r)?),
            Tag::Threads => self.data.process.threads = list(&mut r, thread)?,
            Tag::Modules => self.data.objects = modules(&mut r)?,
            Tag::Addresses => self.addresses(&mut r)?,
            Tag::Stacks => self.stacks(&mut r)?,
            Tag::Contexts => self.contexts(&mut r)?,
            Tag::Frames => self.frames(&mut r)?,
            Tag::Commit => self.commit(&mut r)?,
            Tag::End => {}
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
                self.calls.push(below(r.small()?, self.addresses.len())?);
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
            let parent = r.raw()?;
            let module = parent & 1 == 1;
            let parent = u32::try_from(parent >> 1).map_err(|_| Damage("the number of no context"))?;
            let parent = ContextId(below(parent, contexts.len())?);
            contexts.push(ContextNode { parent, name: r.text()?.to_owned(), module });
        }
        Ok(())
    }

    fn frames(&mut self, r: &mut Reader<'_>) -> Result<(), Damage> {
        let length = r.0.len();
        let texts = list(r, |r| r.text())?;
        let mut copied = Budget::of(length);
        let mut text = |number: u32| {
            let text = texts.get(number as usize).ok_or(Damage("the number of a text that is not there"))?;
            copied.take(text.len())?;
            Ok(Some((*text).to_owned()).filter(|text| !text.is_empty()))
        };
        let (mut frames, mut counts) = (Vec::new(), Vec::new());
        for _ in 0..self.addresses.len() {
            let count = r.count()?;
            for _ in 0..count {
                let (function, file) = (text(r.small()?)?, text(r.small()?)?);
                let line = r.raw()?;
                let number = u32::try_from(line >> 1).map_err(|_| Damage("a line number of more than 32 bits"))?;
                frames.push(Frame { function, file, line: NonZeroU32::new(number), inlined: line & 1 == 1 });
            }
            counts.push(count as u32);
        }
        self.frames = Some((frames, counts));
        Ok(())
    }

    fn commit(&mut self, r: &mut Reader<'_>) -> Result<(), Damage> {
        self.data.process.duration_ns = r.number()?;
        let mut health = Health::default();
        // Of an older version there may be fewer, of a newer one more.
        let counts = list(r, Reader::number)?;
        health.counters_mut().zip(counts).for_each(|(counter, count)| *counter = count);
        health.unreadable_objects = list(r, |r| r.text().map(str::to_owned))?;
        health.spans = spans(r)?;
        health.no_line_numbers = flag(r)?;
        health.cut_off = flag(r)?;
        health.cuda = cuda_hooks(r)?;
        health.no_allocator = flag(r)?;
        self.data.health = health;
        Ok(())
    }

    fn of_device(&mut self, tag: Tag, r: &mut Reader<'_>) -> Result<(), Damage> {
        let ids = blocks::Ids { stacks: self.starts.len() + 1, contexts: self.data.contexts.len().max(1) };
        let device = device(r.raw()?)?;
        let at = match self.devices.iter().position(|parts| parts.device == device) {
            Some(at) => at,
            None => {
                self.devices.push(DeviceParts::new(device));
                self.devices.len() - 1
            }
        };
        let Some(parts) = self.devices.get_mut(at) else { return Ok(()) };
        match tag {
            Tag::Gap => parts.gap(r.number()?)?,
            Tag::Skipped => parts.skip(r.number()?, r.number()?, r.number()?),
            Tag::Gaps => parts.gaps = blocks::gaps(r)?,
            Tag::Records => blocks::records(r, ids, parts.new_records(), &mut self.total_bytes)?,
            Tag::Marks => blocks::marks(r, ids, parts.new_marks())?,
            Tag::Live => parts.set_live(blocks::blocks(r, ids, &mut self.total_bytes)?),
            Tag::Peak => parts.set_peak(blocks::blocks(r, ids, &mut self.total_bytes)?),
            Tag::Counters => parts.set_counters(counters(r)?),
            Tag::Counted => parts.set_counted(Counted { now: r.number()?, at_peak: r.number()?, before: r.number()? }),
            Tag::Scopes => parts.scopes = Some(blocks::scopes(r, ids)?),
            Tag::Ooms => parts.ooms = blocks::ooms(r, ids)?,
            Tag::Pool => parts.driver.pool = Some(pool(r)?),
            Tag::Memory => parts.driver.memory = Some(memory(r)?),
            Tag::SegmentRecords => blocks::segment_records(r, ids, &mut parts.segment_records)?,
            Tag::Calls => parts.calls = blocks::calls(r, ids)?,
            Tag::Names => blocks::names(r, &mut parts.names, &mut parts.lost_names)?,
            Tag::Segments => parts.segments = Some(blocks::segments(r)?),
            _ => {}
        }
        Ok(())
    }

    fn finish(self, length: usize) -> Result<Capture, Damage> {
        let Self { mut data, addresses, starts, calls, frames, devices, total_bytes } = self;
        let symbolised = frames.is_some();
        let (frames, counts) = frames.unwrap_or_default();
        let (spans, mut start) = (ObjectSpans::of(&data.objects), 0);
        // Addresses that came after the frames have none.
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
        limits::check(&data, symbolised, length)?;
        let (contexts, settings) = (&data.contexts, &data.settings);
        let finish = |parts: DeviceParts| {
            let sampling = settings.sampling(parts.device);
            parts.finish(contexts, sampling, total_bytes)
        };
        data.devices = devices.into_iter().map(finish).collect::<Result<_, _>>()?;
        let missing = |device: &DeviceSnapshot| {
            device.gaps.iter().try_fold(device.overwritten, |sum, gap| in_range(sum + gap.records))
        };
        data.devices.iter().try_fold(0, |sum, device| in_range(sum + missing(device)?))?;
        Ok(Capture { data, symbolised })
    }
}

fn root() -> ContextNode {
    ContextNode { parent: ContextId::ROOT, name: String::new(), module: false }
}

fn list<'a, T>(
    r: &mut Reader<'a>,
    mut each: impl FnMut(&mut Reader<'a>) -> Result<T, Damage>,
) -> Result<Vec<T>, Damage> {
    let count = r.count()?;
    (0..count).map(|_| each(r)).collect()
}

/// A number that counts things which are there.
fn below(number: u32, count: usize) -> Result<u32, Damage> {
    if (number as usize) < count { Ok(number) } else { Err(Damage("the number of a thing that is not there")) }
}

fn flag(r: &mut Reader<'_>) -> Result<bool, Damage> {
    Ok(r.raw()? != 0)
}

fn spans(r: &mut Reader<'_>) -> Result<Spans, Damage> {
    let all = [Spans::NoLayer, Spans::Heard, Spans::Silenced];
    all.get(r.small()? as usize).copied().ok_or(Damage("a state of spans that this memtrace does not know"))
}

fn cuda_hooks(r: &mut Reader<'_>) -> Result<CudaHooks, Damage> {
    let state = CUDA_STATES.get(r.small()? as usize).copied();
    Ok(CudaHooks {
        state: state.ok_or(Damage("a state of CUDA that this memtrace does not know"))?,
        imports: r.number()?,
        refused_imports: r.number()?,
        looked_up: r.number()?,
        unseen_calls: list(r, |r| Ok(UnseenCalls { function: r.text()?.to_owned(), calls: r.number()? }))?,
    })
}

fn pool(r: &mut Reader<'_>) -> Result<Pool, Damage> {
    Ok(Pool {
        used: r.number()?,
        used_high: r.number()?,
        reserved: r.number()?,
        reserved_high: r.number()?,
        release_threshold: r.raw()?,
        used_before: r.number()?.checked_sub(1),
    })
}

fn memory(r: &mut Reader<'_>) -> Result<DeviceMemory, Damage> {
    let mut memory = DeviceMemory {
        free: r.number()?,
        total: r.number()?,
        own_pools_used: r.number()?,
        own_pools_reserved: r.number()?,
        own_pools: r.number()?,
        graphs: None,
    };
    if flag(r)? {
        let (used, used_high, reserved) = (r.number()?, r.number()?, r.number()?);
        memory.graphs = Some(GraphMemory { used, used_high, reserved, reserved_high: r.number()? });
    }
    Ok(memory)
}

fn process(r: &mut Reader<'_>, process: &mut Process) -> Result<(), Damage> {
    process.program = r.text()?.to_owned();
    process.host = r.text()?.to_owned();
    process.pid = r.small()?;
    let rank = r.raw()?.checked_sub(1).map(u32::try_from).transpose();
    process.rank = rank.map_err(|_| Damage("a number of more than 32 bits"))?;
    process.working_dir = r.text()?.to_owned();
    process.started_unix_us = r.number()?;
    Ok(())
}

fn settings(r: &mut Reader<'_>) -> Result<Settings, Damage> {
    const UNKNOWN: Damage = Damage("a setting that this memtrace does not know");
    let choice = |r: &mut Reader<'_>| Ok::<usize, Damage>(r.small()? as usize);
    let enabled = [Enabled::Off, Enabled::State, Enabled::All].get(choice(r)?).copied().ok_or(UNKNOWN)?;
    let contexts = [StackContext::None, StackContext::State, StackContext::Alloc, StackContext::All];
    let context = contexts.get(choice(r)?).copied().ok_or(UNKNOWN)?;
    let stacks = [StackKind::Rust, StackKind::All].get(choice(r)?).copied().ok_or(UNKNOWN)?;
    Ok(Settings {
        enabled,
        context,
        stacks,
        max_entries: r.number()? as usize,
        min_size: r.number()?,
        stack_depth: r.number()? as usize,
        device: r.raw()?.checked_sub(1).map(device).transpose()?,
        skip_actions: list(r, |r| {
            let actions = [Action::Alloc, Action::FreeRequested, Action::FreeCompleted];
            actions.get(r.small()? as usize).copied().ok_or(UNKNOWN)
        })?,
        rules: rules(r.text()?)?,
        ..Settings::default()
    })
}

fn interval(r: &mut Reader<'_>) -> Result<NonZeroU64, Damage> {
    let known = |interval: &NonZeroU64| interval.is_power_of_two() && interval.get() <= MAX_INTERVAL;
    NonZeroU64::new(r.raw()?).filter(known).ok_or(Damage("an interval at which no memtrace samples"))
}

fn rules(added: &str) -> Result<Rules, Damage> {
    let mut rules = Rules::default();
    let added = rules.add(added);
    added.map(|()| rules).map_err(|_| Damage("rules that this memtrace does not know"))
}

fn thread(r: &mut Reader<'_>) -> Result<Thread, Damage> {
    Ok(Thread { number: ThreadId(r.small()?), os_id: r.small()?, name: r.text()?.to_owned() })
}

fn modules(r: &mut Reader<'_>) -> Result<Vec<LoadedObject>, Damage> {
    let modules = list(r, module)?;
    // Each may be a file to open.
    if modules.len() > 4096 { Err(Damage("more modules than a program loads")) } else { Ok(modules) }
}

fn module(r: &mut Reader<'_>) -> Result<LoadedObject, Damage> {
    let (path, build_id) = (r.text()?, r.bytes()?.to_owned());
    let path = (!path.is_empty()).then(|| path.to_owned());
    Ok(LoadedObject { path, build_id, base: r.raw()?, range: r.raw()?..r.raw()? })
}

fn device(number: u64) -> Result<Device, Damage> {
    match number.checked_sub(1) {
        None => Ok(Device::Cpu),
        Some(ordinal @ 0..MAX_ORDINALS) => Ok(Device::Cuda(ordinal as u32)),
        Some(MAX_ORDINALS) => Ok(Device::Pinned),
        Some(number) if number == MAX_ORDINALS + 1 => Ok(Device::Managed),
        Some(number) if number == MAX_ORDINALS + 2 => Ok(Device::Imported),
        Some(_) => Err(Damage("a device of no ordinal")),
    }
}

fn counters(r: &mut Reader<'_>) -> Result<Counters, Damage> {
    let mut counters = Counters { not_recorded: r.number()?, below_threshold: r.number()?, ..Counters::default() };
    counters.peak = Peak {
        bytes: r.number()?,
        time_ns: r.number()?,
        seq: NonZeroU64::new(r.number()?),
        not_recorded: r.number()?,
        below_threshold: r.number()?,
        blocks: Vec::new(),
    };
    let mut stat = || Ok(Stat { current: r.number()?, peak: r.number()?, allocated: r.number()?, freed: r.number()? });
    let stats = &mut counters.stats;
    (stats.allocated_bytes, stats.active_bytes) = (stat()?, stat()?);
    (stats.reserved_bytes, stats.allocations) = (stat()?, stat()?);
    stats.below_threshold = r.number()?;
    stats.num_ooms = r.number()?;
    stats.num_alloc_retries = r.number()?;
    Ok(counters)
}
