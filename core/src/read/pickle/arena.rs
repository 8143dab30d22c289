//! Arena of unpickled values. Objects are referred to by index, so objects that the memo shares stay shared. Strings
//! are interned.

use std::borrow::Cow;

use super::limits::{DEEPEST, PickleBudget, Refusal};
use super::value::{Content, PickleValue};
use crate::numbered::Numbered;

/// The index of a container that never had items.
const EMPTY: u32 = u32::MAX;
const VALUE: usize = size_of::<PickleValue>();
/// Memory of a string besides its bytes: its entries in two tables.
const TEXT: usize = 64;

#[derive(Clone, Copy, Debug)]
struct PickleObject<S> {
    content: Content<S>,
    /// Levels of nested containers, including this one.
    depth: u8,
    /// The object is an item of another container. Then nothing can be added to it, so there are no cycles.
    sealed: bool,
}

/// Makes compact forms of containers that occur very often.
pub(in crate::read) trait Shapes: Sized {
    /// A compact form.
    type Shape: Copy;

    /// The compact form of a dict, if it has one. `items` are keys and values alternately.
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

    /// Takes items that are appended to a list. `list` is the compact form from when earlier items were taken; `None`
    /// if the list is empty. Returns the list's compact form; `None` if the items must be stored.
    fn stream(
        &mut self,
        list: Option<Self::Shape>,
        items: &[PickleValue],
        values: &mut Values<'_, Self::Shape>,
    ) -> Result<Option<Self::Shape>, Refusal>;
}

/// All values of a pickle.
pub(in crate::read) struct Values<'a, S> {
    objects: Vec<PickleObject<S>>,
    items: Vec<Vec<PickleValue>>,
    /// Indices of unused elements of `items`.
    free: Vec<u32>,
    texts: Numbered<Cow<'a, str>>,
    bytes: Vec<&'a [u8]>,
    longs: Vec<i128>,
    pub(super) budget: PickleBudget,
}

impl<'a, S: Copy> Values<'a, S> {
    /// `words` become the first strings, so their indices are known in advance.
    pub(super) fn new(length: usize, words: &[&'static str]) -> Self {
        let (objects, items, free, bytes, longs) = Default::default();
        let mut texts = Numbered::default();
        words.iter().for_each(|word| _ = texts.number(Cow::Borrowed(*word)));
        Self { objects, items, free, texts, bytes, longs, budget: PickleBudget::of(length) }
    }

    #[inline]
    pub(super) fn add_text(&mut self, text: Cow<'a, str>) -> Result<PickleValue, Refusal> {
        if let Some(id) = self.texts.get(&text) {
            return Ok(PickleValue::Text(id as u32));
        }
        let owned = if let Cow::Owned(text) = &text { 2 * text.len() } else { 0 };
        self.budget.take(TEXT + owned)?;
        Ok(PickleValue::Text(self.texts.number(text) as u32))
    }

    pub(super) fn add_bytes(&mut self, bytes: &'a [u8]) -> Result<PickleValue, Refusal> {
        self.budget.take(VALUE)?;
        self.bytes.push(bytes);
        Ok(PickleValue::Bytes(self.bytes.len() as u32 - 1))
    }

    #[inline]
    pub(super) fn add_integer(&mut self, value: i128) -> Result<PickleValue, Refusal> {
        if let Ok(value) = i64::try_from(value) {
            return Ok(PickleValue::Int(value));
        }
        self.budget.take(VALUE)?;
        self.longs.push(value);
        Ok(PickleValue::Long(self.longs.len() as u32 - 1))
    }

    /// A new container without items. `kind` makes its content from an index.
    #[inline]
    pub(super) fn add_object(&mut self, kind: fn(u32) -> Content<S>) -> Result<PickleValue, Refusal> {
        self.budget.take(size_of::<PickleObject<S>>())?;
        self.objects.push(PickleObject { content: kind(EMPTY), depth: 1, sealed: false });
        Ok(PickleValue::Object(self.objects.len() as u32 - 1))
    }

    /// The memory that may still be used. Callers take the memory of their own tables from it, too.
    pub(in crate::read) fn budget(&mut self) -> &mut PickleBudget {
        &mut self.budget
    }

    pub(in crate::read) fn content(&self, value: PickleValue) -> Option<Content<S>> {
        let PickleValue::Object(id) = value else { return None };
        self.objects.get(id as usize).map(|object| object.content)
    }

    /// Replaces the items of a container, or its compact form, by the compact form `shape`.
    pub(in crate::read) fn keep(&mut self, value: PickleValue, shape: S) {
        let PickleValue::Object(id) = value else { return };
        let Some(object) = self.objects.get_mut(id as usize) else { return };
        let old = std::mem::replace(&mut object.content, Content::Kept(shape));
        let (Content::List(at) | Content::Tuple(at) | Content::Dict(at) | Content::Set(at) | Content::FrozenSet(at)) =
            old
        else {
            return;
        };
        if let Some(items) = self.items.get_mut(at as usize) {
            self.budget.give_back(items.len() * VALUE);
            items.clear();
            self.free.push(at);
        }
    }

    /// The compact form of a container, if it has one.
    #[inline]
    pub(in crate::read) fn kept(&self, value: PickleValue) -> Option<S> {
        match self.content(value)? {
            Content::Kept(shape) => Some(shape),
            _ => None,
        }
    }

    fn stored(&self, at: u32) -> &[PickleValue] {
        self.items.get(at as usize).map_or(&[], Vec::as_slice)
    }

    /// The items of a list or a tuple; of anything else none.
    pub(in crate::read) fn list(&self, value: PickleValue) -> &[PickleValue] {
        match self.content(value) {
            Some(Content::List(at) | Content::Tuple(at)) => self.stored(at),
            _ => &[],
        }
    }

    /// The keys and values of a dict, alternately. Empty for any other value.
    pub(in crate::read) fn dict(&self, value: PickleValue) -> &[PickleValue] {
        match self.content(value) {
            Some(Content::Dict(at)) => self.stored(at),
            _ => &[],
        }
    }

    #[cfg(test)]
    pub(super) fn set(&self, value: PickleValue) -> &[PickleValue] {
        match self.content(value) {
            Some(Content::Set(at) | Content::FrozenSet(at)) => self.stored(at),
            _ => &[],
        }
    }

    pub(in crate::read) fn text(&self, value: PickleValue) -> Option<&str> {
        let PickleValue::Text(id) = value else { return None };
        self.texts.rows().get(id as usize).map(|(text, ())| &**text)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self, value: PickleValue) -> Option<&'a [u8]> {
        let PickleValue::Bytes(id) = value else { return None };
        self.bytes.get(id as usize).copied()
    }

    pub(in crate::read) fn integer(&self, value: PickleValue) -> Option<i128> {
        match value {
            PickleValue::Int(value) => Some(value.into()),
            PickleValue::Long(id) => self.longs.get(id as usize).copied(),
            _ => None,
        }
    }

    /// Seals a container, and lets `shapes` make it compact. Returns its depth.
    pub(super) fn seal(&mut self, value: PickleValue, shapes: &mut impl Shapes<Shape = S>) -> Result<u8, Refusal> {
        let PickleValue::Object(id) = value else { return Ok(0) };
        let Some(object) = self.objects.get_mut(id as usize) else { return Ok(0) };
        let (depth, was_sealed) = (object.depth, object.sealed);
        object.sealed = true;
        if !was_sealed {
            self.shape(value, shapes)?;
        }
        Ok(depth)
    }

    /// Replaces a dict or a list by its compact form, if it has one.
    pub(super) fn shape(&mut self, value: PickleValue, shapes: &mut impl Shapes<Shape = S>) -> Result<(), Refusal> {
        let (at, is_dict) = match self.content(value) {
            Some(Content::Dict(at)) => (at, true),
            Some(Content::List(at)) => (at, false),
            _ => return Ok(()),
        };
        let Some(items) = self.items.get_mut(at as usize).map(std::mem::take) else { return Ok(()) };
        let shape = if is_dict { shapes.dict(&items, self) } else { shapes.list(&items, self) };
        if let Some(slot) = self.items.get_mut(at as usize) {
            *slot = items;
        }
        if let Some(shape) = shape? {
            self.keep(value, shape);
        }
        Ok(())
    }

    /// Adds sealed items to a container that is not sealed.
    pub(super) fn extend(&mut self, target: PickleValue, items: &[PickleValue], deepest: u8) -> Result<(), Refusal> {
        let PickleValue::Object(id) = target else { return Err(Refusal::new("items for something that holds none")) };
        let next = self.items.len() as u32;
        let object = self.objects.get_mut(id as usize).ok_or_else(|| Refusal::new("no such object"))?;
        object.depth = object.depth.max(deepest + 1);
        if object.depth > DEEPEST {
            return Err(Refusal::new("containers are nested too deep"));
        }
        let (Content::List(at) | Content::Tuple(at) | Content::Dict(at) | Content::Set(at) | Content::FrozenSet(at)) =
            &mut object.content
        else {
            return Err(changed());
        };
        if items.is_empty() {
            return Ok(());
        }
        self.budget.take(items.len() * VALUE)?;
        if *at == EMPTY {
            *at = self.free.pop().unwrap_or(next);
            if *at == next {
                self.items.push(Vec::new());
            }
        }
        let at = *at as usize;
        self.items.get_mut(at).into_iter().for_each(|stored| stored.extend_from_slice(items));
        Ok(())
    }

    /// Whether items may still be added to a container.
    pub(super) fn is_open(&self, value: PickleValue) -> bool {
        let PickleValue::Object(id) = value else { return true };
        self.objects.get(id as usize).is_some_and(|object| !object.sealed)
    }
}

/// The reason for refusing to add items to an object that is already in another one: it could contain itself.
pub(super) fn changed() -> Refusal {
    Refusal::new("an object is changed after another object holds it, or holds itself")
}
