//! The output table, printed row by row, so that a crash or a hang leaves the earlier results readable.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Holds,
    Fails,
    /// Information without a right or wrong.
    Info,
}

/// One row of the table. Further lines of the detail follow below it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    name: String,
    status: Status,
    detail: String,
}

impl Row {
    pub(crate) fn check(name: &str, holds: bool, detail: impl Into<String>) -> Self {
        let status = if holds { Status::Holds } else { Status::Fails };
        Self { name: name.to_owned(), status, detail: detail.into() }
    }

    pub(crate) fn info(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status: Status::Info, detail: detail.into() }
    }
}

/// The number of rows of each kind.
#[derive(Debug, Default)]
pub(crate) struct Table {
    holds: usize,
    fails: usize,
    infos: usize,
}

impl Table {
    pub(crate) fn begin() -> Self {
        print_line("name", "", "detail");
        Self::default()
    }

    pub(crate) fn add(&mut self, row: &Row) {
        let (count, word) = match row.status {
            Status::Holds => (&mut self.holds, "ok"),
            Status::Fails => (&mut self.fails, "FAIL"),
            Status::Info => (&mut self.infos, "info"),
        };
        *count += 1;
        let mut lines = row.detail.lines();
        print_line(&row.name, word, lines.next().unwrap_or_default());
        lines.for_each(|line| print_line("", "", line));
    }

    pub(crate) fn check(&mut self, name: &str, holds: bool, detail: impl Into<String>) {
        self.add(&Row::check(name, holds, detail));
    }

    pub(crate) fn info(&mut self, name: &str, detail: impl Into<String>) {
        self.add(&Row::info(name, detail));
    }

    /// Runs a group of rows. A panic or an error becomes a row, and the next group follows.
    pub(crate) fn section<E: std::fmt::Debug>(&mut self, name: &str, rows: impl FnOnce(&mut Self) -> Result<(), E>) {
        let failure = match catch_unwind(AssertUnwindSafe(|| rows(&mut *self))) {
            Ok(Ok(())) => return,
            Ok(Err(code)) => format!("{code:?}"),
            Err(panic) => message(&*panic),
        };
        if failure.contains("CUDA_ERROR_NOT_SUPPORTED") {
            self.info(name, "not supported (code 801)");
        } else {
            self.check(name, false, failure);
        }
    }

    /// Prints the totals. Returns whether nothing failed.
    pub(crate) fn end(&self) -> bool {
        println!("\n{} ok, {} FAIL, {} info", self.holds, self.fails, self.infos);
        self.fails == 0
    }
}

fn print_line(name: &str, word: &str, detail: &str) {
    println!("{}", format!("{name:<41} {word:<4}  {detail}").trim_end());
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
}
