//! `MEMTRACE_*`: what whoever runs a program says, over what its code says.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::builder::Plan;
use super::dumps::Dumps;
use super::signals::signal_number;
use crate::error::Error;
use crate::snapshot::{Enabled, Settings, StackContext, StackKind};
use crate::units::parse_bytes;
use crate::variable;

/// Does the environment ask for a recording of a program that does not start one by itself? A place for it is enough.
pub(super) fn asks() -> Result<bool, Error> {
    let said = text("MEMTRACE")?.map(|value| enabled(&value)).transpose()?;
    Ok(said.map_or(text("MEMTRACE_OUT")?.is_some(), |enabled| enabled != Enabled::Off))
}

/// Those that the documentation has.
const KNOWN: [&str; 15] = [
    "MEMTRACE",
    "MEMTRACE_OUT",
    "MEMTRACE_MIN_SIZE",
    "MEMTRACE_SAMPLE_INTERVAL",
    "MEMTRACE_SAMPLE_SEED",
    "MEMTRACE_MAX_ENTRIES",
    "MEMTRACE_CONTEXT",
    "MEMTRACE_STACKS",
    "MEMTRACE_CHECK_STACKS",
    "MEMTRACE_RULES",
    "MEMTRACE_DUMP_ON_OOM",
    "MEMTRACE_SIGNAL",
    "MEMTRACE_PEAKS",
    "MEMTRACE_SUMMARY",
    "MEMTRACE_UPDATE_BASELINES",
];

/// Those of tests, of simulated GPUs and of memtrace's own making.
const OTHERS: [&str; 10] = [
    "MEMTRACE_GPU",
    "MEMTRACE_GPU_USED",
    "MEMTRACE_REQUIRE_GPU",
    "MEMTRACE_SIMULATED_GPU",
    "MEMTRACE_CUSIM_",
    "MEMTRACE_TEST_",
    "MEMTRACE_CASES",
    "MEMTRACE_UPDATE_GOLDENS",
    "MEMTRACE_SNAPSHOT_CHECK",
    "MEMTRACE_FUZZ_SECONDS",
];

/// Names that begin like memtrace's variables and are none: somebody meant another. Once for a process.
pub(super) fn misspelt() -> Option<String> {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if variable::has_others_rights() || ASKED.swap(true, Ordering::Relaxed) {
        return None;
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_known = |name: &str| {
        KNOWN.contains(&name)
            || OTHERS.iter().any(|known| name == *known || known.ends_with('_') && name.starts_with(known))
    };
    let wrong: Vec<String> = names.filter(|name| name.starts_with("MEMTRACE") && !is_known(name)).collect();
    (!wrong.is_empty()).then(|| format!("nothing reads {}; there are {}", wrong.join(", "), KNOWN.join(", ")))
}

/// Puts the variables that are set over the plan.
pub(super) fn apply(plan: &mut Plan) -> Result<(), Error> {
    let settings = &mut plan.settings;
    set(&mut settings.enabled, "MEMTRACE", enabled)?;
    set(&mut settings.stacks, "MEMTRACE_STACKS", stacks)?;
    set(&mut settings.context, "MEMTRACE_CONTEXT", context)?;
    set(&mut settings.max_entries, "MEMTRACE_MAX_ENTRIES", number)?;
    plan.min_size_said |= text("MEMTRACE_MIN_SIZE")?.is_some();
    set(&mut settings.min_size, "MEMTRACE_MIN_SIZE", |text| size("MEMTRACE_MIN_SIZE", text))?;
    let interval = |text: &str| size("MEMTRACE_SAMPLE_INTERVAL", text);
    set(&mut settings.sample_interval, "MEMTRACE_SAMPLE_INTERVAL", interval)?;
    set(&mut plan.sample_seed, "MEMTRACE_SAMPLE_SEED", seed)?;
    if let Some(file) = text("MEMTRACE_RULES")? {
        add_rules(settings, Path::new(&file))?;
    }
    set(&mut plan.dumps.on_oom, "MEMTRACE_DUMP_ON_OOM", |text| flag("MEMTRACE_DUMP_ON_OOM", text).map(Some))?;
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

fn set<T>(slot: &mut T, name: &str, read: impl FnOnce(&str) -> Result<T, Error>) -> Result<(), Error> {
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
    Ok(settings.rules.add_file(file, &lines)?)
}

fn number(text: &str) -> Result<usize, Error> {
    text.parse().map_err(|_| Error::variable("MEMTRACE_MAX_ENTRIES", text, "a number of records"))
}

fn size(name: &str, text: &str) -> Result<u64, Error> {
    parse_bytes(text).map_err(|_| Error::variable(name, text, "a size such as 65536 or 64 KiB"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_of_the_documentation_is_known() {
        let table = include_str!("../lib.rs").lines().filter_map(|line| line.strip_prefix("//! | `MEMTRACE"));
        let names: Vec<String> =
            table.filter_map(|row| Some(format!("MEMTRACE{}", row.split(['`', '=']).next()?))).collect();
        let unknown: Vec<&String> = names.iter().filter(|name| !KNOWN.contains(&name.as_str())).collect();
        assert!(names.len() > 10 && unknown.is_empty(), "{unknown:?} of {names:?}");
    }
}
