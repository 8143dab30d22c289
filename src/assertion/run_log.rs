//! List of all peaks of a test run: as JSON (`MEMTRACE_PEAKS`) and as a Markdown table (`MEMTRACE_SUMMARY`).
//!
//! Tests of any number of processes add their rows under a lock. A row replaces an older one with the same key.

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use memtrace_core::export::{file, markdown_code, markdown_text};
use memtrace_core::units::{Bytes, grouped};
use serde_json::{Value, json};

use super::baseline_file::{lock, text_of};
use super::measure::{Measured, MeasuredDevice};
use crate::error::Error;
use crate::session::say;
use crate::variable;
use crate::write_errors;

/// The outcome of one peak assertion.
#[derive(Debug)]
pub(super) struct PeakRow<'a> {
    pub(super) name: &'a str,
    pub(super) on: &'a MeasuredDevice,
    pub(super) limit: Option<u64>,
    pub(super) baseline: Option<u64>,
    pub(super) measured: &'a Measured,
    pub(super) passed: bool,
}

const FILES: [&str; 2] = ["MEMTRACE_PEAKS", "MEMTRACE_SUMMARY"];

/// Adds a row to the files, if the variables are set. Errors are reported on stderr.
pub(super) fn note(row: PeakRow<'_>) {
    if FILES.iter().all(|variable| variable::value(variable).is_none()) {
        return;
    }
    let row = value(&row);
    let adders = [add_json as fn(&Path, &Value) -> _, add_markdown];
    for (variable, add) in FILES.into_iter().zip(adders) {
        let Some(path) = variable::value(variable).map(PathBuf::from) else { continue };
        let added: Result<(), Error> = lock(&path).and_then(|_lock| add(&path, &row));
        if let Err(error) = added {
            say(&format!("{variable}: {error}"));
        }
    }
}

fn value(row: &PeakRow<'_>) -> Value {
    let program = env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    let program = program.unwrap_or_default();
    // Cargo adds a hash to a test program's name.
    let is_hash = |end: &&str| end.len() == 16 && end.bytes().all(|byte| byte.is_ascii_hexdigit());
    let program = program.rsplit_once('-').filter(|(_, end)| is_hash(end)).map_or(program.as_str(), |(name, _)| name);
    let (on, unattributed) = (row.on, row.measured.unattributed);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    json!({
        "package": env::var("CARGO_PKG_NAME").ok(),
        "program": program,
        "test": test,
        "name": numbered(test, row.name, on),
        "device": on.device.to_string(),
        "peak": on.peak,
        "net": on.net,
        "allocated": on.allocated,
        "allocations": on.allocations,
        "limit": row.limit,
        "baseline": row.baseline,
        "passed": row.passed,
        "unattributed": unattributed.bytes,
        "unattributed_of_pools": unattributed.pool_bytes,
        "gpu": variable::value("MEMTRACE_GPU_USED").map(|used| used.to_string_lossy().into_owned()),
    })
}

/// The key of a row.
const KEY: [&str; 5] = ["package", "program", "test", "name", "device"];

/// The name, with a number if it occurs repeatedly in this test of this process.
fn numbered(test: &str, name: &str, on: &MeasuredDevice) -> String {
    static SEEN: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = seen.get_or_insert_default().entry(format!("{test}\n{name}\n{}", on.device)).or_default();
    *count += 1;
    if *count == 1 { name.to_owned() } else { format!("{name} #{count}") }
}

fn add_json(path: &Path, row: &Value) -> Result<(), Error> {
    let old = text_of(path)?;
    let old = if old.trim().is_empty() { "[]" } else { &old };
    let mut rows: Vec<Value> = serde_json::from_str(old).map_err(|error| not_a_list(path, &error))?;
    rows.retain(|other| KEY.iter().any(|key| other.get(key) != row.get(key)));
    rows.push(row.clone());
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    let _limit = write_errors::errors_only();
    Ok(file::replace(path, format!("[\n{}\n]\n", lines.join(",\n")).as_bytes())?)
}

/// The error quotes only the line number: the user who named the file may not be allowed to read it.
fn not_a_list(path: &Path, error: &serde_json::Error) -> Error {
    Error::input(path, io::Error::other(format!("line {} does not fit a JSON list of peaks", error.line())))
}

const BEGIN: &str = "<!-- memtrace: peaks -->";
const END: &str = "<!-- memtrace: end of peaks -->";
const HEAD: &str =
    "### Memory\n\n| | Peak | Limit | Baseline | Device | Test | Measured |\n|---|--:|--:|--:|---|---|---|";

/// Adds a row to memtrace's table in a file that others write to as well.
fn add_markdown(path: &Path, row: &Value) -> Result<(), Error> {
    let old = text_of(path)?;
    let mut text = old.clone();
    let end_after = |begin: usize| text.get(begin..).and_then(|rest| rest.find(END)).map(|at| (begin, begin + at));
    let section = text.find(BEGIN).and_then(end_after);
    let (begin, end) = section.unwrap_or_else(|| {
        let begin = text.len();
        text.push_str(&format!("\n{BEGIN}\n{HEAD}\n{END}\n"));
        (begin, text.rfind(END).unwrap_or(begin))
    });
    let line = markdown(row);
    let cells = |line: &str| line.rsplitn(4, " | ").take(3).map(str::to_owned).collect::<Vec<_>>();
    let kept = text.get(begin..end).unwrap_or_default().lines().filter(|old| cells(old) != cells(&line));
    let kept: Vec<&str> = kept.collect();
    let new = format!("{}\n{line}\n", kept.join("\n"));
    text.replace_range(begin..end, &new);
    let _limit = write_errors::errors_only();
    change_in_place(path, old.as_bytes(), text.as_bytes()).map_err(|error| Error::output(path, error))
}

/// Changes a file in place, from the first byte that differs. The file is not replaced by renaming, because a program
/// that reads it may hold it open. The bytes that make it longer are written first, so a file on a full disk stays as
/// it was.
fn change_in_place(path: &Path, old: &[u8], new: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(false).open(path)?;
    let from = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let both = old.len().min(new.len());
    let written = put(&mut file, both, &new[both..]).and_then(|()| put(&mut file, from, &new[from..both]));
    if written.is_err() {
        let _ = put(&mut file, from, &old[from..]);
    }
    file.set_len(if written.is_ok() { new.len() } else { old.len() } as u64)?;
    written
}

fn put(file: &mut File, at: usize, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at as u64))?;
    file.write_all(bytes)
}

fn markdown(row: &Value) -> String {
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    let bytes = |key: &str| row.get(key).and_then(Value::as_u64).map_or("-".to_owned(), |n| Bytes(n).to_string());
    let passed = row.get("passed") == Some(&Value::Bool(true));
    let peak = row.get("peak").and_then(Value::as_u64).unwrap_or(0);
    let of_pools = row.get("unattributed_of_pools").and_then(Value::as_u64).filter(|n| *n > 0);
    let not_counted = of_pools.map_or(String::new(), |n| format!(" (not counted: {} of shared pools)", Bytes(n)));
    let gpu = row.get("gpu").and_then(Value::as_str).filter(|_| text("device").starts_with("cuda"));
    format!(
        "| {} | {} ({}){not_counted} | {} | {} | {}{} | {} | {} |",
        if passed { "✓" } else { "✗" },
        Bytes(peak),
        grouped(peak),
        bytes("limit"),
        bytes("baseline"),
        text("device"),
        gpu.map_or(String::new(), |gpu| format!(" ({})", markdown_text(gpu))),
        markdown_code(&format!("{}::{}", text("program"), text("test"))),
        markdown_code(text("name")),
    )
}
