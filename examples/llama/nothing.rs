//! An empty target, because a package needs one besides its examples and tests.
