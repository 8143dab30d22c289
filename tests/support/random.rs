//! The number of cases of a property test.

use proptest::test_runner::Config;

/// The configuration for this number of cases, times MEMTRACE_CASES.
pub(crate) fn programs(number: u32) -> Config {
    let times = std::env::var("MEMTRACE_CASES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    Config { cases: number * times, failure_persistence: None, ..Config::default() }
}
