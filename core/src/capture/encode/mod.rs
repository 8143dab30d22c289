//! Writes captures. The bytes are documented at [`super`].

use std::num::NonZeroU32;

mod device;

use std::collections::HashMap;
use std::io::{self, Write};

use super::bytes::Payload;
use super::{CUDA_STATES, Commit, Counters, MAGIC, Tag, VERSION, device_number};
use crate::snapshot::{
    Action, CodeAddress, ContextNode, CudaHooks, CudaState, Device, DeviceSnapshot, Frame, LoadedObject, Process,
    Settings, SnapshotData, Stacks, Thread,
};

/// Records in one chunk: what is lost with it if the file is damaged there.
const RECORDS_IN_A_CHUNK: usize = 4096;

/// Writes one chunk after another to `out`.
#[derive(Debug)]
pub struct Encoder<W> {
    out: W,
}

/// Writes a whole snapshot; of each device's log the newest `records`.
pub fn write(data: &SnapshotData, records: usize, out: impl Write) -> io::Result<()> {
    let mut encoder = Encoder::begin(out)?;
    encoder.process(&data.process)?;
    encoder.settings(&data.settings)?;
    encoder.threads(&data.process.threads)?;
    encoder.modules(&data.objects)?;
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
    pub fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        Ok(Self { out })
    }

    /// Where it writes to.
    pub fn out(&mut self) -> &mut W {
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

    /// The process.
    pub fn process(&mut self, process: &Process) -> io::Result<()> {
        self.chunk(Tag::Process, |p| {
            p.text(&process.program);
            p.text(&process.host);
            p.number(process.pid.into());
            p.number(process.rank.map_or(0, |rank| 1 + u64::from(rank)));
            p.text(&process.working_dir);
            p.number(process.started_unix_us);
        })
    }

    /// The settings of the recording.
    pub fn settings(&mut self, settings: &Settings) -> io::Result<()> {
        self.chunk(Tag::Settings, |p| {
            p.number(settings.enabled as u64);
            p.number(settings.context as u64);
            p.number(settings.stacks as u64);
            p.count(settings.max_entries);
            p.number(settings.min_size);
            p.count(settings.stack_depth);
            p.number(settings.device.map_or(0, |device| 1 + device_number(device)));
            list(p, settings.skip_actions.iter(), |p, action| p.number(action_number(*action)));
            p.text(settings.rules.added());
        })?;
        match settings.sample_interval {
            None => Ok(()),
            Some(interval) => self.chunk(Tag::Sampling, |p| p.number(interval.get())),
        }
    }

    /// Threads seen so far.
    pub fn threads(&mut self, threads: &[Thread]) -> io::Result<()> {
        self.list(Tag::Threads, threads.iter(), |p, thread| {
            p.number(thread.number.0.into());
            p.number(thread.os_id.into());
            p.text(&thread.name);
        })
    }

    /// Loaded programs and libraries.
    pub fn modules(&mut self, modules: &[LoadedObject]) -> io::Result<()> {
        self.list(Tag::Modules, modules.iter(), |p, module| {
            p.text(module.path.as_deref().unwrap_or_default());
            p.bytes(&module.build_id);
            p.number(module.base);
            p.number(module.range.start);
            p.number(module.range.end);
        })
    }

    /// Code addresses, which stacks name by their position.
    pub fn addresses(&mut self, addresses: impl ExactSizeIterator<Item = u64>) -> io::Result<()> {
        let mut last = 0;
        self.list(Tag::Addresses, addresses, |p, address| p.step(std::mem::replace(&mut last, address), address))
    }

    /// The calls of each stack, as numbers of addresses.
    pub fn stacks<'a>(&mut self, stacks: impl ExactSizeIterator<Item = &'a [u32]>) -> io::Result<()> {
        self.list(Tag::Stacks, stacks, |p, calls| {
            list(p, calls.iter(), |p, call| p.number((*call).into()));
        })
    }

    /// Contexts without the root.
    pub fn contexts(&mut self, contexts: &[ContextNode]) -> io::Result<()> {
        self.list(Tag::Contexts, contexts.iter(), |p, node| {
            p.number(u64::from(node.parent.0) << 1 | u64::from(node.module));
            p.text(&node.name);
        })
    }

    fn frames(&mut self, stacks: &Stacks) -> io::Result<()> {
        let texts = Texts::of(&stacks.frames);
        self.chunk(Tag::Frames, |p| {
            list(p, texts.list.iter(), |p, text| p.text(text));
            for address in &stacks.addresses {
                list(p, frames_of(stacks, address).iter(), |p, frame| {
                    p.number(texts.number(frame.function_or_empty()));
                    p.number(texts.number(frame.file_or_empty()));
                    p.number(u64::from(frame.line.map_or(0, NonZeroU32::get)) << 1 | u64::from(frame.inlined));
                });
            }
        })
    }

    /// What came before counts from here on.
    pub fn commit(&mut self, commit: &Commit) -> io::Result<()> {
        let health = &commit.health;
        self.chunk(Tag::Commit, |p| {
            p.number(commit.duration_ns);
            list(p, health.counters().collect::<Vec<_>>().iter(), |p, (_, count)| p.number(*count));
            list(p, health.unreadable_objects.iter(), |p, module| p.text(module));
            p.number(health.spans as u64);
            [health.no_line_numbers, health.cut_off].into_iter().for_each(|flag| p.number(flag.into()));
            cuda_hooks(p, &health.cuda);
            p.number(health.no_allocator.into());
        })
    }

    /// The recording was ended in order.
    pub fn end(&mut self) -> io::Result<()> {
        self.chunk(Tag::End, |_| {})
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
        for text in frames.iter().flat_map(|frame| [frame.function_or_empty(), frame.file_or_empty()]) {
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
