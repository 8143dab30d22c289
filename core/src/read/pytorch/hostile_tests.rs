//! Snapshots that would take too much memory or time: few bytes that refer to the same object again and again.

use crate::snapshot::SnapshotData;
use crate::{Error, ReadOptions};

fn text(text: &str) -> Vec<u8> {
    [&[0x8c, text.len() as u8][..], text.as_bytes()].concat()
}

/// A dict of texts and of values that are already pickled.
fn dict(items: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let items = items.iter().flat_map(|(key, value)| [text(key), value.clone()]).flatten();
    [b"}(".to_vec(), items.collect(), b"u".to_vec()].concat()
}

/// A list of a value and of references to it. The value has this number in the memo.
fn repeated(value: Vec<u8>, number: u8, times: usize) -> Vec<u8> {
    let again = [b'h', number].repeat(times);
    [b"](".to_vec(), value, vec![b'q', number], again, b"e".to_vec()].concat()
}

fn pickle(snapshot: Vec<u8>) -> Result<SnapshotData, Error> {
    ReadOptions::default().parse(&[b"\x80\x04".to_vec(), snapshot, b".".to_vec()].concat())
}

fn refusal(snapshot: Vec<u8>) -> String {
    pickle(snapshot).unwrap_err().to_string()
}

fn number(value: u32) -> Vec<u8> {
    [b"J".to_vec(), value.to_le_bytes().to_vec()].concat()
}

fn segment(blocks: Vec<u8>) -> Vec<u8> {
    dict(&[("address", number(0x1000)), ("total_size", number(0x7fff_0000)), ("blocks", blocks)])
}

#[test]
fn blocks_entries_and_traces_stand_in_one_place_each() {
    let block = dict(&[("state", text("active_allocated")), ("size", number(1))]);
    let blocks = repeated(block.clone(), 0, 100_000);
    assert!(refusal(dict(&[("segments", repeated(segment(blocks), 1, 100_000))])).contains("two places"));
    let segments = repeated(segment([b"]".to_vec(), block, b"a".to_vec()].concat()), 1, 100_000);
    assert!(refusal(dict(&[("segments", segments)])).contains("two places"));
    let entry = dict(&[("action", text("alloc")), ("addr", number(1)), ("size", number(1))]);
    let entries = |times| repeated(entry.clone(), 2, times);
    let traced = |traces| dict(&[("segments", b"]".to_vec()), ("device_traces", traces)]);
    assert!(refusal(traced([b"](".to_vec(), entries(1), b"e".to_vec()].concat())).contains("one entry twice"));
    assert!(refusal(traced(repeated(entries(0), 3, 1))).contains("share one trace"));
}

#[test]
fn a_stack_of_millions_of_calls_is_refused() {
    let frame = dict(&[("name", text("f")), ("filename", text("f.py"))]);
    let block = dict(&[("state", text("active_allocated")), ("frames", repeated(frame, 0, 2_000_000))]);
    assert!(refusal(dict(&[("segments", [b"]".to_vec(), block, b"a".to_vec()].concat())])).contains("memory"));
}

/// A call takes two bytes, and each has a long name if it is written out.
#[test]
fn stacks_with_far_more_text_than_bytes_are_refused() {
    let long = [b"X".to_vec(), 20_000u32.to_le_bytes().to_vec(), vec![b'x'; 20_000]].concat();
    let read = |calls| {
        let frame = dict(&[("name", long.clone()), ("filename", text("f.py"))]);
        let block =
            dict(&[("state", text("active_allocated")), ("size", number(1)), ("frames", repeated(frame, 0, calls))]);
        pickle(dict(&[(
            "segments",
            [b"]".to_vec(), segment([b"]".to_vec(), block, b"a".to_vec()].concat()), b"a".to_vec()].concat(),
        )]))
    };
    assert!(read(20_000).unwrap_err().to_string().contains("more text"));
    assert_eq!(read(1000).unwrap().devices[0].live.len(), 1);
}

#[cfg(feature = "gzip")]
#[test]
fn bombs_are_refused_whatever_they_unpack_to() {
    use std::io::Write;

    for (unit, times) in [(&b"N"[..], 20 << 20), (b"N", 40 << 20), (b"]", 20 << 20), (b"]\x94", 10 << 20)] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut encoder = flate2::write::GzEncoder::new(&mut file, flate2::Compression::fast());
        encoder.write_all(&[&b"\x80\x04("[..], &unit.repeat(times)].concat()).unwrap();
        encoder.finish().unwrap();
        let message = crate::open(file.path()).unwrap_err().to_string();
        assert!(message.contains("memory") || message.contains("too large"), "{message}");
    }
}
