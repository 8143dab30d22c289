//! The JSON of a trace, written event by event.

use std::fmt::Display;
use std::io::{self, Write};

/// A trace under way: an object whose first member is the list of events.
pub(super) struct Trace<W> {
    out: W,
    empty: bool,
}

impl<W: Write> Trace<W> {
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"traceEvents\":[")?;
        Ok(Self { out, empty: true })
    }

    /// An event of a phase (`ph`), with the members that `fill` adds.
    pub(super) fn event(
        &mut self,
        phase: char,
        fill: impl FnOnce(&mut Object<'_, W>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(if self.empty { b"\n" } else { b",\n" })?;
        self.empty = false;
        write!(self.out, "{{\"ph\":\"{phase}\"")?;
        fill(&mut Object { out: &mut self.out, empty: false })?;
        self.out.write_all(b"}")
    }

    /// Metadata: what a process or a thread is called, or where it stands.
    pub(super) fn metadata(&mut self, kind: &str, track: Track, value: Value<'_>) -> io::Result<()> {
        self.event('M', |event| {
            event.text("name", kind)?;
            event.track(track)?;
            event.object("args", |args| match value {
                Value::Name(name) => args.text("name", name),
                Value::Labels(labels) => args.text("labels", labels),
                Value::SortIndex(index) => args.number("sort_index", index),
            })
        })
    }

    /// Ends the list; `fill` adds what follows it. The output is flushed.
    pub(super) fn finish(mut self, fill: impl FnOnce(&mut Object<'_, W>) -> io::Result<()>) -> io::Result<()> {
        self.out.write_all(b"\n]")?;
        fill(&mut Object { out: &mut self.out, empty: false })?;
        self.out.write_all(b"}\n")?;
        self.out.flush()
    }
}

/// Where an event belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    pub(super) pid: u32,
    /// No thread for what belongs to the whole process.
    pub(super) tid: Option<u64>,
}

/// What metadata says.
pub(super) enum Value<'a> {
    Name(&'a str),
    Labels(&'a str),
    SortIndex(u64),
}

/// A JSON object under way. Keys are plain words: they are not escaped.
pub(super) struct Object<'a, W> {
    out: &'a mut W,
    empty: bool,
}

impl<W: Write> Object<'_, W> {
    pub(super) fn text(&mut self, key: impl Display, text: &str) -> io::Result<()> {
        self.key(key)?;
        Ok(serde_json::to_writer(&mut *self.out, text)?)
    }

    pub(super) fn number(&mut self, key: &str, number: impl Display) -> io::Result<()> {
        self.key(key)?;
        write!(self.out, "{number}")
    }

    /// Nanoseconds as the format's microseconds, exactly.
    pub(super) fn time(&mut self, time_ns: u64) -> io::Result<()> {
        self.key("ts")?;
        match time_ns % 1000 {
            0 => write!(self.out, "{}", time_ns / 1000),
            rest => write!(self.out, "{}.{rest:03}", time_ns / 1000),
        }
    }

    pub(super) fn track(&mut self, track: Track) -> io::Result<()> {
        self.number("pid", track.pid)?;
        track.tid.map_or(Ok(()), |tid| self.number("tid", tid))
    }

    pub(super) fn object(
        &mut self,
        key: impl Display,
        fill: impl FnOnce(&mut Object<'_, W>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.key(key)?;
        self.out.write_all(b"{")?;
        fill(&mut Object { out: self.out, empty: true })?;
        self.out.write_all(b"}")
    }

    fn key(&mut self, key: impl Display) -> io::Result<()> {
        if !self.empty {
            self.out.write_all(b",")?;
        }
        self.empty = false;
        write!(self.out, "\"{key}\":")
    }
}
