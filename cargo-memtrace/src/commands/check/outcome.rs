//! Whether a limit holds, and the exit code of several.

use crate::failure::CommandFailure;
use crate::output;

/// One limit and whether it holds.
#[derive(Clone)]
pub(super) struct CheckOutcome {
    pub(super) verdict: CheckVerdict,
    pub(super) what: String,
    /// The peak, or what leaks: of several ranks the one with the most is the worst.
    pub(super) bytes: u64,
}

/// In the order in which several become one: what fails is more than what is undecided.
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

/// A line for each limit that holds.
pub(super) fn held(outcomes: &[CheckOutcome]) -> Vec<String> {
    let holds = outcomes.iter().filter(|outcome| outcome.verdict == CheckVerdict::Holds);
    holds.map(|outcome| format!("ok: {}", outcome.what)).collect()
}

/// The exit code, with what does not hold.
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
