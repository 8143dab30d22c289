//! Naive protobuf decoder for tests, which decodes a message to its fields, in order.

/// A field's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NaiveField {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message with their numbers.
pub(super) struct NaiveMessage(Vec<(u64, NaiveField)>);

impl NaiveMessage {
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let (mut fields, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let key = varint(&mut rest);
            let field = match key & 7 {
                0 => NaiveField::Number(varint(&mut rest)),
                2 => {
                    let length = varint(&mut rest) as usize;
                    let (content, after) = rest.split_at(length);
                    rest = after;
                    NaiveField::Bytes(content.to_vec())
                }
                wire_type => panic!("wire type {wire_type}"),
            };
            fields.push((key >> 3, field));
        }
        Self(fields)
    }

    /// A number; 0 if the field is absent.
    pub(super) fn number(&self, field: u64) -> u64 {
        let found = self.0.iter().rfind(|(number, _)| *number == field);
        match found {
            Some((_, NaiveField::Number(number))) => *number,
            None => 0,
            Some((_, NaiveField::Bytes(_))) => panic!("field {field} is no number"),
        }
    }

    pub(super) fn all(&self, field: u64) -> Vec<Vec<u8>> {
        let of_field = self.0.iter().filter(|(number, _)| *number == field);
        of_field
            .map(|(_, value)| match value {
                NaiveField::Bytes(bytes) => bytes.clone(),
                NaiveField::Number(_) => panic!("field {field} is a number"),
            })
            .collect()
    }

    pub(super) fn messages(&self, field: u64) -> Vec<Self> {
        self.all(field).iter().map(|bytes| Self::decode(bytes)).collect()
    }

    /// A packed list.
    pub(super) fn numbers(&self, field: u64) -> Vec<u64> {
        let packed = self.all(field).concat();
        let (mut rest, mut numbers) = (&*packed, Vec::new());
        while !rest.is_empty() {
            numbers.push(varint(&mut rest));
        }
        numbers
    }
}

fn varint(rest: &mut &[u8]) -> u64 {
    let length = rest.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (bytes, after) = rest.split_at(length);
    *rest = after;
    bytes.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
}
