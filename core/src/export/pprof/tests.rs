use std::collections::BTreeMap;

use super::Pprof;
use crate::analysis::{Key, Moment};
use crate::export::naive_protobuf::NaiveMessage;
use crate::export::viewer_tests::{hostile, hostile_names, written};
use crate::recording::DeviceView;
use crate::snapshot::DeviceSnapshot;
use crate::snapshot::testing::{a_sample, two_lines_and_a_temporary};

/// Bytes of each device for the sample type of this name, by the values of a label.
fn pprof_sums(bytes: &[u8], sample_type: &str, key: &str) -> BTreeMap<(String, String), u64> {
    let profile = NaiveMessage::decode(bytes);
    let strings: Vec<String> = profile.all(6).into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
    let text = |number: u64| &strings[number as usize];
    let at = profile.messages(1).iter().position(|of| text(of.number(1)) == sample_type).unwrap();
    let mut sums = BTreeMap::new();
    for sample in profile.messages(2) {
        let labels = sample.messages(3);
        let label = |key: &str| {
            let found = labels.iter().find(|label| text(label.number(1)) == key);
            found.map_or(String::new(), |label| text(label.number(2)).clone())
        };
        *sums.entry((label("device"), label(key))).or_insert(0) += sample.numbers(2)[at];
    }
    sums
}

fn of_device(
    device: &DeviceSnapshot,
    rows: impl IntoIterator<Item = (String, u64)>,
) -> BTreeMap<(String, String), u64> {
    let rows = rows.into_iter().filter(|(_, bytes)| *bytes > 0);
    rows.map(|(label, bytes)| ((device.device.to_string(), label), bytes)).collect()
}

#[test]
fn pprof_has_the_peak_of_each_device_to_the_byte() {
    for data in [two_lines_and_a_temporary(), a_sample(), hostile()] {
        let bytes = written(&Pprof::default(), &data);
        let sums = |sample_type: &str| {
            let mut by_device = BTreeMap::new();
            for ((device, _), sum) in pprof_sums(&bytes, sample_type, "device") {
                *by_device.entry(device).or_insert(0) += sum;
            }
            by_device
        };
        for device in &data.devices {
            let name = device.device.to_string();
            assert_eq!(sums("inuse_space")[&name], device.peak.total());
            for (sample_type, moment) in [("alloc_space", Moment::Allocated), ("live_space", Moment::End)] {
                let expected = DeviceView::of(&data, device).at(&moment).unwrap().total();
                assert_eq!(sums(sample_type)[&name], expected, "{sample_type}");
            }
        }
    }
}

#[test]
fn pprof_of_one_device_has_no_other() {
    let data = hostile();
    for device in &data.devices {
        let sums = pprof_sums(&written(&Pprof { device: Some(device.device) }, &data), "inuse_space", "device");
        assert!(sums.keys().all(|(name, _)| *name == device.device.to_string()), "{sums:?}");
        assert_eq!(sums.values().sum::<u64>(), device.peak.total());
    }
}

#[test]
fn labels_of_pprof_are_the_rows_of_the_report() {
    let data = two_lines_and_a_temporary();
    let device = &data.devices[0];
    let bytes = written(&Pprof::default(), &data);
    for (key, table) in [
        ("operator", DeviceView::of(&data, device).by(Key::Operator)),
        ("category", DeviceView::of(&data, device).by(Key::Category)),
    ] {
        let mut sums = pprof_sums(&bytes, "inuse_space", key);
        // Bytes without a block have no label.
        let rest = device.peak.not_recorded + device.peak.below_threshold;
        assert_eq!(sums.remove(&("cpu".into(), String::new())), Some(rest));
        sums.retain(|_, bytes| *bytes > 0);
        let blocks = table.rows.iter().filter(|row| row.count.is_some());
        assert_eq!(sums, of_device(device, blocks.map(|row| (row.label.clone(), row.bytes))));
    }
    let scopes = pprof_sums(&bytes, "inuse_objects", "scope");
    assert_eq!(scopes[&("cpu".into(), "forward".into())], 2);
}

#[test]
fn pprof_has_inlined_frames_as_lines_of_one_location_and_any_name_as_text() {
    let profile = NaiveMessage::decode(&written(&Pprof::default(), &hostile()));
    let strings: Vec<String> = profile.all(6).into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
    assert!(hostile_names().iter().all(|name| strings.contains(name)));
    assert_eq!(strings[0], "");
    assert_eq!(strings[profile.number(14) as usize], "inuse_space");
    let functions = profile.messages(5);
    let lines = |location: &NaiveMessage| -> Vec<(String, String, u64)> {
        let of_line = |line: &NaiveMessage| {
            let function = functions.iter().find(|function| function.number(1) == line.number(1)).unwrap();
            let text = |field| strings[function.number(field) as usize].clone();
            (text(2), text(4), line.number(2))
        };
        location.messages(4).iter().map(of_line).collect()
    };
    let locations: Vec<_> = profile.messages(4).iter().map(lines).collect();
    let inlined = hostile_names().into_iter().zip(1..).take(3).map(|(name, line)| (name.clone(), name, line));
    assert!(locations.contains(&inlined.collect()), "{locations:?}");
}
