//! Pickles that would run code or use up the memory.

use super::tests::KeepAll;
use super::{Refusal, read};

fn refusal(bytes: &[u8]) -> Refusal {
    match read(bytes, bytes.len(), &[], &mut KeepAll) {
        Err(refusal) => refusal,
        Ok(_) => panic!("{:?} is accepted", &bytes[..bytes.len().min(40)]),
    }
}

#[test]
fn whatever_could_run_code_is_refused_with_its_name_and_offset() {
    for (bytes, name, offset) in [
        (&b"cos\nsystem\n(Vecho\ntR."[..], "GLOBAL", 0),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04echo\x85R.", "STACK_GLOBAL", 14),
        (b"(Vecho\nios\nsystem\n.", "INST", 7),
        (b"(NVecho\no.", "OBJ", 8),
        (b"\x80\x02N)\x81.", "NEWOBJ", 4),
        (b"\x80\x04N)}\x92.", "NEWOBJ_EX", 5),
        (b"\x80\x02N)R.", "REDUCE", 4),
        (b"\x80\x02]}b.", "BUILD", 4),
        (b"P1\n.", "PERSID", 0),
        (b"NQ.", "BINPERSID", 1),
        (b"\x80\x02\x82\x01.", "EXT1", 2),
        (b"\x80\x02\x83\x01\x00.", "EXT2", 2),
        (b"\x80\x02\x84\x01\x00\x00\x00.", "EXT4", 2),
        (b"\x80\x05\x97.", "NEXT_BUFFER", 2),
        (b"\x80\x05N\x98.", "READONLY_BUFFER", 3),
    ] {
        let refusal = refusal(bytes);
        assert_eq!(refusal.offset, Some(offset), "{name}");
        assert!(refusal.reason.starts_with(&format!("{name} is refused")), "{refusal}");
    }
}

#[test]
fn what_is_nested_too_deep_is_refused() {
    let lists = |depth: usize| [vec![b']'; depth], vec![b'a'; depth - 1], vec![b'.']].concat();
    assert!(read(&lists(100), 200, &[], &mut KeepAll).is_ok());
    let tuples = [&b"\x80\x02N"[..], &[0x85; 5000], b"."].concat();
    for bytes in [lists(101), lists(1_000_000), vec![b'('; 1_000_000], tuples] {
        assert!(refusal(&bytes).reason.contains("too deep") || refusal(&bytes).reason.contains("memory"));
    }
}

#[test]
fn lengths_beyond_the_end_are_refused_before_there_is_memory_for_them() {
    let long = (1u64 << 40).to_le_bytes();
    for opcode in [0x8d, 0x8e, 0x96] {
        assert_eq!(refusal(&[&[opcode][..], &long, b"abc."].concat()).reason, "the pickle ends in the middle");
    }
    for opcode in [b'X', b'B', 0x8b] {
        assert_eq!(refusal(&[&[opcode][..], &[0xff, 0xff, 0xff, 0x7f], b"abc."].concat()).offset, Some(0));
    }
    assert!(refusal(b"\x8a\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.").reason.contains("128 bits"));
    assert!(refusal(format!("L{}L\n.", "9".repeat(100)).as_bytes()).reason.contains("too large"));
}

#[test]
fn objects_that_hold_themselves_are_refused() {
    for bytes in [
        &b"\x80\x02]q\x00h\x00a."[..],
        b"\x80\x02]q\x00]h\x00aa.",
        b"\x80\x02]q\x00((h\x00te.",
        b"\x80\x02]q\x00h\x00\x85a.",
        b"\x80\x02}q\x00K\x01h\x00s.",
        b"\x80\x02}q\x00(K\x01]h\x00au.",
    ] {
        let reason = refusal(bytes).reason;
        assert!(reason.contains("holds itself"), "{reason} {bytes:?}");
    }
}

#[test]
fn numbers_of_objects_do_not_make_memory() {
    assert!(refusal(b"\x80\x02Nr\xff\xff\xff\xff.").reason.contains("memory"));
    assert!(refusal(b"Np18446744073709551615\n.").reason.contains("too large"));
    assert!(refusal(b"Ng5\n.").reason.contains("not remembered"));
}

#[test]
fn broken_stacks_are_refused() {
    for bytes in [
        &b"."[..],
        b"a.",
        b"u.",
        b"(.",
        b"NN.",
        b"Na.",
        b"]s.",
        b"}(Nu.",
        b"}Na.",
        b"(N(\x85.",
        b"\x80\x07N.",
        b"",
        b"\xff.",
        b"0.",
    ] {
        let _ = refusal(bytes);
    }
}

/// Few bytes that create as many objects as possible.
#[test]
fn memory_stays_in_proportion_to_the_length() {
    for unit in [&b"]"[..], b"N", b"}", b"K\x01", b"\x94", b"]\x94", b"(l", b"\x8c\x00", b"L1L\n"] {
        let bytes = [&b"\x80\x04N"[..], &unit.repeat((8 << 20) / unit.len())].concat();
        let _ = refusal(&bytes);
    }
}
