//! Unpickler: a stack machine for Python's pickle format (protocols 0 to 5) that builds built-in types only.
//!
//! It executes nothing and looks nothing up. It refuses opcodes that import, call or build objects, with their names
//! and offsets. Memory is bounded in proportion to the input; see [`limits`].

mod arena;
mod input;
mod limits;
mod machine;
mod memo;
mod opcodes;
mod scalars;
mod value;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

pub(super) use arena::{Shapes, Values};
pub(super) use limits::Refusal;
pub(super) use machine::read;
pub(super) use value::PickleValue;

/// Whether these bytes begin like a pickle: with a protocol, or with a container as in protocols 0 and 1.
pub(super) fn begins_like_pickle(bytes: &[u8]) -> bool {
    match bytes {
        [0x80, protocol, ..] => *protocol <= opcodes::NEWEST_PROTOCOL,
        [b'(', b'd' | b'l', b'p', ..] | [b'}' | b']', b'q' | b'(' | b'.', ..] => true,
        _ => false,
    }
}
