//! The digest (L8): of everything that a snapshot keeps, and of no sentence for people.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::wire::{WireError, decode_request, decode_snapshot, encode_request, encode_snapshot};
use tessera_ledger::{
    CardHealth, CardKind, CheckpointKey, Command, EntryPosition, IdleStep, JobId, LeaseTimings, Level, LogTime,
    MovePhase, NodeId, Observation, Outcome, PartKey, PlanPart, PlannedWorker, PoolConfig, PoolLimits, QueueSettings,
    Rank, Request, RequestId, RequestKey, Revision, State, WindowOf,
};

use crate::eventful;
use crate::pool::{self, Pool, card, slice};
use crate::samples;

fn written(state: &State) -> Vec<u8> {
    encode_snapshot(state).flat_map(|chunk| chunk.to_vec()).collect()
}

/// A pool to which every kind of command of this release was applied, with something of every kind left.
fn eventful_pool() -> Pool {
    let mut pool = eventful::begin(State::new());
    pool.run(Command::RegisterNode { node: pool::node("n3"), cards: Vec::new() });
    let early = pool.submit(|spec| spec.name = "early".to_owned());
    pool.grant(early, vec![slice(0, 1, 15, 1)]);
    pool.run(Command::RaiseLevel { to: Level::NEWEST });
    let submit =
        Command::SubmitJob { spec: Arc::new(pool::spec()), traceparent: "00-aa-bb-01".to_owned(), secret: None };
    pool.apply(&[dated(submit)]);
    let eventful::Jobs { running, moving, held } = eventful::happen(&mut pool);
    let moved = pool.submit(|spec| spec.name = "moved".to_owned());
    pool.grant(moved, vec![slice(0, 1, 16, 2)]);
    pool.report_all(moved, &Observation::Running);
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 1, 18, 2)] };
    pool.accept(PlanPart::Move { job: moved, workers: vec![worker] });
    let of_moved = pool.state.job(moved).unwrap().moving.unwrap();
    pool.run(Command::AdvanceMove { id: of_moved, from: MovePhase::Reserved, proceed: false });
    pool.report_all(running, &pool::saved(1, 100));
    pool.report_all(running, &pool::saved(2, 200));
    let worker = pool.allocation_of(running).owner(Rank(0));
    let checkpoint = CheckpointKey { attempt: 1, sequence: 2 };
    let part = PartKey { job: running, checkpoint, epoch: worker.epoch, rank: Rank(0) };
    pool.run(Command::NoteKept { node: NodeId(1), kept: vec![part], gone: vec![] });
    pool.run(Command::ReleaseJob { job: held });
    pool.run(Command::HoldJob { job: held });
    pool.run(Command::SuspendJob { job: running });
    pool.run(Command::ResumeJob { job: running });
    let allocation = pool.allocation_of(moving).id;
    pool.run(Command::ExpireJob { job: moving, allocation });
    pool.run(Command::UpdateCached { node: NodeId(2), cached: BTreeSet::from(["weights".to_owned()]) });
    let mut weak = pool::numbered(&[card(CardKind::Gpu, 10)]);
    weak[0].health = CardHealth::Unhealthy;
    pool.run(Command::UpdateCards { node: NodeId(1), cards: weak });
    let epoch = pool.state.node(NodeId(2)).unwrap().epoch;
    pool.run(Command::NodeLost { node: NodeId(2), epoch });
    let incarnation = pool.state.node(NodeId(2)).unwrap().description.incarnation;
    pool.run(Command::NodeReturned { node: NodeId(2), incarnation });
    pool.run(Command::ConfirmStopped { node: NodeId(1) });
    pool.run(Command::ForgetNode { node: NodeId(3) });
    let windows = vec!["0 20 * * * for 10h".to_owned()];
    let night =
        QueueSettings { name: "night".to_owned(), parent: String::new(), windows: windows.clone(), ..samples::queue() };
    pool.run(Command::SetQueue { queue: night });
    let nightly = pool.submit(|spec| spec.windows.clone_from(&windows));
    let time = LogTime(pool.time + 3_600_000);
    for whose in [WindowOf::Queue("night".to_owned()), WindowOf::Job(nightly)] {
        let close = Command::CloseUntil { whose, windows: windows.clone(), time };
        assert_eq!(pool.run(close), Outcome::Done);
    }
    let elastic = pool.submit(|spec| {
        (spec.gang, spec.gang_min) = (2, Some(1));
        spec.grow_after = Some(Duration::from_secs(60));
    });
    let cards = pool::numbered(&[card(CardKind::Gpu, 4)]);
    pool.run(Command::RegisterNode { node: pool::node("n4"), cards });
    pool.grant(elastic, vec![slice(4, 0, 0, 1)]);
    pool.report_all(elastic, &Observation::Running);
    pool.time += 60_000;
    let allocation = pool.allocation_of(elastic).id;
    assert_eq!(pool.run(Command::GrowJob { job: elastic, allocation }), Outcome::Done);
    let idle = QueueSettings { idle: Some(samples::idle()), ..pool.state.queue("default").unwrap().settings.clone() };
    pool.run(Command::SetQueue { queue: idle });
    let sleeper = pool.submit(|spec| spec.preemptible = false);
    pool.grant(sleeper, vec![slice(4, 0, 1, 1)]);
    pool.report_all(sleeper, &Observation::Running);
    let since = LogTime(pool.time);
    pool.time += 1_200_000;
    for step in [IdleStep::Noticed, IdleStep::Preemptible] {
        let note = Command::NoteIdle { job: sleeper, attempt: 1, since, step: Some(step) };
        assert_eq!(pool.run(note), Outcome::Done);
    }
    let drain = Command::DrainNode { node: NodeId(4), reason: "fan".to_owned(), within: Duration::from_secs(600) };
    assert_eq!(pool.run(drain), Outcome::Done);
    let side = QueueSettings { name: "side".to_owned(), parent: String::new(), ..samples::queue() };
    pool.run(Command::SetQueue { queue: side });
    pool.run(Command::RemoveQueue { name: "side".to_owned() });
    let long = samples::patient_config().leases;
    let set = |config| Command::SetConfig { config, expected: None };
    pool.run(set(PoolConfig { leases: long, ..PoolConfig::default() }));
    pool.run(set(PoolConfig::default()));
    pool.run(Command::SettleLeases { changed_at: pool.state.revision() });
    pool.run(set(PoolConfig { leases: long, ..PoolConfig::default() }));
    // Leases of before may be out there, and the id of the older of two requests is forgotten.
    let limits = PoolLimits { queues: 9, ..PoolLimits::default() };
    let brief = LeaseTimings { regrant_after: long.kill_after * 3 / 2 - long.heartbeat, ..long };
    let changed = PoolConfig { request_limit: 1, leases: brief, limits, ..PoolConfig::default() };
    let outcome = pool.run(set(PoolConfig { preemptions_per_hour: 7, hold_level: true, ..changed }));
    assert_eq!(outcome, Outcome::Done);
    pool.run(Command::Tick);
    assert_ne!(pool.state.request_floor(), LogTime(0), "an id was forgotten");
    assert_ne!(pool.state.lease_ceiling().regrant_after, pool.state.config().leases.regrant_after);
    // What is refused is part of the log, and of no digest.
    pool.run(Command::CancelJob { job: JobId(4_711) });
    pool.run(Command::RemoveQueue { name: "nobody's".to_owned() });
    pool
}

/// A request whose id says when it was made.
fn dated(command: Command) -> Request {
    let id = RequestId(1_234 << 80 | 7 << 76 | 2 << 62 | 5);
    Request { key: Some(RequestKey { id, fingerprint: 9 }), ..samples::request(command) }
}

/// Applies one entry to both of two equal pools; what they are asked for differs.
fn digests_after(one: Command, other: Command) -> ([Outcome; 2], [u128; 2]) {
    let answers = [one, other].map(|command| {
        let mut pool = eventful_pool();
        let outcome = pool.run(command);
        (outcome, pool.state.digest())
    });
    let [(first, of_first), (second, of_second)] = answers;
    ([first, second], [of_first, of_second])
}

#[test]
fn a_sentence_for_people_changes_no_digest() {
    let bad_name =
        |name: &str| Command::SetQueue { queue: QueueSettings { name: name.to_owned(), ..samples::queue() } };
    let weightless = Command::SetQueue { queue: QueueSettings { weight: 0, ..samples::queue() } };
    let (outcomes, digests) = digests_after(bad_name(""), weightless);
    let [Outcome::Rejected(one), Outcome::Rejected(other)] = outcomes else { panic!("{outcomes:?}") };
    assert_ne!(one.to_string(), other.to_string(), "they are refused in other words");
    assert_eq!(digests[0], digests[1]);
    let (_, digests) = digests_after(bad_name("a"), bad_name("b"));
    assert_ne!(digests[0], digests[1], "what is kept does count");
}

/// The records of a snapshot, each with its length before it.
fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (mut length, mut shift, mut at) = (0usize, 0, 0);
        loop {
            let byte = bytes[at];
            length |= usize::from(byte & 0x7f) << shift;
            (shift, at) = (shift + 7, at + 1);
            if byte < 0x80 {
                break;
            }
        }
        let (record, rest) = bytes.split_at(at + length);
        records.push(record);
        bytes = rest;
    }
    records
}

/// A trailer that announces so many records: field 15 with a message whose field 1 is the number.
fn trailer(records: usize) -> Vec<u8> {
    let records = u8::try_from(records).expect("a small snapshot");
    assert!((1..128).contains(&records));
    vec![4, 0x7a, 2, 0x08, records]
}

#[test]
fn a_snapshot_that_lost_something_is_refused() {
    let bytes = written(&eventful_pool().state);
    let records = records(&bytes);
    let last = records.len() - 1;
    assert_eq!(records[last], trailer(last), "the trailer is what this test makes");
    for lost in 1..last {
        let mut kept: Vec<u8> = records[..last]
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != lost)
            .flat_map(|(_, record)| record.to_vec())
            .collect();
        kept.extend(trailer(last - 1));
        let refused = decode_snapshot([kept.into()]);
        let error = refused.err().unwrap_or_else(|| panic!("record {lost} was not missed: {:?}", records[lost]));
        // A queue whose past is told is missed at once.
        assert!(matches!(error, WireError::OtherState { .. } | WireError::Damaged { .. }), "record {lost}: {error}");
    }
}

/// Every bit of a snapshot is part of something: of a field, of its name or of a length. No state is taken for another
/// one. (That something is so can be said with any odd bit.)
#[test]
fn a_snapshot_in_which_any_bit_has_changed_is_refused() {
    let bytes = written(&eventful_pool().state);
    let mut others = 0;
    for place in 0..bytes.len() {
        for bit in [0, 1, 6] {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << bit;
            match decode_snapshot([changed.into()]) {
                Ok(state) => {
                    assert_eq!(written(&state), bytes, "bit {bit} of byte {place} changed the state unnoticed")
                }
                Err(WireError::OtherState { .. }) => others += 1,
                Err(_) => {}
            }
        }
    }
    assert!(others > bytes.len() / 2, "many such changes only the digest can tell: {others} of {}", 3 * bytes.len());
}

/// Law L7: a log that was once written gives the states that it gave, at every level. To write the file of a new
/// format, delete the one that was never released and run this test with `TESSERA_WRITE_GOLDEN=1`; a released one is
/// never changed.
#[test]
fn golden_logs_give_the_digests_that_they_gave() {
    let released = Level::ALL.into_iter().filter(|level| *level <= Level::NEWEST);
    released.for_each(gives_the_digests_that_it_gave);
}

fn gives_the_digests_that_it_gave(level: Level) {
    let file = format!("tests/golden/level{level}/eventful.log");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("TESSERA_WRITE_GOLDEN").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, log_of(&eventful_pool())).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut state = State::new();
    let mut kinds = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let [revision, time, digest, commands @ ..] = words.as_slice() else { panic!("line {number}: {line}") };
        let at = EntryPosition { revision: Revision(revision.parse().unwrap()), time: LogTime(time.parse().unwrap()) };
        let requests: Vec<Request> =
            commands.iter().map(|command| decode_request(&bytes_of(command)).unwrap()).collect();
        kinds.extend(requests.iter().map(|request| request.command.kind().name));
        state.apply(at, &requests);
        assert_eq!(format!("{:032x}", state.digest()), *digest, "after line {number}: {requests:#?}");
    }
    let known = Command::KINDS.iter().filter(|kind| kind.since <= level).map(|kind| kind.name).collect();
    assert_eq!(kinds, known, "every kind of command that there was at level {level} is in it");
    assert_eq!(state.level(), level);
    let restored = decode_snapshot(encode_snapshot(&state)).expect("it is whole");
    assert_eq!(restored.digest(), state.digest());
}

/// One line per entry: revision, time, digest after it, and each command, in hexadecimal digits.
fn log_of(pool: &Pool) -> String {
    let (mut state, mut text) = (State::new(), String::new());
    for (at, requests) in &pool.log {
        let commands: Vec<Vec<u8>> =
            requests.iter().map(|request| encode_request(request, state.level()).expect("it is in force")).collect();
        state.apply(*at, requests);
        write!(text, "{} {} {:032x}", at.revision.0, at.time.0, state.digest()).unwrap();
        for command in commands {
            text.push(' ');
            command.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        }
        text.push('\n');
    }
    text
}

fn bytes_of(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}
