//! Names that could break a format.

use std::path::Path;

use memtrace_core::export::{Dhat, Export, Pprof};
use memtrace_core::snapshot::SnapshotData;
use serde_json::Value;

use crate::tables::TableFormat;
use crate::tables::tests::{rows, small, write};

/// Invalid UTF-8 becomes a replacement character.
fn hostile_names() -> [String; 7] {
    [
        "say \"hi\" \\ 'there' </script>".to_owned(),
        "two\nlines\r\t, and; more".to_owned(),
        "a\0NUL \u{1b}[31m \u{1f980} \u{2028}".to_owned(),
        "not UTF-8: \u{fffd}".to_owned(),
        "=1+1".to_owned(),
        "run=a/../b%20".to_owned(),
        "x".repeat(10_000),
    ]
}

/// Every function, file, scope, and the program have such a name.
fn hostile() -> SnapshotData {
    let mut data = small();
    let mut names = hostile_names().into_iter().cycle();
    for frame in &mut data.stacks.frames {
        frame.function = names.next();
        frame.file.clone_from(&frame.function);
    }
    let scopes = data.contexts.iter_mut().skip(1);
    scopes.for_each(|node| node.name = names.next().unwrap());
    data.process.program = hostile_names().concat();
    data
}

fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| texts(value, found)),
        Value::Object(values) => values.values().for_each(|value| texts(value, found)),
        _ => {}
    }
}

fn texts_of_tables(data: &SnapshotData, format: TableFormat, folder: &Path) -> Vec<String> {
    let run = write(data, format, folder);
    let tables = ["runs", "stacks", "frames", "scopes"].map(|table| rows(&run, table));
    tables.into_iter().flatten().flat_map(std::collections::BTreeMap::into_values).collect()
}

#[test]
fn hostile_names_arrive_as_text_in_every_format() {
    let (data, folder) = (hostile(), tempfile::tempdir().unwrap());
    let written = |format: &dyn Export| {
        let mut out = Vec::new();
        format.write(&data, &mut out).unwrap();
        out
    };
    let mut formats: Vec<(&str, Vec<String>)> = Vec::new();
    let mut found = Vec::new();
    texts(&serde_json::from_slice(&written(&Dhat::default())).unwrap(), &mut found);
    formats.push(("dhat", found));
    // In protobuf, the bytes of a text are the text.
    formats.push(("pprof", vec![String::from_utf8_lossy(&written(&Pprof::default())).into_owned()]));
    for (name, format) in [("parquet", TableFormat::Parquet), ("csv", TableFormat::Csv)] {
        formats.push((name, texts_of_tables(&data, format, &folder.path().join(name))));
    }
    for (format, found) in formats {
        for name in hostile_names() {
            assert!(found.iter().any(|text| text.contains(&name)), "{format} has no {name:?}");
        }
        assert!(found.iter().any(|text| text.contains(&data.process.program)), "{format} lacks the program");
    }
}
