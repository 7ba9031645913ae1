//! The map of the pool in the description: it is no message of the protocol, and so is described by hand.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Columns of cards that are numbers, and what each says.
const COLUMNS: [(&str, &str); 13] = [
    ("index", "Number of the card on its node, from 0."),
    ("model", "Its model, by its place in `models`."),
    ("offered", "Blocks that it offers."),
    ("free", "Blocks that nobody has."),
    ("held", "Blocks that are granted to what has not started."),
    ("running", "Blocks on which something runs."),
    ("draining", "Blocks whose work is being stopped."),
    ("lost", "Blocks of nodes that are silent."),
    ("offline", "Blocks that cannot be granted."),
    ("job", "The job that holds most of it; 0: none."),
    ("queue", "The queue of that job, by its place in `queues`; means nothing without a job."),
    ("jobs", "Jobs that hold some of it."),
    (
        "busy",
        "Share of what is granted of it that computes, in percent, by steps of 5; 255: nothing is granted, or nobody told.",
    ),
];

/// Adds the two paths and the schema.
pub(super) fn describe(paths: &mut BTreeMap<String, Map<String, Value>>, schemas: &mut BTreeMap<String, Value>) {
    let whole = json!({
        "operationId": "GetMap",
        "tags": ["Map"],
        "description": "One row for each card, in columns, for whoever draws them all (docs/json.md).",
        "responses": {
            "200": {
                "description": "The map, as this member has applied it.",
                "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Map" } } },
            },
            "default": super::refused(),
        },
    });
    let changes = json!({
        "operationId": "WatchMap",
        "tags": ["Map"],
        "description": "The map, and then what changes of it (docs/json.md).",
        "responses": {
            "200": {
                "description": "Server-sent events: `map` first and whenever nodes or cards have come or gone, and \
                                `changed` with the rows that changed.",
                "content": { "text/event-stream": { "schema": { "type": "string" } } },
            },
            "default": super::refused(),
        },
    });
    for (path, operation) in [("/v1/map", whole), ("/v1/map:watch", changes)] {
        paths.entry(path.to_owned()).or_default().insert("get".to_owned(), operation);
    }
    schemas.insert("Map".to_owned(), schema());
}

fn schema() -> Value {
    let numbers = |told| json!({ "type": "array", "items": { "type": "integer", "minimum": 0 }, "description": told });
    let names = |told| json!({ "type": "array", "items": { "type": "string" }, "description": told });
    let columns: Map<String, Value> = COLUMNS.iter().map(|(name, told)| ((*name).to_owned(), numbers(*told))).collect();
    let required: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    json!({
        "type": "object",
        "description": "The pool at a glance.",
        "required": ["revision", "nodes", "models", "queues", "cards"],
        "additionalProperties": false,
        "properties": {
            "revision": { "type": "integer", "minimum": 0, "description": "Of the ledger, as this member has applied it." },
            "nodes": {
                "type": "array",
                "description": "Name, state, eligibility and number of cards of each node that is not forgotten, in the \
                                order of the rows of cards.",
                "items": {
                    "type": "array",
                    "prefixItems": [
                        { "type": "string" },
                        { "$ref": "#/components/schemas/NodeState" },
                        { "$ref": "#/components/schemas/Eligibility" },
                        { "type": "integer", "minimum": 0 },
                    ],
                    "minItems": 4,
                    "maxItems": 4,
                },
            },
            "models": names("Names of models of cards, referred to by their place."),
            "queues": names("Names of queues, referred to by their place."),
            "cards": {
                "type": "object",
                "description": "Columns of the same length, a row for each card.",
                "required": required,
                "additionalProperties": false,
                "properties": columns,
            },
        },
    })
}
