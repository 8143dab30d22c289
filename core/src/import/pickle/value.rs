//! Unpickled values, and what makes compact forms of them.

use super::arena::Values;
use super::limits::Refusal;

/// A value: itself, or an index into [`Values`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::import) enum PickleValue {
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

/// What a container holds: an index into the lists of items, or what [`Shapes`] made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::import) enum Content<S> {
    List(u32),
    Tuple(u32),
    /// Keys and values in turn.
    Dict(u32),
    Set(u32),
    FrozenSet(u32),
    Kept(S),
}

/// Compact forms of containers that occur very often.
pub(in crate::import) trait Shapes: Sized {
    /// A compact form.
    type Shape: Copy;

    /// The compact form of a dict, if it has one; `items` are keys and values in turn.
    fn dict(
        &mut self,
        items: &[PickleValue],
        values: &mut Values<'_, Self::Shape>,
    ) -> Result<Option<Self::Shape>, Refusal>;

    /// The compact form of a complete list, if it has one.
    fn list(
        &mut self,
        items: &[PickleValue],
        values: &mut Values<'_, Self::Shape>,
    ) -> Result<Option<Self::Shape>, Refusal>;

    /// Takes items that are appended to a list which is empty or consists of such items only; false if they are to be stored.
    fn stream(
        &mut self,
        list: Option<Self::Shape>,
        items: &[PickleValue],
        values: &mut Values<'_, Self::Shape>,
    ) -> Result<Option<Self::Shape>, Refusal>;
}
