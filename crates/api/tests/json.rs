//! Messages as JSON: what a program in any language sends and gets without Protocol Buffers.

use prost_types::{Duration, Timestamp};
use serde_json::{Value, json};
use tessera_api::json::Json;
use tessera_api::v1;

fn written<M: prost::Message + prost::Name>(message: M) -> Value {
    serde_json::to_value(Json(message)).expect("every message of the API can be written")
}

fn read<M: prost::Message + prost::Name + Default>(text: Value) -> Result<M, String> {
    serde_json::from_value::<Json<M>>(text).map(|read| read.0).map_err(|error| error.to_string())
}

fn job() -> v1::Job {
    let card = v1::VirtualCardRequest {
        milli_tflops: u64::MAX,
        kinds: vec![v1::CardKind::Gpu.into(), v1::CardKind::Npu.into()],
        ..Default::default()
    };
    let spec = v1::JobSpec {
        name: "train".to_owned(),
        command: vec!["python3".to_owned()],
        environment: [("SEED".to_owned(), "7".to_owned())].into(),
        virtual_card: Some(card),
        priority: Some(0),
        time_limit: Some(Duration { seconds: 90, nanos: 500_000_000 }),
        ..Default::default()
    };
    v1::Job {
        id: 12,
        spec: Some(spec),
        state: v1::JobState::Running.into(),
        submitted_at: Some(Timestamp { seconds: 1_795_000_000, nanos: 250_000_000 }),
        history: vec![v1::Attempt { number: 1, exit_code: Some(-1), ..Default::default() }],
        ..Default::default()
    }
}

#[test]
fn a_job_is_written_by_the_standard_mapping() {
    let expected = json!({
        "id": "12",
        "spec": {
            "name": "train",
            "command": ["python3"],
            "environment": { "SEED": "7" },
            "virtualCard": { "milliTflops": "18446744073709551615", "kinds": ["CARD_KIND_GPU", "CARD_KIND_NPU"] },
            "priority": 0,
            "timeLimit": "90.500s",
        },
        "state": "JOB_STATE_RUNNING",
        "submittedAt": "2026-11-18T11:06:40.250Z",
        "history": [{ "number": 1, "exitCode": -1 }],
    });
    assert_eq!(written(job()), expected);
}

#[test]
fn what_was_written_is_read_again() {
    assert_eq!(read(written(job())), Ok(job()));
    let from_newer = v1::Job { state: 99, ..job() };
    assert_eq!(read(written(from_newer.clone())), Ok(from_newer), "a word of a newer release is a number");
    let spec = v1::SetQueueRequest::default();
    assert_eq!(read(written(spec.clone())), Ok(spec), "messages of services too");
}

#[test]
fn people_may_write_the_names_of_the_files_and_numbers_as_numbers() {
    let spec = json!({ "virtual_card": { "milli_tflops": 1500 }, "onDisconnect": "ON_DISCONNECT_KEEP" });
    let card = v1::VirtualCardRequest { milli_tflops: 1500, ..Default::default() };
    let keep = v1::OnDisconnect::Keep.into();
    assert_eq!(read(spec), Ok(v1::JobSpec { virtual_card: Some(card), on_disconnect: keep, ..Default::default() }));
}

#[test]
fn what_cannot_be_read_is_refused_by_its_name() {
    let unknown = read::<v1::JobSpec>(json!({ "gangg": 3 })).unwrap_err();
    assert!(unknown.contains("gangg"), "{unknown}");
    let word = read::<v1::JobSpec>(json!({ "packing": "PACKING_TIGHT" })).unwrap_err();
    assert!(word.contains("PACKING_TIGHT"), "{word}");
    let number = read::<v1::JobSpec>(json!({ "gang": -1 })).unwrap_err();
    assert!(number.contains("out of range"), "{number}");
}
