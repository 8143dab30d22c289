//! What long work says on a terminal while it goes on: nothing within the first half second, nothing
//! where the standard error is no terminal, and nothing is left of it at the end.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work that is done in less is not worth a line.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) struct Progress {
    what: String,
    /// How much there is to do, if that is known; else bytes are counted.
    total: Option<u64>,
    done: u64,
    began: Instant,
    bar: Option<ProgressBar>,
    silent: bool,
}

impl Progress {
    /// Counts up to `total` things.
    pub(super) fn of(what: &str, total: u64) -> Self {
        let mut progress = Self::bytes(what);
        progress.total = Some(total);
        progress
    }

    /// Counts bytes.
    pub(super) fn bytes(what: &str) -> Self {
        let silent = !io::stderr().is_terminal();
        Self { what: what.to_owned(), total: None, done: 0, began: Instant::now(), bar: None, silent }
    }

    pub(super) fn add(&mut self, amount: u64) {
        self.done += amount;
        if self.silent || (self.bar.is_none() && self.began.elapsed() < PATIENCE) {
            return;
        }
        let (what, total) = (&self.what, self.total);
        self.bar.get_or_insert_with(|| bar(what, total)).set_position(self.done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "memtrace: {msg} {bar:30} {human_pos} of {human_len}, {eta} left"),
        None => (ProgressBar::new_spinner(), "memtrace: {msg} {spinner} {binary_bytes} in {elapsed}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(what.to_owned())
}

/// Counts what goes through it.
pub(super) struct Counting<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) progress: Progress,
}

impl Write for Counting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.progress.add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_templates_are_understood() {
        for total in [Some(7), None] {
            bar("writing", total).set_position(3);
        }
        assert!(
            ProgressStyle::with_template("memtrace: {msg} {bar:30} {human_pos} of {human_len}, {eta} left").is_ok()
        );
        assert!(ProgressStyle::with_template("memtrace: {msg} {spinner} {binary_bytes} in {elapsed}").is_ok());
    }

    #[test]
    fn everything_goes_through() {
        let mut out = Vec::new();
        let mut counting = Counting { out: &mut out, progress: Progress::bytes("writing") };
        counting.write_all(b"0123456789").unwrap();
        assert_eq!(counting.progress.done, 10);
        drop(counting);
        assert_eq!(out, b"0123456789");
    }
}
