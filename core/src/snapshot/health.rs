//! Health counters: what a recording dropped, or could not see. In a complete recording all are 0, except
//! `compared_stacks`.

use super::CudaHooks;
use crate::units::grouped;

/// Declares [`Health`], with a row for each counter: what it counts, its name, and the note that a report prints if the
/// counter is above 0. Captures and JSON list the counters in this order.
macro_rules! counters {
    ($($(#[$what:meta])* $name:ident $(=> $note:literal)?;)*) => {
        /// What the recording dropped or could not see.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Health {
            $($(#[$what])* pub $name: u64,)*
            /// memtrace's allocator was not installed: the heap was not seen.
            pub no_allocator: bool,
            /// Functions have names but no source lines: the program was built without debug information.
            pub no_line_numbers: bool,
            /// Loaded objects that could not be symbolised, with the reasons. In a snapshot of the running process
            /// these are only objects that were unloaded.
            pub unreadable_objects: Vec<String>,
            /// The capture has no end mark: the program was killed, or the capture was copied while it was written. The
            /// recording is complete up to the last commit.
            pub cut_off: bool,
            /// For a recording read from another program's file: what the file does not contain, in sentences.
            pub import_notes: Vec<String>,
            /// Whether spans of `tracing` could become scopes.
            pub spans: Spans,
            /// Whether CUDA memory could be seen.
            pub cuda: CudaHooks,
        }

        impl Health {
            /// Each counter with its name.
            pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Each counter, mutable.
            pub(crate) fn counters_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(&mut self.$name),*].into_iter()
            }

            /// A sentence for each counter above 0 that has a note.
            pub fn notes(&self) -> Vec<String> {
                let said = [$($((self.$name, $note),)?)*];
                said.into_iter().filter(|(n, _)| *n > 0).map(|(n, note)| format!("{} {note}", grouped(n))).collect()
            }
        }
    };
}

counters! {
    /// Blocks that did not fit into the ledger for lack of memory. They count as not recorded.
lost_blocks => "blocks were not recorded for lack of memory; they count as allocated before recording";
    /// Stacks that were dropped because the stack table was full.
    lost_stacks => "stacks were not kept: the stack table is full";
    /// Stacks deeper than `stack_depth`, whose middle frames were left out.
    shortened_stacks;
    /// Stacks that libgcc's unwinder captured as well, for comparison (`MEMTRACE_CHECK_STACKS=1`).
    compared_stacks;
    /// Compared stacks that memtrace's unwinder got wrong. The records have libgcc's stacks.
wrong_stacks => "stacks were wrong and were replaced by libgcc's; please report this";
    /// Allocations at an address where a block still seemed live: the free of that block was missed.
    missed_frees => "frees were missed: an address was allocated again while its block seemed live";
    /// Scopes counted as part of their parents, because there were too many names or they nested too deep.
lost_scopes => "scopes count as part of their parents: too many names, or nested too deep";
    /// Code addresses for which not even a function name was found.
    unknown_addresses;
    /// Bytes at the end of the capture that are incomplete or damaged and were not read.
    unread_bytes;
    /// Frees of device memory whose allocation was before the recording, or was not seen.
unknown_frees => "frees were of device memory from before the recording, or whose allocation was not seen";
    /// Frees that the CUDA driver refused; the memory is still live, if it was ever allocated.
refused_frees => "frees were refused by the CUDA driver: that memory is leaked, or was never allocated";
    /// Blocks that were not recorded: their device is not known, or is beyond the 32 CUDA devices that can be recorded.
unplaced_blocks => "blocks of device memory were not recorded: their device is not known, or is beyond the 32nd";
    /// CUDA graphs that were made executable. What the driver allocates for them is not recorded.
    executable_graphs;
}

impl Health {
    /// The counters minus an earlier reading.
    pub fn since(mut self, earlier: &Self) -> Self {
        self.counters_mut().zip(earlier.counters()).for_each(|(now, (_, then))| *now -= then);
        self
    }
}

/// Whether spans of `tracing` became scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spans {
    /// `memtrace::layer()` was never installed.
    #[default]
    NoLayer,
    /// The layer was installed, and no filter on the whole subscriber disables level TRACE.
    Heard,
    /// The layer was installed, but level TRACE, the level of candle's model spans, is disabled.
    Silenced,
}
