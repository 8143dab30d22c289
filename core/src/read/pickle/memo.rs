//! Opcodes of the memo, through which pickles share objects.

use super::arena::Shapes;
use super::limits::Refusal;
use super::machine::Unpickler;
use super::opcodes as op;
use super::value::PickleValue;

impl<K: Shapes> Unpickler<'_, '_, K> {
    /// The memo's number of the object that an opcode stores or fetches.
    #[inline]
    fn number(&mut self, opcode: u8) -> Result<u64, Refusal> {
        match opcode {
            op::MEMOIZE => Ok(self.memo.len() as u64),
            op::BINGET | op::BINPUT => self.input.number(1),
            op::LONG_BINGET | op::LONG_BINPUT => self.input.number(4),
            _ => self.input.parsed(""),
        }
    }

    #[inline]
    pub(super) fn get(&mut self, opcode: u8) -> Result<(), Refusal> {
        let number = self.number(opcode)?;
        let value = usize::try_from(number).ok().and_then(|number| self.memo.get(number)).copied().flatten();
        self.push(value.ok_or_else(|| Refusal::new("it refers to an object that was not remembered"))?)
    }

    #[inline]
    pub(super) fn put(&mut self, opcode: u8) -> Result<(), Refusal> {
        let number = self.number(opcode)?;
        let value = self.top()?;
        let number =
            u32::try_from(number).map_err(|_| Refusal::new("a number of an object that is far too large"))? as usize;
        if number >= self.memo.len() {
            self.values.budget.take((number + 1 - self.memo.len()) * size_of::<PickleValue>())?;
            self.memo.resize(number + 1, None);
        }
        self.memo.get_mut(number).into_iter().for_each(|slot| *slot = Some(value));
        Ok(())
    }
}
