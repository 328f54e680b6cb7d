//! Writes the editors' JSON schema from the table of keys.

use serde_json::{Map, Value, json};

use super::keys::{Key, Kind, TOP};

/// The schema as text. A test checks that `docs/workflow.schema.json` is equal to it.
pub fn text() -> String {
    let mut schema = object(TOP);
    let map = schema.as_object_mut().expect("a section is an object");
    map.insert("$schema".into(), json!("http://json-schema.org/draft-07/schema#"));
    map.insert("title".into(), json!("crossdock workflow"));
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema has no unprintable value");
    text.push('\n');
    text
}

const SCALAR: [&str; 3] = ["string", "number", "boolean"];

fn object(keys: &[Key]) -> Value {
    let properties: Map<String, Value> = keys
        .iter()
        .map(|key| {
            let mut value = kind(key.kind);
            value.as_object_mut().expect("a kind is an object").insert("description".into(), json!(key.doc));
            (key.name.to_owned(), value)
        })
        .collect();
    let required: Vec<&str> = keys.iter().filter(|k| k.required).map(|k| k.name).collect();
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn kind(kind: Kind) -> Value {
    let name = json!("^[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*$");
    match kind {
        Kind::Name => json!({ "type": "string", "maxLength": 127, "pattern": name }),
        Kind::Text => json!({ "type": SCALAR }),
        Kind::Command => json!({ "oneOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "minItems": 1, "items": { "type": SCALAR } }
        ] }),
        Kind::Size => json!({ "oneOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? *([kKmMgGtT][iI]?)?[bB]?$" }
        ] }),
        Kind::Count(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Kind::Processors => json!({ "oneOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "array", "minItems": 1, "uniqueItems": true, "items": { "type": "integer", "minimum": 0 } }
        ] }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::Names => json!({ "oneOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" } }
        ] }),
        Kind::Texts => json!({ "type": "object", "additionalProperties": { "type": SCALAR } }),
        Kind::Rights(rights) => {
            let words: Vec<_> = rights.iter().map(|(word, _)| word).collect();
            json!({ "type": "object", "additionalProperties": { "oneOf": [
            { "enum": words },
            { "type": "array", "minItems": 1, "items": { "enum": words } }
        ] } })
        }
        Kind::Section(keys) => object(keys),
        Kind::Sections(keys) => json!({ "type": "object", "additionalProperties": object(keys) }),
        Kind::List(keys) => json!({ "type": "array", "items": object(keys) }),
    }
}
