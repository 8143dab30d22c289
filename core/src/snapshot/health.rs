//! What the recording missed or could not see. Zeros are good news.

use super::CudaHooks;

/// Counts of what was dropped and of what cannot be seen from where memtrace sits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Blocks that could not be entered into the ledger for lack of memory; they are in the row
    /// of what was not recorded.
    pub lost_blocks: u64,
    /// Stacks that were not kept because the stack table was full.
    pub lost_stacks: u64,
    /// How often a stack's middle frames were left out because it was deeper than `stack_depth`.
    pub shortened_stacks: u64,
    /// Stacks that libgcc's unwinder took a second time, with `MEMTRACE_CHECK_STACKS=1`.
    pub compared_stacks: u64,
    /// Those of them that memtrace's own unwinder had got wrong; libgcc's are in the records.
    pub wrong_stacks: u64,
    /// Allocations at an address that was still live: a free was missed in between.
    pub missed_frees: u64,
    /// Scopes that were not told apart because there were too many names or they nested too deep.
    pub lost_scopes: u64,
    /// memtrace's allocator was not installed in the program: its heap was not seen.
    pub no_allocator: bool,
    /// Functions have names but no source lines: the program was built without debug information.
    pub no_line_numbers: bool,
    /// Code addresses for which not even a function name was found.
    pub unknown_addresses: u64,
    /// Programs and libraries whose code addresses could not be given names, and why. Where a
    /// recording is symbolised in the process that made it, only of what was unloaded there.
    pub unreadable_modules: Vec<String>,
    /// The capture that this was read from ends without its end mark: the program was killed, or the
    /// file is a copy of one that is being written. What was flushed until then is here.
    pub cut_off: bool,
    /// Bytes at the end of the capture that were not read, because they are incomplete or damaged.
    pub unread_bytes: u64,
    /// Whether spans of `tracing` could become scopes.
    pub spans: Spans,
    /// Device memory that was freed and had not been recorded: it is from before the recording, or
    /// its allocation was not seen.
    pub unknown_frees: u64,
    /// Frees that the CUDA driver refused; what was to be freed is still live, if it ever was.
    pub refused_frees: u64,
    /// Whether CUDA memory could be seen.
    pub cuda: CudaHooks,
}

/// Whether spans of `tracing` could become scopes when the snapshot was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spans {
    /// `memtrace::layer()` was never installed: nobody asked for them.
    #[default]
    NoLayer,
    /// It was, and no filter on the whole subscriber keeps level TRACE from it.
    Heard,
    /// It was, and nobody hears of level TRACE, at which candle's models make their spans.
    Silenced,
}
