//! Reads arbitrary bytes as a capture.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| candle_memtrace_fuzz::read_and_use(bytes));
