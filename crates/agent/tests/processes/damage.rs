//! A worker whose files an agent cannot read is not stopped: it is adopted, searched for, or quarantined, and never run
//! twice (law L2).

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_api::v1 as wire;
use wire::{StopCause, WorkerDesire, WorkerPhase};

use super::agent::{config, folder_of, follow_until, start};
use super::leader::{Leader, order};
use super::support::{is_alive, pid_in, running_status};

const SCRIPT: &str = "echo run >> runs; echo self=$$; exec sleep 1000";

/// Starts a worker, ends its agent, does something to its folder, starts another agent, and orders the worker to run
/// again. Answers the worker's pid, where it keeps count of its runs, and what the new agent reported of it in `phase`.
async fn after(damage: impl FnOnce(&std::path::Path), phase: WorkerPhase) -> (i32, usize, wire::WorkerReport) {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let first = start(config(data.path(), &leader)).await;
    let address = leader.welcome().await.address;
    leader.order(true, vec![order(1, WorkerDesire::Run, SCRIPT)]).await;
    leader.report_of(1, WorkerPhase::Running).await;
    let folder = folder_of(data.path(), 1);
    let pid = pid_in(&follow_until(&address, 1, "self=").await, "self", &running_status(&folder));
    first.stop().await;
    damage(&folder);

    let second = start(config(data.path(), &leader)).await;
    leader.welcome().await;
    leader.order(true, vec![order(1, WorkerDesire::Run, SCRIPT)]).await;
    let report = leader.report_of(1, phase).await;
    let runs = fs::read_to_string(folder.join("work/runs")).expect("it ran").lines().count();
    if phase == WorkerPhase::Running {
        assert!(is_alive(pid));
        leader.order(true, Vec::new()).await;
        leader.report_of(1, WorkerPhase::Stopped).await;
    }
    assert!(!is_alive(pid), "told as stopped only when it is");
    second.stop().await;
    (pid, runs, report)
}

fn kill_supervisor(folder: &std::path::Path) {
    let supervisor = running_status(folder).supervisor.expect("at work");
    kill(Pid::from_raw(supervisor.pid), Signal::SIGKILL).expect("alive");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_files_are_damaged_is_adopted_while_it_lives() {
    let spoil = |folder: &std::path::Path| {
        for name in ["status.json", "order.pb", "launch.json"] {
            fs::write(folder.join(name), [0xff; 7]).expect("writable");
        }
    };
    let (_, runs, _) = after(spoil, WorkerPhase::Running).await;
    assert_eq!(runs, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_files_are_damaged_is_searched_for_when_its_supervisor_is_gone() {
    let spoil = |folder: &std::path::Path| {
        kill_supervisor(folder);
        for name in ["status.json", "order.pb", "launch.json"] {
            fs::write(folder.join(name), [0xff; 7]).expect("writable");
        }
    };
    let (_, runs, report) = after(spoil, WorkerPhase::Stopped).await;
    assert_eq!((runs, report.cause()), (1, StopCause::Vanished), "{}", report.message);
    assert!(report.message.contains("status cannot be read"), "{}", report.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_folder_cannot_be_searched_is_quarantined() {
    let mut lock = PathBuf::new();
    let spoil = |folder: &std::path::Path| {
        kill_supervisor(folder);
        // A lock that cannot be taken stands for a disk that gives errors.
        lock = folder.join("lock");
        fs::remove_file(&lock).expect("there");
        fs::create_dir(&lock).expect("writable");
    };
    let (_, runs, report) = after(spoil, WorkerPhase::Unconfirmed).await;
    assert_eq!(runs, 1);
    assert!(report.message.contains("cannot be searched"), "{}", report.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_here_before_is_never_run_again() {
    // The folder was settled, and so is not found again: the order comes for a worker that nobody remembers.
    let settle = |folder: &std::path::Path| {
        kill_supervisor(folder);
        fs::write(
            folder.join("settled.json"),
            r#"{"settled_unix_ms":1,"expires_unix_ms":99999999999999,"removed":false,"for_room":false,"bytes":0}"#,
        )
        .expect("writable");
    };
    let (_, runs, report) = after(settle, WorkerPhase::Stopped).await;
    assert_eq!((runs, report.cause()), (1, StopCause::Vanished), "{}", report.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_node_cannot_give_is_not_the_job_s_failure() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let mut without = config(data.path(), &leader);
    without.supervisor.program = PathBuf::from("/no/such/supervisor");
    let running = start(without).await;
    leader.welcome().await;
    leader.order(true, vec![order(1, WorkerDesire::Run, "true")]).await;
    let report = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(report.cause(), StopCause::NodeFault);
    assert!(report.message.contains("/no/such/supervisor"), "{}", report.message);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_a_virtual_card_follows_its_blocks() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let running = start(config(data.path(), &leader)).await;
    let address = leader.welcome().await.address;
    let script = "until grep -q '\"version\": 2' \"$TESSERA_VCARD_FILE\"; do sleep 0.01; done; cat \"$TESSERA_VCARD_FILE\"; \
                  echo; echo over";
    let at = |first_block_number| {
        let mut run = order(1, WorkerDesire::Run, script);
        run.slices = vec![wire::PlacedSlice {
            slice: Some(wire::Slice { node_id: 3, blocks: 4, ..Default::default() }),
            first_block_number,
            weight: 1.0,
            ..Default::default()
        }];
        run
    };
    leader.order(true, vec![at(10)]).await;
    leader.report_of(1, WorkerPhase::Running).await;
    leader.order(false, vec![at(1)]).await;
    let output = follow_until(&address, 1, "over").await;
    assert!(output.contains("\"first_block_number\": 1,") && output.contains("\"last_block_number\": 4,"), "{output}");
    leader.report_of(1, WorkerPhase::Stopped).await;
    running.stop().await;
}
