//! The output of `-o json` is read by people's scripts: whatever a release printed, every later one prints, under the
//! same names and as the same sort of value. New output is only added to the list.
//!
//! `TESSERA_WRITE_GOLDEN=1` writes the list anew; what it drops is broken for somebody.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use serde::Serialize;
use serde_json::Value as Json;
use tessera_api::reflect::descriptors;
use tessera_api::v1;
use tessera_cli::view::{
    CardDetailView, CompactionPlanView, CompactionStatusView, ConfigView, JobView, MemberStatusView, MemberVerdictView,
    MemberView, MoveAnswerView, NodeView, PlanView, PoolView, QueueView, UsageView, UseView, WhatIfView, WhyView,
};

const LIST: &str = "tests/printed.txt";
const WIDTH: usize = 118;

/// A message in which everything is said.
fn full<M: Message + Name + Default>() -> M {
    let of = descriptors().expect("those of the API").get_message_by_name(&M::full_name()).expect("one of the API");
    filled(&of).transcode_to().expect("the same message")
}

fn filled(of: &MessageDescriptor) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.clone());
    for field in of.fields() {
        let value = match one(&field) {
            value if field.is_list() => Value::List(vec![value]),
            value if field.is_map() => Value::Map([(MapKey::String("key".to_owned()), value)].into()),
            value => value,
        };
        message.set_field(&field, value);
    }
    message
}

fn one(field: &FieldDescriptor) -> Value {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => one(&entry.map_entry_value_field()),
        Kind::Message(of) => Value::Message(filled(&of)),
        Kind::Enum(_) => Value::EnumNumber(1),
        Kind::String => Value::String("text".to_owned()),
        Kind::Bytes => Value::Bytes(vec![1].into()),
        Kind::Bool => Value::Bool(true),
        Kind::Double => Value::F64(1.5),
        Kind::Float => Value::F32(1.5),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(1),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(1),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(1),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(1),
    }
}

/// Everything that has a name, by where it is: the name, and what sort of value it is.
type Names = BTreeMap<String, BTreeSet<String>>;

fn note(place: &str, value: &Json, names: &mut Names) {
    match value {
        Json::Object(fields) => {
            for (name, value) in fields {
                let sort = match value {
                    Json::Null => "null",
                    Json::Bool(_) => "bool",
                    Json::Number(_) => "number",
                    Json::String(_) => "text",
                    Json::Array(_) => "list",
                    Json::Object(_) => "object",
                };
                names.entry(place.to_owned()).or_default().insert(format!("{name}:{sort}"));
                note(&format!("{place}.{name}"), value, names);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| note(place, item, names)),
        _ => {}
    }
}

fn printed() -> Names {
    let mut job = JobView::from(full::<v1::Job>());
    job.used = Some(UseView::from(full::<v1::JobUse>()));
    job.waits_for = Some("text".to_owned());
    // Nobody who could not be asked says anything; here both are printed.
    let error = || Some("text".to_owned());
    let verdict = MemberVerdictView { error: error(), ..MemberVerdictView::answered("text".to_owned(), full()) };
    let status = MemberStatusView { error: error(), ..MemberStatusView::answered("text".to_owned(), full()) };
    let views = [
        ("job", json(job)),
        ("move", json(MoveAnswerView::of(1, full()))),
        ("why", json(WhyView::of(1, full()))),
        ("plan", json(PlanView::from(full::<v1::PlanJobResponse>()))),
        ("usage", json(UsageView::from(full::<v1::QueryUsageResponse>()))),
        ("queue", json(QueueView::from(full::<v1::Queue>()))),
        ("node", json(NodeView::from(full::<v1::Node>()))),
        ("card", json(CardDetailView::from(full::<v1::GetCardResponse>()))),
        ("pool", json(PoolView::from(full::<v1::GetPoolResponse>()))),
        ("config", json(ConfigView::from(full::<v1::GetPoolConfigResponse>()))),
        ("verdict", json(verdict)),
        ("compaction", json(CompactionStatusView::from(full::<v1::CompactionStatus>()))),
        ("compaction-plan", json(CompactionPlanView::from(full::<v1::PlanCompactionResponse>()))),
        ("what-if", json(WhatIfView::from(full::<v1::WhatIfResponse>()))),
        ("member", json(MemberView::from(full::<v1::Member>()))),
        ("member-status", json(status)),
    ];
    let mut names = Names::new();
    views.iter().for_each(|(name, view)| note(name, view, &mut names));
    names
}

fn json(view: impl Serialize) -> Json {
    serde_json::to_value(view).expect("JSON")
}

/// The names of a place in lines that can be read.
fn lines((place, names): (&String, &BTreeSet<String>)) -> String {
    let mut lines = place.clone();
    let mut width = place.len();
    for name in names {
        if width + name.len() >= WIDTH {
            lines.push_str(&format!("\n{place}"));
            width = place.len();
        }
        lines.push_str(&format!(" {name}"));
        width += name.len() + 1;
    }
    lines + "\n"
}

#[test]
fn what_was_printed_is_printed_still() {
    let (list, printed) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(LIST), printed());
    if std::env::var_os("TESSERA_WRITE_GOLDEN").is_some() {
        std::fs::write(&list, printed.iter().map(lines).collect::<String>()).expect("written");
    }
    let known = std::fs::read_to_string(list).expect("the list");
    let missing: Vec<String> = known
        .lines()
        .filter_map(|line| line.split_once(' '))
        .flat_map(|(place, names)| names.split(' ').map(move |name| (place, name)))
        .filter(|(place, name)| !printed.get(*place).is_some_and(|names| names.contains(*name)))
        .map(|(place, name)| format!("{place}.{name}"))
        .collect();
    assert_eq!(missing, Vec::<String>::new(), "scripts may read these");
}
