//! The schema that is published, made from the types.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::Document;
use super::device::{LIVE, Table, Tables};
use crate::analysis::{ON_REQUEST, TABLES};
use crate::export::golden_tests::check;

/// Each table that there may be is described as where it is defined.
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
        let tables = TABLES.iter().chain(&ON_REQUEST).map(|table| of(table.key, table.by));
        let all: BTreeMap<String, Value> = tables.chain(LIVE.iter().map(|(key, by, _)| of(key, by))).collect();
        json!({ "type": "object", "properties": all }).try_into().unwrap()
    }
}

/// There are no other keys than those that are described, a key that may be absent is never null, and a text is one line.
fn strict(schema: &mut Schema) {
    let required = schema.get("required").cloned().unwrap_or(json!([]));
    let is_required = |key: &String| required.as_array().unwrap().iter().any(|name| name == key);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.iter_mut().filter(|(key, _)| !is_required(key)).for_each(|(_, value)| never_null(value));
        schema.ensure_object().entry("additionalProperties").or_insert(false.into());
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

fn never_null(schema: &mut Value) {
    if let Some(types) = schema["type"].as_array() {
        schema["type"] = types.iter().find(|name| *name != "null").cloned().unwrap();
    } else if let Some(of) = schema["anyOf"].as_array() {
        *schema = of[0].clone();
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
