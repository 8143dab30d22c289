//! Whether a limit is met, and the exit code for several limits.

use crate::failure::CommandFailure;
use crate::output;

/// One limit, and whether it is met.
#[derive(Clone)]
pub(super) struct CheckOutcome {
    pub(super) verdict: CheckVerdict,
    pub(super) what: String,
    /// The peak, or the leaked bytes. Among ranks, the one with the most bytes is the worst.
    pub(super) bytes: u64,
}

/// Ordered so that the largest verdict of several is the verdict of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CheckVerdict {
    Holds,
    Undecided,
    Fails,
}

impl CheckVerdict {
    pub(super) fn is_met(self) -> Option<bool> {
        match self {
            Self::Holds => Some(true),
            Self::Fails => Some(false),
            Self::Undecided => None,
        }
    }
}

/// A line for each limit that is met.
pub(super) fn held(outcomes: &[CheckOutcome]) -> Vec<String> {
    let holds = outcomes.iter().filter(|outcome| outcome.verdict == CheckVerdict::Holds);
    holds.map(|outcome| format!("ok: {}", outcome.what)).collect()
}

/// The exit code, with the limits that are not met.
pub(super) fn verdict(outcomes: Vec<CheckOutcome>) -> Result<(), CommandFailure> {
    let (mut failed, mut undecided) = (Vec::new(), Vec::new());
    for CheckOutcome { verdict, what, .. } in outcomes {
        match verdict {
            CheckVerdict::Holds => {}
            CheckVerdict::Fails => failed.push(what),
            CheckVerdict::Undecided => undecided.push(what),
        }
    }
    match (failed.is_empty(), undecided.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(CommandFailure::Undecided(undecided)),
        (false, _) => {
            output::tell(undecided.iter().map(|what| format!("undecided: {what}")));
            Err(CommandFailure::Check(failed))
        }
    }
}
