//! The published schema, which is made from the types, and documents of reports.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::device::{LIVE, Table, Tables};
use super::{Document, Json, report_json};
use crate::analysis::{ON_REQUEST, Subject, TABLES};
use crate::export::Export;
use crate::export::golden_tests::check;
use crate::report::{Confidence, Cost, DiffOptions, Finding, Report, ReportOptions};
use crate::snapshot::SnapshotData;
use crate::snapshot::testing::two_lines_and_a_temporary;

/// Describes each possible table as the table's definition does.
impl JsonSchema for Tables {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Tables".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<Table>();
        let of = |key: &str, by: &str| {
            let when = if key.starts_with("live") {
                "Blocks live at the end"
            } else {
                "At the peak, or at the moment of a report"
            };
            let mut schema = table.clone();
            schema.insert("description".to_owned(), format!("{when}, by {by}.").into());
            (key.to_owned(), Value::from(schema))
        };
        let tables = TABLES.iter().chain(&ON_REQUEST).map(|table| of(table.key, table.by.words()));
        let all: BTreeMap<String, Value> = tables.chain(LIVE.iter().map(|(key, by)| of(key, by.words()))).collect();
        json!({ "type": "object", "properties": all }).try_into().unwrap()
    }
}

/// Forbids keys that are not described, and puts each description on one line.
fn strict(schema: &mut Schema) {
    if schema.get("properties").is_some() {
        schema.ensure_object().entry("additionalProperties").or_insert(false.into());
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ").replace("`None`", "null");
    }
}

#[test]
fn the_schema_of_the_types_matches_its_golden() {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Document>();
    RecursiveTransform(strict).transform(&mut schema);
    let made = format!("{:#}\n", Value::from(schema));
    check("../../core/src/export/report.schema.json", made.as_bytes());
}

fn printed(report: &Report, of: Option<(&SnapshotData, &ReportOptions)>) -> Value {
    serde_json::from_str(&report_json(report, of).unwrap()).unwrap()
}

#[test]
fn a_report_has_the_tables_that_it_shows_with_the_numbers_of_the_whole() {
    let data = two_lines_and_a_temporary();
    let mut out = Vec::new();
    Json::default().write(&data, &mut out).unwrap();
    let whole = &serde_json::from_slice::<Value>(&out).unwrap()["devices"][0];
    let shown = |rows| {
        let sections = vec!["peak_by_line".to_owned(), "temporaries".to_owned()];
        let options = ReportOptions { rows, sections, ..ReportOptions::default() };
        printed(&Report::of(&data, &options).unwrap(), Some((&data, &options)))["devices"][0].clone()
    };
    let device = shown(20);
    for key in ["device", "peak", "stats", "peak_by_line", "temporaries"] {
        assert_eq!(device[key], whole[key], "{key}");
    }
    assert!(["peak_by_function", "scopes"].iter().all(|key| device.get(key).is_none()), "{device:#}");
    let rest = json!({ "label": "(3 smaller rows)", "bytes": 1652, "count": null, "median_bytes": null });
    let first = json!({ "total_bytes": 4652, "rows": [whole["peak_by_line"]["rows"][0], rest] });
    assert_eq!(shown(1)["peak_by_line"], first);
}

#[test]
fn findings_are_never_left_out_and_name_their_cost() {
    let (data, options) = (two_lines_and_a_temporary(), ReportOptions { rows: 1, ..ReportOptions::default() });
    let finding = Finding {
        kind: crate::report::FindingKind::Idle,
        what: "it waits".into(),
        line: None,
        cost: Cost::AtEnd(2048),
        confidence: Confidence::Likely,
        why: "so it is",
        advice: vec!["one".into(), "two".into()],
    };
    let report = Report { findings: vec![finding; 2], ..Report::default() };
    let wanted = json!({
        "kind": "idle",
        "what": "it waits",
        "line": null,
        "cost": { "live_bytes": 2048 },
        "cost_in_words": "2.000 KiB at the end",
        "confidence": "likely",
        "why": "so it is",
        "certainty": "Likely: so it is",
        "advice": ["one", "two"],
    });
    assert_eq!(printed(&report, Some((&data, &options)))["devices"][0]["findings"], json!([wanted, wanted]));
}

#[test]
fn a_difference_and_an_explained_line_have_their_rows_in_sections() {
    let (data, options) = (two_lines_and_a_temporary(), ReportOptions::default());
    let rows_of = |report: &Report, key: &str| {
        let printed = printed(report, None);
        let found = printed["sections"].as_array().unwrap().iter().find(|section| section["key"] == key);
        found.unwrap()["rows"].clone()
    };
    let changes = DiffOptions { threshold: 1, after: crate::analysis::Moment::End, ..DiffOptions::default() };
    let difference = Report::of_diff(&data, &data, &changes).unwrap();
    let line = json!({
        "label": "src/model.rs:7 (Net::forward)",
        "change_bytes": -1000,
        "before_bytes": 3000,
        "after_bytes": 2000,
        "blocks_before": 2,
        "blocks_after": 1,
    });
    assert_eq!(rows_of(&difference, "diff_by_line")[0], line);
    let explained = Report::of_subject(&data, &Subject::parse("model.rs:7"), &options).unwrap();
    assert_eq!(rows_of(&explained, "by_scope")[0]["bytes"], 3000);
    let block = &rows_of(&explained, "blocks")[0];
    assert_eq!((&block["bytes"], &block["to_ns"], &block["at_peak"]), (&json!(2000), &Value::Null, &json!(true)));
}
