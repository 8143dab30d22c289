//! Formatted output to files and stderr that does not use the heap.

use std::fmt;

/// A text buffer on the stack. Text that does not fit is cut off.
pub(crate) struct StackText {
    bytes: [u8; 1024],
    length: usize,
}

impl StackText {
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

impl fmt::Write for StackText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        for (to, from) in room.iter_mut().zip(text.bytes()) {
            *to = from;
            self.length += 1;
        }
        Ok(())
    }
}

/// Prints a line to stderr, with the name of the simulator.
pub(crate) fn say(message: fmt::Arguments<'_>) {
    let mut line = StackText::new();
    let _ = fmt::write(&mut line, format_args!("memtrace-cusim: {message}\n"));
    write_all(libc::STDERR_FILENO, line.bytes());
}

/// Prints the reason and aborts, because a misconfigured simulator must not be mistaken for a working one.
pub(crate) fn give_up(message: fmt::Arguments<'_>) -> ! {
    say(message);
    // SAFETY: it takes no arguments.
    unsafe { libc::abort() }
}

pub(crate) fn write_all(file: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: it reads from a slice.
        let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written).ok().and_then(|written| bytes.get(written..)) {
            Some(rest) => bytes = rest,
            None => return,
        }
    }
}
