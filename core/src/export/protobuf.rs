//! Protobuf encoder: varints and length-delimited fields.

/// An encoded message.
#[derive(Default)]
pub(super) struct ProtoMessage(Vec<u8>);

impl ProtoMessage {
    /// Writes a varint field. 0 is the default and left out.
    pub(super) fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.varint(field << 3);
            self.varint(number);
        }
    }

    /// Writes a text field.
    pub(super) fn text(&mut self, field: u64, text: &str) {
        self.delimited(field, text.as_bytes());
    }

    /// Writes a nested message.
    pub(super) fn message(&mut self, field: u64, content: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        content(&mut inner);
        self.delimited(field, &inner.0);
    }

    /// Writes a packed list of varints.
    pub(super) fn numbers(&mut self, field: u64, numbers: impl IntoIterator<Item = u64>) {
        self.message(field, |list| numbers.into_iter().for_each(|number| list.varint(number)));
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn delimited(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}
