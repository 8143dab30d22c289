//! Lines to files and to stderr, without the heap.

use std::fmt;

/// Text on the stack; what does not fit is cut.
pub(crate) struct Line {
    bytes: [u8; 1024],
    length: usize,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; 1024], length: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        for (to, from) in room.iter_mut().zip(text.bytes()) {
            *to = from;
            self.length += 1;
        }
        Ok(())
    }
}

/// A line on stderr that says who says it.
pub(crate) fn say(message: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = fmt::write(&mut line, format_args!("memtrace-cusim: {message}\n"));
    write_all(libc::STDERR_FILENO, line.bytes());
}

/// Says why, and ends the process: a simulator that is set up wrongly must not be taken for one that works.
pub(crate) fn give_up(message: fmt::Arguments<'_>) -> ! {
    say(message);
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

pub(crate) fn write_all(file: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: reads from a slice.
        let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written).ok().and_then(|written| bytes.get(written..)) {
            Some(rest) => bytes = rest,
            None => return,
        }
    }
}
