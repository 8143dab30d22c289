//! The stack machine, which executes one opcode after another.

use super::arena::{Shapes, Values, changed};
use super::input::Input;
use super::limits::{MOST_MARKS, Refusal};
use super::opcodes as op;
use super::value::{Content, PickleValue};

/// Reads one pickle, with the memory limit of a pickle of `length` bytes. `words` are strings whose indices the caller
/// knows.
pub(in crate::read) fn read<'a, K: Shapes>(
    bytes: &'a [u8],
    length: usize,
    words: &[&'static str],
    shapes: &mut K,
) -> Result<(Values<'a, K::Shape>, PickleValue), Refusal> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(Refusal::new("it is larger than 4 GiB"));
    }
    let (input, values) = (Input::new(bytes), Values::new(length.min(bytes.len()), words));
    let (stack, marks, memo) = Default::default();
    let mut machine = Unpickler { input, values, shapes, stack, marks, memo };
    loop {
        let offset = machine.input.offset();
        if machine.step().map_err(|refusal| refusal.at(offset))? {
            return Ok((machine.values, machine.stack.pop().unwrap_or(PickleValue::None)));
        }
    }
}

pub(super) struct Unpickler<'a, 'k, K: Shapes> {
    pub(super) input: Input<'a>,
    pub(super) values: Values<'a, K::Shape>,
    shapes: &'k mut K,
    stack: Vec<PickleValue>,
    /// Lengths of the stack at each MARK.
    marks: Vec<usize>,
    pub(super) memo: Vec<Option<PickleValue>>,
}

impl<K: Shapes> Unpickler<'_, '_, K> {
    /// Executes one opcode. Returns true at the end of the pickle.
    fn step(&mut self) -> Result<bool, Refusal> {
        let opcode = self.input.byte()?;
        match opcode {
            op::BINGET | op::LONG_BINGET | op::GET => self.get(opcode)?,
            op::MEMOIZE | op::BINPUT | op::LONG_BINPUT | op::PUT => self.put(opcode)?,
            op::MARK => self.mark()?,
            op::STOP => return self.stop(),
            op::PROTO => self.protocol()?,
            op::FRAME => _ = self.input.number(8)?,
            op::EMPTY_DICT => self.empty(Content::Dict)?,
            op::EMPTY_LIST => self.empty(Content::List)?,
            op::EMPTY_TUPLE => self.empty(Content::Tuple)?,
            op::EMPTY_SET => self.empty(Content::Set)?,
            op::SETITEMS => self.add_marked(true)?,
            op::APPENDS | op::ADDITEMS => self.add_marked(false)?,
            op::SETITEM => self.add_last(2)?,
            op::APPEND => self.add_last(1)?,
            op::DICT => self.marked(Content::Dict)?,
            op::LIST => self.marked(Content::List)?,
            op::TUPLE => self.marked(Content::Tuple)?,
            op::FROZENSET => self.marked(Content::FrozenSet)?,
            op::TUPLE1 => self.tuple(1)?,
            op::TUPLE2 => self.tuple(2)?,
            op::TUPLE3 => self.tuple(3)?,
            _ => self.scalar(opcode)?,
        }
        Ok(false)
    }

    #[inline]
    pub(super) fn push(&mut self, value: PickleValue) -> Result<(), Refusal> {
        // The items on the stack take memory a second time when they are copied into a container.
        if 2 * self.stack.len() * size_of::<PickleValue>() > self.values.budget.left() {
            return Err(Refusal::new("it needs far more memory than its length allows"));
        }
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<PickleValue, Refusal> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(Refusal::new("a value is missing on the stack"));
        }
        self.stack.pop().ok_or_else(|| Refusal::new("a value is missing on the stack"))
    }

    pub(super) fn top(&self) -> Result<PickleValue, Refusal> {
        self.stack.last().copied().ok_or_else(|| Refusal::new("the stack is empty"))
    }

    fn stop(&mut self) -> Result<bool, Refusal> {
        let top = self.pop()?;
        if !self.stack.is_empty() || !self.marks.is_empty() {
            return Err(Refusal::new("it ends with values left on the stack"));
        }
        self.values.seal(top, self.shapes)?;
        self.stack.push(top);
        Ok(true)
    }

    fn protocol(&mut self) -> Result<(), Refusal> {
        match self.input.byte()? {
            0..=op::NEWEST_PROTOCOL => Ok(()),
            newer => Err(Refusal::new(format!("protocol {newer} is not known"))),
        }
    }

    fn mark(&mut self) -> Result<(), Refusal> {
        if self.marks.len() == MOST_MARKS {
            return Err(Refusal::new("containers are nested too deep"));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn last_mark(&mut self) -> Result<usize, Refusal> {
        self.marks.pop().ok_or_else(|| Refusal::new("a MARK is missing"))
    }

    fn empty(&mut self, kind: fn(u32) -> Content<K::Shape>) -> Result<(), Refusal> {
        let object = self.values.add_object(kind)?;
        self.push(object)
    }

    /// Makes a container of everything above the last MARK.
    fn marked(&mut self, kind: fn(u32) -> Content<K::Shape>) -> Result<(), Refusal> {
        let from = self.last_mark()?;
        self.container(kind, from)
    }

    fn tuple(&mut self, count: usize) -> Result<(), Refusal> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|from| *from >= floor);
        self.container(Content::Tuple, from.ok_or_else(|| Refusal::new("a value is missing on the stack"))?)
    }

    fn container(&mut self, kind: fn(u32) -> Content<K::Shape>, from: usize) -> Result<(), Refusal> {
        let object = self.values.add_object(kind)?;
        self.add(object, from)?;
        self.push(object)
    }

    /// Adds everything above the last MARK to the container below it.
    fn add_marked(&mut self, is_dict: bool) -> Result<(), Refusal> {
        let from = self.last_mark()?;
        let target = from.checked_sub(1).and_then(|at| self.stack.get(at)).copied();
        let target = target.ok_or_else(|| Refusal::new("no container for these items"))?;
        let was_empty = is_dict && self.values.dict(target).is_empty();
        self.add_to(target, from, is_dict)?;
        if was_empty { self.values.shape(target, self.shapes) } else { Ok(()) }
    }

    fn add_last(&mut self, count: usize) -> Result<(), Refusal> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|from| *from > floor);
        let from = from.ok_or_else(|| Refusal::new("a value is missing on the stack"))?;
        let target = self.stack.get(from - 1).copied().unwrap_or(PickleValue::None);
        self.add_to(target, from, count == 2)
    }

    fn add_to(&mut self, target: PickleValue, from: usize, is_dict: bool) -> Result<(), Refusal> {
        match self.values.content(target) {
            Some(Content::Dict(_)) if is_dict => {}
            Some(Content::List(_) | Content::Set(_)) if !is_dict => {}
            Some(Content::Kept(_)) => {}
            _ => return Err(Refusal::new("items for something else than such a container")),
        }
        if is_dict && !(self.stack.len() - from).is_multiple_of(2) {
            return Err(Refusal::new("a key without a value"));
        }
        if !self.values.is_open(target) {
            return Err(changed());
        }
        self.add(target, from)
    }

    /// Moves the items on the stack, beginning at position `from`, into a container.
    fn add(&mut self, target: PickleValue, from: usize) -> Result<(), Refusal> {
        let items = self.stack.get(from..).unwrap_or_default();
        let mut deepest = 0;
        for item in items {
            if *item == target {
                return Err(changed());
            }
            deepest = deepest.max(self.values.seal(*item, self.shapes)?);
        }
        let streamed = match self.values.content(target) {
            Some(Content::List(_)) if self.values.list(target).is_empty() => {
                self.shapes.stream(None, items, &mut self.values)?
            }
            Some(Content::Kept(list)) => {
                Some(self.shapes.stream(Some(list), items, &mut self.values)?.ok_or_else(changed)?)
            }
            _ => None,
        };
        match streamed {
            Some(shape) => self.values.keep(target, shape),
            None => self.values.extend(target, items, deepest)?,
        }
        self.stack.truncate(from);
        Ok(())
    }
}
