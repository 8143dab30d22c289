//! Limits of the unpickler: nesting depth, number of open marks, and memory in proportion to the input.

use std::borrow::Cow;
use std::fmt;

/// The deepest nesting of containers. A snapshot has about eight levels.
pub(super) const DEEPEST: u8 = 100;
/// The most MARK opcodes that are open at once.
pub(super) const MOST_MARKS: usize = 1000;
/// Memory that every pickle may use, however short it is.
const FREE: usize = 16 << 20;
/// Bytes of memory per byte of the pickle. Snapshots need two at most.
const FOR_ONE: usize = 4;

/// Why a pickle was refused, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::read) struct Refusal {
    /// The offset of the opcode.
    pub(in crate::read) offset: Option<usize>,
    pub(in crate::read) reason: Cow<'static, str>,
}

impl Refusal {
    pub(in crate::read) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { offset: None, reason: reason.into() }
    }

    /// Adds this offset, if the refusal has none yet.
    pub(super) fn at(self, offset: usize) -> Self {
        Self { offset: self.offset.or(Some(offset)), ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "at byte {offset}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// The memory that may still be used.
#[derive(Debug)]
pub(in crate::read) struct PickleBudget(usize);

impl PickleBudget {
    pub(in crate::read) fn of(length: usize) -> Self {
        Self(length.saturating_mul(FOR_ONE).saturating_add(FREE))
    }

    #[inline]
    pub(in crate::read) fn take(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.0 =
            self.0.checked_sub(bytes).ok_or_else(|| Refusal::new("it needs far more memory than its length allows"))?;
        Ok(())
    }

    #[inline]
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes);
    }

    pub(super) fn left(&self) -> usize {
        self.0
    }
}
