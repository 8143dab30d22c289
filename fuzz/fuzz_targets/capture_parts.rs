//! Reads two parts of a stream with correct checksums as one recording.
#![no_main]

use candle_memtrace_fuzz::{parts_of, read_and_use_parts};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = read_and_use_parts(&parts_of(input));
});
