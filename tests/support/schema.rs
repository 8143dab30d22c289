//! Validation of the report's JSON against its schema.

use memtrace::SnapshotData;
use memtrace::export::{Export, Json};
use serde_json::Value;

/// Messages of all violations.
pub(crate) fn violations(report: &Value) -> Vec<String> {
    let schema = serde_json::from_str(Json::SCHEMA).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    schema.iter_errors(report).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// The JSON report of a recording, which must match the schema.
pub(crate) fn checked_json(data: &SnapshotData) -> Value {
    let mut out = Vec::new();
    Json::default().write(data, &mut out).unwrap();
    let report = serde_json::from_slice(&out).unwrap();
    assert_eq!(violations(&report), [""; 0]);
    report
}
