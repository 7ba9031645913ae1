//! Law L7: what this release has written must be read by it and by later ones, and mean the same.
//!
//! The files under `golden/level1` are what release 0.1 wrote. They never change; a release with a new format adds a
//! folder and keeps reading the old ones. Files that are missing are written with
//! `TESSERA_WRITE_GOLDEN=1 cargo test -p tessera-ledger golden`; one that exists is never written again, unless
//! it was deleted because its format has not been released.

use std::path::{Path, PathBuf};

use tessera_ledger::wire::{self, decode_request, decode_snapshot, encode_snapshot};
use tessera_ledger::{
    BlockCounts, CardKind, Command, Eligibility, JobId, JobState, LeaseCeiling, LeaseTimings, Level, MovePhase, NodeId,
    NodeState, Reason, Request, RequestId, State, laws,
};

use crate::eventful;
use crate::pool::{self, Pool, card, slice};
use crate::samples;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/level1")
}

/// The golden file of that name; written first when the environment says so.
fn golden(name: &str, written_now: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = folder().join(name);
    if std::env::var_os("TESSERA_WRITE_GOLDEN").is_some() && !path.exists() {
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(&path, written_now()).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn encode_request(request: &Request) -> Vec<u8> {
    wire::encode_request(request, Level::Drill).expect("every level is in force")
}

#[test]
fn commands_mean_what_they_meant() {
    let first = samples::commands().into_iter().map(|command| (command.kind().name, command));
    for (name, command) in first.chain(samples::additions()) {
        let request = samples::request(command);
        let bytes = golden(&format!("{name}.command"), || encode_request(&request));
        assert_eq!(decode_request(&bytes).unwrap(), request, "{name}");
        assert_eq!(encode_request(&request), bytes, "{name} is written differently now: that needs a new format");
    }
}

/// A pool in which something of every kind is kept.
fn eventful_pool() -> Pool {
    let mut pool = eventful::begin(State::new());
    eventful::happen(&mut pool);
    pool
}

fn snapshot(state: &State) -> Vec<u8> {
    encode_snapshot(state).flat_map(|chunk| chunk.to_vec()).collect()
}

#[test]
fn a_snapshot_means_what_it_meant() {
    let bytes = golden("eventful.snapshot", || snapshot(&eventful_pool().state));
    let state = decode_snapshot([bytes.clone().into()]).unwrap();
    assert_eq!(laws::check(&state), vec![]);
    assert_eq!(snapshot(&state), bytes, "the same state is written differently now: that needs a new format");

    let standing: Vec<(u64, JobState, &str)> =
        state.jobs_from(JobId(0)).map(|job| (job.id.0, job.state, job.reason.code())).collect();
    assert_eq!(
        standing,
        [
            (1, JobState::Running, "STARTED"),
            (2, JobState::Pending, "BACKOFF"),
            (3, JobState::Moving, "MOVING"),
            (4, JobState::Suspending, "PREEMPTED"),
            (5, JobState::Starting, "WAITING_FOR_PREEMPTED"),
            (6, JobState::Pending, "HELD"),
            (7, JobState::Cancelled, "CANCELLED"),
        ]
    );
    assert_eq!(*state.job(JobId(6)).unwrap().spec, eventful::held_spec());
    let failed = &state.job(JobId(2)).unwrap().history[0];
    assert_eq!((failed.exit_code, &failed.reason), (Some(3), &Some(Reason::NonZeroExit { code: 3 })));
    assert_eq!(state.job(JobId(7)).unwrap().traceparent, "00-aa-bb-01");
    assert_eq!(state.moves().map(|movement| movement.phase).collect::<Vec<_>>(), [MovePhase::Reserved]);
    assert_eq!(state.block_counts(), BlockCounts { free: 18, held: 5, running: 9, draining: 8, lost: 0, offline: 0 });
    let nodes: Vec<_> = state.nodes().map(|node| (node.state, node.eligibility, node.base.0)).collect();
    assert_eq!(
        nodes,
        [
            (NodeState::Ready, Eligibility::Eligible, 1),
            (NodeState::Ready, Eligibility::Eligible, 31),
            (NodeState::Ready, Eligibility::Cordoned, 41),
        ]
    );
    assert_eq!(state.queue("vision").unwrap().settings, samples::queue());
    assert_eq!(state.answered(RequestId(0xfeed)).unwrap().job, Some(JobId(7)));
    assert_eq!(state.lease_ceiling(), LeaseCeiling::of(&LeaseTimings::default()));
    assert_eq!(state.events_after(tessera_ledger::Revision(0)).unwrap().count(), 24);
}

/// A pool with a crowded host, and settings of its own.
fn crowded_host() -> Pool {
    let mut pool = Pool::with_nodes(&[]);
    let tessera_ledger::PoolConfig { block_size, reference_precision, .. } = tessera_ledger::PoolConfig::default();
    let config = tessera_ledger::PoolConfig { block_size, reference_precision, ..samples::full_config() };
    pool.run(Command::SetConfig { config, expected: None });
    let node = samples::full_node();
    pool.run(Command::RegisterNode { node, cards: pool::numbered(&[card(CardKind::Npu, 10)]) });
    let job = pool.submit(|spec| {
        spec.host = samples::full_spec().host;
        spec.affinity = samples::full_spec().affinity;
        spec.virtual_card.whole_cards = true;
    });
    pool.grant(job, vec![slice(0, 0, 0, 10)]);
    pool
}

#[test]
fn a_snapshot_of_a_crowded_host_means_what_it_meant() {
    let bytes = golden("hosts.snapshot", || snapshot(&crowded_host().state));
    let state = decode_snapshot([bytes.clone().into()]).unwrap();
    assert_eq!(laws::check(&state), vec![]);
    assert_eq!(snapshot(&state), bytes, "the same state is written differently now: that needs a new format");
    let held = state.host_use(NodeId(0));
    assert_eq!((held.used, held.promised.is_zero()), (samples::full_spec().host, true));
    assert_eq!(state.config().oversubscription, samples::full_config().oversubscription);
    assert_eq!(state.config().compaction, samples::full_config().compaction);
    assert_eq!(state.job(JobId(1)).unwrap().spec.affinity, samples::full_spec().affinity);
    assert_eq!(state.node(NodeId(0)).unwrap().description.cached.len(), 2);
}

/// A pool whose leases became shorter and that waits for the longer ones.
fn shortened_pool() -> Pool {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    for leases in [samples::patient_config().leases, LeaseTimings { heartbeat: SECOND, ..LeaseTimings::default() }] {
        let config = tessera_ledger::PoolConfig { leases, ..pool.state.config().clone() };
        pool.run(Command::SetConfig { config, expected: None });
    }
    pool
}

const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

#[test]
fn a_snapshot_says_for_how_long_leases_may_be_out() {
    let bytes = golden("leases.snapshot", || snapshot(&shortened_pool().state));
    let state = decode_snapshot([bytes.clone().into()]).unwrap();
    assert_eq!(laws::check(&state), vec![]);
    assert_eq!(snapshot(&state), bytes, "the same state is written differently now: that needs a new format");
    assert_eq!(state.config().leases, LeaseTimings { heartbeat: SECOND, ..LeaseTimings::default() });
    let regrant_after = samples::patient_config().leases.regrant_after;
    assert_eq!(state.lease_ceiling(), LeaseCeiling { regrant_after, changed_at: state.revision() });
}
