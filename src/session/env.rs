//! `MEMTRACE_*`: what whoever runs a program says, over what its code says.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::builder::Plan;
use super::dump::Dumps;
use super::signals::signal_number;
use crate::error::Error;
use crate::snapshot::{Enabled, Settings, StackContext, StackKind};
use crate::units::parse_bytes;
use crate::variable;

/// Does `MEMTRACE` ask for a recording of a program that does not start one by itself?
pub(super) fn asks() -> Result<bool, Error> {
    Ok(text("MEMTRACE")?.map(|value| enabled(&value)).transpose()?.is_some_and(|enabled| enabled != Enabled::Off))
}

/// Puts the variables that are set over the plan.
pub(super) fn apply(plan: &mut Plan) -> Result<(), Error> {
    let settings = &mut plan.settings;
    set(&mut settings.enabled, "MEMTRACE", enabled)?;
    set(&mut settings.stacks, "MEMTRACE_STACKS", stacks)?;
    set(&mut settings.context, "MEMTRACE_CONTEXT", context)?;
    set(&mut settings.max_entries, "MEMTRACE_MAX_ENTRIES", number)?;
    plan.min_size_said |= text("MEMTRACE_MIN_SIZE")?.is_some();
    set(&mut settings.min_size, "MEMTRACE_MIN_SIZE", parse_bytes)?;
    set(&mut settings.sample_interval, "MEMTRACE_SAMPLE_INTERVAL", parse_bytes)?;
    set(&mut plan.sample_seed, "MEMTRACE_SAMPLE_SEED", seed)?;
    if let Some(file) = text("MEMTRACE_RULES")? {
        add_rules(settings, Path::new(&file))?;
    }
    set(&mut plan.dumps.on_oom, "MEMTRACE_DUMP_ON_OOM", |text| flag("MEMTRACE_DUMP_ON_OOM", text))?;
    set(&mut plan.check_stacks, "MEMTRACE_CHECK_STACKS", |text| flag("MEMTRACE_CHECK_STACKS", text))?;
    if let Some(signal) = text("MEMTRACE_SIGNAL")? {
        plan.dumps.signal = Some(signal_number(&signal)?);
    }
    if let Some(out) = text("MEMTRACE_OUT")? {
        plan.output(&out);
    }
    if plan.settings.enabled == Enabled::Off {
        (plan.stream, plan.dumps) = (None, Dumps::default());
    }
    Ok(())
}

/// A variable's text.
fn text(name: &str) -> Result<Option<String>, Error> {
    let wrong = |value: OsString| Error::variable(name, &value.to_string_lossy(), "UTF-8 text");
    variable::value(name).map(OsString::into_string).transpose().map_err(wrong)
}

fn set<T>(slot: &mut T, name: &str, read: fn(&str) -> Result<T, Error>) -> Result<(), Error> {
    if let Some(value) = text(name)? {
        *slot = read(&value)?;
    }
    Ok(())
}

fn enabled(text: &str) -> Result<Enabled, Error> {
    match text {
        "0" | "off" | "false" => Ok(Enabled::Off),
        "state" => Ok(Enabled::State),
        "1" | "on" | "true" | "all" => Ok(Enabled::All),
        _ => Err(Error::variable("MEMTRACE", text, "off, state or all")),
    }
}

fn stacks(text: &str) -> Result<StackKind, Error> {
    match text {
        "rust" => Ok(StackKind::Rust),
        "all" => Ok(StackKind::All),
        _ => Err(Error::variable("MEMTRACE_STACKS", text, "rust or all")),
    }
}

fn context(text: &str) -> Result<StackContext, Error> {
    match text {
        "none" => Ok(StackContext::None),
        "state" => Ok(StackContext::State),
        "alloc" => Ok(StackContext::Alloc),
        "all" => Ok(StackContext::All),
        _ => Err(Error::variable("MEMTRACE_CONTEXT", text, "none, state, alloc or all")),
    }
}

/// Nothing of the file is in a message: whoever named it may not be one who may read it.
fn add_rules(settings: &mut Settings, file: &Path) -> Result<(), Error> {
    let lines = fs::read_to_string(file).map_err(|error| Error::input(file, error))?;
    settings.rules.add_file(file, &lines)
}

fn number(text: &str) -> Result<usize, Error> {
    text.parse().map_err(|_| Error::variable("MEMTRACE_MAX_ENTRIES", text, "a number of records"))
}

fn seed(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| Error::variable("MEMTRACE_SAMPLE_SEED", text, "a number"))
}

fn flag(name: &str, text: &str) -> Result<bool, Error> {
    match text {
        "0" | "off" | "false" => Ok(false),
        "1" | "on" | "true" => Ok(true),
        _ => Err(Error::variable(name, text, "1 or 0")),
    }
}
