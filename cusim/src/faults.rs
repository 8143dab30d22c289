//! Fault injection: the script in `MEMTRACE_CUSIM_FAULTS`.
//!
//! ```text
//! script  = part { ";" part }
//! part    = action "@" call [when] | ( "slow@" | "late@" ) call ":" time | "reuse=immediate"
//! action  = "oom" | "fail" | "fail(" code ")"
//! call    = "init" | "alloc" | "free" | "event" | "stream" | "module" | "launch" | "copy" | "sync"
//! when    = ":" n            the n-th such call, from 1
//!         | ":" n "+"        the n-th and all after it
//!         | ">=" size        those of that many bytes or more (alloc, copy)
//! ```
//!
//! Without `when` every such call fails. `oom` returns 2, `fail` returns 999 (unknown error) or the given code.
//! `oom@size>=1GiB` means `oom@alloc>=1GiB`. `slow` delays a call before it does anything. `late` delays it after its
//! work, before it returns.

use std::time::Duration;

use crate::code::{Answer, Code, OUT_OF_MEMORY, UNKNOWN};
use crate::units::{bytes, duration};

/// Kinds of calls that can fail or be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum CallKind {
    Init,
    Alloc,
    Free,
    Event,
    Stream,
    Module,
    Launch,
    Copy,
    Sync,
}

const CALLS: usize = 9;

/// Which free addresses a new block gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// The least recently used ones.
    #[default]
    Late,
    /// The most recently freed ones.
    Immediate,
}

#[derive(Clone, Copy, Debug)]
enum When {
    Always,
    Nth(u64),
    From(u64),
    AtLeast(u64),
}

#[derive(Clone, Copy, Debug)]
enum FaultAction {
    Answer(Code),
    Sleep(Duration),
    Linger(Duration),
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    call: CallKind,
    when: When,
    action: FaultAction,
}

/// A fault script: at most 16 faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    faults: [Option<Fault>; 16],
    /// Which free addresses a new block gets.
    pub reuse: Reuse,
}

impl Faults {
    /// Parses a script; `None` if it is invalid or has too many faults.
    #[must_use]
    pub fn parse(script: &str) -> Option<Self> {
        let mut faults = Self::default();
        for part in script.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            if part == "reuse=immediate" {
                faults.reuse = Reuse::Immediate;
            } else {
                let free = faults.faults.iter_mut().find(|fault| fault.is_none())?;
                *free = Some(parse_fault(part)?);
            }
        }
        Some(faults)
    }

    /// How long calls of this kind wait before they do anything (`slow`).
    #[must_use]
    pub fn delay(&self, call: CallKind) -> Duration {
        self.of(call).map(|fault| if let FaultAction::Sleep(time) = fault.action { time } else { Duration::ZERO }).sum()
    }

    /// How long calls of this kind wait after their work (`late`).
    #[must_use]
    pub fn lateness(&self, call: CallKind) -> Duration {
        self.of(call)
            .map(|fault| if let FaultAction::Linger(time) = fault.action { time } else { Duration::ZERO })
            .sum()
    }

    fn of(&self, call: CallKind) -> impl Iterator<Item = &Fault> {
        self.faults.iter().flatten().filter(move |fault| fault.call == call)
    }

    fn answer(&self, call: CallKind, number: u64, size: u64) -> Answer {
        let failure = |fault: &Fault| match fault.action {
            FaultAction::Answer(code) => Some(code),
            FaultAction::Sleep(_) | FaultAction::Linger(_) => None,
        };
        self.of(call).filter(|fault| fault.when.holds(number, size)).find_map(failure).map_or(Ok(()), Err)
    }
}

impl When {
    fn holds(self, number: u64, size: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(nth) => number == nth,
            Self::From(nth) => number >= nth,
            Self::AtLeast(least) => size >= least,
        }
    }
}

/// Counts calls and decides which of them fail.
#[derive(Debug, Default)]
pub(crate) struct Script {
    faults: Faults,
    counts: [u64; CALLS],
}

impl Script {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    /// Counts a call. `size` is 0 for calls without a size.
    pub(crate) fn check(&mut self, call: CallKind, size: u64) -> Answer {
        let count = &mut self.counts[call as usize];
        *count += 1;
        self.faults.answer(call, *count, size)
    }
}

fn parse_fault(part: &str) -> Option<Fault> {
    let (action, rest) = part.split_once('@')?;
    let end = rest.find([':', '>']).unwrap_or(rest.len());
    let (call, when) = rest.split_at_checked(end)?;
    let call = parse_call(call.trim())?;
    if let "slow" | "late" = action {
        let time = duration(when.strip_prefix(':')?)?;
        let action = if action == "slow" { FaultAction::Sleep(time) } else { FaultAction::Linger(time) };
        return Some(Fault { call, when: When::Always, action });
    }
    Some(Fault { call, when: parse_when(when)?, action: FaultAction::Answer(parse_code(action)?) })
}

fn parse_code(action: &str) -> Option<Code> {
    match action {
        "oom" => Some(OUT_OF_MEMORY),
        "fail" => Some(UNKNOWN),
        _ => action.strip_prefix("fail(")?.strip_suffix(')')?.parse().ok().filter(|code| *code != 0),
    }
}

fn parse_when(text: &str) -> Option<When> {
    if text.is_empty() {
        return Some(When::Always);
    }
    if let Some(size) = text.strip_prefix(">=") {
        return bytes(size).map(When::AtLeast);
    }
    let number = text.strip_prefix(':')?;
    match number.strip_suffix('+') {
        Some(number) => number.parse().ok().map(When::From),
        None => number.parse().ok().map(When::Nth),
    }
}

fn parse_call(name: &str) -> Option<CallKind> {
    Some(match name {
        "init" => CallKind::Init,
        "alloc" | "size" => CallKind::Alloc,
        "free" => CallKind::Free,
        "event" => CallKind::Event,
        "stream" => CallKind::Stream,
        "module" => CallKind::Module,
        "launch" => CallKind::Launch,
        "copy" => CallKind::Copy,
        "sync" => CallKind::Sync,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(script: &str, call: CallKind, sizes: &[u64]) -> Vec<Code> {
        let mut script = Script::new(Faults::parse(script).unwrap());
        sizes.iter().map(|size| script.check(call, *size).err().unwrap_or(0)).collect()
    }

    #[test]
    fn the_nth_call_fails() {
        assert_eq!(answers("oom@alloc:2", CallKind::Alloc, &[1, 1, 1]), [0, 2, 0]);
        assert_eq!(answers("fail(700)@free:2+", CallKind::Free, &[0, 0, 0]), [0, 700, 700]);
        assert_eq!(answers("fail@init", CallKind::Init, &[0, 0]), [999, 999]);
    }

    #[test]
    fn sizes_decide() {
        assert_eq!(answers("oom@size>=1KiB", CallKind::Alloc, &[1023, 1024, 1025]), [0, 2, 2]);
    }

    #[test]
    fn a_script_has_several_parts() {
        let faults = Faults::parse("slow@alloc:5ms; reuse=immediate; slow@alloc:1us; late@alloc:2ms").unwrap();
        assert_eq!(faults.delay(CallKind::Alloc), Duration::from_micros(5001));
        assert_eq!(faults.lateness(CallKind::Alloc), Duration::from_millis(2));
        assert_eq!((faults.delay(CallKind::Free), faults.lateness(CallKind::Free)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(faults.reuse, Reuse::Immediate);
    }

    #[test]
    fn nonsense_is_refused() {
        for script in [
            "oom",
            "oom@",
            "oom@lunch:1",
            "slow@alloc",
            "late@alloc",
            "fail(0)@free",
            "oom@alloc:x",
            "oom@alloc>=1GB",
            "reuse=never",
        ] {
            assert!(Faults::parse(script).is_none(), "{script}");
        }
    }
}
