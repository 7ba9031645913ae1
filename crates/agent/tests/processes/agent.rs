//! A whole agent against a leader played by the test: real sessions, real supervisors, real processes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::leader::{Leader, order, reference};
use super::support::{control_groups, is_alive, pid_in, running_status, supervisor_program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_agent::supervisor::status::Status;
use tessera_agent::{Agent, AgentConfig, AgentError, CardSource, SupervisorCommand};
use tessera_api::v1 as wire;
use tessera_api::v1::worker_service_client::WorkerServiceClient;
use tessera_connection::{Outbound, Terms};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wire::{StopCause, WorkerDesire, WorkerPhase};

const INVENTORY: &str = r#"
[[node]]
name = "node-a"
[[node.card]]
kind = "gpu"
vendor = "nvidia"
model = "H100"
count = 2
memory_gib = 80
tflops = { fp16 = 9 }
"#;

/// An agent that runs in this process.
pub struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
    pub http: String,
}

impl Running {
    pub async fn stop(self) {
        self.shutdown.cancel();
        let ended = timeout(super::support::PATIENCE, self.task).await.expect("it ends").expect("no panic");
        ended.expect("a good end");
    }
}

pub fn config(data: &Path, leader: &Leader) -> AgentConfig {
    // Workers have identities of their own, and pass through on the way to their folders.
    std::fs::set_permissions(data, std::fs::Permissions::from_mode(0o711)).expect("mine");
    let inventory = data.join("inventory.toml");
    std::fs::write(&inventory, INVENTORY).expect("writable");
    let mut config = AgentConfig::new("node-a", data.join("agent"), vec![leader.address()]);
    config.cards = CardSource::Inventory(inventory);
    config.http_listen = Some(([127, 0, 0, 1], 0).into());
    config.cgroup_root = Some(format!("{}/{}", control_groups(), data.file_name().expect("a name").to_string_lossy()));
    config.supervisor = SupervisorCommand { program: supervisor_program(), arguments: Vec::new() };
    config
}

/// The folder of the worker of an order.
pub fn folder_of(data: &Path, allocation: u64) -> PathBuf {
    data.join("agent/workers").join(format!("{allocation}-10-0"))
}

pub fn worker_status(data: &Path, allocation: u64) -> Status {
    running_status(&folder_of(data, allocation))
}

pub async fn start(config: AgentConfig) -> Running {
    let agent = Agent::start(config).await.expect("startable");
    let http = agent.http_address().expect("asked for").to_string();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(agent.run(shutdown.clone()));
    Running { shutdown, task, http }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_becomes_a_process_and_its_end_a_report() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let running = start(config(data.path(), &leader)).await;
    let hello = leader.welcome().await;
    assert_eq!((hello.node_name.as_str(), hello.incarnation, hello.cards.len()), ("node-a", 1, 2));
    assert!(hello.cards[0].simulated && hello.workers.is_empty());

    let script = "echo rank $RANK of $WORLD_SIZE; cat \"$TESSERA_VCARD_FILE\"; echo \"[$CUDA_VISIBLE_DEVICES]\"; \
                  test \"$PWD\" = \"$TESSERA_WORKER_DIR\" && echo $TRACEPARENT >&2; exit 5";
    let mut run = order(1, WorkerDesire::Run, script);
    run.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
    run.slices = vec![wire::PlacedSlice {
        slice: Some(wire::Slice { node_id: 3, card_index: 1, start: 0, blocks: 9, memory_mib: 1024, isolation: 2 }),
        node_name: "node-a".to_owned(),
        kind: wire::CardKind::Gpu.into(),
        first_block_number: 10,
        weight: 1.0,
        ..Default::default()
    }];
    leader.order(true, vec![run]).await;
    let over = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!((over.cause(), over.exit_code, over.job_id), (StopCause::Exited, Some(5), 100));
    assert!(over.started_at.is_some() && over.stopped_at.is_some());

    let output = read(&hello.address, 1, wire::LogStream::Stdout, 0).await.expect("readable");
    assert!(output.starts_with("rank 0 of 1\n{") && output.ends_with("[]\n"), "{output}");
    assert!(output.contains("\"first_block_number\": 10") && output.contains("\"region\": \"gpu\""), "{output}");
    let traced = read(&hello.address, 1, wire::LogStream::Stderr, 3).await.expect("readable");
    assert_eq!(traced, "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n");
    let beyond = read(&hello.address, 1, wire::LogStream::Stdout, 1 << 30).await.expect_err("beyond the end");
    assert_eq!(tessera_api::error::reason_of(&beyond), Some(wire::ErrorReason::OffsetBeyondEnd));
    let unknown = read(&hello.address, 9, wire::LogStream::Stdout, 0).await.expect_err("never here");
    assert_eq!(tessera_api::error::reason_of(&unknown), Some(wire::ErrorReason::WorkerUnknown));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_is_run_and_a_failed_start_is_reported() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let running = start(config(data.path(), &leader)).await;
    leader.welcome().await;
    let mut script = order(1, WorkerDesire::Run, "");
    let spec = script.spec.as_mut().expect("made above");
    (spec.command, spec.script) = (Vec::new(), "#!/bin/sh\nexit 6\n".to_owned());
    let mut absent = order(2, WorkerDesire::Run, "");
    absent.spec.as_mut().expect("made above").command = vec!["/no/such/program".to_owned()];
    let mut empty = order(3, WorkerDesire::Run, "");
    empty.spec.as_mut().expect("made above").command.clear();
    let mut cardless = order(4, WorkerDesire::Run, "true");
    cardless.slices = vec![wire::PlacedSlice {
        slice: Some(wire::Slice { node_id: 3, card_index: 7, blocks: 1, ..Default::default() }),
        ..Default::default()
    }];
    leader.order(true, vec![script, absent, empty, cardless]).await;
    assert_eq!(leader.report_of(1, WorkerPhase::Stopped).await.exit_code, Some(6));
    let failures = [
        (2, StopCause::StartFailed, "/no/such/program"),
        (3, StopCause::StartFailed, "neither a command nor a script"),
        (4, StopCause::NodeFault, "no card 7"),
    ];
    for (allocation, cause, word) in failures {
        let failed = leader.report_of(allocation, WorkerPhase::Stopped).await;
        assert_eq!(failed.cause(), cause);
        assert!(failed.message.contains(word), "{}", failed.message);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_agent_adopts_the_workers_of_the_old_one() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let first = start(config(data.path(), &leader)).await;
    let address = leader.welcome().await.address;
    let (kept, extra) = ("echo self=$$; exec sleep 1000", "exec sleep 1000");
    leader.order(true, vec![order(1, WorkerDesire::Run, kept), order(2, WorkerDesire::Run, extra)]).await;
    leader.report_of(1, WorkerPhase::Running).await;
    leader.report_of(2, WorkerPhase::Running).await;
    let pid = pid_in(&follow_until(&address, 1, "self=").await, "self", &worker_status(data.path(), 1));
    first.stop().await;
    assert!(is_alive(pid), "the worker does not end with its agent");

    let second = start(config(data.path(), &leader)).await;
    let hello = leader.welcome().await;
    assert_eq!(hello.incarnation, 2);
    let phases: Vec<_> = hello.workers.iter().map(wire::WorkerReport::phase).collect();
    assert_eq!(phases, [WorkerPhase::Running, WorkerPhase::Running]);
    leader.order(true, vec![order(1, WorkerDesire::Run, kept)]).await;
    let extra = leader.report_of(2, WorkerPhase::Stopped).await;
    assert_eq!(extra.cause(), StopCause::NotGranted);
    assert!(is_alive(pid));
    leader.order(false, vec![order(1, WorkerDesire::Stop, kept)]).await;
    let stopped = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!((stopped.cause(), stopped.signal), (StopCause::Ordered, Some(15)));
    assert!(!is_alive(pid));
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_supervisor_leaves_is_killed_and_reported() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let running = start(config(data.path(), &leader)).await;
    let address = leader.welcome().await.address;
    let script = "setsid sh -c 'setsid sleep 1000 & echo daemon=$!'; exec sleep 1000";
    leader.order(true, vec![order(1, WorkerDesire::Run, script)]).await;
    let output = follow_until(&address, 1, "daemon=").await;
    let status = worker_status(data.path(), 1);
    let daemon = pid_in(&output, "daemon", &status);
    let supervisor = status.supervisor.expect("at work").pid;
    assert!(is_alive(daemon));
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).expect("alive");
    let gone = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(gone.cause(), StopCause::Vanished);
    assert!(!is_alive(daemon), "reported only when nothing was left");
    leader.order(true, vec![order(1, WorkerDesire::Run, script)]).await;
    let again = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(again.cause(), StopCause::Vanished, "never started twice");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_falls_silent_costs_only_those_that_need_a_lease() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    leader.lease = (Duration::from_millis(1500), Duration::from_millis(1800));
    let running = start(config(data.path(), &leader)).await;
    let address = leader.welcome().await.address;
    let script = "echo self=$$; exec sleep 1000";
    let mut keep = order(2, WorkerDesire::Run, script);
    keep.keep_on_disconnect = true;
    leader.order(true, vec![order(1, WorkerDesire::Run, script), keep]).await;
    let leased = pid_in(&follow_until(&address, 1, "self=").await, "self", &worker_status(data.path(), 1));
    let kept = pid_in(&follow_until(&address, 2, "self=").await, "self", &worker_status(data.path(), 2));
    leader.grant_leases(false);
    // It looks for another leader while the lease lasts, and finds this one.
    leader.welcome().await;
    let expired = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(expired.cause(), StopCause::LeaseExpired);
    assert!(!is_alive(leased) && is_alive(kept));
    leader.grant_leases(true);
    leader.order(false, vec![order(2, WorkerDesire::Stop, script)]).await;
    leader.report_of(2, WorkerPhase::Stopped).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_is_stopped_itself_does_not_keep_its_worker_alive() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    leader.lease = (Duration::from_millis(1200), Duration::from_millis(1500));
    let mut config = config(data.path(), &leader);
    config.limits.kill_confirmation = Duration::from_millis(500);
    let running = start(config).await;
    let address = leader.welcome().await.address;
    let script = "echo self=$$; exec sleep 1000";
    leader.order(true, vec![order(1, WorkerDesire::Run, script)]).await;
    let output = follow_until(&address, 1, "self=").await;
    let status = worker_status(data.path(), 1);
    let worker = pid_in(&output, "self", &status);
    let supervisor = status.supervisor.expect("at work").pid;
    kill(Pid::from_raw(supervisor), Signal::SIGSTOP).expect("alive");
    leader.grant_leases(false);
    leader.welcome().await;
    let gone = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(gone.cause(), StopCause::Vanished);
    assert!(!is_alive(worker) && !is_alive(supervisor));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_followed_to_the_worker_s_end() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let running = start(config(data.path(), &leader)).await;
    let address = leader.welcome().await.address;
    let script = "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two";
    leader.order(true, vec![order(1, WorkerDesire::Run, script)]).await;
    leader.report_of(1, WorkerPhase::Running).await;
    let following = tokio::spawn(async move { read_all(&address, 1, wire::LogStream::Stdout, 0, true).await });
    let work = data.path().join("agent/workers/1-10-0/work");
    std::fs::write(work.join("go"), "").expect("writable");
    leader.report_of(1, WorkerPhase::Stopped).await;
    let followed = timeout(super::support::PATIENCE, following).await.expect("it ends").expect("no panic");
    assert_eq!(followed.expect("readable"), "one\ntwo\n");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_and_health_are_served() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let running = start(config(data.path(), &leader)).await;
    assert!(get(&running.http, "/livez").await.starts_with("HTTP/1.1 200"));
    assert!(get(&running.http, "/readyz").await.starts_with("HTTP/1.1 503"), "nobody has welcomed it");
    leader.welcome().await;
    leader.order(true, vec![order(1, WorkerDesire::Run, "exec sleep 1000")]).await;
    leader.report_of(1, WorkerPhase::Running).await;
    assert!(get(&running.http, "/readyz").await.starts_with("HTTP/1.1 200"));
    let page = get(&running.http, "/metrics").await;
    assert!(page.contains("application/openmetrics-text"));
    let strange = get_as(&running.http, "evil.example", "/metrics").await;
    assert!(strange.starts_with("HTTP/1.1 403") && !strange.contains("tessera_agent"), "{strange}");
    assert!(get_as(&running.http, "evil.example", "/livez").await.starts_with("HTTP/1.1 200"));
    for line in [
        "tessera_agent_workers{state=\"running\"} 1",
        "tessera_agent_connected 1",
        "tessera_agent_sessions_total 1",
        "tessera_card_info{card=\"0\",uuid=\"sim-node-a-0\",vendor=\"nvidia\",model=\"H100\",kind=\"gpu\",pci_address=\"\",simulated=\"true\",serial=\"node-a-0000\",driver=\"simulated\"} 1",
        "tessera_card_memory_limit_bytes{card=\"1\"} 85899345920",
        "tessera_agent_fence_state{state=\"clear\"} 1",
        "# EOF",
    ] {
        assert!(page.contains(line), "{line} is missing from\n{page}");
    }
    let remaining = page.lines().find_map(|line| line.strip_prefix("tessera_agent_lease_remaining_seconds "));
    assert!(remaining.and_then(|seconds| seconds.parse::<f64>().ok()).is_some_and(|seconds| seconds > 0.0), "{page}");
    leader.order(true, Vec::new()).await;
    leader.report_of(1, WorkerPhase::Stopped).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_folder_belongs_to_one_agent() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let leader = Leader::start().await;
    let running = start(config(data.path(), &leader)).await;
    let second = Agent::start(config(data.path(), &leader)).await.err().expect("refused");
    assert!(matches!(second, AgentError::Taken(_)), "{second}");
    running.stop().await;
}

pub async fn client(address: &str) -> WorkerServiceClient<tonic::transport::Channel> {
    let connected = Outbound::default().connect(address, &Terms::default()).await;
    WorkerServiceClient::new(connected.expect("it listens"))
}

async fn read_all(
    address: &str,
    allocation: u64,
    stream: wire::LogStream,
    offset: u64,
    follow: bool,
) -> Result<String, tonic::Status> {
    let request = wire::ReadLogsRequest { worker: Some(reference(allocation)), stream: stream.into(), offset, follow };
    let mut pieces = client(address).await.read_logs(request).await?.into_inner();
    let mut output = Vec::new();
    while let Some(piece) = pieces.message().await? {
        assert_eq!(piece.offset, offset + output.len() as u64);
        output.extend_from_slice(&piece.data);
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

pub async fn read(
    address: &str,
    allocation: u64,
    stream: wire::LogStream,
    offset: u64,
) -> Result<String, tonic::Status> {
    read_all(address, allocation, stream, offset, false).await
}

/// Follows the output until a line holds the text.
pub async fn follow_until(address: &str, allocation: u64, text: &str) -> String {
    let worker = Some(reference(allocation));
    let follow = async {
        // The order may not have reached the folder yet.
        let mut pieces = loop {
            let request = wire::ReadLogsRequest { worker, follow: true, ..Default::default() };
            match client(address).await.read_logs(request).await {
                Ok(pieces) => break pieces.into_inner(),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let mut output = String::new();
        while !output.lines().any(|line| line.contains(text)) || !output.ends_with('\n') {
            let piece = pieces.message().await.expect("readable").expect("it writes the text before it ends");
            output.push_str(&String::from_utf8_lossy(&piece.data));
        }
        output
    };
    timeout(super::support::PATIENCE, follow).await.expect("written in time")
}

pub async fn get(address: &str, path: &str) -> String {
    get_as(address, address, path).await
}

/// Asks for a page by another name.
async fn get_as(address: &str, host: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: application/openmetrics-text\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    answer
}
