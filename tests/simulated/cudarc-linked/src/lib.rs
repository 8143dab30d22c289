//! An empty library; see the test.
