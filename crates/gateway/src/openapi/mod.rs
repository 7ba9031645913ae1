//! The description of the JSON face in OpenAPI 3.1, made from the table of routes and the descriptors of the messages.
//!
//! It is served at `/v1/openapi.json` and kept in `docs/openapi.json`; a test says when the two differ.

mod map;

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

use crate::question::is_text;
use crate::routes::Resume;
use crate::{Described, GatewayError, describe};

/// Messages whose fields are named in a query, each in its own way, go no deeper than that.
const DEPTH: usize = 3;

/// The document.
///
/// # Errors
/// [`GatewayError`], which a test rules out for the descriptors that are compiled in.
pub fn document() -> Result<Value, GatewayError> {
    let described = describe()?;
    let mut schemas = Schemas::default();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for described in &described {
        let verb = described.route.verb.name().to_ascii_lowercase();
        paths.entry(shown(described.route.path)).or_default().insert(verb, operation(described, &mut schemas));
    }
    let mut components = schemas.finish();
    map::describe(&mut paths, &mut components);
    Ok(json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tessera",
            "version": "v1",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "Pools of accelerators. Fields, units and reasons are those of the protocol files; docs/json.md says how \
                            they are written as JSON.",
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": { "schemas": components },
    }))
}

/// The document as it is served and kept.
///
/// # Errors
/// [`GatewayError`], which a test rules out for the descriptors that are compiled in.
pub fn text() -> Result<String, GatewayError> {
    Ok(format!("{:#}\n", document()?))
}

fn operation(described: &Described, schemas: &mut Schemas) -> Value {
    let (route, method) = (described.route, &described.method);
    let input = method.input();
    let bound: Vec<&str> = bound(route.path).collect();
    let mut parameters: Vec<Value> = bound.iter().filter_map(|name| parameter(&input, name, "path", schemas)).collect();
    let mut operation = json!({
        "operationId": method.name(),
        "tags": [method.parent_service().name()],
        "description": comment(&method.parent_service().parent_file(), method.path()),
        "responses": {
            "200": answer(described, schemas),
            "default": refused(),
        },
    });
    if route.takes_body() {
        let schema = schemas.reference(&input);
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    } else {
        let mut names = Vec::new();
        query_names(&input, "", DEPTH, &mut names);
        let free = names.iter().filter(|name| !bound.contains(&name.as_str()));
        parameters.extend(free.filter_map(|name| parameter(&input, name, "query", schemas)));
    }
    if route.resume != Resume::Never {
        parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "schema": { "type": "string" },
            "description": "Goes on after the event of this id, wherever else the stream was to begin.",
        }));
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    operation
}

/// The fields that a path says.
fn bound(path: &str) -> impl Iterator<Item = &str> {
    path.split(['{', '}']).skip(1).step_by(2)
}

/// The path as the document shows it: without the messages that its fields are in, because two templates that differ in
/// names alone are one path to OpenAPI.
fn shown(path: &str) -> String {
    bound(path)
        .fold(path.to_owned(), |path, field| path.replace(&format!("{{{field}}}"), &format!("{{{}}}", last(field))))
}

/// The last part of a dotted name.
fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn answer(described: &Described, schemas: &mut Schemas) -> Value {
    let schema = schemas.reference(&described.method.output());
    if described.method.is_server_streaming() {
        json!({
            "description": "Server-sent events; the data of each is a message. `refused` says why the stream was cut, \
                            `end` that it is over.",
            "content": { "text/event-stream": { "x-item-schema": schema, "schema": { "type": "string" } } },
        })
    } else {
        json!({ "description": "The answer.", "content": { "application/json": { "schema": schema } } })
    }
}

/// The dotted names of everything in a message that a query can set.
fn query_names(message: &MessageDescriptor, before: &str, depth: usize, names: &mut Vec<String>) {
    for field in message.fields() {
        let name = format!("{before}{}", field.name());
        match field.kind() {
            Kind::Message(_) if field.is_map() => names.push(name),
            Kind::Message(inner) if !is_text(&inner) => {
                if !field.is_list() && depth > 1 {
                    query_names(&inner, &format!("{name}."), depth - 1, names);
                }
            }
            _ => names.push(name),
        }
    }
}

/// The parameter that a dotted name is.
fn parameter(message: &MessageDescriptor, name: &str, place: &str, schemas: &mut Schemas) -> Option<Value> {
    let mut message = message.clone();
    let mut parts = name.split('.').peekable();
    let field = loop {
        let field = message.get_field_by_name(parts.next()?)?;
        match (parts.peek(), field.kind()) {
            (None, _) => break field,
            (Some(_), Kind::Message(inner)) => message = inner,
            (Some(_), _) => return None,
        }
    };
    let mut parameter = json!({
        "name": if place == "path" { last(name) } else { name },
        "in": place,
        "schema": schemas.field(&field),
        "description": comment(&field.parent_message().parent_file(), field.path()),
    });
    if place == "path" {
        parameter["required"] = Value::Bool(true);
    }
    if field.is_map() {
        parameter["description"] =
            json!(format!("{} Written as {name}.KEY=VALUE.", parameter["description"].as_str()?));
    }
    Some(parameter)
}

/// The schemas of the messages that were referred to.
#[derive(Debug, Default)]
struct Schemas {
    written: BTreeMap<String, Value>,
    known: BTreeSet<String>,
    waiting: Vec<MessageDescriptor>,
}

impl Schemas {
    fn reference(&mut self, message: &MessageDescriptor) -> Value {
        if self.known.insert(message.full_name().to_owned()) {
            self.waiting.push(message.clone());
        }
        json!({ "$ref": format!("#/components/schemas/{}", message.name()) })
    }

    /// The schema of a field.
    fn field(&mut self, field: &FieldDescriptor) -> Value {
        if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            let values = self.kind(&entry.map_entry_value_field().kind());
            return json!({ "type": "object", "additionalProperties": values });
        }
        let one = self.kind(&field.kind());
        if field.is_list() { json!({ "type": "array", "items": one }) } else { one }
    }

    fn kind(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::Double | Kind::Float => json!({ "type": "number" }),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => json!({ "type": "integer", "format": "int32" }),
            Kind::Uint32 | Kind::Fixed32 => json!({ "type": "integer", "format": "uint32", "minimum": 0 }),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => json!({ "type": "string", "format": "int64" }),
            Kind::Uint64 | Kind::Fixed64 => json!({ "type": "string", "format": "uint64", "pattern": "^[0-9]+$" }),
            Kind::Bool => json!({ "type": "boolean" }),
            Kind::String => json!({ "type": "string" }),
            Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            Kind::Enum(of) => self.enumeration(of),
            Kind::Message(message) => match message.full_name() {
                "google.protobuf.Duration" => json!({ "type": "string", "pattern": "^-?[0-9]+(\\.[0-9]{1,9})?s$" }),
                "google.protobuf.Timestamp" => json!({ "type": "string", "format": "date-time" }),
                _ => self.reference(message),
            },
        }
    }

    fn enumeration(&mut self, of: &EnumDescriptor) -> Value {
        if self.known.insert(of.full_name().to_owned()) {
            let names: Vec<String> = of.values().map(|value| value.name().to_owned()).collect();
            let told = comment(&of.parent_file(), of.path());
            self.written.insert(of.name().to_owned(), json!({ "type": "string", "enum": names, "description": told }));
        }
        json!({ "$ref": format!("#/components/schemas/{}", of.name()) })
    }

    /// Writes everything that was referred to, and what that refers to.
    fn finish(mut self) -> BTreeMap<String, Value> {
        while let Some(message) = self.waiting.pop() {
            let file = message.parent_file();
            let mut properties = Map::new();
            for field in message.fields() {
                let mut schema = self.field(&field);
                schema["description"] = json!(comment(&file, field.path()));
                properties.insert(field.json_name().to_owned(), schema);
            }
            let told = comment(&file, message.path());
            let schema = json!({ "type": "object", "properties": properties, "description": told });
            self.written.insert(message.name().to_owned(), schema);
        }
        self.written.insert("Status".to_owned(), status());
        self.written
    }
}

/// The answer to a request that is refused.
fn refused() -> Value {
    json!({
        "description": "Refused: the JSON of google.rpc.Status.",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Status" } } },
    })
}

/// The schema of a refusal.
fn status() -> Value {
    json!({
        "type": "object",
        "description": "Why a request was refused.",
        "required": ["code", "message", "details"],
        "properties": {
            "code": { "type": "integer", "description": "The code of gRPC." },
            "message": { "type": "string", "description": "A sentence for people." },
            "details": {
                "type": "array",
                "description": "google.rpc.ErrorInfo always; BadRequest and RetryInfo where they help. Reasons: \
                                docs/reasons.md.",
                "items": {
                    "type": "object",
                    "properties": { "@type": { "type": "string" } },
                    "additionalProperties": true,
                },
            },
        },
    })
}

/// The comment before an element of the protocol file.
fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let file = file.file_descriptor_proto();
    let places = file.source_code_info.iter().flat_map(|info| &info.location);
    let told = places.filter(|place| place.path == path).find_map(|place| place.leading_comments.as_deref());
    told.unwrap_or_default().lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
}
