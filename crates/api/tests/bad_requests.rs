//! Unacceptable requests over the wire: each is answered with a reason, the path of the field and a valid value.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use prost::Message;
use tessera_api::job_spec::{job_of_request, problems_of};
use tessera_api::v1::{self, ErrorReason};
use tessera_api::{agent, limits, pool_view, queue_view};
use tessera_ledger::State;
use tessera_ledger::wire::{spec_from_wire, spec_to_wire};

use crate::arbitrary;

fn good() -> v1::JobSpec {
    v1::JobSpec {
        command: vec!["true".to_owned()],
        virtual_card: Some(v1::VirtualCardRequest { milli_tflops: 1000, ..Default::default() }),
        ..Default::default()
    }
}

/// The message with which a job is refused.
fn refused(change: impl FnOnce(&mut v1::JobSpec)) -> String {
    let mut spec = good();
    change(&mut spec);
    let refusal = job_of_request(Some(spec)).expect_err("this job is bad");
    assert_eq!(refusal.reason(), ErrorReason::InvalidField);
    assert!(refusal.fields().iter().all(|field| field.field.starts_with("spec.")), "{refusal}");
    refusal.message().to_owned()
}

fn card(spec: &mut v1::JobSpec) -> &mut v1::VirtualCardRequest {
    spec.virtual_card.as_mut().expect("a good job has one")
}

#[test]
fn a_short_job_gets_its_defaults() {
    let job = job_of_request(Some(good())).expect("a good job");
    assert_eq!((job.queue.as_str(), job.gang, job.priority, job.preemptible), ("default", 1, 50, true));
    assert_eq!(job.checkpoint, tessera_ledger::CheckpointPolicy::default());
    assert_eq!(job.retry, tessera_ledger::RetryPolicy::default());
}

#[test]
fn sizes_must_be_sensible() {
    insta::assert_snapshot!(refused(|spec| card(spec).milli_tflops = 0), @"spec.virtual_card.milli_tflops: must be more than zero: it is what the job is given a share of");
    insta::assert_snapshot!(refused(|spec| card(spec).milli_tflops = u64::MAX), @"spec.virtual_card.milli_tflops: must be at most 1000000 TFLOPS, is 18446744073709551.615 TFLOPS");
    insta::assert_snapshot!(refused(|spec| card(spec).memory_mib = u64::MAX), @"spec.virtual_card.memory_mib: must be at most 4294967296 MiB, is 18446744073709551615 MiB");
    insta::assert_snapshot!(refused(|spec| card(spec).slice_memory_mib = u64::MAX), @"spec.virtual_card.slice_memory_mib: must be at most 4294967296 MiB, is 18446744073709551615 MiB");
    insta::assert_snapshot!(refused(|spec| spec.gang = 4097), @"spec.gang: must be 1 to 4096, is 4097");
    insta::assert_snapshot!(refused(|spec| spec.priority = Some(101)), @"spec.priority: must be 0 to 100, is 101");
    insta::assert_snapshot!(refused(|spec| spec.virtual_card = None), @"spec.virtual_card: must be set");
    assert_eq!(job_of_request(None).expect_err("no job at all").message(), "spec: must be set");
}

#[test]
fn a_program_with_a_device_may_be_dumped_and_needs_nodes_that_can_both() {
    let dumped = |access: v1::Access, span: v1::Span| {
        move |spec: &mut v1::JobSpec| {
            let card = card(spec);
            (card.access, card.span, card.memory_mib) = (access.into(), span.into(), 1024);
            let mode = v1::CheckpointMode::Transparent.into();
            spec.checkpoint = Some(v1::CheckpointPolicy {
                mode,
                grace: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
                ..Default::default()
            });
        }
    };
    for span in [v1::Span::Card, v1::Span::Node, v1::Span::Pool] {
        let mut spec = good();
        dumped(v1::Access::Device, span)(&mut spec);
        let job = job_of_request(Some(spec)).expect("a good job");
        for (label, value) in [tessera_ledger::DEVICE_LABEL, tessera_ledger::TRANSPARENT_LABEL] {
            assert_eq!(job.node_labels.get(label).map(String::as_str), Some(value), "{label}");
        }
    }
    let several = "spec.checkpoint.mode: cannot be transparent for several workers: what they say to each other is in \
                   no image; use cooperative";
    assert_eq!(refused(dumped(v1::Access::Worker, v1::Span::Pool)), several);
    let gang = |spec: &mut v1::JobSpec| {
        dumped(v1::Access::Device, v1::Span::Card)(spec);
        spec.gang = 2;
    };
    assert_eq!(refused(gang), several);
    let remote = |spec: &mut v1::JobSpec| {
        dumped(v1::Access::Remote, v1::Span::Card)(spec);
        spec.command.clear();
    };
    let elsewhere = "spec.checkpoint.mode: cannot be transparent when access is remote: the program is on a host of \
                     its own, and goes on by itself wherever its card is; use cooperative";
    assert_eq!(refused(remote), elsewhere);
}

#[test]
fn a_program_must_be_named() {
    insta::assert_snapshot!(refused(|spec| spec.command.clear()), @"spec.command: must name a program; or give a script, which is run when there is no command");
    insta::assert_snapshot!(refused(|spec| spec.command = vec![" ".to_owned()]), @"spec.command[0]: must name a program, and is empty");
    insta::assert_snapshot!(refused(|spec| spec.command.push("a\0b".to_owned())), @r##"spec.command[1]: must not contain a NUL byte, is "a\0b""##);
    insta::assert_snapshot!(refused(|spec| spec.command = vec!["x".to_owned(); 5000]), @"spec.command: must have at most 4096 words, has 5000");
    insta::assert_snapshot!(refused(|spec| spec.command.push("x".repeat(limits::COMMAND))), @"spec.command: must have at most 524288 bytes, has 524292; put long input into a file or a script");
    insta::assert_snapshot!(refused(|spec| spec.script = "x".repeat(10 << 20)), @"spec.script: must have at most 1048576 bytes, has 10485760");
    insta::assert_snapshot!(refused(|spec| spec.script = "true\0".to_owned()), @"spec.script: must not contain a NUL byte");
    insta::assert_snapshot!(refused(|spec| spec.working_directory = "/a\nb".to_owned()), @r##"spec.working_directory: must have at most 4096 bytes in one line, is "/a\nb""##);
    insta::assert_snapshot!(refused(|spec| spec.working_directory = "../up".to_owned()), @r##"spec.working_directory: must be an absolute path, is "../up"; leave it out for a fresh folder"##);
    let script_alone = v1::JobSpec { command: vec![], script: "#!/bin/sh\n".to_owned(), ..good() };
    assert!(job_of_request(Some(script_alone)).is_ok());
}

#[test]
fn names_and_labels_must_fit_everywhere() {
    insta::assert_snapshot!(refused(|spec| spec.queue = "a b".to_owned()), @r##"spec.queue: must be 1 to 253 letters, digits, '-', '_', '.' or '/', is "a b""##);
    insta::assert_snapshot!(refused(|spec| spec.name = "two\nlines".to_owned()), @r##"spec.name: must have at most 253 bytes in one line, is "two\nlines""##);
    insta::assert_snapshot!(refused(|spec| spec.name = "n".repeat(1 << 20)), @r##"spec.name: must have at most 253 bytes in one line, is "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"..."##);
    insta::assert_snapshot!(refused(|spec| { spec.labels.insert(String::new(), String::new()); }), @r##"spec.labels[""]: must be 1 to 253 letters, digits, '-', '_', '.' or '/', is """##);
    insta::assert_snapshot!(refused(|spec| { spec.environment.insert("A=B".to_owned(), String::new()); }), @r##"spec.environment["A=B"]: a name must have 1 to 253 bytes, without '=' and control characters"##);
    insta::assert_snapshot!(refused(|spec| { spec.environment.insert("TESSERA_X".to_owned(), String::new()); }), @r##"spec.environment["TESSERA_X"]: is set by Tessera itself; choose another name"##);
    insta::assert_snapshot!(refused(|spec| { spec.environment.insert("A\nB".to_owned(), String::new()); }), @r##"spec.environment["A\nB"]: a name must have 1 to 253 bytes, without '=' and control characters"##);
    insta::assert_snapshot!(refused(|spec| spec.queue = "a/../b".to_owned()), @r##"spec.queue: must not have an empty part, '.' or '..' beside a '/', is "a/../b""##);
    insta::assert_snapshot!(refused(|spec| spec.name = "evil\u{202e}txt".to_owned()), @r##"spec.name: must have at most 253 bytes in one line, is "evil\u{202e}txt""##);
    let chosen = |word: &str| [("TESSERA_SPLIT".to_owned(), word.to_owned())].into();
    assert!(job_of_request(Some(v1::JobSpec { environment: chosen("batch"), ..good() })).is_ok());
    insta::assert_snapshot!(
        refused(|spec| spec.environment = chosen("halves")),
        @r##"spec.environment["TESSERA_SPLIT"]: must be one of auto, one, layers, batch, is "halves""##
    );
    insta::assert_snapshot!(refused(|spec| card(spec).vendors = vec![String::new()]), @"spec.virtual_card.vendors: must not contain an empty name");
}

/// Whoever starts a slice server with other words has none.
#[test]
fn words_for_devices_are_those_of_slice_servers() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../torch/python/tessera");
    let file = |name| fs::read_to_string(python.join(name)).expect("the sources of the wheel");
    let servers = file("plan.py") + &file("slice.py");
    for (variable, words) in limits::CHOSEN_VARIABLES {
        let listed = words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        assert!(
            servers.contains(variable) && servers.contains(&format!("{listed})")),
            "{variable} has other words there"
        );
    }
}

#[test]
fn words_and_times_must_be_known() {
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    insta::assert_snapshot!(refused(|spec| card(spec).span = 77), @"spec.virtual_card.span: 77 is not a value that this release knows; it knows Card, Node, Pool");
    insta::assert_snapshot!(refused(|spec| card(spec).kinds = vec![1, 0]), @"spec.virtual_card.kinds[1]: must be set");
    insta::assert_snapshot!(refused(|spec| spec.time_limit = seconds(-1)), @"spec.time_limit: must not be negative, and its nanos must be 0 to 999999999");
    insta::assert_snapshot!(refused(|spec| spec.time_limit = seconds(0)), @"spec.time_limit: must be more than zero; leave it out for no limit");
    let moment = Some(prost_types::Duration { seconds: 0, nanos: 1 });
    insta::assert_snapshot!(refused(|spec| spec.time_limit = moment), @"spec.time_limit: must be at least 1ms");
    insta::assert_snapshot!(refused(|spec| spec.min_runtime = moment), @"spec.min_runtime: must be at least 1ms");
    insta::assert_snapshot!(refused(|spec| spec.time_limit = seconds(i64::MAX)), @"spec.time_limit: must be at most 1year");
    let checkpoint = |signal: &str, grace| {
        let mode = v1::CheckpointMode::Cooperative.into();
        Some(v1::CheckpointPolicy { mode, signal: signal.to_owned(), grace, ..Default::default() })
    };
    insta::assert_snapshot!(refused(|spec| spec.checkpoint = checkpoint("SIGKILL", None)), @r##"spec.checkpoint.signal: must be one of SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, is "SIGKILL""##);
    insta::assert_snapshot!(refused(|spec| spec.checkpoint = checkpoint("", seconds(0))), @"spec.checkpoint.grace: must be more than zero when mode is cooperative or transparent: it is saved in this time");
    insta::assert_snapshot!(refused(|spec| spec.checkpoint = checkpoint("", seconds(7200))), @"spec.checkpoint.grace: must be at most 1h");
    let falls_back = |mode: v1::CheckpointMode, fallback: v1::CheckpointMode| {
        Some(v1::CheckpointPolicy { mode: mode.into(), fallback: fallback.into(), ..Default::default() })
    };
    insta::assert_snapshot!(refused(|spec| spec.checkpoint = falls_back(v1::CheckpointMode::Cooperative, v1::CheckpointMode::Cooperative)), @"spec.checkpoint.fallback: must be cooperative or requeue, and is for mode transparent");
    insta::assert_snapshot!(refused(|spec| spec.checkpoint = falls_back(v1::CheckpointMode::Transparent, v1::CheckpointMode::Transparent)), @"spec.checkpoint.fallback: must be cooperative or requeue, and is for mode transparent");
    insta::assert_snapshot!(refused(|spec| spec.retry = Some(v1::RetryPolicy { max_retries: 1_000_000, ..Default::default() })), @"spec.retry.max_retries: must be at most 1000, is 1000000");
}

fn pairs(count: usize) -> BTreeMap<String, String> {
    names(count).into_iter().map(|name| (name, String::new())).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

type Change = fn(&mut v1::JobSpec);

#[test]
fn lists_texts_and_times_of_a_job_are_bounded() {
    fn policy(every: i64, keep: u32) -> Option<v1::CheckpointPolicy> {
        let (mode, every) =
            (v1::CheckpointMode::Cooperative.into(), prost_types::Duration { seconds: every, nanos: 0 });
        Some(v1::CheckpointPolicy { mode, every: Some(every), keep, ..Default::default() })
    }
    let cases: [(Change, &str); 11] = [
        (|spec| spec.environment = pairs(1025), "environment: must have at most 1024 variables, has 1025"),
        (
            |spec| spec.environment = [("A".to_owned(), "x".repeat(512 << 10))].into(),
            "environment: must have at most 524288 bytes in all, has 524289",
        ),
        (
            |spec| spec.working_directory = format!("/{}", "x".repeat(4096)),
            "working_directory: must have at most 4096 bytes in one line, is \"/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"...",
        ),
        (|spec| spec.labels = pairs(65), "labels: must be at most 64"),
        (|spec| card(spec).vendors = names(65), "virtual_card.vendors: must be at most 64"),
        (|spec| card(spec).models = names(65), "virtual_card.models: must be at most 64"),
        (
            |spec| spec.affinity = Some(v1::Affinity { data: names(65), ..Default::default() }),
            "affinity.data: must be at most 64",
        ),
        (
            |spec| spec.affinity = Some(v1::Affinity { avoid: pairs(65), ..Default::default() }),
            "affinity.avoid: must be at most 64",
        ),
        (|spec| spec.windows = vec!["0 0 * * * for 1h".to_owned(); 17], "windows: must be at most 16"),
        (|spec| spec.checkpoint = policy(7 * 86_400 + 1, 2), "checkpoint.every: must be 1 second to 7 days"),
        (|spec| spec.checkpoint = policy(60, 17), "checkpoint.keep: must be 1 to 16"),
    ];
    for (change, said) in cases {
        assert_eq!(refused(change), format!("spec.{said}"));
    }
}

#[test]
fn every_bad_field_is_named_at_once() {
    let spec = v1::JobSpec { gang: 9999, priority: Some(1000), command: vec![], ..good() };
    let refusal = job_of_request(Some(spec)).expect_err("three bad fields");
    let fields: Vec<&str> = refusal.fields().iter().map(|field| field.field.as_str()).collect();
    assert_eq!(fields, ["spec.command", "spec.gang", "spec.priority"]);
}

type Setting = fn(&mut v1::PoolConfig);

#[test]
fn settings_and_queues_are_checked() {
    let settings = pool_view::config(State::new().config());
    assert_eq!(pool_view::config_of_request(Some(&settings)).as_ref(), Ok(State::new().config()));
    let refused = |change: fn(&mut v1::PoolConfig)| {
        let mut settings = settings.clone();
        change(&mut settings);
        pool_view::config_of_request(Some(&settings)).expect_err("bad settings").message().to_owned()
    };
    insta::assert_snapshot!(refused(|config| config.block_milli_tflops = 0), @"config.block_milli_tflops: must be at least 0.001 TFLOPS");
    insta::assert_snapshot!(refused(|config| config.job_retention = None), @"config.job_retention: must be set");
    insta::assert_snapshot!(refused(|config| config.first_master_port = 80), @"config.first_master_port: must be at least 1024");
    insta::assert_snapshot!(refused(|config| config.master_ports = 60_000), @"config.master_ports: must be at least 1, and the last port at most 65535");
    insta::assert_snapshot!(refused(|config| config.reference_precision = 99), @"config.reference_precision: 99 is not a value that this release knows; it knows Fp32, Tf32, Fp16, Bf16, Fp8, Int8");

    let twice = |config: &mut v1::PoolConfig| {
        let of = v1::Oversubscription { kind: v1::CardKind::Gpu.into(), percent: 150 };
        config.oversubscription = vec![of, of];
    };
    let tiny = |config: &mut v1::PoolConfig| {
        config.oversubscription = vec![v1::Oversubscription { kind: v1::CardKind::Gpu.into(), percent: 99 }];
    };
    let above = |config: &mut v1::PoolConfig| {
        config.compaction = Some(v1::CompactionPolicy { threshold_percent: 101, ..Default::default() });
    };
    insta::assert_snapshot!(refused(twice), @"config.oversubscription[1].kind: must be named once");
    insta::assert_snapshot!(refused(tiny), @"config.oversubscription[0].percent: must be 100 to 1000, is 99");
    insta::assert_snapshot!(refused(above), @"config.compaction.threshold_percent: must be at most 100 %, is 101 %");
    insta::assert_snapshot!(refused(|config| config.fair_share_half_life = Some(Default::default())), @"config.fair_share_half_life: must be at least 1s");
    let huge: [(Setting, &str); 7] = [
        (|config| config.block_milli_tflops = u64::MAX, "block_milli_tflops"),
        (|config| config.request_limit = u64::MAX, "request_limit"),
        (|config| config.ended_job_limit = u64::MAX, "ended_job_limit"),
        (|config| config.event_limit = u64::MAX, "event_limit"),
        (|config| config.preemptions_per_hour = u32::MAX, "preemptions_per_hour"),
        (|config| config.limits.as_mut().expect("limits").spec_bytes = u64::MAX, "limits.spec_bytes"),
        (|config| config.compaction.as_mut().expect("a policy").moves_per_hour = u32::MAX, "compaction.moves_per_hour"),
    ];
    for (change, field) in huge {
        let refused = refused(change);
        assert!(refused.starts_with(&format!("config.{field}: must be at most")), "{refused}");
        let mut before = settings.clone();
        change(&mut before);
        let expected = pool_view::expected_config_of_request(Some(&before));
        assert!(matches!(expected, Ok(Some(_))), "a pool that has it can be changed: {expected:?}");
    }
    insta::assert_snapshot!(refused(|config| config.packing = 9), @"config.packing: 9 is not a value that this release knows; it knows Stack, Spread");

    let amount = |milli_tflops| Some(v1::QueueAmount { milli_tflops, memory_mib: 0 });
    let queue = |name: &str, maximum| {
        let (name, parent) = (name.to_owned(), "a".to_owned());
        Some(v1::QueueSettings { name, parent, guaranteed: amount(5), maximum, ..Default::default() })
    };
    let settings = queue_view::settings_of_request(queue("b", amount(9))).expect("a good queue");
    assert_eq!(settings.weight, 1);
    let refused = |queue| queue_view::settings_of_request(queue).expect_err("a bad queue").message().to_owned();
    insta::assert_snapshot!(refused(queue("a", None)), @"queue.parent: must be another queue");
    insta::assert_snapshot!(refused(queue("", None)), @r##"queue.name: must be 1 to 253 letters, digits, '-', '_', '.' or '/', is """##);
    insta::assert_snapshot!(refused(queue("b", amount(1))), @"queue.guaranteed: must not be more than queue.maximum");
    insta::assert_snapshot!(refused(queue("b", amount(u64::MAX))), @"queue.maximum.milli_tflops: must be at most 200000000000 TFLOPS, is 18446744073709551.615 TFLOPS");
    let changed = |change: fn(&mut v1::QueueSettings)| {
        let mut queue = queue("b", None).expect("a queue");
        change(&mut queue);
        refused(Some(queue)).split_once(": ").map(|(field, _)| field.to_owned())
    };
    let memory = changed(|queue| queue.guaranteed.as_mut().expect("an amount").memory_mib = u64::MAX);
    assert_eq!(memory.as_deref(), Some("queue.guaranteed.memory_mib"));
    assert_eq!(changed(|queue| queue.checkpoints_mib = Some(u64::MAX)).as_deref(), Some("queue.checkpoints_mib"));
    assert_eq!(changed(|queue| queue.weight = u32::MAX).as_deref(), Some("queue.weight"));
    let soon = changed(|queue| {
        let notify_after = Some(prost_types::Duration { seconds: 0, nanos: 1 });
        queue.idle = Some(v1::IdlePolicy { below_percent: 5, notify_after, ..Default::default() });
    });
    assert_eq!(soon.as_deref(), Some("queue.idle.notify_after"));
}

#[test]
fn agents_are_checked_too() {
    let hello = v1::Hello {
        node_name: "n0".to_owned(),
        node_uid: "u0".to_owned(),
        address: "10.0.0.1:7410".to_owned(),
        worker_host: "10.0.0.1".to_owned(),
        ..Default::default()
    };
    assert!(agent::node_of_hello(&hello).is_ok());
    let nameless = v1::Hello { node_name: "a node".to_owned(), worker_host: String::new(), ..hello };
    let refusal = agent::node_of_hello(&nameless).expect_err("two bad fields");
    assert_eq!(refusal.fields().len(), 2);

    let refusal = agent::cards(vec![v1::CardDescription::default()]).expect_err("a card without a kind");
    assert_eq!((refusal.reason(), refusal.message()), (ErrorReason::CardInvalid, "cards[0].kind: must be set"));

    let report = |phase: i32, worker| v1::WorkerReport { phase, worker, ..Default::default() };
    let worker = Some(v1::WorkerRef { allocation_id: 1, epoch: 2, rank: 0 });
    let twice = v1::WorkerReport {
        cause: v1::StopCause::Exited.into(),
        exit_code: Some(0),
        signal: Some(9),
        ..report(4, worker)
    };
    for bad in [report(2, None), report(0, worker), report(99, worker), report(4, worker), twice] {
        assert_eq!(agent::report(bad).expect_err("a bad report").reason(), ErrorReason::ProtocolViolation);
    }
    assert_eq!(agent::report(report(3, worker)), Ok(None), "being stopped is nothing that the ledger follows");
}

#[test]
fn names_of_data_are_bounded_in_number_and_length() {
    let hello = |cached: Vec<String>| v1::Hello {
        node_name: "n0".to_owned(),
        node_uid: "u0".to_owned(),
        address: "10.0.0.1:7410".to_owned(),
        worker_host: "10.0.0.1".to_owned(),
        cached,
        ..Default::default()
    };
    let many = |count: usize| (0..count).map(|number| format!("data-{number}")).collect::<Vec<_>>();
    for (names, problem) in [
        (many(10_000), None),
        (vec!["x".repeat(253)], None),
        (many(10_001), Some("must be at most 10000")),
        (vec!["x".repeat(254)], Some("at most 253 bytes")),
        (vec![String::new()], Some("empty name")),
        (vec!["two\nlines".to_owned()], Some("in one line")),
    ] {
        let of_hello = agent::node_of_hello(&hello(names.clone())).map(|node| node.cached.len());
        let of_report = agent::cached(v1::CachedData { names: names.clone() }).map(|cached| cached.len());
        for (result, field) in [(of_hello, "hello.cached"), (of_report, "report.cached")] {
            let Some(problem) = problem else {
                assert_eq!(result.ok(), Some(names.len()));
                continue;
            };
            let refusal = result.expect_err("more than the pool keeps");
            assert_eq!((refusal.reason(), refusal.fields().len()), (ErrorReason::InvalidField, 1));
            assert_eq!(refusal.fields()[0].field, field);
            assert!(refusal.message().contains(problem), "{}", refusal.message());
        }
    }
}

proptest! {
    /// Whatever decodes as a job is either taken or refused with fields; taken twice, it is the same.
    #[test]
    fn any_message_is_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let Ok(spec) = v1::JobSpec::decode(bytes.as_slice()) else { return Ok(()) };
        match job_of_request(Some(spec)) {
            Ok(job) => prop_assert_eq!(job_of_request(Some(spec_to_wire(&job))), Ok(job)),
            Err(refusal) => prop_assert!(!refusal.fields().is_empty()),
        }
    }

    #[test]
    fn a_job_goes_over_the_wire_unchanged(job in arbitrary::spec()) {
        let bytes = spec_to_wire(&job).encode_to_vec();
        let there = v1::JobSpec::decode(bytes.as_slice()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let taken = spec_from_wire(there).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(spec_to_wire(&taken).encode_to_vec(), bytes);
        prop_assert_eq!(problems_of(&taken), problems_of(&job));
        prop_assert_eq!(taken, job);
    }
}
