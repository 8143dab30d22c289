//! Environment variables `MEMTRACE_*`. They override what the code chose.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use memtrace_core::input::text_of;
use memtrace_core::snapshot::{Enabled, Settings, StackContext, StackKind};
use memtrace_core::units::parse_bytes;

use super::builder::SessionPlan;
use super::dumps::Dumps;
use super::signals::Signal;
use crate::error::Error;
use crate::record::unwind::StackCheck;
use crate::variable;

/// Whether the environment asks [`init`](super::init) to record: by `MEMTRACE`, or else by naming an output.
pub(super) fn asks() -> Result<bool, Error> {
    let mut said = None;
    set(&mut said, "MEMTRACE", ENABLED, |text| enabled(text).map(Some))?;
    Ok(said.map_or(text("MEMTRACE_OUT")?.is_some(), |enabled| enabled != Enabled::Off))
}

// Accepted values, for error messages.
const ENABLED: &str = "off, state or all";
const SIZE: &str = "a size such as 65536 or 64 KiB";
const TIME: &str = "a time such as 90 s, 30 min, 1 h or 2 d";
const FLAG: &str = "1 or 0";

/// The largest accepted file of rules, in bytes. The largest allowed set of rules takes less, even with comments.
const LONGEST_RULES: u64 = 1 << 20;

/// The documented variables, which the message about unknown ones lists.
const KNOWN: [&str; 18] = [
    "MEMTRACE",
    "MEMTRACE_OUT",
    "MEMTRACE_STREAM_BUDGET",
    "MEMTRACE_STREAM_TIME",
    "MEMTRACE_MIN_SIZE",
    "MEMTRACE_SAMPLE_INTERVAL",
    "MEMTRACE_SAMPLE_SEED",
    "MEMTRACE_MAX_ENTRIES",
    "MEMTRACE_CONTEXT",
    "MEMTRACE_STACKS",
    "MEMTRACE_CHECK_STACKS",
    "MEMTRACE_USES",
    "MEMTRACE_RULES",
    "MEMTRACE_DUMP_ON_OOM",
    "MEMTRACE_SIGNAL",
    "MEMTRACE_PEAKS",
    "MEMTRACE_SUMMARY",
    "MEMTRACE_UPDATE_BASELINES",
];

/// Variables of the tool, the tests, the simulated GPU and the runner. Names that end in `_` are prefixes.
const OTHERS: [&str; 16] = [
    "MEMTRACE_HYPERLINKS",
    "MEMTRACE_AUTOSTART",
    "MEMTRACE_RECORDINGS",
    "MEMTRACE_RUN",
    "MEMTRACE_BASELINES_USED",
    "MEMTRACE_GPU",
    "MEMTRACE_GPU_USED",
    "MEMTRACE_REQUIRE_GPU",
    "MEMTRACE_SIMULATED_GPU",
    "MEMTRACE_CUSIM_",
    "MEMTRACE_TEST_",
    "MEMTRACE_CASES",
    "MEMTRACE_UPDATE_GOLDENS",
    "MEMTRACE_SNAPSHOT_CHECK",
    "MEMTRACE_PYTORCH_SNAPSHOTS",
    "MEMTRACE_FUZZ_SECONDS",
];

/// A message that lists unknown `MEMTRACE…` variables, which are probably typing errors. It is made once for each
/// process.
pub(super) fn misspelt() -> Option<String> {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if variable::is_privileged() || ASKED.swap(true, Ordering::Relaxed) {
        return None;
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let wrong: Vec<String> = names.filter(|name| name.starts_with("MEMTRACE") && !is_known(name)).collect();
    (!wrong.is_empty()).then(|| format!("unknown variables {}; memtrace reads {}", wrong.join(", "), KNOWN.join(", ")))
}

fn is_known(name: &str) -> bool {
    KNOWN.contains(&name)
        || OTHERS.iter().any(|known| name == *known || known.ends_with('_') && name.starts_with(known))
}

/// Overrides the plan with the variables that are set.
pub(super) fn apply(plan: &mut SessionPlan) -> Result<(), Error> {
    let settings = &mut plan.settings;
    set(&mut settings.enabled, "MEMTRACE", ENABLED, enabled)?;
    set(&mut settings.stacks, "MEMTRACE_STACKS", "rust or all", stacks)?;
    set(&mut settings.context, "MEMTRACE_CONTEXT", "none, state, alloc or all", context)?;
    set(&mut settings.max_entries, "MEMTRACE_MAX_ENTRIES", "a number of records", |text| text.parse().ok())?;
    plan.min_size_is_set |= text("MEMTRACE_MIN_SIZE")?.is_some();
    set(&mut settings.min_size, "MEMTRACE_MIN_SIZE", SIZE, size)?;
    set(&mut settings.sample_interval, "MEMTRACE_SAMPLE_INTERVAL", SIZE, |text| size(text).map(NonZeroU64::new))?;
    set(&mut plan.sample_seed, "MEMTRACE_SAMPLE_SEED", "a number", |text| text.parse().ok())?;
    if let Some(file) = text("MEMTRACE_RULES")? {
        add_rules(settings, Path::new(&file))?;
    }
    set(&mut plan.dumps.on_oom, "MEMTRACE_DUMP_ON_OOM", FLAG, |text| flag(text).map(Some))?;
    set(&mut settings.uses, "MEMTRACE_USES", FLAG, flag)?;
    set(&mut plan.check_stacks, "MEMTRACE_CHECK_STACKS", "1, 0 or abort", stack_check)?;
    if let Some(signal) = text("MEMTRACE_SIGNAL")? {
        plan.dumps.signal = Some(signal.parse::<Signal>()?.number()?);
    }
    if let Some(out) = text("MEMTRACE_OUT")? {
        plan.output(&out);
    }
    set(&mut plan.stream_limits.bytes, "MEMTRACE_STREAM_BUDGET", SIZE, |text| size(text).map(Some))?;
    set(&mut plan.stream_limits.time, "MEMTRACE_STREAM_TIME", TIME, |text| time(text).map(Some))?;
    if plan.settings.enabled == Enabled::Off {
        plan.stream = None;
        plan.dumps = Dumps::default();
    }
    Ok(())
}

fn text(name: &str) -> Result<Option<String>, Error> {
    let refused = |value: OsString| wrong(name, &value.to_string_lossy(), "UTF-8 text");
    variable::value(name).map(OsString::into_string).transpose().map_err(refused)
}

fn wrong(name: &str, value: &str, accepted: &str) -> Error {
    Error::wrong(format!("{name} is {value:?}; it takes {accepted}"))
}

/// Stores a variable's value if the variable is set. Values other than `accepted` are errors.
fn set<T>(slot: &mut T, name: &str, accepted: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<(), Error> {
    if let Some(value) = text(name)? {
        *slot = read(&value).ok_or_else(|| wrong(name, &value, accepted))?;
    }
    Ok(())
}

fn one_of<T: Copy>(text: &str, values: &[(&str, T)]) -> Option<T> {
    values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

fn enabled(text: &str) -> Option<Enabled> {
    let by_name = one_of(text, &[("state", Enabled::State), ("all", Enabled::All)]);
    by_name.or_else(|| flag(text).map(|on| if on { Enabled::All } else { Enabled::Off }))
}

fn stacks(text: &str) -> Option<StackKind> {
    one_of(text, &[("rust", StackKind::Rust), ("all", StackKind::All)])
}

fn stack_check(text: &str) -> Option<StackCheck> {
    let of_flag = |on| if on { StackCheck::Count } else { StackCheck::Off };
    one_of(text, &[("abort", StackCheck::Abort)]).or_else(|| flag(text).map(of_flag))
}

fn context(text: &str) -> Option<StackContext> {
    use StackContext as C;
    one_of(text, &[("none", C::None), ("state", C::State), ("alloc", C::Alloc), ("all", C::All)])
}

fn size(text: &str) -> Option<u64> {
    parse_bytes(text).ok()
}

/// Parses a time such as `90 s`, `30min`, `1 h` or `2 d`.
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let seconds = one_of(unit.trim(), &[("s", 1), ("min", 60), ("h", 3600), ("d", 86_400)])?;
    number.parse::<u64>().ok()?.checked_mul(seconds).filter(|time| *time > 0).map(Duration::from_secs)
}

fn flag(text: &str) -> Option<bool> {
    one_of(text, &[("0", false), ("off", false), ("false", false), ("1", true), ("on", true), ("true", true)])
}

/// Error messages do not quote the file, because the user who named it may not be allowed to read it.
fn add_rules(settings: &mut Settings, file: &Path) -> Result<(), Error> {
    let lines = text_of(file, LONGEST_RULES).map_err(|error| Error::input(file, error))?;
    Ok(settings.rules.add_file(file, &lines)?)
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

    /// A user who sets one of these for the tool also sets it for the programs that the tool records.
    #[test]
    #[cfg(not(miri))]
    fn every_variable_of_the_recipes_is_known() {
        // The published package has no recipes.
        let Ok(page) = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/recipes.md")) else { return };
        let after = page.match_indices("MEMTRACE_").map(|(at, _)| &page[at..]);
        let name = |text: &str| text.chars().take_while(|char| char.is_ascii_uppercase() || *char == '_').collect();
        let names: Vec<String> = after.map(name).collect();
        let unknown: Vec<&String> = names.iter().filter(|name| !is_known(name)).collect();
        assert!(names.len() >= 5 && unknown.is_empty(), "{unknown:?} of {names:?}");
    }

    #[test]
    fn times_have_a_number_and_a_unit() {
        let seconds = |text: &str| time(text).map(|time| time.as_secs());
        let read = ["90 s", "30min", " 1 h ", "2 d"].map(seconds);
        assert_eq!(read, [Some(90), Some(1800), Some(3600), Some(172_800)]);
        for wrong in ["", "s", "90", "0 s", "1.5 h", "-1 h", "1 hour", "99999999999999999999 s", "999999999999999999 d"]
        {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
