//! Peaks on other threads.
