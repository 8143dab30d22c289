//! A package needs a target besides its examples and tests; this one has nothing in it.
