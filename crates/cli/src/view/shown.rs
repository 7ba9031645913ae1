//! Messages of the API as commands print them, read from their descriptors: a field that is added to a message is
//! printed without another line here.
//!
//! Words are in lower case, durations are seconds under a name that says so, times are RFC 3339, thousandths are whole
//! units. What was not said is `null`; a message that was not said is shown with nothing said in it.

use std::ops::Deref;

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};
use tessera_api::reflect::reflected;

use super::time::{seconds, text};
use super::words::spelled;

/// The fields of a message under the names that are printed.
pub fn shown<M: Message + Name>(message: &M) -> Map<String, Json> {
    // It only fails for messages that are not of the API.
    reflected(message).map(|message| fields(&message)).unwrap_or_default()
}

/// A message that is printed with every field that it has, whichever this release knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown<M>(M);

impl<M> From<M> for Shown<M> {
    fn from(message: M) -> Self {
        Self(message)
    }
}

impl<M> Deref for Shown<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

impl<M: Message + Name> Serialize for Shown<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        shown(&self.0).serialize(serializer)
    }
}

fn fields(message: &DynamicMessage) -> Map<String, Json> {
    message.descriptor().fields().map(|field| named(message, &field)).collect()
}

fn named(message: &DynamicMessage, field: &FieldDescriptor) -> (String, Json) {
    let (name, kind) = (field.name(), field.kind());
    let value = message.get_field(field);
    let single = !field.is_list() && !field.is_map();
    let said = message.has_field(field);
    match &kind {
        Kind::Message(of) if single && of.full_name() == "google.protobuf.Duration" => {
            let read = said.then(|| value.as_message()?.transcode_to::<prost_types::Duration>().ok()).flatten();
            (format!("{name}_seconds"), json!(seconds(read.as_ref())))
        }
        Kind::Message(of) if single && of.full_name() == "google.protobuf.Timestamp" => {
            let read = said.then(|| value.as_message()?.transcode_to::<prost_types::Timestamp>().ok()).flatten();
            (name.to_owned(), json!(text(read.as_ref())))
        }
        Kind::Message(_) => (name.to_owned(), plain(&value, &kind)),
        _ if field.supports_presence() && !said => (name.to_owned(), Json::Null),
        _ => match (name.strip_prefix("milli_"), value.as_u64()) {
            (Some(whole), Some(thousandths)) => (whole.to_owned(), json!(thousandths as f64 / 1000.0)),
            _ => (name.to_owned(), plain(&value, &kind)),
        },
    }
}

fn plain(value: &Value, kind: &Kind) -> Json {
    match value {
        Value::Bool(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::U32(value) => json!(value),
        Value::U64(value) => json!(value),
        Value::F32(value) => json!(value),
        Value::F64(value) => json!(value),
        Value::String(value) => json!(value),
        Value::Bytes(value) => json!(value.as_ref()),
        Value::EnumNumber(number) => json!(kind.as_enum().map_or_else(String::new, |of| word(of, *number))),
        Value::Message(message) => Json::Object(fields(message)),
        Value::List(items) => items.iter().map(|item| plain(item, kind)).collect(),
        Value::Map(entries) => {
            let of = kind.as_message().map(|entry| entry.map_entry_value_field().kind());
            let entry = |(key, value)| (key_text(key), of.as_ref().map_or(Json::Null, |of| plain(value, of)));
            Json::Object(entries.iter().map(entry).collect())
        }
    }
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

/// The word without what all words of its enumeration begin with.
fn word(of: &EnumDescriptor, number: i32) -> String {
    let unsaid = of.default_value();
    let prefix = unsaid.name().strip_suffix("UNSPECIFIED").unwrap_or_default();
    spelled(of.get_value(number).as_ref().map(|value| value.name()), prefix, number)
}

#[cfg(test)]
mod tests {
    use prost_types::{Duration, Timestamp};
    use tessera_api::v1;

    use super::*;

    #[test]
    fn fields_have_the_units_that_people_read() {
        let spec = v1::JobSpec {
            environment: [("SEED".to_owned(), "7".to_owned())].into(),
            virtual_card: Some(v1::VirtualCardRequest {
                milli_tflops: 12_500,
                kinds: vec![v1::CardKind::Gpu.into(), 99],
                ..Default::default()
            }),
            time_limit: Some(Duration { seconds: 90, nanos: 500_000_000 }),
            on_disconnect: v1::OnDisconnect::Keep.into(),
            ..Default::default()
        };
        let shown = shown(&spec);
        assert_eq!(shown["environment"], json!({ "SEED": "7" }));
        assert_eq!(shown["virtual_card"]["tflops"], json!(12.5));
        assert_eq!(shown["virtual_card"]["kinds"], json!(["gpu", "unknown_99"]));
        assert_eq!(shown["virtual_card"]["isolation"], json!("unspecified"));
        assert_eq!(shown["time_limit_seconds"], json!(90.5));
        assert_eq!(shown["on_disconnect"], json!("keep"));
    }

    #[test]
    fn what_was_not_said_is_null_and_lists_are_lists() {
        let shown = shown(&v1::JobSpec::default());
        assert_eq!((&shown["priority"], &shown["min_runtime_seconds"]), (&Json::Null, &Json::Null));
        assert_eq!((&shown["command"], &shown["labels"]), (&json!([]), &json!({})));
        assert_eq!(shown["host"], json!({ "cpus": 0.0, "memory_mib": 0 }));
    }

    #[test]
    fn times_are_told_in_utc() {
        let attempt =
            v1::Attempt { granted_at: Some(Timestamp { seconds: 1_795_000_000, nanos: 0 }), ..Default::default() };
        assert_eq!(shown(&attempt)["granted_at"], json!("2026-11-18T11:06:40Z"));
    }
}
