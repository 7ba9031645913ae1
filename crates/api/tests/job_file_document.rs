//! The tables of `docs/job-file.md`: what each says of a field is what the format itself says of it.
//!
//! A comment `<!-- fields: gang, virtual_card.tflops -->` above a table names the fields of its rows. The tables are
//! written anew by `TESSERA_WRITE_GOLDEN=1 cargo test -p tessera-api job_file_document`.

use std::collections::BTreeSet;

use serde_json::Value;
use tessera_api::job_file::schema;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/job-file.md");
const BEGIN: &str = "<!-- fields:";
const HEADER: &str = "| field | meaning | when left out |\n|---|---|---|\n";

/// The object that describes the fields within a field: where its first reference leads.
fn within<'a>(schema: &'a Value, field: &Value) -> Option<&'a Value> {
    let reference = match field {
        Value::Object(entries) => match entries.get("$ref") {
            Some(Value::String(path)) => return schema["$defs"].get(path.strip_prefix("#/$defs/")?),
            _ => entries.values().find_map(|entry| within(schema, entry)),
        },
        Value::Array(entries) => entries.iter().find_map(|entry| within(schema, entry)),
        _ => None,
    };
    reference.filter(|object| object.get("properties").is_some())
}

/// Every field with what holds it and what is said of it, by its path.
fn collect(schema: &Value, object: &Value, path: &str, found: &mut Vec<(String, bool, String)>) {
    let Some(fields) = object["properties"].as_object() else { return };
    for (name, field) in fields {
        let path = format!("{path}{name}");
        let required = object["required"].as_array().is_some_and(|all| all.contains(&Value::from(name.as_str())));
        let said = field["description"].as_str().unwrap_or_else(|| panic!("nothing is said of {path}"));
        found.push((path.clone(), required, said.split_whitespace().collect::<Vec<_>>().join(" ")));
        if let Some(inner) = within(schema, field) {
            collect(schema, inner, &format!("{path}."), found);
        }
    }
}

fn row(path: &str, required: bool, said: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path);
    let without = said.strip_suffix(" when left out.").and_then(|said| said.rsplit_once("; "));
    let (meaning, without) = match without {
        Some((meaning, without)) => (format!("{meaning}."), without),
        None => (said.to_owned(), "must be given"),
    };
    assert_eq!(
        without == "must be given",
        required,
        "the comment of {path} must end with what holds when it is left out"
    );
    format!("| `{name}` | {meaning} | {without} |\n")
}

/// The document with its tables made anew, and the fields that they show.
fn written(document: &str, fields: &[(String, bool, String)]) -> (String, BTreeSet<String>) {
    let (mut text, mut shown, mut rest) = (String::new(), BTreeSet::new(), document);
    while let Some(begin) = rest.find(BEGIN) {
        let (before, marked) = rest.split_at(begin);
        let end = marked.find("-->").expect("the comment ends");
        let header = marked.find(HEADER).expect("a table follows the comment");
        let table = &marked[header..];
        let after = table.find("\n\n").expect("an empty line follows the table") + 1;
        text += before;
        text += &marked[..header];
        text += HEADER;
        for path in marked[BEGIN.len()..end].split(',').map(str::trim) {
            let (path, required, said) =
                fields.iter().find(|(known, ..)| known == path).unwrap_or_else(|| panic!("there is no field {path}"));
            text += &row(path, *required, said);
            assert!(shown.insert(path.clone()), "{path} is shown twice");
        }
        rest = &table[after..];
    }
    (text + rest, shown)
}

#[test]
fn the_document_says_of_every_field_what_the_format_says() {
    let schema = schema();
    let mut fields = Vec::new();
    collect(schema.as_value(), schema.as_value(), "", &mut fields);
    assert!(fields.len() > 40, "the schema was not understood: {fields:?}");
    let document = std::fs::read_to_string(DOCUMENT).expect("the document is there");
    let (now, shown) = written(&document, &fields);
    let all: BTreeSet<String> = fields.into_iter().map(|(path, ..)| path).collect();
    let missing: Vec<&String> = all.difference(&shown).collect();
    assert!(missing.is_empty(), "docs/job-file.md has no row for {missing:?}: name them above one of its tables");
    if std::env::var_os("TESSERA_WRITE_GOLDEN").is_some() {
        std::fs::write(DOCUMENT, &now).expect("the document is written");
    }
    let command = "TESSERA_WRITE_GOLDEN=1 cargo test -p tessera-api job_file_document";
    assert_eq!(std::fs::read_to_string(DOCUMENT).expect("the document is there"), now, "write it anew: {command}");
}
