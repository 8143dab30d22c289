//! What the recording missed or could not see. Zeros are good news.

use super::CudaHooks;
use crate::units::grouped;

/// Makes [`Health`] of a row for each counter: what it counts, its name, and what a report says behind the number if it is not 0.
/// Captures and JSON hold them by this table.
macro_rules! counters {
    ($($(#[$what:meta])* $name:ident $(=> $note:literal)?;)*) => {
        /// Counts of what was dropped and of what cannot be seen from where memtrace sits.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Health {
            $($(#[$what])* pub $name: u64,)*
            /// memtrace's allocator was not installed in the program: its heap was not seen.
            pub no_allocator: bool,
            /// Functions have names but no source lines: the program was built without debug information.
            pub no_line_numbers: bool,
            /// Programs and libraries whose code addresses could not be given names, and why. Where a
            /// recording is symbolised in the process that made it, only of what was unloaded there.
            pub unreadable_objects: Vec<String>,
            /// The capture that this was read from ends without its end mark: the program was killed, or the
            /// file is a copy of one that is being written. What was flushed until then is here.
            pub cut_off: bool,
            /// Whether spans of `tracing` could become scopes.
            pub spans: Spans,
            /// Whether CUDA memory could be seen.
            pub cuda: CudaHooks,
        }

        impl Health {
            /// Each counter by its name.
            pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Each counter, to be set.
            pub(crate) fn counters_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(&mut self.$name),*].into_iter()
            }

            /// Sentences about the counters that are not 0, as far as a number is all that they have to say.
            pub fn notes(&self) -> Vec<String> {
                let said = [$($((self.$name, $note),)?)*];
                said.into_iter().filter(|(n, _)| *n > 0).map(|(n, note)| format!("{} {note}", grouped(n))).collect()
            }
        }
    };
}

counters! {
    /// Blocks that could not be entered into the ledger for lack of memory; they are in the row
    /// of what was not recorded.
    lost_blocks => "blocks were not recorded for lack of memory; they count as allocated before recording";
    /// Stacks that were not kept because the stack table was full.
    lost_stacks => "stacks were not kept: the stack table is full";
    /// How often a stack's middle frames were left out because it was deeper than `stack_depth`.
    shortened_stacks;
    /// Stacks that libgcc's unwinder took a second time, with `MEMTRACE_CHECK_STACKS=1`.
    compared_stacks;
    /// Those of them that memtrace's own unwinder had got wrong; libgcc's are in the records.
    wrong_stacks => "stacks were wrong, and libgcc's kept; please report this";
    /// Allocations at an address that was still live: a free was missed in between.
    missed_frees => "frees were missed: an address was allocated again while its block seemed live";
    /// Scopes that were not told apart because there were too many names or they nested too deep.
    lost_scopes => "scopes were not told apart: too many names";
    /// Code addresses for which not even a function name was found.
    unknown_addresses;
    /// Bytes at the end of the capture that were not read, because they are incomplete or damaged.
    unread_bytes;
    /// Device memory that was freed and had not been recorded: it is from before the recording, or
    /// its allocation was not seen.
    unknown_frees => "frees of device memory that was allocated before the recording, or unseen";
    /// Frees that the CUDA driver refused; what was to be freed is still live, if it ever was.
    refused_frees => "frees were refused by the CUDA driver: that memory is leaked, or was not there";
}

impl Health {
    /// What was counted since an earlier reading of the same counters.
    pub fn since(mut self, earlier: &Self) -> Self {
        self.counters_mut().zip(earlier.counters()).for_each(|(now, (_, then))| *now -= then);
        self
    }
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
