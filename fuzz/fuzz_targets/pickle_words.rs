//! Reads arbitrary arrangements of the words of PyTorch memory snapshots, so that the fuzzer reaches their contents.
#![no_main]

use candle_memtrace_fuzz::{pickle_of, read_and_use};

libfuzzer_sys::fuzz_target!(|input: &[u8]| read_and_use(&pickle_of(input)));
