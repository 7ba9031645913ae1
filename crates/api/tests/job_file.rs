//! Job files as people write them, well and badly.

use proptest::prelude::*;
use tessera_api::job_file::{Notation, read, schema};
use tessera_api::{limits, v1};
use tessera_ledger::wire::spec_from_wire;

const YAML: &str = r#"
name: train digits
queue: vision
priority: 70
command: [python3, train.py, --epochs, 3]
script: |
  #!/bin/sh
  exec python3 train.py
environment: { SEED: 7, VERBOSE: true, NAME: digits }
working_directory: /data/digits
gang: 3
virtual_card:
  tflops: 12.5
  memory: 16GiB
  precision: bf16
  span: pool
  kinds: [gpu, npu]
  mixed: true
  isolation: soft
  vendors: acme
  models: [Axon 9, Axon 10]
  whole_cards: true
  slice_memory: 4GiB
  access: worker
  elastic: true
gang_min: 2
host: { cpus: 1.5, memory: 2GiB }
affinity:
  preferred:
    - { key: rack, value: 7, weight: 40 }
    - { key: disk, value: nvme }
  together: zone
  spread: node
  avoid: { service: embeddings }
  data: [imagenet, llama]
packing: spread
windows: ["0 20 * * mon-fri for 10h in Europe/Berlin"]
grow_after: 30m
min_runtime: 10m
preemptible: false
checkpoint: { mode: cooperative, signal: SIGUSR1, grace: 30s, every: 10m, keep: 3, fallback: requeue }
on_disconnect: keep
time_limit: 1h 30m
retry: { max_retries: 4, backoff: 2s, max_backoff: 1m }
labels: { team: vision }
node_labels: { zone: a }
output_retention: 7days
hold: true
"#;

const TOML: &str = r#"
name = "train digits"
queue = "vision"
priority = 70
command = ["python3", "train.py", "--epochs", 3]
script = """
#!/bin/sh
exec python3 train.py
"""
working_directory = "/data/digits"
gang = 3
gang_min = 2
packing = "spread"
windows = ["0 20 * * mon-fri for 10h in Europe/Berlin"]
grow_after = "1800s"
min_runtime = "600s"
preemptible = false
on_disconnect = "keep"
time_limit = "90m"
output_retention = "7days"
hold = true

[environment]
SEED = 7
VERBOSE = true
NAME = "digits"

[virtual_card]
tflops = "12.5 TFLOPS"
memory = "16384 MiB"
precision = "bf16"
span = "pool"
kinds = ["gpu", "npu"]
mixed = true
isolation = "soft"
vendors = ["acme"]
models = ["Axon 9", "Axon 10"]
whole_cards = true
slice_memory = "4GiB"
access = "worker"
elastic = true

[host]
cpus = "1500m"
memory = "2048 MiB"

[affinity]
together = "zone"
spread = "node"
data = ["imagenet", "llama"]
avoid = { service = "embeddings" }

[[affinity.preferred]]
key = "rack"
value = 7
weight = 40

[[affinity.preferred]]
key = "disk"
value = "nvme"

[checkpoint]
mode = "cooperative"
signal = "SIGUSR1"
grace = "30s"
every = "10m"
keep = 3
fallback = "requeue"

[retry]
max_retries = 4
backoff = "2s"
max_backoff = "60s"

[labels]
team = "vision"

[node_labels]
zone = "a"
"#;

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn words<const N: usize>(pairs: [(&str, &str); N]) -> std::collections::BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn expected() -> v1::JobSpec {
    v1::JobSpec {
        name: "train digits".to_owned(),
        queue: "vision".to_owned(),
        command: ["python3", "train.py", "--epochs", "3"].map(str::to_owned).into(),
        environment: words([("NAME", "digits"), ("SEED", "7"), ("VERBOSE", "true")]),
        working_directory: "/data/digits".to_owned(),
        script: "#!/bin/sh\nexec python3 train.py\n".to_owned(),
        gang: 3,
        virtual_card: Some(v1::VirtualCardRequest {
            milli_tflops: 12_500,
            memory_mib: 16_384,
            precision: v1::Precision::Bf16.into(),
            span: v1::Span::Pool.into(),
            kinds: vec![v1::CardKind::Gpu.into(), v1::CardKind::Npu.into()],
            mixed: true,
            isolation: v1::Isolation::Soft.into(),
            vendors: vec!["acme".to_owned()],
            models: vec!["Axon 9".to_owned(), "Axon 10".to_owned()],
            whole_cards: true,
            slice_memory_mib: 4_096,
            access: v1::Access::Worker.into(),
            elastic: true,
        }),
        priority: Some(70),
        preemptible: Some(false),
        checkpoint: Some(v1::CheckpointPolicy {
            mode: v1::CheckpointMode::Cooperative.into(),
            signal: "SIGUSR1".to_owned(),
            grace: seconds(30),
            every: seconds(600),
            keep: 3,
            fallback: v1::CheckpointMode::Requeue.into(),
        }),
        on_disconnect: v1::OnDisconnect::Keep.into(),
        time_limit: seconds(5400),
        retry: Some(v1::RetryPolicy { max_retries: 4, backoff: seconds(2), max_backoff: seconds(60) }),
        labels: words([("team", "vision")]),
        node_labels: words([("zone", "a")]),
        output_retention: seconds(604_800),
        held: true,
        host: Some(v1::HostRequest { milli_cpus: 1500, memory_mib: 2048 }),
        gang_min: Some(2),
        min_runtime: seconds(600),
        affinity: Some(v1::Affinity {
            preferred: [("rack", "7", 40), ("disk", "nvme", 1)]
                .map(|(key, value, weight)| v1::PreferredLabel { key: key.to_owned(), value: value.to_owned(), weight })
                .into(),
            together: "zone".to_owned(),
            spread: "node".to_owned(),
            avoid: words([("service", "embeddings")]),
            data: vec!["imagenet".to_owned(), "llama".to_owned()],
        }),
        packing: v1::Packing::Spread.into(),
        windows: vec!["0 20 * * mon-fri for 10h in Europe/Berlin".to_owned()],
        grow_after: seconds(1800),
    }
}

#[test]
fn all_three_notations_say_the_same() {
    assert_eq!(read(YAML, Notation::Yaml), Ok(expected()));
    assert_eq!(read(TOML, Notation::Toml), Ok(expected()));
    let json: serde_json::Value = serde_norway::from_str(YAML).unwrap();
    assert_eq!(read(&json.to_string(), Notation::Json), Ok(expected()));
}

#[test]
fn a_short_file_is_enough() {
    let spec = read("command: echo hello\nvirtual_card: { tflops: 1 }\n", Notation::Yaml).unwrap();
    assert_eq!(spec.command, ["/bin/sh", "-c", "echo hello"]);
    let job = spec_from_wire(spec).unwrap();
    assert_eq!((job.queue.as_str(), job.priority, job.gang, job.preemptible), ("default", 50, 1, true));
}

#[test]
fn the_notation_is_known_by_name_or_by_look() {
    assert_eq!(Notation::of("a.yml", "{"), Notation::Yaml);
    assert_eq!(Notation::of("a.TOML", "{"), Notation::Toml);
    assert_eq!(Notation::of("a.json", "x: 1"), Notation::Json);
    assert_eq!(Notation::of("-", " \n{ \"name\": 1 }"), Notation::Json);
    assert_eq!(Notation::of("-", "# a job\n[virtual_card]\ntflops = 1"), Notation::Toml);
    assert_eq!(Notation::of("-", "name = \"a: b\""), Notation::Toml);
    assert_eq!(Notation::of("-", "name: a = b"), Notation::Yaml);
    assert_eq!(Notation::of("", ""), Notation::Yaml);
}

/// The error for a bad YAML file.
fn yaml(text: &str) -> String {
    read(text, Notation::Yaml).unwrap_err().to_string()
}

#[test]
fn unknown_fields_are_refused_with_their_place_and_a_guess() {
    insta::assert_snapshot!(yaml("name: a\nprioritty: 3\n"), @"line 2, column 1: prioritty: is not a field of a job file; did you mean priority?");
    insta::assert_snapshot!(yaml("command: [a]\ntflops: 3\nvirtual_card: {tflops: 1}\n"), @"line 2, column 1: tflops: is not a field of a job file; did you mean virtual_card.tflops?");
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card:\n  tflop: 1\n"), @"line 3, column 3: virtual_card.tflop: is not a field of a job file; did you mean tflops?");
    insta::assert_snapshot!(yaml("command: [a]\nbanana: 1\nvirtual_card: {tflops: 1}\n"), @"line 2, column 1: banana: is not a field of a job file; known here are name, queue, priority, command, script, environment, working_directory, gang, gang_min, grow_after, virtual_card, host, affinity, packing, windows, preemptible, min_runtime, checkpoint, on_disconnect, time_limit, retry, labels, node_labels, output_retention, hold");
    insta::assert_snapshot!(read("[virtual_card]\ntflops = 1\nmem = \"1GiB\"\n", Notation::Toml).unwrap_err(), @"line 3, column 1: virtual_card.mem: is not a field of a job file; did you mean memory?");
    insta::assert_snapshot!(read("{\n  \"virtual_card\": { \"tflops\": 1, \"spam\": 2 }\n}", Notation::Json).unwrap_err(), @"line 2, column 39: virtual_card.spam: is not a field of a job file; did you mean span?");
}

#[test]
fn bad_values_are_refused_with_their_place() {
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card:\n  tflops: 1\n  memory: 16\n"), @r##"line 4, column 11: virtual_card.memory: must say its unit, such as "16GiB" or "16MiB", is "16""##);
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card:\n  tflops: -4\n"), @"line 3, column 11: virtual_card.tflops: must not be negative, is -4");
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card:\n  tflops: 0\n"), @"line 3, column 11: virtual_card.tflops: must be more than zero: it is what the job is given a share of");
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card:\n  tflops: 1e30\n"), @"line 3, column 11: virtual_card.tflops: must be at most 1000000 TFLOPS, is 1e30 TFLOPS");
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card:\n  tflops: lots\n"), @r##"line 3, column 11: virtual_card.tflops: must be a number of TFLOPS, such as 50 or "1.5 TFLOPS", is "lots""##);
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card:\n  tflops: 1\n  kinds: [gpu, nnpu]\n"), @r##"line 4, column 16: virtual_card.kinds[1]: must be one of gpu, npu, fpga, cpu, is "nnpu"; did you mean npu?"##);
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card:\n  tflops: 1\n  span: rack\n"), @r##"line 4, column 9: virtual_card.span: must be one of card, node, pool, is "rack""##);
    insta::assert_snapshot!(yaml("command: [a]\ngang: 0\nvirtual_card: {tflops: 1}\n"), @"line 2, column 7: gang: must be 1 to 4096, is 0");
    insta::assert_snapshot!(yaml("command: [a]\ngang: -1\nvirtual_card: {tflops: 1}\n"), @"line 2, column 7: gang: invalid type: integer `-1`, expected a whole number that is not negative");
    insta::assert_snapshot!(yaml("command: [a]\ngang: 5000000\nvirtual_card: {tflops: 1}\n"), @"line 2, column 7: gang: must be 1 to 4096, is 5000000");
    insta::assert_snapshot!(yaml("command: [a]\ntime_limit: 10\nvirtual_card: {tflops: 1}\n"), @r##"line 2, column 13: time_limit: must say its unit, such as "10s" or "10m", is "10""##);
    insta::assert_snapshot!(yaml("command: []\nvirtual_card: {tflops: 1}\n"), @"line 1, column 10: command: must name a program, and is empty");
    insta::assert_snapshot!(yaml("command: ''\nvirtual_card: {tflops: 1}\n"), @"line 1, column 10: command: must name a program, and is empty");
    insta::assert_snapshot!(yaml("virtual_card: {tflops: 1}\n"), @"line 1, column 1: command: must name a program; or give a script, which is run when there is no command");
    insta::assert_snapshot!(yaml("command: [a]\n"), @"line 1, column 1: virtual_card: must be set");
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {memory: 1GiB}\n"), @"line 2, column 15: virtual_card.tflops: must be set");
    insta::assert_snapshot!(yaml("command: [a]\nname: a\nname: b\nvirtual_card: {tflops: 1}\n"), @"line 2, column 7: name: must be there only once");
    insta::assert_snapshot!(yaml("command: [a\nvirtual_card: {tflops: 1}\n"), @"line 2, column 13: command: did not find expected ',' or ']', while parsing a flow sequence");
    insta::assert_snapshot!(yaml("- a\n- b\n"), @"line 1, column 1: invalid type: sequence, expected a mapping of fields to values");
    insta::assert_snapshot!(yaml(""), @"line 1, column 1: virtual_card: must be set");
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {tflops: 1}\nenvironment:\n  A: b\n  RANK: 3\n"), @r##"line 5, column 9: environment["RANK"]: is set by Tessera itself; choose another name"##);
}

#[test]
fn fields_of_hosts_and_affinity_are_refused_with_their_place() {
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {tflops: 1}\nhost:\n  cpus: many\n"), @r##"line 4, column 9: host.cpus: must be a number of processors, such as 8, 1.5 or "500m", is "many""##);
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {tflops: 1}\nhost:\n  cpu: 3\n"), @"line 4, column 3: host.cpu: is not a field of a job file; did you mean cpus?");
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {tflops: 1}\nhost:\n  memory: 8\n"), @r##"line 4, column 11: host.memory: must say its unit, such as "8GiB" or "8MiB", is "8""##);
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {tflops: 1}\ngang: 2\ngang_min: 3\n"), @"line 4, column 11: gang_min: must be 1 to 2, the gang; leave it out for a gang that starts whole");
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {tflops: 1}\npacking: tight\n"), @r##"line 3, column 10: packing: must be one of stack, spread, is "tight""##);
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {tflops: 1}\naffinity:\n  preferred:\n  - {key: rack, value: a, weight: 200}\n"), @"line 5, column 35: affinity.preferred[0].weight: must be 1 to 100, is 200");
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {tflops: 1}\naffinity:\n  together: a rack\n"), @r##"line 4, column 13: affinity.together: must be 1 to 253 letters, digits, '-', '_', '.' or '/', is "a rack""##);
    insta::assert_snapshot!(yaml("command: [a]\nvirtual_card: {tflops: 1}\naffinity: {spread: rack, together: rack}\n"), @r##"line 3, column 20: affinity.spread: must be another label than affinity.together, is "rack""##);
    insta::assert_snapshot!(yaml("command: [a]\nexclusive: true\nvirtual_card: {tflops: 1}\n"), @"line 2, column 1: exclusive: is not a field of a job file; did you mean virtual_card.whole_cards?");
}

#[test]
fn several_bad_fields_are_all_named() {
    let text = "command: [a]\nqueue: my queue\npriority: 101\nworking_directory: data\nvirtual_card:\n  tflops: 1\n\
                checkpoint:\n  signal: TERM\nretry:\n  backoff: 1h\n";
    insta::assert_snapshot!(yaml(text), @r##"
line 2, column 8: queue: must be 1 to 253 letters, digits, '-', '_', '.' or '/', is "my queue"
line 3, column 11: priority: must be 0 to 100, is 101
line 4, column 20: working_directory: must be an absolute path, is "data"; leave it out for a fresh folder
line 8, column 11: checkpoint.signal: must be one of SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, is "TERM"
line 10, column 12: retry.backoff: must not be longer than retry.max_backoff
"##);
}

#[test]
fn toml_and_json_errors_have_their_place_too() {
    insta::assert_snapshot!(read("command = [\"a\"]\n[virtual_card]\ntflops = 0\n", Notation::Toml).unwrap_err(), @"line 3, column 10: virtual_card.tflops: must be more than zero: it is what the job is given a share of");
    insta::assert_snapshot!(read("command = [\"a\"]\ngang = \"x\"\n", Notation::Toml).unwrap_err(), @r##"line 2, column 8: gang: invalid type: string "x", expected a whole number that is not negative"##);
    insta::assert_snapshot!(read("command = \n", Notation::Toml).unwrap_err(), @"line 1, column 11: string values must be quoted, expected literal string");
    insta::assert_snapshot!(read("{\"command\": [\"a\"],\n \"virtual_card\": {\"tflops\": 0}}", Notation::Json).unwrap_err(), @"line 2, column 29: virtual_card.tflops: must be more than zero: it is what the job is given a share of");
    insta::assert_snapshot!(read("{\"command\": [\"a\"],\n \"virtual_card\": {\"tflops\": 1}} x", Notation::Json).unwrap_err(), @"line 2, column 33: trailing characters");
    insta::assert_snapshot!(read("{\"command\": ", Notation::Json).unwrap_err(), @"line 1, column 12: command: EOF while parsing a value");
}

#[test]
fn a_file_that_is_too_large_is_refused_unread() {
    let text = format!("# {}\ncommand: [a]\n", "x".repeat(limits::JOB_FILE));
    insta::assert_snapshot!(yaml(&text), @"a job file has at most 4194304 bytes, and this one has 4194320; put large input into files that the job reads");
    let script = format!("command: [a]\nvirtual_card: {{tflops: 1}}\nscript: {}\n", "x".repeat(limits::SCRIPT + 1));
    insta::assert_snapshot!(yaml(&script), @"line 3, column 9: script: must have at most 1048576 bytes, has 1048577");
}

#[test]
fn the_published_schema_is_this_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/job-file.schema.json");
    let now = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    if std::env::var_os("TESSERA_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert_eq!(published, now, "write it anew: TESSERA_WRITE_GOLDEN=1 cargo test -p tessera-api job_file");
}

/// Pieces that job files are made of, to get further into the reader than plain noise does.
fn piece() -> impl Strategy<Value = String> {
    let keys = [
        "name",
        "command",
        "virtual_card",
        "tflops",
        "memory",
        "kinds",
        "gang",
        "priority",
        "environment",
        "retry",
        "backoff",
        "checkpoint",
        "time_limit",
        "nope",
    ];
    let values = [
        "1",
        "-1",
        "gpu",
        "16GiB",
        "[gpu, cpu]",
        "{tflops: 1}",
        "{",
        "]",
        "&a",
        "*a",
        "!!int",
        "|",
        "''",
        "1e999",
        "~",
    ];
    let separators = [": ", " = ", "\n", "\n  ", ", ", "\n- ", "\n[", "]\n", "\t", "\""];
    prop_oneof![
        prop::sample::select(keys.to_vec()).prop_map(str::to_owned),
        prop::sample::select(values.to_vec()).prop_map(str::to_owned),
        prop::sample::select(separators.to_vec()).prop_map(str::to_owned),
        "\\PC{0,4}",
    ]
}

proptest! {
    #[test]
    fn arbitrary_files_never_panic(pieces in prop::collection::vec(piece(), 0..40), noise in "\\PC{0,200}") {
        for text in [pieces.concat(), noise] {
            for notation in [Notation::Yaml, Notation::Toml, Notation::Json] {
                if let Err(error) = read(&text, notation) {
                    prop_assert!(!error.complaints.is_empty());
                }
                let _ = Notation::of("", &text);
            }
        }
    }
}
