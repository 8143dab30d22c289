//! Reads the tables back: Parquet with the library, CSV with a small reader here.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memtrace_core::DeviceView;
use memtrace_core::analysis::Key;
use memtrace_core::snapshot::{ContextId, OlderRow, OlderTime, SnapshotData, StackId};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::rows::TABLES;
use super::{RunTables, TableFormat};

/// Rows of a table, by column.
type TableRows = Vec<BTreeMap<String, String>>;

pub(crate) fn small() -> SnapshotData {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/docs/small.memtrace");
    memtrace_core::open(&path).unwrap()
}

pub(crate) fn write(data: &SnapshotData, format: TableFormat, folder: &Path) -> PathBuf {
    let labels = [("commit".to_owned(), "say \"hi\", twice".to_owned())];
    let run = RunTables { data, recording: Path::new("a/small.memtrace"), labels: &labels };
    run.write(format, folder).unwrap()
}

/// A table of a run. Nulls are left out.
pub(crate) fn rows(run: &Path, table: &str) -> TableRows {
    let parquet = run.join(format!("{table}.parquet"));
    if parquet.exists() { from_parquet(&parquet) } else { from_csv(&run.join(format!("{table}.csv"))) }
}

fn from_parquet(path: &Path) -> TableRows {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let cells = |(name, field): (&String, &Field)| match field {
        Field::Null => None,
        Field::Str(text) => Some((name.clone(), text.clone())),
        // Rust's tests of time columns need the number.
        Field::TimestampMicros(number) => Some((name.clone(), number.to_string())),
        field => Some((name.clone(), field.to_string())),
    };
    reader.get_row_iter(None).unwrap().map(|row| row.unwrap().get_column_iter().filter_map(cells).collect()).collect()
}

fn from_csv(path: &Path) -> TableRows {
    let text = fs::read_to_string(path).unwrap();
    let (mut records, mut record, mut cell, mut is_quoted, mut was_quoted) =
        (Vec::new(), Vec::new(), String::new(), false, false);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => (is_quoted, was_quoted) = (!is_quoted, true),
            ',' | '\n' if !is_quoted => {
                let value = std::mem::take(&mut cell);
                record.push(Some(value).filter(|value| was_quoted || !value.is_empty()));
                was_quoted = false;
                if c == '\n' {
                    records.push(std::mem::take(&mut record));
                }
            }
            c => cell.push(c),
        }
    }
    let mut records = records.into_iter();
    let names: Vec<String> = records.next().unwrap().into_iter().flatten().collect();
    let row = |cells: Vec<Option<String>>| {
        assert_eq!(cells.len(), names.len(), "{cells:?}");
        names.iter().cloned().zip(cells).filter_map(|(name, cell)| Some((name, cell?))).collect()
    };
    records.map(row).collect()
}

#[test]
fn lines_blocks_and_events_add_up_to_the_report_in_both_formats() {
    let (data, folder) = (small(), tempfile::tempdir().unwrap());
    for (format, name) in [(TableFormat::Parquet, "parquet"), (TableFormat::Csv, "csv")] {
        let run = write(&data, format, &folder.path().join(name));
        let (blocks, stacks) = (rows(&run, "blocks"), rows(&run, "stacks"));
        let line_of = |stack: &String| stacks.iter().find(|row| row["stack"] == *stack).unwrap()["line"].clone();
        for device in &data.devices {
            let mut lines: BTreeMap<String, u64> = BTreeMap::new();
            let of_device = |row: &&BTreeMap<String, String>| row["device"] == device.device.to_string();
            for row in blocks.iter().filter(of_device).filter(|row| row.contains_key("peak_bytes")) {
                let line = row.get("stack").map_or_else(|| row["name"].clone(), line_of);
                *lines.entry(line).or_default() += row["peak_bytes"].parse::<u64>().unwrap();
            }
            assert_eq!(lines.values().sum::<u64>(), device.peak.total());
            let report =
                DeviceView::of(&data, device).by(Key::Line).rows.clone().into_iter().filter(|row| row.count.is_some());
            for row in report {
                assert_eq!(lines[&row.label], row.bytes, "{}", row.label);
            }
            let end = blocks.iter().filter(of_device).filter_map(|row| row.get("end_bytes"));
            let end: u64 = end.map(|bytes| bytes.parse::<u64>().unwrap()).sum();
            let devices = rows(&run, "devices");
            assert_eq!(devices.iter().find(of_device).unwrap()["end_bytes"], end.to_string());
            let events = rows(&run, "events");
            assert_eq!(events.iter().filter(of_device).count(), device.records.len());
            let highest = events.iter().filter(of_device).map(|row| row["live_bytes"].parse::<u64>().unwrap()).max();
            assert_eq!(highest, Some(device.peak.bytes));
        }
        let run = rows(&run, "runs").remove(0);
        assert_eq!(run["started"], data.process.started_unix_us.to_string());
        assert_eq!((&*run["version"], &*run["recording"]), ("1", "a/small.memtrace"));
        assert!(run["run"].starts_with(&data.process.program), "{run:?}");
    }
}

#[test]
fn many_row_groups_are_one_table_and_nulls_stay_nulls() {
    let (mut data, folder) = (small(), tempfile::tempdir().unwrap());
    let device = &mut data.devices[0];
    let record = device.records[0];
    device.records = vec![record; (1 << 7) + 5];
    device.records[7].alloc_seq = None;
    let run = write(&data, TableFormat::Parquet, folder.path());
    let events = rows(&run, "events");
    assert_eq!(events.len(), (1 << 7) + 5);
    let without: Vec<usize> = (0..events.len()).filter(|row| !events[*row].contains_key("block")).collect();
    assert_eq!(without, [7]);
    assert!((0..).zip(&events).all(|(position, row): (u64, _)| row["position"] == position.to_string()));
}

#[test]
fn older_times_have_their_stacks_what_is_left_and_their_scopes() {
    let (mut data, folder) = (small(), tempfile::tempdir().unwrap());
    let stack = |of, least, at_highest| OlderRow { of: StackId(of), least, at_highest };
    let scopes = vec![OlderRow { of: ContextId(1), least: 5, at_highest: 70 }];
    let times = [
        OlderTime { from_ns: 10, to_ns: 20, records: 8, lacks_records: true, ..OlderTime::default() },
        OlderTime {
            from_ns: 20,
            to_ns: 40,
            highest: 100,
            stacks: vec![stack(2, 0, 60), stack(1, 9, 30)],
            scopes,
            ..OlderTime::default()
        },
    ];
    data.devices[0].older = times.to_vec();
    for format in TableFormat::ALL {
        let all = rows(&write(&data, format, &folder.path().join(format.name())), "older_times");
        let cell =
            |row: &BTreeMap<String, String>, column: &str| row.get(column).map(|cell| cell.parse::<u64>().unwrap());
        let cells = |row| {
            ["from_ns", "highest_bytes", "stack", "scope", "at_highest_bytes", "least_bytes"]
                .map(|column| cell(row, column))
        };
        let wanted = [
            [Some(10), Some(0), None, None, Some(0), None],
            [Some(20), Some(100), Some(2), None, Some(60), Some(0)],
            [Some(20), Some(100), Some(1), None, Some(30), Some(9)],
            [Some(20), Some(100), None, None, Some(10), None],
            [Some(20), Some(100), None, Some(1), Some(70), Some(5)],
        ];
        assert_eq!(all.iter().map(cells).collect::<Vec<_>>(), wanted, "{}", format.name());
        assert_eq!(
            all.iter().map(|row| &*row["lacks_records"]).collect::<Vec<_>>(),
            ["true", "false", "false", "false", "false"]
        );
    }
}

#[test]
fn a_run_is_exported_once_and_leaves_nothing_else() {
    let (data, folder) = (small(), tempfile::tempdir().unwrap());
    let path = write(&data, TableFormat::Csv, folder.path());
    let run = RunTables { data: &data, recording: Path::new("x"), labels: &[] };
    let error = run.write(TableFormat::Csv, folder.path()).unwrap_err().to_string();
    assert!(error.contains("remove the folder"), "{error}");
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, std::slice::from_ref(&path));
    // A dump of the same process.
    let mut dump = data.clone();
    dump.process.duration_ns += 5_000_000;
    assert_ne!(write(&dump, TableFormat::Csv, folder.path()), path);
    // Recordings that do not name a process, such as pickles, use their file's name.
    let mut unknown = data.clone();
    unknown.process = Default::default();
    let path = write(&unknown, TableFormat::Csv, folder.path());
    assert_eq!(path.file_name().unwrap(), "run=small.memtrace");
}

#[test]
fn every_column_is_documented() {
    let docs = include_str!("../../../docs/parquet.md");
    for (table, _) in TABLES {
        let section = docs.split("\n## ").find(|section| section.starts_with(&format!("{}\n", table.name)));
        let section = section.unwrap_or_else(|| panic!("docs/parquet.md has no table {}", table.name));
        for (column, _) in table.columns {
            assert!(section.contains(&format!("`{column}`")), "docs/parquet.md lacks {}.{column}", table.name);
        }
    }
}
