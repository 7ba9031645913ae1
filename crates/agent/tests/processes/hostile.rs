//! A worker that turns against its node: it must not reach its own fence, its neighbours, or the agent's files
//! (law L2).

use tessera_agent::worker::{RunAs, UserIds};
use tessera_api::v1 as wire;
use wire::{WorkerDesire, WorkerPhase};

use super::agent::{config, folder_of, follow_until, read, start};
use super::leader::{Leader, order};
use super::support::running_status;
use tessera_agent::supervisor::status::Phase;

/// Tries one thing after the other and says what came of each: `NAME: done` or `NAME: refused`.
const ATTACK: &str = r#"
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name: done"; else echo "$name: refused"; fi; }
try 'read its own order' cat ../order.pb
try 'read its own launch file' cat ../launch.json
try 'rewrite its own status' sh -c 'echo {} > ../status.json'
try 'rewrite its virtual card' sh -c 'echo {} > "$TESSERA_VCARD_FILE"'
try 'replace its virtual card' rm -f "$TESSERA_VCARD_FILE"
try 'list the workers' ls ../..
try "read a neighbour's output" cat ../../2-10-0/stdout.00000000000000000000
try "read a neighbour's files" ls ../../2-10-0/work
try "write into a neighbour's folder" touch ../../2-10-0/work/here
try "read the agent's identity" cat ../../../node.json
try 'kill its init' sh -c 'kill -9 1; kill -0 1'
try 'become root' python3 -c 'import os; os.setuid(0)'
try 'renew its own lease' python3 - <<'PYTHON'
import json, socket, struct
line = socket.socket(socket.AF_UNIX)
line.connect("../supervisor.sock")
request = {"request": "renew", "fence": {"term": 99, "epoch": 10}, "lease": {"stop_at": 2**62, "kill_at": 2**62}}
text = json.dumps(request).encode()
line.sendall(struct.pack(">I", len(text)) + text)
assert line.recv(4096)
PYTHON
echo "runs as $(id -u) $(id -g) $(id -G), $(grep NoNewPrivs /proc/self/status)"
cat "$TESSERA_VCARD_FILE" > /dev/null && echo 'reads its virtual card'
echo over
exec sleep 1000
"#;

async fn attack(script: &str, run_as: RunAs) -> (String, wire::Hello) {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let mut config = config(data.path(), &leader);
    config.run_as = run_as;
    let running = start(config).await;
    let hello = leader.welcome().await;
    let mut neighbour = order(2, WorkerDesire::Run, "echo a secret; exec sleep 1000");
    neighbour.job_id = 101;
    leader.order(true, vec![neighbour.clone()]).await;
    follow_until(&hello.address, 2, "a secret").await;
    leader.order(true, vec![neighbour, order(1, WorkerDesire::Run, script)]).await;
    let output = follow_until(&hello.address, 1, "over").await;
    for allocation in [1, 2] {
        let status = running_status(&folder_of(data.path(), allocation));
        assert_eq!((status.phase, status.fence.term.0), (Phase::Running, 5), "{output}");
    }
    leader.order(true, Vec::new()).await;
    leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(read(&hello.address, 2, wire::LogStream::Stdout, 0).await.expect("kept"), "a secret\n");
    running.stop().await;
    (output, hello)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_worker_reaches_nothing_that_is_not_its_own() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not tried: only root can give workers identities of their own");
        return;
    }
    let ids = UserIds { first: 1_700_000_000, count: 1000 };
    let (output, hello) = attack(ATTACK, RunAs::Range(ids)).await;
    assert!(hello.containment.expect("said").whole);
    assert!(!output.contains(": done"), "{output}");
    assert_eq!(output.matches(": refused").count(), 13, "{output}");
    assert!(output.contains("runs as 1700000100 1700000100 1700000100, NoNewPrivs:\t1"), "{output}");
    assert!(output.contains("reads its virtual card"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_runs_as_the_agent_cannot_renew_its_own_lease() {
    // It may do to the agent's files what the agent may; its fence is all that is asked here.
    let renewal = &ATTACK[ATTACK.find("try 'renew").expect("there")..];
    let script = format!(
        "try() {{ name=$1; shift; if \"$@\" >/dev/null; then echo \"$name: done\"; else echo \"$name: refused\"; fi; }}\n{renewal}"
    );
    let (output, _) = attack(&script, RunAs::Agent).await;
    assert!(output.contains("renew its own lease: refused"), "{output}");
    assert!(output.contains("NoNewPrivs:\t1"), "{output}");
}
