//! Writes a pickle of protocol 4, value by value.

#[derive(Default)]
pub(super) struct PickleWriter {
    bytes: Vec<u8>,
    remembered: u32,
}

impl PickleWriter {
    pub(super) fn begin() -> Self {
        Self { bytes: vec![0x80, 4], remembered: 0 }
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    pub(super) fn put(&mut self, opcode: u8) {
        self.bytes.push(opcode);
    }

    pub(super) fn number(&mut self, value: i128) {
        let bytes = value.to_le_bytes();
        self.bytes.extend([0x8a, bytes.len() as u8]);
        self.bytes.extend(bytes);
    }

    pub(super) fn float(&mut self, value: f64) {
        self.bytes.push(b'G');
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.bytes());
    }

    pub(super) fn list(&mut self, fill: impl FnOnce(&mut Self)) {
        self.bytes.extend(b"](");
        fill(self);
        self.bytes.push(b'e');
    }

    pub(super) fn dict(&mut self, fill: impl FnOnce(&mut Self)) {
        self.bytes.extend(b"}(");
        fill(self);
        self.bytes.push(b'u');
    }

    pub(super) fn numbers(&mut self, pairs: &[(&str, u64)]) {
        for (key, value) in pairs {
            self.text(key);
            self.number((*value).into());
        }
    }

    pub(super) fn texts(&mut self, pairs: &[(&str, &str)]) {
        for (key, value) in pairs {
            self.text(key);
            self.text(value);
        }
    }

    /// Remembers the value that was just made.
    pub(super) fn remember(&mut self) -> u32 {
        self.bytes.push(b'r');
        self.bytes.extend(self.remembered.to_le_bytes());
        self.remembered += 1;
        self.remembered - 1
    }

    pub(super) fn recall(&mut self, number: u32) {
        self.bytes.push(b'j');
        self.bytes.extend(number.to_le_bytes());
    }
}
