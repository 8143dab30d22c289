//! Opcodes of values that contain no others: numbers, strings, bytes.

use super::arena::Shapes;
use super::input::{Input, long, raw_unicode, utf8};
use super::limits::Refusal;
use super::machine::Unpickler;
use super::opcodes as op;
use super::value::PickleValue;

impl<K: Shapes> Unpickler<'_, '_, K> {
    pub(super) fn scalar(&mut self, opcode: u8) -> Result<(), Refusal> {
        let value = match opcode {
            op::NONE => PickleValue::None,
            op::NEWTRUE => PickleValue::Bool(true),
            op::NEWFALSE => PickleValue::Bool(false),
            op::BININT1 => PickleValue::Int(self.input.byte()?.into()),
            op::BININT2 => PickleValue::Int(self.input.number(2)? as i64),
            op::BININT => PickleValue::Int((self.input.number(4)? as i32).into()),
            op::LONG1 => self.long_of(1)?,
            op::LONG4 => self.long_of(4)?,
            op::LONG => {
                let value = self.input.parsed("L")?;
                self.values.add_integer(value)?
            }
            op::INT => self.int_line()?,
            op::FLOAT => PickleValue::Float(self.input.parsed("")?),
            op::BINFLOAT => PickleValue::Float(f64::from_bits(self.input.number(8)?.swap_bytes())),
            op::SHORT_BINUNICODE => self.text_of(1)?,
            op::BINUNICODE => self.text_of(4)?,
            op::BINUNICODE8 => self.text_of(8)?,
            op::UNICODE => {
                let text = raw_unicode(self.input.line()?);
                self.values.add_text(text.into())?
            }
            op::SHORT_BINBYTES => self.bytes_of(1)?,
            op::BINBYTES => self.bytes_of(4)?,
            op::BINBYTES8 | op::BYTEARRAY8 => self.bytes_of(8)?,
            _ => return Err(refused(opcode)),
        };
        self.push(value)
    }

    fn long_of(&mut self, length_bytes: u64) -> Result<PickleValue, Refusal> {
        let length = self.input.number(length_bytes)?;
        let value = long(self.input.take(length)?)?;
        self.values.add_integer(value)
    }

    /// An integer in decimal; `00` and `01` are the booleans of protocols 0 and 1.
    fn int_line(&mut self) -> Result<PickleValue, Refusal> {
        match self.input.line()? {
            b"00" => Ok(PickleValue::Bool(false)),
            b"01" => Ok(PickleValue::Bool(true)),
            digits => {
                let value = Input::new(&[digits, b"\n"].concat()).parsed("")?;
                self.values.add_integer(value)
            }
        }
    }

    fn text_of(&mut self, length_bytes: u64) -> Result<PickleValue, Refusal> {
        let length = self.input.number(length_bytes)?;
        let text = utf8(self.input.take(length)?);
        self.values.add_text(text)
    }

    fn bytes_of(&mut self, length_bytes: u64) -> Result<PickleValue, Refusal> {
        let length = self.input.number(length_bytes)?;
        let bytes = self.input.take(length)?;
        self.values.add_bytes(bytes)
    }
}

fn refused(opcode: u8) -> Refusal {
    if let Some(name) = op::dangerous(opcode) {
        return Refusal::new(format!("{name} is refused: it could run code, and nothing in a pickle is run"));
    }
    match op::unused(opcode) {
        Some(name) => Refusal::new(format!("{name} is not used by snapshots and not supported")),
        None => Refusal::new(format!("0x{opcode:02x} is no opcode")),
    }
}
