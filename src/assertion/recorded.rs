//! Assertions that record the whole process while their code runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::failure::Failure;
use crate::session::{Builder, Session, Snapshot, builder};

/// True while an assertion records. Other assertions wait until it is false.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The recording of an assertion.
#[doc(hidden)]
#[derive(Debug)]
pub struct OpenRecording {
    /// This is dropped before `_turn`: the session ends before the next assertion records.
    session: Session,
    _turn: AssertionTurn,
}

#[derive(Debug)]
struct AssertionTurn;

impl AssertionTurn {
    fn wait() -> Self {
        while TAKEN.swap(true, Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self
    }
}

impl Drop for AssertionTurn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

impl OpenRecording {
    /// Begins to record, as soon as no other assertion records.
    pub(super) fn begin(settings: impl FnOnce(Builder) -> Builder) -> Result<Self, Failure> {
        let turn = AssertionTurn::wait();
        let session = settings(builder().max_entries(1 << 20)).start()?;
        Ok(Self { session, _turn: turn })
    }

    /// What was recorded.
    pub(super) fn end(self) -> Snapshot {
        self.session.snapshot()
    }
}
