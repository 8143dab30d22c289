//! Golden tests: every format of one small hand-made snapshot is compared with the files in `tests/golden`.
//!
//! `MEMTRACE_UPDATE_GOLDENS=1 cargo test -p memtrace-core golden` updates them. A missing file is a failure.

use std::path::Path;

use super::naive_unpickle::{NaiveValue, unpickle};
use super::{
    Capture, CategoriesJson, CategoriesRaw, ChromeTrace, Export, Folded, Json, Measure, MemoryLayout, Pickle, Text,
};
use crate::snapshot::testing::two_lines_and_a_temporary;

pub(crate) fn check(name: &str, made: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name);
    if std::env::var_os("MEMTRACE_UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let golden = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        made == golden,
        "{name} differs from its golden file. Made:\n{}\nGolden:\n{}",
        String::from_utf8_lossy(made),
        String::from_utf8_lossy(&golden)
    );
}

#[test]
fn text_report_matches_its_golden() {
    let data = two_lines_and_a_temporary();
    check("report.txt", Text { width: 80, ..Default::default() }.render(&data).unwrap().as_bytes());
}

#[test]
fn json_report_matches_its_golden() {
    let mut out = Vec::new();
    Json::default().write(&two_lines_and_a_temporary(), &mut out).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    check("report.json", String::from_utf8(out).unwrap().replace(version, "VERSION").as_bytes());
}

#[test]
fn folded_stacks_match_their_goldens() {
    let data = two_lines_and_a_temporary();
    for (name, measure) in [("bytes.folded", Measure::Bytes), ("count.folded", Measure::Count)] {
        let mut out = Vec::new();
        Folded { measure, ..Default::default() }.write(&data, &mut out).unwrap();
        check(name, &out);
    }
}

#[test]
fn pickle_reads_back_as_its_golden() {
    let mut out = Vec::new();
    Pickle::default().write(&two_lines_and_a_temporary(), &mut out).unwrap();
    let value = unpickle(&out);
    let version = env!("CARGO_PKG_VERSION");
    check("pickle.txt", format!("{}\n", value.pretty(0)).replace(version, "VERSION").as_bytes());
}

#[test]
fn traces_match_their_goldens() {
    let data = two_lines_and_a_temporary();
    let (mut events, mut rows) = (Vec::new(), Vec::new());
    ChromeTrace::default().write(&data, &mut events).unwrap();
    MemoryLayout::default().write(&data, &mut rows).unwrap();
    for (name, made) in [("timeline.json", events), ("layout.json", rows)] {
        let made = String::from_utf8(made).unwrap();
        check(name, made.replace(env!("CARGO_PKG_VERSION"), "VERSION").as_bytes());
    }
}

#[test]
fn category_timelines_match_their_goldens() {
    let data = two_lines_and_a_temporary();
    let (mut rows, mut entries) = (Vec::new(), Vec::new());
    CategoriesJson::default().write(&data, &mut rows).unwrap();
    CategoriesRaw::default().write(&data, &mut entries).unwrap();
    check("categories.json", &rows);
    check("categories.raw.json", &entries);
}

#[test]
fn an_empty_snapshot_is_written_by_every_format() {
    let data = crate::snapshot::testing::empty();
    assert!(Text::default().render(&data).unwrap().contains("nothing was recorded"));
    let mut out = Vec::new();
    Pickle::default().write(&data, &mut out).unwrap();
    assert!(matches!(unpickle(&out), NaiveValue::Dict(_)));
    out.clear();
    Folded::default().write(&data, &mut out).unwrap();
    assert!(out.is_empty());
    Json { compact: true, ..Default::default() }.write(&data, &mut out).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
    out.clear();
    ChromeTrace::default().write(&data, &mut out).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
    out.clear();
    MemoryLayout::default().write(&data, &mut out).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
    #[cfg(feature = "flamegraph")]
    {
        let error = super::Flamegraph::default().write(&data, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("nothing was live"), "{error}");
    }
}

#[cfg(feature = "flamegraph")]
#[test]
fn the_flamegraph_names_every_line_and_the_peak() {
    let mut out = Vec::new();
    super::Flamegraph::default().write(&two_lines_and_a_temporary(), &mut out).unwrap();
    let svg = String::from_utf8(out).unwrap();
    for text in ["Net::forward src/model.rs:7", "4.543 KiB, at the peak", "allocated before recording"] {
        assert!(svg.contains(text), "{text}");
    }
}

/// A writer that fails after this many bytes.
pub(crate) struct Full(pub(crate) usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(std::io::Error::other("disk full")) } else { Ok(taken) }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_fails_anywhere_is_an_error_and_never_a_panic() {
    let data = two_lines_and_a_temporary();
    let mut whole = Vec::new();
    Pickle::default().write(&data, &mut whole).unwrap();
    let step = if std::env::var_os("MEMTRACE_CASES").is_some() { 1 } else { 3 };
    for room in (0..whole.len()).step_by(step) {
        assert!(Pickle::default().write(&data, &mut Full(room)).is_err());
        assert!(Json::default().write(&data, &mut Full(room)).is_err());
    }
    for room in (0..2000).step_by(step) {
        assert!(ChromeTrace::default().write(&data, &mut Full(room)).is_err());
        assert!(MemoryLayout::default().write(&data, &mut Full(room)).is_err());
    }
    for room in 0..200 {
        assert!(CategoriesJson::default().write(&data, &mut Full(room)).is_err());
        assert!(CategoriesRaw::default().write(&data, &mut Full(room)).is_err());
    }
    assert!(Text::default().write(&data, &mut Full(100)).is_err());
    assert!(Folded::default().write(&data, &mut Full(10)).is_err());
}

/// The peak of the live bytes as the viewers compute it: from the entries, on top of the live blocks whose allocs are
/// not among the entries.
fn viewers_peak(pickle: &NaiveValue) -> i128 {
    let entries = pickle.at("device_traces").list()[0].list();
    let blocks: Vec<NaiveValue> =
        pickle.at("segments").list().iter().flat_map(|segment| segment.at("blocks").list()).collect();
    let live = blocks.iter().filter(|block| block.at("state").text() == "active_allocated");
    let end: i128 = live.map(|block| block.at("requested_size").int()).sum();
    let change = |entry: &NaiveValue| match entry.at("action").text().as_str() {
        "alloc" => entry.at("size").int(),
        "free_completed" => -entry.at("size").int(),
        _ => 0,
    };
    let mut now = end - entries.iter().map(change).sum::<i128>();
    let mut peak = now;
    for entry in &entries {
        now += change(entry);
        peak = peak.max(now);
    }
    peak
}

#[test]
fn a_small_pickle_says_what_it_left_out_and_keeps_the_peak() {
    let data = two_lines_and_a_temporary();
    let peak = i128::from(data.devices[0].peak.bytes - data.devices[0].peak.not_recorded);
    let mut whole = Vec::new();
    Pickle::default().write(&data, &mut whole).unwrap();
    let whole = whole.len() as u64;
    // Six records; a free makes two entries. The temporary is left out first.
    for (max_bytes, entries) in [(None, 8), (Some(whole), 8), (Some(whole - 1), 5), (Some(10), 5)] {
        let mut out = Vec::new();
        let options = Pickle { max_bytes, ..Default::default() };
        let left_out = options.write(&data, &mut out).unwrap();
        let value = unpickle(&out);
        assert_eq!(viewers_peak(&value), peak, "{max_bytes:?}");
        assert!(max_bytes.is_none_or(|max| out.len() as u64 <= max) || left_out.too_large, "{}", out.len());
        let shown = value.at("device_traces").list()[0].list().len();
        let said = value.at("allocator_settings").find("left_out").map(|text| text.text());
        assert_eq!(said, (!left_out.is_nothing()).then(|| left_out.to_string()));
        assert_eq!(shown, entries, "{max_bytes:?}");
    }
}

/// The crate's documentation reads this capture.
#[test]
fn the_capture_of_the_manual_matches_its_golden() {
    let mut out = Vec::new();
    Capture::default().write(&two_lines_and_a_temporary(), &mut out).unwrap();
    check("../../core/docs/small.memtrace", &out);
}
