//! Names that are added to a streamed capture, and addresses that have only labels.

use super::tests::streamed;
use super::*;
use crate::snapshot::{CodeAddress, Frame, LoadedObject, SnapshotData, testing};
use crate::symbol::label;

/// A name for each address. The third is of C, and the second has only a label.
fn names_for(data: &SnapshotData) -> Symbols {
    let mut symbols = Symbols::default();
    for (index, address) in data.stacks.addresses.iter().enumerate() {
        let frame = Frame { function: Some(format!("f{index}")), file: Some("a.rs".into()), ..Frame::default() };
        let at = symbols.frames.len() as u32;
        symbols.frames.push(frame);
        symbols.addresses.push(CodeAddress { frames: at..at + 1, ..address.clone() });
        symbols.kinds.push(AddressKind { native: index == 2, unknown: index == 1 });
    }
    symbols
}

#[test]
fn names_are_added_and_nothing_is_lost_wherever_the_capture_was_cut() {
    let whole = streamed();
    let mut readable = 0;
    for (length, garbage) in (0..=whole.len()).flat_map(|length| [(length, &b""[..]), (length, b"half a chunk")]) {
        let bytes = [&whole[..length], garbage].concat();
        let Ok(before) = read(&bytes) else { continue };
        readable += 1;
        assert!(!before.names.are_final(), "it has none yet");
        let commit = before.commit.clone();
        let named = with_names(&bytes, commit.clone(), names_for(&before.data)).unwrap();
        assert!(named.starts_with(&bytes[..commit.end]) && named.ends_with(&bytes[commit.start..]), "{length}");
        let after = read(&named).unwrap();
        let ends = |bytes: &[u8]| has_end(std::io::Cursor::new(bytes)).unwrap_or(false);
        assert_eq!((ends(&bytes), ends(&named)), (!before.data.health.cut_off, !before.data.health.cut_off));
        assert_eq!(after.data.health, before.data.health, "also what was cut off and unread");
        assert_eq!((&after.data.devices, &after.data.objects), (&before.data.devices, &before.data.objects));
        let addresses = |capture: &DecodedCapture| -> Vec<u64> {
            capture.data.stacks.addresses.iter().map(|address| address.address).collect()
        };
        assert_eq!(addresses(&after), addresses(&before));
        assert!(after.data.stacks.each_calls().eq(before.data.stacks.each_calls()), "all calls stay");
        let StoredNames { any, all_calls, kinds } = &after.names;
        assert!(*any && *all_calls && !after.names.are_final());
        assert_eq!(*kinds, names_for(&before.data).kinds);
        let name = |index: usize| after.names.of(index, &after.data.stacks).unwrap().frames[0].function.clone();
        assert_eq!(name(0).as_deref(), Some("f0"));
    }
    assert!(readable > 1, "the whole one, with and without garbage");
}

#[test]
fn of_a_whole_capture_only_labels_are_marked() {
    let mut data = testing::a_sample();
    let bytes_of = |data: &SnapshotData| {
        let mut bytes = Vec::new();
        write(data, usize::MAX, &mut bytes).unwrap();
        bytes
    };
    let final_names = |data: &SnapshotData| read(&bytes_of(data)).unwrap().names.are_final();
    assert!(final_names(&data) && has_end(std::io::Cursor::new(bytes_of(&data))).unwrap());
    let object = LoadedObject { path: Some("/gone/libx.so".into()), build_id: vec![7], base: 0x10, range: 0..u64::MAX };
    data.objects = vec![object];
    let (address, at) = (&mut data.stacks.addresses[0], data.stacks.frames.len() as u32);
    (address.object, address.offset, address.frames) = (Some(0), address.address - 0x10, at..at + 1);
    let of_object = label(address.address, data.objects.first());
    data.stacks.frames.extend(of_object.frames);
    assert!(of_object.native && !final_names(&data));
    let names = read(&bytes_of(&data)).unwrap().names;
    assert_eq!(names.kinds[0], AddressKind { native: true, unknown: true });
    assert!(names.kinds[1..].iter().all(|kind| *kind == AddressKind::default()));
    // The object is missing when the capture is read, so the names are those that were written.
    let read = crate::ReadOptions::default().parse(&bytes_of(&data)).unwrap();
    assert_eq!((&read.health, &read.stacks.calls), (&data.health, &data.stacks.calls));
    let again = crate::ReadOptions::default().parse(&bytes_of(&read)).unwrap();
    assert!(again == read && bytes_of(&again) == bytes_of(&read));
}
