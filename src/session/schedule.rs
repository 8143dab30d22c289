//! State machine of a scheduled recording, like torch.profiler's `schedule`.
//!
//! ```text
//!      Wait ──Start──► Warmup ──Restart──► Active … LastActive
//!       ▲                 ▲                              │  on_trace_ready
//!       │                 └──────────Restart─────────────┤
//!       └─────────────────────────────Stop───────────────┘
//! ```

use crate::error::Error;
use crate::record::Leaves;

/// In each cycle `wait` steps are not recorded, `warmup` steps are recorded and discarded, and `active` steps are kept.
/// There are `repeat` cycles; 0 repeats until the session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    wait: u64,
    warmup: u64,
    active: u64,
    repeat: u64,
}

impl Leaves for Schedule {}

/// The state of the recording during one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Wait,
    Warmup,
    Active,
    /// The last active step of its cycle.
    LastActive,
}

impl Schedule {
    pub(super) fn new(wait: u64, warmup: u64, active: u64, repeat: u64) -> Result<Self, Error> {
        let length = wait.checked_add(warmup).and_then(|sum| sum.checked_add(active));
        if active == 0 || length.is_none() {
            return Err(Error::wrong(
                "a schedule needs at least one active step in each cycle; give wait, warmup, active and repeat",
            ));
        }
        Ok(Self { wait, warmup, active, repeat })
    }

    /// The phase of a step; steps count from 0.
    pub(super) fn phase(self, step: u64) -> Phase {
        let length = self.wait + self.warmup + self.active;
        if self.repeat > 0 && step / length >= self.repeat {
            return Phase::Wait;
        }
        match step % length {
            at if at < self.wait => Phase::Wait,
            at if at < self.wait + self.warmup => Phase::Warmup,
            at if at + 1 < length => Phase::Active,
            _ => Phase::LastActive,
        }
    }
}

/// What the recording does between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    Stay,
    Start,
    Stop,
    /// Clears the log, counters and peak; live blocks stay known.
    Restart,
}

impl Transition {
    pub(super) fn between(before: Phase, after: Phase) -> Self {
        match (before, after) {
            (Phase::Wait, Phase::Wait) => Self::Stay,
            (Phase::Wait, _) => Self::Start,
            (_, Phase::Wait) => Self::Stop,
            (Phase::Warmup, Phase::Active | Phase::LastActive) | (Phase::LastActive, _) => Self::Restart,
            _ => Self::Stay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(schedule: Schedule, steps: u64) -> String {
        let letter = |phase| match phase {
            Phase::Wait => '.',
            Phase::Warmup => 'w',
            Phase::Active => 'A',
            Phase::LastActive => 'S',
        };
        (0..steps).map(|step| letter(schedule.phase(step))).collect()
    }

    #[test]
    fn phases_follow_each_other_as_in_torch_profiler() {
        let schedule = |wait, warmup, active, repeat| Schedule::new(wait, warmup, active, repeat).unwrap();
        assert_eq!(phases(schedule(1, 1, 2, 2), 11), ".wAS.wAS...");
        assert_eq!(phases(schedule(0, 0, 1, 0), 4), "SSSS");
        assert_eq!(phases(schedule(0, 1, 1, 1), 4), "wS..");
        assert_eq!(phases(schedule(2, 0, 3, 0), 10), "..AAS..AAS");
        assert!(Schedule::new(1, 1, 0, 0).is_err());
        assert!(Schedule::new(u64::MAX, 1, 1, 0).is_err());
    }

    #[test]
    fn transitions_between_phases() {
        use Phase::{Active, LastActive, Wait, Warmup};
        let cases = [
            (Wait, Warmup, Transition::Start),
            (Wait, LastActive, Transition::Start),
            (Warmup, Warmup, Transition::Stay),
            (Warmup, Active, Transition::Restart),
            (Active, LastActive, Transition::Stay),
            (LastActive, Wait, Transition::Stop),
            (LastActive, LastActive, Transition::Restart),
            (LastActive, Warmup, Transition::Restart),
            (Wait, Wait, Transition::Stay),
        ];
        cases
            .iter()
            .for_each(|(before, after, transition)| assert_eq!(Transition::between(*before, *after), *transition));
    }
}
