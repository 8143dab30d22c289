//! How many programs a test of random ones runs.

use proptest::test_runner::Config;

/// So many, or MEMTRACE_CASES times as many.
pub(crate) fn programs(number: u32) -> Config {
    let times = std::env::var("MEMTRACE_CASES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    Config { cases: number * times, failure_persistence: None, ..Config::default() }
}
