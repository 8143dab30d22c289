//! Parser of kernel signatures in PTX text: the parameters of each `.entry`.

use crate::record::memory::{OwnVec, System, try_copy, try_push};
use crate::record::uses::{ArgumentLayout, KernelEntry, Parameter, add_parameter};

/// memtrace's stand-in for nvcc writes this comment after a pointer that the source declares `const`.
const CONST: &[u8] = b"/* const */";

/// The kernels in a PTX text.
pub(super) fn entries(text: &[u8]) -> OwnVec<KernelEntry> {
    let mut entries = OwnVec::new_in(System);
    let mut rest = text;
    while let Some(after) = behind(rest, b".entry") {
        rest = after;
        if let Some(entry) = entry(after) {
            try_push(&mut entries, entry);
        }
    }
    entries
}

fn behind<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(word.len()).position(|window| window == word)?;
    text.get(at + word.len()..)
}

fn entry(text: &[u8]) -> Option<KernelEntry> {
    let text = text.trim_ascii_start();
    let (name, rest) = text.split_at_checked(text.iter().position(|byte| !is_in_name(*byte))?)?;
    let rest = rest.trim_ascii_start();
    let layout = match rest.strip_prefix(b"(") {
        Some(list) => layout(list.split(|byte| *byte == b')').next()?),
        None => Some(OwnVec::new_in(System)),
    };
    Some(KernelEntry { name: try_copy(name)?, layout })
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')
}

fn layout(list: &[u8]) -> Option<ArgumentLayout> {
    let mut layout = OwnVec::new_in(System);
    if list.trim_ascii().is_empty() {
        return Some(layout);
    }
    for text in list.split(|byte| *byte == b',') {
        add_parameter(&mut layout, parameter(text)?)?;
    }
    Some(layout)
}

/// Parses a parameter such as `.param .u64 .ptr .global .align 4 add_param_0` or `.param .align 8 .b8 add_param_1[24]`.
fn parameter(text: &[u8]) -> Option<Parameter> {
    let is_const = text.windows(CONST.len()).any(|window| window == CONST);
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let size = words.by_ref().find_map(size_of_type)?;
    let count = match behind(text, b"[") {
        Some(number) => std::str::from_utf8(number.split(|byte| *byte == b']').next()?).ok()?.trim().parse().ok()?,
        None => 1,
    };
    Some(Parameter { size: size.checked_mul(count)?, is_const })
}

fn size_of_type(word: &[u8]) -> Option<u32> {
    match word {
        b".u8" | b".s8" | b".b8" => Some(1),
        b".u16" | b".s16" | b".b16" | b".f16" | b".bf16" => Some(2),
        b".u32" | b".s32" | b".b32" | b".f32" | b".f16x2" | b".bf16x2" => Some(4),
        b".u64" | b".s64" | b".b64" | b".f64" => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read_from_ptx() {
        let text = b".version 9.0\n.visible .entry add_f32(\n\t.param .u64 .ptr .global .align 4 add_f32_param_0, \
            \n\t.param .u32 add_f32_param_1,\n\t.param .align 8 .b8 add_f32_param_2[24],\
            \n\t.param .u64 p /* const */\n)\n.maxntid 1024\n{ ret; }\n.entry none\n{}\n.weak .entry empty(\n)\n{}\
            .entry odd(.param .v4 x)\n";
        let found = entries(text);
        let names: Vec<&[u8]> = found.iter().map(|entry| entry.name.as_slice()).collect();
        assert_eq!(names, [&b"add_f32"[..], b"none", b"empty", b"odd"]);
        let sizes = |at: usize| {
            let layout = found.get(at)?.layout.as_ref()?;
            Some(layout.iter().map(|known| (known.size, known.is_const)).collect::<Vec<_>>())
        };
        assert_eq!(sizes(0).unwrap(), [(8, false), (4, false), (24, false), (8, true)]);
        assert_eq!((sizes(1), sizes(2), sizes(3)), (Some(vec![]), Some(vec![]), None));
        assert!(entries(b"no code").is_empty());
    }
}
