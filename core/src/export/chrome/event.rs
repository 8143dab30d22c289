//! Streaming JSON writer for trace events.

use std::io::{self, Write};

use crate::export::gathered::Gathered;

/// A trace under construction: an object whose first member is the list of events.
pub(super) struct Trace<'a> {
    out: Gathered<'a>,
    empty: bool,
}

impl<'a> Trace<'a> {
    pub(super) fn begin(out: &'a mut dyn Write) -> Self {
        let mut out = Gathered::new(out);
        out.put("{\"traceEvents\":[");
        Self { out, empty: true }
    }

    /// Writes an event of a phase (`ph`) with the members that `fill` adds.
    #[inline]
    pub(super) fn event(&mut self, phase: &'static str, fill: impl FnOnce(&mut Object<'_, 'a>)) -> io::Result<()> {
        self.out.put(if self.empty { "\n{\"ph\":\"" } else { ",\n{\"ph\":\"" });
        self.empty = false;
        self.out.put(phase);
        self.out.put("\"");
        fill(&mut Object { out: &mut self.out, empty: false });
        self.out.put("}");
        self.out.settle()
    }

    pub(super) fn process(&mut self, track: &Track, name: &str, labels: &str, index: u64) -> io::Result<()> {
        self.metadata("process_name", track, |args| args.text("name", name))?;
        self.metadata("process_labels", track, |args| args.text("labels", labels))?;
        self.metadata("process_sort_index", track, |args| args.number("sort_index", index))
    }

    pub(super) fn thread(&mut self, track: &Track, name: &str, index: u64) -> io::Result<()> {
        self.metadata("thread_name", track, |args| args.text("name", name))?;
        self.metadata("thread_sort_index", track, |args| args.number("sort_index", index))
    }

    fn metadata(&mut self, kind: &str, track: &Track, args: impl FnOnce(&mut Object<'_, 'a>)) -> io::Result<()> {
        self.event("M", |event| {
            event.text("name", kind);
            event.track(track);
            event.object("args", args);
        })
    }

    /// Ends the list of events, adds the members of `fill` after it, and flushes the output.
    pub(super) fn finish(mut self, fill: impl FnOnce(&mut Object<'_, 'a>)) -> io::Result<()> {
        self.out.put("\n]");
        fill(&mut Object { out: &mut self.out, empty: false });
        self.out.put("}\n");
        self.out.finish()
    }
}

/// The `pid` and `tid` members of an event.
#[derive(Clone, Debug)]
pub(super) struct Track(String);

impl Track {
    pub(super) fn process(pid: u32) -> Self {
        Self(format!("\"pid\":{pid}"))
    }

    pub(super) fn thread(pid: u32, tid: u64) -> Self {
        Self(format!("\"pid\":{pid},\"tid\":{tid}"))
    }
}

/// A JSON object under construction. Its keys must not need escapes.
pub(super) struct Object<'o, 'a> {
    out: &'o mut Gathered<'a>,
    empty: bool,
}

impl<'a> Object<'_, 'a> {
    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        self.out.text(text);
    }

    /// Writes a value that is JSON already.
    #[inline]
    pub(super) fn json(&mut self, key: &str, json: &str) {
        self.key(key);
        self.out.put(json);
    }

    #[inline]
    pub(super) fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        self.out.number(number);
    }

    #[inline]
    pub(super) fn signed(&mut self, key: &str, number: i64) {
        self.key(key);
        if number < 0 {
            self.out.put("-");
        }
        self.out.number(number.unsigned_abs());
    }

    /// Writes nanoseconds as the format's microseconds, without loss.
    #[inline]
    pub(super) fn time(&mut self, time_ns: u64) {
        self.number("ts", time_ns / 1000);
        let rest = time_ns % 1000;
        if rest > 0 {
            let zeros = [".00", ".0", "."];
            self.out.put(zeros[rest.ilog10() as usize]);
            self.out.number(rest);
        }
    }

    #[inline]
    pub(super) fn track(&mut self, track: &Track) {
        self.members(&track.0);
    }

    /// Writes members that are JSON already.
    #[inline]
    pub(super) fn members(&mut self, json: &str) {
        if !self.empty {
            self.out.put(",");
        }
        self.empty = false;
        self.out.put(json);
    }

    #[inline]
    pub(super) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_, 'a>)) {
        self.key(key);
        self.out.put("{");
        fill(&mut Object { out: self.out, empty: true });
        self.out.put("}");
    }

    #[inline]
    fn key(&mut self, key: &str) {
        self.out.put(if self.empty { "\"" } else { ",\"" });
        self.empty = false;
        self.out.put(key);
        self.out.put("\":");
    }
}
