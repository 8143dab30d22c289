//! What to record, in PyTorch's words.

use crate::error::Error;
use crate::session::Session;
use crate::snapshot::{Action, Device, Enabled, Settings, StackContext, StackKind};
use crate::units::{MAX_STACK_DEPTH, parse_bytes};

/// Options of a recording; begin with [`builder`](crate::builder), end with [`start`](Builder::start).
///
/// The names are those of `torch.cuda.memory._record_memory_history` where it has them. One default
/// differs: `context` is [`StackContext::Alloc`] here and "all" there.
///
/// ```no_run
/// let session = memtrace::builder().max_entries(100_000).min_size("64 KiB").start()?;
/// # Ok::<(), memtrace::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing is recorded before `start`"]
pub struct Builder {
    settings: Settings,
    /// The first option that made no sense; told by `start`.
    wrong: Option<Error>,
}

impl Builder {
    /// How much is recorded: nothing, the live blocks, or the history as well (default).
    pub fn enabled(mut self, enabled: Enabled) -> Self {
        self.settings.enabled = enabled;
        self
    }

    /// Whose stacks are kept (default: of allocations).
    pub fn context(mut self, context: StackContext) -> Self {
        self.settings.context = context;
        self
    }

    /// Which frames are kept (default: Rust's).
    pub fn stacks(mut self, stacks: StackKind) -> Self {
        self.settings.stacks = stacks;
        self
    }

    /// How many records the log holds before it overwrites its oldest ones (default: 1,048,576, of
    /// 56 bytes each); entering and leaving scopes fills a second log of the same length. One record is one alloc or one free; in a PyTorch pickle a free becomes two
    /// entries. The peak and the counters stay exact whatever is overwritten.
    pub fn max_entries(mut self, records: usize) -> Self {
        self.settings.max_entries = records;
        self
    }

    /// CPU only: the smallest block that is recorded, as bytes or text like `"64 KiB"`; a power of
    /// two, or 0 for every block (default: 1 KiB). Smaller blocks are counted, without stacks, in a
    /// row of their own.
    ///
    /// The default leaves out about 70 % of the allocations of a candle training step, which hold
    /// less than 0.1 % of its memory.
    pub fn min_size(mut self, size: impl IntoBytes) -> Self {
        match size.into_bytes() {
            Ok(bytes) => self.settings.min_size = bytes,
            Err(error) => self.wrong = self.wrong.or(Some(error)),
        }
        self
    }

    /// How many frames are kept of a stack, 2 to 256 (default: 128). A deeper stack keeps its
    /// innermost and its outermost half.
    pub fn stack_depth(mut self, frames: usize) -> Self {
        self.settings.stack_depth = frames;
        self
    }

    /// Records this device only (default: all).
    pub fn device(mut self, device: Device) -> Self {
        self.settings.device = Some(device);
        self
    }

    /// Leaves log entries out (default: none). Counters and the peak are not affected; a log
    /// without frees or without allocs cannot be replayed, and viewers show it accordingly.
    pub fn skip_actions(mut self, actions: impl IntoIterator<Item = Action>) -> Self {
        self.settings.skip_actions = actions.into_iter().collect();
        self
    }

    /// Begins to record.
    ///
    /// # Errors
    /// If a session is under way already, or an option makes no sense; the message says what would.
    pub fn start(self) -> Result<Session, Error> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        check(&self.settings)?;
        Session::begin(&self.settings)
    }
}

fn check(settings: &Settings) -> Result<(), Error> {
    if settings.max_entries == 0 && settings.enabled == Enabled::All {
        return Err(Error::no_entries());
    }
    if settings.min_size != 0 && !settings.min_size.is_power_of_two() {
        return Err(Error::min_size(settings.min_size));
    }
    if !(2..=MAX_STACK_DEPTH).contains(&settings.stack_depth) {
        return Err(Error::stack_depth(settings.stack_depth));
    }
    Ok(())
}

/// A size: a number of bytes, or text like `"512 MiB"` as [`parse_bytes`] reads it.
pub trait IntoBytes {
    /// The number of bytes.
    ///
    /// # Errors
    /// If text cannot be read as a size.
    fn into_bytes(self) -> Result<u64, Error>;
}

macro_rules! number_of_bytes {
    ($($number:ty),*) => {$(
        impl IntoBytes for $number {
            fn into_bytes(self) -> Result<u64, Error> {
                u64::try_from(self).map_err(|_| Error::size(&self.to_string()))
            }
        }
    )*};
}
number_of_bytes!(u64, u32, usize, i32);

impl IntoBytes for &str {
    fn into_bytes(self) -> Result<u64, Error> {
        parse_bytes(self)
    }
}

impl IntoBytes for &String {
    fn into_bytes(self) -> Result<u64, Error> {
        parse_bytes(self)
    }
}

impl IntoBytes for crate::units::Bytes {
    fn into_bytes(self) -> Result<u64, Error> {
        Ok(self.0)
    }
}
