//! Reads arbitrary chunks with correct checksums, so that the fuzzer reaches their contents.
#![no_main]

use candle_memtrace_fuzz::{capture_of, read_and_use};

libfuzzer_sys::fuzz_target!(|input: &[u8]| read_and_use(&capture_of(input)));
