//! The input as chunks of a capture with right checksums, so that what is in them gets read.
#![no_main]

use candle_memtrace_fuzz::{capture_of, read_and_use};

libfuzzer_sys::fuzz_target!(|input: &[u8]| read_and_use(&capture_of(input)));
