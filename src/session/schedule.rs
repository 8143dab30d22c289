//! When to record, by steps, as torch.profiler's `schedule` has it.

use crate::error::Error;
use crate::record::Leaves;

/// `wait` steps not recorded, `warmup` steps recorded and thrown away, `active` steps kept; `repeat`
/// times, 0 for as long as the session lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    wait: u64,
    warmup: u64,
    active: u64,
    repeat: u64,
}

impl Leaves for Schedule {}

/// What happens in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is recorded.
    Wait,
    /// It is recorded and thrown away.
    Warmup,
    /// It is recorded.
    Active,
    /// The same, and it is the last of its cycle.
    LastActive,
}

impl Schedule {
    pub(super) fn new(wait: u64, warmup: u64, active: u64, repeat: u64) -> Result<Self, Error> {
        let length = wait.checked_add(warmup).and_then(|sum| sum.checked_add(active));
        if active == 0 || length.is_none() {
            return Err(Error::wrong(
                "a schedule needs at least one active step in a cycle; give wait, warmup, active, repeat",
            ));
        }
        Ok(Self { wait, warmup, active, repeat })
    }

    /// The phase of a step, counted from 0.
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

/// What is to be done between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Goes on as it is.
    Nothing,
    /// Begins to record.
    On,
    /// Stops recording.
    Off,
    /// Begins the log anew; what is live stays known.
    Anew,
}

impl Turn {
    pub(super) fn between(before: Phase, after: Phase) -> Self {
        match (before, after) {
            (Phase::Wait, Phase::Wait) => Self::Nothing,
            (Phase::Wait, _) => Self::On,
            (_, Phase::Wait) => Self::Off,
            (Phase::Warmup, Phase::Active | Phase::LastActive) | (Phase::LastActive, _) => Self::Anew,
            _ => Self::Nothing,
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
    fn turns_between_phases() {
        use Phase::{Active, LastActive, Wait, Warmup};
        let cases = [
            (Wait, Warmup, Turn::On),
            (Wait, LastActive, Turn::On),
            (Warmup, Warmup, Turn::Nothing),
            (Warmup, Active, Turn::Anew),
            (Active, LastActive, Turn::Nothing),
            (LastActive, Wait, Turn::Off),
            (LastActive, LastActive, Turn::Anew),
            (LastActive, Warmup, Turn::Anew),
            (Wait, Wait, Turn::Nothing),
        ];
        cases.iter().for_each(|(before, after, turn)| assert_eq!(Turn::between(*before, *after), *turn));
    }
}
