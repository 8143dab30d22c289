//! Reads arbitrary bytes as a PyTorch memory snapshot.
#![no_main]

use candle_memtrace_fuzz::read_and_use;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| read_and_use(&[&[0x80, 4], bytes].concat()));
