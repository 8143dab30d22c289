//! Snapshots as the versions of torch write them: Python values, and a pickler for three protocols.

/// A Python value.
#[derive(Clone, Debug)]
pub(super) enum Python {
    None,
    Int(u64),
    Text(String),
    List(Vec<Python>),
    Pair(u64, u64),
    Dict(Vec<(&'static str, Python)>),
}

impl From<u64> for Python {
    fn from(value: u64) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Python {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<Vec<Self>> for Python {
    fn from(value: Vec<Self>) -> Self {
        Self::List(value)
    }
}

/// A dict of keys and values.
macro_rules! dict {
    ($($key:literal: $value:expr),* $(,)?) => { Python::Dict(vec![$(($key, Python::from($value))),*]) };
}
pub(super) use dict;

impl Python {
    /// The value as `pickle.dumps` writes it, but without references to the memo.
    pub(super) fn pickled(&self, protocol: u8) -> Vec<u8> {
        let mut out = if protocol > 1 { vec![0x80, protocol] } else { Vec::new() };
        self.write(protocol, &mut out);
        out.push(b'.');
        out
    }

    fn write(&self, protocol: u8, out: &mut Vec<u8>) {
        let is_text = protocol == 0;
        match self {
            Self::None => out.push(b'N'),
            Self::Int(value) if is_text => out.extend(format!("L{value}L\n").bytes()),
            Self::Int(value @ 0..=0xff) => out.extend([b'K', *value as u8]),
            Self::Int(value) => {
                out.extend([0x8a, 9]);
                out.extend(u128::from(*value).to_le_bytes().iter().take(9));
            }
            Self::Text(text) if is_text => out.extend(format!("V{text}\n").bytes()),
            Self::Text(text) => {
                out.push(b'X');
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.bytes());
            }
            Self::Pair(first, second) => {
                out.push(b'(');
                [*first, *second].iter().for_each(|number| Self::Int(*number).write(protocol, out));
                out.push(b't');
            }
            Self::List(items) => {
                out.extend(if is_text { &b"(lp0\n"[..] } else { b"]" });
                for batch in items.chunks(if is_text { 1 } else { 1000 }) {
                    out.extend(if is_text { &b""[..] } else { b"(" });
                    batch.iter().for_each(|item| item.write(protocol, out));
                    out.push(if is_text { b'a' } else { b'e' });
                }
            }
            Self::Dict(items) => {
                out.extend(if is_text { &b"(dp0\n"[..] } else { b"}(" });
                for (key, value) in items {
                    Self::from(*key).write(protocol, out);
                    value.write(protocol, out);
                    out.extend(if is_text { &b"s"[..] } else { b"" });
                }
                out.extend(if is_text { &b""[..] } else { b"u" });
            }
        }
    }

    /// The same dict with another field.
    pub(super) fn with(mut self, key: &'static str, value: impl Into<Self>) -> Self {
        let Self::Dict(items) = &mut self else { panic!("no dict") };
        items.retain(|(known, _)| *known != key);
        items.push((key, value.into()));
        self
    }

    /// The same dict without a field.
    pub(super) fn without(mut self, key: &str) -> Self {
        let Self::Dict(items) = &mut self else { panic!("no dict") };
        items.retain(|(known, _)| *known != key);
        self
    }
}

pub(super) fn frame(name: &str, file: &str, line: u64) -> Python {
    dict! { "name": name, "filename": file, "line": line }
}

/// A stack of a Python program: an operator of torch, a module of torch, a line of the user.
pub(super) fn stack(line: u64) -> Python {
    vec![
        frame("at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "??", 0),
        frame("forward", "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py", 134),
        frame("forward", "/home/u/net/model.py", line),
        frame("<module>", "/home/u/net/train.py", 9),
    ]
    .into()
}

pub(super) fn entry(action: &str, addr: u64, size: u64, time_us: u64) -> Python {
    dict! {
        "action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1_700_000_000_000_000 + time_us,
        "compile_context": "N/A", "user_metadata": "", "frames": stack(time_us),
    }
}

pub(super) fn block(address: u64, size: u64, requested: u64, state: &str) -> Python {
    dict! { "address": address, "size": size, "requested_size": requested, "state": state, "frames": stack(address) }
}

/// A segment of this device with these blocks, followed by an inactive one.
pub(super) fn segment(device: u64, address: u64, size: u64, mut blocks: Vec<Python>) -> Python {
    let used: u64 = blocks.iter().map(size_of_block).sum();
    if used < size {
        blocks.push(block(address + used, size - used, 0, "inactive"));
    }
    dict! {
        "device": device, "address": address, "total_size": size, "allocated_size": used, "active_size": used,
        "requested_size": used, "stream": 0, "segment_type": "large", "segment_pool_id": Python::Pair(0, 0),
        "is_expandable": 0, "frames": Vec::new(), "blocks": blocks,
    }
}

fn size_of_block(block: &Python) -> u64 {
    let Python::Dict(items) = block else { panic!("no dict") };
    let size = items.iter().find(|(key, _)| *key == "size");
    let Some((_, Python::Int(size))) = size else { panic!("no size") };
    *size
}

/// A snapshot as torch 2.15 writes it.
pub(super) fn snapshot(segments: Vec<Python>, traces: Vec<Vec<Python>>) -> Python {
    let traces: Vec<Python> = traces.into_iter().map(Python::from).collect();
    dict! {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": dict! { "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": Python::None },
        "external_annotations": Vec::new(),
    }
}
