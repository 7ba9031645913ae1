//! Putting a request together out of path, query and body, by the descriptor of its message.
//!
//! Everything becomes one tree of JSON first and is read by the rules that protocol buffers have for JSON: so a number
//! in a path, a word in a query and a field of a body are judged alike.

use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};
use tessera_api::Refusal;
use tessera_ledger::wire::FieldError;

use crate::Described;
use crate::paths::Bound;
use crate::routes::Resume;

/// A field whose own fields may be named in a query without it.
const FILTER: &str = "filter";

/// The parts of an HTTP request from which its message is built.
pub(crate) struct Asked<'a> {
    /// The fields that the path gives.
    pub bound: &'a Bound,
    /// The query, as it came.
    pub query: &'a str,
    pub body: Option<&'a [u8]>,
    /// The id of the last event that the caller has seen.
    pub last_event: Option<&'a str>,
}

/// The message that a request is.
pub(crate) fn message(described: &Described, asked: &Asked<'_>) -> Result<DynamicMessage, Refusal> {
    let input = described.method.input();
    let mut tree = match asked.body {
        Some(body) => read(body)?,
        None => Map::new(),
    };
    if asked.body.is_some() && !asked.query.is_empty() {
        return Err(invalid("query", "must be empty: all fields of this request are in its body"));
    }
    for (name, value) in form_urlencoded::parse(asked.query.as_bytes()) {
        set(&mut tree, &input, &name, &value, Given::Query)?;
    }
    for (name, value) in asked.bound {
        set(&mut tree, &input, name, value, Given::Path)?;
    }
    if let Some(last) = asked.last_event.filter(|last| !last.is_empty()) {
        take_up(&mut tree, &input, described.route.resume, last);
    }
    let mut track = serde_path_to_error::Track::new();
    let tree = serde_path_to_error::Deserializer::new(Value::Object(tree), &mut track);
    DynamicMessage::deserialize(input, tree).map_err(|error| {
        let whole = if asked.body.is_some() { "body" } else { "query" };
        match track.path().to_string() {
            path if path == "." => invalid(whole, &error.to_string()),
            path => invalid(&path, &error.to_string()),
        }
    })
}

/// Most values of a body. The tree of a body takes up to some 600 bytes for each, however short it is written.
const VALUES: usize = 100_000;

/// An upper bound on the number of values in some JSON: each but the first comes after a comma, a colon or a bracket.
fn values(json: &[u8]) -> usize {
    let (mut values, mut in_text, mut escaped) = (1, false, false);
    for byte in json {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (false, b',' | b':' | b'[' | b'{') => values += 1,
            _ => {}
        }
    }
    values
}

fn read(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    if values(body) > VALUES {
        return Err(invalid("body", &format!("has more than {VALUES} values; ask for less at once")));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(tree)) => Ok(tree),
        Ok(_) => Err(invalid("body", "must be an object: {...}")),
        Err(error) => Err(invalid("body", &format!("is not JSON: {error}"))),
    }
}

fn invalid(field: &str, problem: &str) -> Refusal {
    FieldError::invalid(field, problem).into()
}

/// Has a stream go on after an event, wherever else it was to begin.
fn take_up(tree: &mut Map<String, Value>, input: &MessageDescriptor, resume: Resume, last: &str) {
    let name = match resume {
        Resume::Never => return,
        Resume::Token => "resume_token",
        Resume::Offset => "offset",
    };
    let Some(field) = input.get_field_by_name(name) else { return };
    let beginnings = field.containing_oneof();
    for other in beginnings.iter().flat_map(|beginnings| beginnings.fields()) {
        take(tree, &other);
    }
    take(tree, &field);
    tree.insert(field.json_name().to_owned(), Value::String(last.to_owned()));
}

/// Takes a field out of a tree, under whichever of its two names it is there.
fn take(tree: &mut Map<String, Value>, field: &FieldDescriptor) -> Option<Value> {
    let plain = tree.remove(field.name());
    tree.remove(field.json_name()).or(plain)
}

/// The part of the request in which a value was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Path,
    Query,
}

/// Sets the field that a dotted name stands for.
fn set(
    tree: &mut Map<String, Value>,
    message: &MessageDescriptor,
    name: &str,
    text: &str,
    given: Given,
) -> Result<(), Refusal> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let Some(field) = field_of(message, first) else {
        return match field_of(message, FILTER).map(|filter| (filter.kind(), filter)) {
            Some((Kind::Message(inner), filter)) => set(object(tree, &filter, name)?, &inner, name, text, given),
            _ => Err(invalid(name, "is no parameter of this path; /v1/openapi.json lists those there are")),
        };
    };
    match (field.kind(), rest) {
        (Kind::Message(_), Some(key)) if field.is_map() => {
            object(tree, &field, name)?.insert(key.to_owned(), Value::String(text.to_owned()));
            Ok(())
        }
        (Kind::Message(inner), Some(rest)) if !field.is_list() => {
            set(object(tree, &field, name)?, &inner, rest, text, given)
        }
        (Kind::Message(inner), None) if !field.is_list() && is_text(&inner) => put(tree, &field, name, text, given),
        (Kind::Message(_), _) => Err(invalid(name, "is a message: name its field too, such as node.name")),
        (_, Some(_)) => Err(invalid(name, "has no fields")),
        (_, None) => put(tree, &field, name, text, given),
    }
}

fn field_of(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name))
}

/// Returns whether a message is written as a string.
pub(crate) fn is_text(message: &MessageDescriptor) -> bool {
    matches!(message.full_name(), "google.protobuf.Duration" | "google.protobuf.Timestamp")
}

/// The tree of a field that is a message.
fn object<'a>(
    tree: &'a mut Map<String, Value>,
    field: &FieldDescriptor,
    name: &str,
) -> Result<&'a mut Map<String, Value>, Refusal> {
    let inner = take(tree, field).unwrap_or_else(|| Value::Object(Map::new()));
    let place = tree.entry(field.json_name().to_owned()).or_insert(inner);
    place.as_object_mut().ok_or_else(|| invalid(name, "must be an object"))
}

/// Puts a value where it belongs: at the end of a list, or in a field that has none yet.
fn put(
    tree: &mut Map<String, Value>,
    field: &FieldDescriptor,
    name: &str,
    text: &str,
    given: Given,
) -> Result<(), Refusal> {
    let value = value(&field.kind(), text);
    let before = take(tree, field);
    let after = if field.is_list() {
        match before {
            Some(Value::Array(mut list)) => {
                list.push(value);
                Value::Array(list)
            }
            _ => Value::Array(vec![value]),
        }
    } else {
        match before {
            Some(other) if given == Given::Query => {
                return Err(invalid(name, &format!("is given twice, as {} and {text:?}", other)));
            }
            Some(other) if other != value && format!("{other}") != text => {
                return Err(invalid(name, &format!("is {text:?} in the path and {other} elsewhere")));
            }
            _ => value,
        }
    };
    tree.insert(field.json_name().to_owned(), after);
    Ok(())
}

/// A text as the JSON that its field is written in.
fn value(kind: &Kind, text: &str) -> Value {
    match (kind, text) {
        (Kind::Bool, "true") => Value::Bool(true),
        (Kind::Bool, "false") => Value::Bool(false),
        (Kind::Enum(of), _) => Value::String(word(of, text)),
        _ => Value::String(text.to_owned()),
    }
}

/// The full name of a value of an enumeration, whose beginning need not be given: `running` for `JOB_STATE_RUNNING`.
fn word(of: &EnumDescriptor, text: &str) -> String {
    let unspecified = of.default_value();
    let prefix = unspecified.name().strip_suffix("UNSPECIFIED").unwrap_or_default();
    let long = format!("{prefix}{}", text.to_ascii_uppercase());
    if of.get_value_by_name(&long).is_some() { long } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_texts_is_no_value() {
        assert_eq!(values(br#"{"a": "1,2,{[\",:", "b": [1, 2]}"#), 7);
    }

    #[test]
    fn a_short_body_that_would_become_a_huge_tree_is_refused() {
        let body = format!(r#"{{"x": [{}{{}}]}}"#, r#"{"": 0},"#.repeat(VALUES));
        let refused = read(body.as_bytes()).expect_err("it is too much");
        assert!(refused.to_string().contains("100000 values"), "{refused}");
    }
}
