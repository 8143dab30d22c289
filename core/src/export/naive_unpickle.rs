//! Naive pickle reader for tests. It knows the opcodes that `pickle.rs` writes and panics at others, as PyTorch's
//! JavaScript viewer throws at them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

#[derive(Clone, Debug)]
pub(super) enum NaiveValue {
    Bool(bool),
    Int(i128),
    Text(String),
    Tuple(Vec<NaiveValue>),
    List(Rc<RefCell<Vec<NaiveValue>>>),
    Dict(Rc<RefCell<Vec<(String, NaiveValue)>>>),
}

pub(super) fn unpickle(bytes: &[u8]) -> NaiveValue {
    assert_eq!(bytes[..2], [0x80, 4], "protocol");
    let mut machine = Machine { rest: &bytes[2..], stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
    while machine.step() {}
    assert!(machine.rest.is_empty() && machine.stack.len() == 1 && machine.marks.is_empty());
    machine.stack.remove(0)
}

struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<NaiveValue>,
    marks: Vec<usize>,
    memo: HashMap<u32, NaiveValue>,
}

impl Machine<'_> {
    fn step(&mut self) -> bool {
        match self.take(1)[0] {
            b'.' => return false,
            b'}' => self.stack.push(NaiveValue::Dict(Rc::default())),
            b']' => self.stack.push(NaiveValue::List(Rc::default())),
            b'(' => self.marks.push(self.stack.len()),
            b'u' => self.set_items(),
            b'e' => self.append(),
            b'q' => self.put(1),
            b'r' => self.put(4),
            b'h' => self.get(1),
            b'j' => self.get(4),
            b'K' => self.int(1, false),
            b'M' => self.int(2, false),
            b'J' => self.int(4, true),
            0x8a => {
                let length = self.number(1) as usize;
                self.int(length, true);
            }
            0x8c => self.text(1),
            b'X' => self.text(4),
            0x86 => {
                let pair = self.stack.split_off(self.stack.len() - 2);
                self.stack.push(NaiveValue::Tuple(pair));
            }
            0x88 => self.stack.push(NaiveValue::Bool(true)),
            0x89 => self.stack.push(NaiveValue::Bool(false)),
            other => panic!("opcode {other:#x}"),
        }
        true
    }

    fn take(&mut self, length: usize) -> &[u8] {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn number(&mut self, length: usize) -> u32 {
        self.take(length).iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
    }

    fn int(&mut self, length: usize, signed: bool) {
        let bytes = self.take(length);
        let value = bytes.iter().rev().fold(0i128, |value, byte| value << 8 | i128::from(*byte));
        let negative = signed && bytes[length - 1] & 0x80 != 0;
        self.stack.push(NaiveValue::Int(if negative { value - (1 << (8 * length)) } else { value }));
    }

    fn text(&mut self, length_bytes: usize) {
        let length = self.number(length_bytes) as usize;
        let text = String::from_utf8(self.take(length).to_vec()).unwrap();
        self.stack.push(NaiveValue::Text(text));
    }

    fn put(&mut self, length: usize) {
        let number = self.number(length);
        let old = self.memo.insert(number, self.stack.last().unwrap().clone());
        assert!(old.is_none(), "memo {number} is used twice");
    }

    fn get(&mut self, length: usize) {
        let number = self.number(length);
        self.stack.push(self.memo[&number].clone());
    }

    fn append(&mut self) {
        let items = self.stack.split_off(self.marks.pop().unwrap());
        assert!(items.len() <= 1000, "the viewer passes a batch as arguments of one call");
        match self.stack.last().unwrap() {
            NaiveValue::List(list) => list.borrow_mut().extend(items),
            other => panic!("APPENDS to {other:?}"),
        }
    }

    fn set_items(&mut self) {
        let items = self.stack.split_off(self.marks.pop().unwrap());
        let Some(NaiveValue::Dict(dict)) = self.stack.last() else { panic!("SETITEMS on no dict") };
        for pair in items.chunks_exact(2) {
            let NaiveValue::Text(key) = &pair[0] else { panic!("a key that is no string") };
            dict.borrow_mut().push((key.clone(), pair[1].clone()));
        }
    }
}

impl NaiveValue {
    pub(super) fn find(&self, key: &str) -> Option<NaiveValue> {
        let Self::Dict(items) = self else { panic!("{key} of no dict") };
        items.borrow().iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    }

    pub(super) fn at(&self, key: &str) -> NaiveValue {
        self.find(key).unwrap_or_else(|| panic!("no {key}"))
    }

    pub(super) fn list(&self) -> Vec<NaiveValue> {
        let Self::List(items) = self else { panic!("no list") };
        items.borrow().clone()
    }

    pub(super) fn text(&self) -> String {
        let Self::Text(text) = self else { panic!("no text") };
        text.clone()
    }

    pub(super) fn int(&self) -> i128 {
        let Self::Int(int) = self else { panic!("no number") };
        *int
    }

    /// An indented outline.
    pub(super) fn pretty(&self, depth: usize) -> String {
        let pad = "  ".repeat(depth);
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::Tuple(items) => {
                let items: Vec<String> = items.iter().map(|item| item.pretty(0)).collect();
                format!("({})", items.join(", "))
            }
            Self::List(items) if items.borrow().is_empty() => "[]".to_owned(),
            Self::List(items) => {
                items.borrow().iter().map(|item| format!("\n{pad}- {}", item.pretty(depth + 1))).collect()
            }
            Self::Dict(items) => {
                items.borrow().iter().map(|(key, value)| format!("\n{pad}{key}: {}", value.pretty(depth + 1))).collect()
            }
        }
    }
}
