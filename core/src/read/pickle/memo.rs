//! Opcodes of the memo, through which pickles share objects.

use super::arena::Shapes;
use super::limits::Refusal;
use super::machine::Unpickler;
use super::value::PickleValue;

impl<K: Shapes> Unpickler<'_, '_, K> {
    pub(super) fn get_from(&mut self, bytes: u64) -> Result<(), Refusal> {
        let number = self.input.number(bytes)?;
        self.get(number)
    }

    pub(super) fn get_line(&mut self) -> Result<(), Refusal> {
        let number = self.input.parsed("")?;
        self.get(number)
    }

    #[inline]
    pub(super) fn get(&mut self, number: u64) -> Result<(), Refusal> {
        let value = usize::try_from(number).ok().and_then(|number| self.memo.get(number)).copied().flatten();
        self.push(value.ok_or_else(|| Refusal::new("it refers to an object that was not remembered"))?)
    }

    pub(super) fn put_at(&mut self, bytes: u64) -> Result<(), Refusal> {
        let number = self.input.number(bytes)?;
        self.put(number)
    }

    pub(super) fn put_line(&mut self) -> Result<(), Refusal> {
        let number = self.input.parsed("")?;
        self.put(number)
    }

    #[inline]
    pub(super) fn put(&mut self, number: u64) -> Result<(), Refusal> {
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
