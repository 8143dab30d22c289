//! An empty target: a package needs one besides its examples and tests.
