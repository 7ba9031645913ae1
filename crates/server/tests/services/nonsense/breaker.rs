//! Copies of messages with nonsense in one field each, by the descriptors.

use std::collections::BTreeSet;

use bytes::Bytes;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value};

use super::rules::{Rule, rule_of};

/// A message with nonsense in one field.
pub struct Broken {
    /// Path of the field.
    pub path: String,
    pub rule: Option<Rule>,
    pub message: DynamicMessage,
}

/// Makes every broken copy of a sample.
#[derive(Default)]
pub struct Breaker {
    pub broken: Vec<Broken>,
    /// The fields that were broken, or cannot be, by message and path.
    pub seen: BTreeSet<String>,
    /// Places of the rules that a field had.
    pub used: BTreeSet<usize>,
}

pub type Rebuild<'a> = &'a dyn Fn(DynamicMessage) -> DynamicMessage;

impl Breaker {
    /// Breaks each field of `message`, which `rebuild` puts into its place in the sample.
    pub fn break_all(&mut self, key: &str, path: &str, message: &DynamicMessage, rebuild: Rebuild<'_>) {
        for field in message.descriptor().fields() {
            let key = format!("{key}.{}", field.name());
            let path = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
            let with = |value: Value| {
                let mut changed = message.clone();
                changed.set_field(&field, value);
                rebuild(changed)
            };
            if let Some(inner) = inner_of(&field) {
                let chosen = field.containing_oneof().is_none_or(|one| one.is_synthetic()) || message.has_field(&field);
                if !chosen {
                    continue;
                }
                let first = match message.get_field(&field).into_owned() {
                    Value::List(values) => values.into_iter().next(),
                    value => Some(value),
                };
                let Some(Value::Message(first)) = first.or(Some(Value::Message(DynamicMessage::new(inner)))) else {
                    panic!("{key} is no message")
                };
                let (path, list) = if field.is_list() { (format!("{path}[0]"), true) } else { (path, false) };
                let wrapped = |value: Value| if list { Value::List(vec![value]) } else { value };
                self.break_all(&key, &path, &first, &|changed| with(wrapped(Value::Message(changed))));
                continue;
            }
            let rule = rule_of(&key);
            self.used.extend(rule.map(|(place, _)| place));
            let rule = rule.map(|(_, rule)| rule);
            let values = nonsense(&field, rule == Some(Rule::ForPrograms));
            self.seen.insert(key);
            self.broken.extend(values.into_iter().map(|value| Broken {
                path: path.clone(),
                rule,
                message: with(value),
            }));
        }
    }
}

/// The message that a field holds, unless it is a map or a message that stands for one value.
fn inner_of(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.kind() {
        Kind::Message(inner) if !field.is_map() && !inner.full_name().starts_with("google.protobuf.") => Some(inner),
        _ => None,
    }
}

/// The values that a field of its kind cannot hold.
fn nonsense(field: &FieldDescriptor, for_programs: bool) -> Vec<Value> {
    let texts = if for_programs { vec!["a\0b".to_owned()] } else { texts() };
    if field.is_map() {
        let map = |key: &str, value: &str| {
            Value::Map([(MapKey::String(key.to_owned()), Value::String(value.to_owned()))].into())
        };
        let keys = self::texts().into_iter().map(|text| map(&text, "value"));
        return keys.chain(texts.iter().map(|text| map("key", text))).collect();
    }
    let each = match field.kind() {
        Kind::Bool => Vec::new(),
        Kind::String => texts.into_iter().map(Value::String).collect(),
        Kind::Bytes => vec![Value::Bytes(Bytes::from_static(b"short"))],
        Kind::Enum(_) => vec![Value::EnumNumber(99)],
        Kind::Uint32 => vec![Value::U32(u32::MAX)],
        Kind::Int32 => vec![Value::I32(i32::MAX)],
        Kind::Uint64 if field.is_list() => return vec![Value::List(vec![Value::U64(1); 10_001])],
        Kind::Uint64 => vec![Value::U64(u64::MAX)],
        Kind::Message(inner) => {
            let parts: &[(i64, i32)] = match inner.full_name() {
                "google.protobuf.Timestamp" => &[(5, -1), (5, 1_500_000_000), (i64::MAX, 0)],
                "google.protobuf.Duration" => &[(5, -1), (5, 1_500_000_000), (-1, 0), (i64::MAX, 0), (0, 1)],
                other => panic!("it is not said what is nonsense in a {other}"),
            };
            let made = |(seconds, nanos): &(i64, i32)| {
                let mut message = DynamicMessage::new(inner.clone());
                message.set_field_by_name("seconds", Value::I64(*seconds));
                message.set_field_by_name("nanos", Value::I32(*nanos));
                Value::Message(message)
            };
            parts.iter().map(made).collect()
        }
        other => panic!("it is not said what is nonsense in a field of kind {other:?}"),
    };
    if field.is_list() { each.into_iter().map(|value| Value::List(vec![value])).collect() } else { each }
}

/// Texts that are no name and no line that people could read.
fn texts() -> Vec<String> {
    vec!["two\nlines".to_owned(), "evil\u{202e}txt".to_owned(), "x".repeat(5_000)]
}

/// The fields that a message has, by message and path.
pub fn keys_of(key: &str, message: &MessageDescriptor) -> Vec<String> {
    let below = |field: FieldDescriptor| {
        let key = format!("{key}.{}", field.name());
        inner_of(&field).map_or_else(|| vec![key.clone()], |inner| keys_of(&key, &inner))
    };
    message.fields().flat_map(below).collect()
}
