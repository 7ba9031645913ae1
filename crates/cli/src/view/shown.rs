//! Messages of the API as commands print them, read from their descriptors: a field that is added to a message is
//! printed without another line here.
//!
//! Fields are in the order of their declaration. Words are in lower case, durations are seconds under a name that says
//! so, times are RFC 3339, thousandths are whole units. What was not said is `null`; a message that was not said is
//! shown with nothing said in it. What programs know otherwise is in `known`.

use std::ops::{Deref, DerefMut};

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tessera_api::reflect::reflected;

use super::known::{Known, computed, known};
use super::time::{seconds, text};
use super::words::spelled;

const DURATION: &str = "google.protobuf.Duration";
const TIMESTAMP: &str = "google.protobuf.Timestamp";

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

impl<M> DerefMut for Shown<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.0
    }
}

impl<M: Message + Name> Serialize for Shown<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // It only fails for messages that are not of the API.
        let message = reflected(&self.0).map_err(S::Error::custom)?;
        Told::Fields(fields(&message)).serialize(serializer)
    }
}

/// The printed form of a value. JSON's own values would sort the fields of messages by their names.
enum Told {
    One(Json),
    Many(Vec<Self>),
    Fields(Vec<(String, Self)>),
}

impl Serialize for Told {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(value) => value.serialize(serializer),
            Self::Many(items) => serializer.collect_seq(items),
            Self::Fields(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
        }
    }
}

fn fields(message: &DynamicMessage) -> Vec<(String, Told)> {
    let computed = computed(message).map(|(name, value)| (name.to_owned(), Told::One(value)));
    let mut told: Vec<_> = computed.into_iter().collect();
    for field in message.descriptor().fields() {
        let value = message.get_field(&field);
        let said = message.has_field(&field);
        match known(&field) {
            Some(Known::Elsewhere) => {}
            Some(Known::IfSaid) if !said => {}
            Some(Known::OrNull) if !said => told.push((field.name().to_owned(), Told::One(Json::Null))),
            Some(Known::Among) => told.extend(value.as_message().map(fields).unwrap_or_default()),
            Some(Known::Made(name, make)) => {
                let value = (said || !field.supports_presence()).then_some(&*value);
                told.push((name.to_owned(), Told::One(make(value))));
            }
            Some(Known::Named(name)) => told.push(named(name, &field, &value, said)),
            Some(Known::OrNull | Known::IfSaid) | None => told.push(named(field.name(), &field, &value, said)),
        }
    }
    told
}

fn named(name: &str, field: &FieldDescriptor, value: &Value, said: bool) -> (String, Told) {
    let kind = field.kind();
    let single = !field.is_list() && !field.is_map();
    let time = || Told::One(if said { plain_time(value) } else { Json::Null });
    match &kind {
        Kind::Message(of) if single && of.full_name() == DURATION => (format!("{name}_seconds"), time()),
        Kind::Message(of) if single && of.full_name() == TIMESTAMP => (name.to_owned(), time()),
        Kind::Message(_) => (name.to_owned(), plain(value, &kind)),
        _ if field.supports_presence() && !said => (name.to_owned(), Told::One(Json::Null)),
        _ => match (name.split_once("milli_"), value.as_u64()) {
            (Some((before, after)), Some(thousandths)) => {
                (format!("{before}{after}"), Told::One(json!(thousandths as f64 / 1000.0)))
            }
            _ => (name.to_owned(), plain(value, &kind)),
        },
    }
}

fn plain(value: &Value, kind: &Kind) -> Told {
    Told::One(match value {
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
        Value::Message(message) => match message.descriptor().full_name() {
            DURATION | TIMESTAMP => plain_time(value),
            _ => return Told::Fields(fields(message)),
        },
        Value::List(items) => return Told::Many(items.iter().map(|item| plain(item, kind)).collect()),
        Value::Map(entries) => {
            let of = kind.as_message().map(|entry| entry.map_entry_value_field().kind());
            let told = |value| of.as_ref().map_or(Told::One(Json::Null), |of| plain(value, of));
            let mut told: Vec<_> = entries.iter().map(|(key, value)| (key_text(key), told(value))).collect();
            told.sort_by(|(one, _), (other, _)| one.cmp(other));
            return Told::Fields(told);
        }
    })
}

/// A time in RFC 3339, or a duration in seconds.
fn plain_time(value: &Value) -> Json {
    let Some(message) = value.as_message() else { return Json::Null };
    match message.descriptor().full_name() {
        DURATION => json!(seconds(message.transcode_to().ok().as_ref())),
        _ => json!(text(message.transcode_to().ok().as_ref())),
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
    use std::collections::BTreeSet;

    use prost_reflect::MessageDescriptor;
    use prost_types::{Duration, Timestamp};
    use tessera_api::reflect::descriptors;
    use tessera_api::v1;

    use super::*;

    fn shown<M: Message + Name>(message: &M) -> Json {
        let message = reflected(message).expect("a message of the API");
        serde_json::to_value(Told::Fields(fields(&message))).expect("JSON")
    }

    #[test]
    fn fields_are_printed_in_the_order_of_their_declaration() {
        let request = Shown::from(v1::VirtualCardRequest::default());
        let spec = Shown::from(v1::JobSpec { virtual_card: Some((*request).clone()), ..Default::default() });
        let printed = serde_json::to_string(&spec).expect("JSON");
        let places = ["name", "queue", "gang", "virtual_card", "tflops", "memory_mib", "elastic", "priority"]
            .map(|name| printed.find(&format!("\"{name}\":")).expect(name));
        assert!(places.is_sorted(), "{printed}");
    }

    #[test]
    fn no_name_is_printed_twice_in_a_message() {
        // What is asked is never printed.
        let asked = |message: &MessageDescriptor| message.name().ends_with("Request");
        for message in descriptors().expect("those of the API").all_messages().filter(|of| !asked(of)) {
            let told = fields(&DynamicMessage::new(message.clone()));
            let names: BTreeSet<&String> = told.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), told.len(), "{}", message.full_name());
        }
    }

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
