//! Unpickled values.

/// A value: the value itself, or an index into [`Values`](super::Values).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::read) enum PickleValue {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits.
    Long(u32),
    Float(f64),
    Text(u32),
    Bytes(u32),
    Object(u32),
}

/// The content of a container: an index into the lists of items, or the compact form that [`Shapes`](super::Shapes)
/// made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read) enum Content<S> {
    List(u32),
    Tuple(u32),
    /// Keys and values alternately.
    Dict(u32),
    Set(u32),
    FrozenSet(u32),
    Kept(S),
}
