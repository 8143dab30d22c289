//! Round trips of operator series, and errors for everything else.

use super::*;
use crate::analysis::{MarkerKind, operators};
use crate::recording::DeviceView;
use crate::snapshot::testing::two_lines_and_a_temporary;

fn series() -> OperatorSeries {
    let data = two_lines_and_a_temporary();
    operators(&DeviceView::of(&data, &data.devices[0]))
}

/// The same call many times. The call with the peak added little.
fn long() -> OperatorSeries {
    let mut series = series();
    let call = series.calls[0].clone();
    series.calls = (0..1000)
        .map(|number| OperatorCall {
            number,
            added: i64::try_from(number).unwrap(),
            peak: if number == 3 { 99_999 } else { 10 },
            ..call.clone()
        })
        .collect();
    series.markers.iter_mut().for_each(|marker| marker.call = 1000);
    series
}

fn written(series: &OperatorSeries, options: &OperatorsJson) -> Vec<u8> {
    let mut out = Vec::new();
    options.write_operators(series, &mut out).unwrap();
    out
}

#[test]
fn a_series_is_read_as_it_was_written() {
    let series = series();
    assert_eq!((series.calls.len(), series.markers.len()), (2, 1), "{series:?}");
    assert_eq!(parse_operators(&written(&series, &OperatorsJson::default())).unwrap(), series);
    let none = OperatorSeries { calls: Vec::new(), markers: Vec::new(), added_elsewhere: i64::MIN, ..series };
    assert_eq!(parse_operators(&written(&none, &OperatorsJson::default())).unwrap(), none);
}

#[test]
fn a_file_that_keeps_to_a_size_keeps_the_peak_and_the_sum() {
    let whole = long();
    let out = written(&whole, &OperatorsJson { max_bytes: Some(20_000) });
    assert!(out.len() <= 20_000 && out.len() > 15_000, "{}", out.len());
    let part = parse_operators(&out).unwrap();
    assert_eq!(part.left_out as usize, 1000 - part.calls.len());
    assert!(part.calls.iter().any(|call| call.peak == 99_999));
    let added =
        |series: &OperatorSeries| series.added_elsewhere + series.calls.iter().map(|call| call.added).sum::<i64>();
    assert_eq!(added(&part), added(&whole));
    assert!(part.markers.iter().all(|marker| marker.call == part.calls.len()));
    assert!(part.to_string().contains("left out"), "{part}");
}

#[test]
fn files_that_make_no_sense_are_refused_with_the_place() {
    let good = String::from_utf8(written(&series(), &OperatorsJson::default())).unwrap();
    for (from, to, said) in [
        ("memtrace operators", "something", "does not say \"format\""),
        ("\"version\":1", "\"version\":2", "it has version 2"),
        ("\"version\":1,", "", "\"version\" of the file"),
        ("\"allocations\":1", "\"allocations\":-1", "\"allocations\" of calls[0]"),
        ("\"peak\":4524", "\"peak\":1e99", "\"peak\" of the file"),
        ("\"thread\":1", "\"thread\":99999999999", "\"thread\" of calls[0]"),
        ("\"backward\":false", "\"backward\":0", "\"backward\" of calls[0]"),
        ("\"kind\":\"forward\"", "\"kind\":\"x\"", "\"kind\" of markers[0]"),
        ("\"call\":0", "\"call\":3", "\"call\" of markers[0]"),
        ("]}\n", "]", "not JSON"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        let error = parse_operators(bad.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(said), "{from}: {error}");
    }
    for bytes in [&b""[..], b"[]", b"\xff", &b"[".repeat(100_000)] {
        parse_operators(bytes).unwrap_err();
    }
}

#[test]
fn every_beginning_of_a_file_is_refused_and_no_change_of_a_byte_panics() {
    let good = written(&series(), &OperatorsJson::default());
    let whole = good.trim_ascii_end().len();
    (0..whole).for_each(|end| drop(parse_operators(&good[..end]).unwrap_err()));
    for at in 0..good.len() {
        for byte in [0, b'"', b'-', b'9', b'{', 0xff] {
            let mut bad = good.clone();
            bad[at] = byte;
            let _ = parse_operators(&bad);
        }
    }
}

#[test]
fn the_picture_has_a_legend() {
    let mut picture = Vec::new();
    OperatorsSvg.write_operators(&series(), &mut picture).unwrap();
    let picture = String::from_utf8(picture).unwrap();
    for entry in ["Allocated", "Forward begins"] {
        assert!(picture.contains(&format!(">{entry}")), "{entry}: {picture}");
    }
}

#[test]
fn the_table_says_what_the_largest_calls_added() {
    let text = long().to_string();
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("relu_")).collect();
    assert_eq!(rows.len(), 10, "{text}");
    assert!(rows[0].contains("+999 B") && rows[0].contains("relu_999"), "{text}");
    assert!(series().markers.iter().all(|marker| marker.kind == MarkerKind::Forward));
}
