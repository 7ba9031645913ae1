//! Snapshots: a state read back is the state that was written, for all that follows too; damage and pieces are refused.

use proptest::prelude::*;
use tessera_ledger::wire::{WireError, decode_snapshot, encode_snapshot};
use tessera_ledger::{
    BlockState, CardKind, Command, Eligibility, EntryPosition, JobId, LogTime, NodeId, Observation, Plan, PlanPart,
    PlannedWorker, Request, RequestId, RequestKey, Revision, State, WorkerReport, laws,
};

use crate::pool::{self, Pool, card, exited, saved, slice};

fn written(state: &State) -> Vec<u8> {
    encode_snapshot(state).flat_map(|chunk| chunk.to_vec()).collect()
}

fn read(bytes: &[u8]) -> Result<State, WireError> {
    decode_snapshot([bytes.to_vec().into()])
}

/// Something to be done to a pool; the numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Submit { priority: u8, keyed: bool },
    Grant { job: u8, card: u8, preempt: bool },
    Report { job: u8, what: u8 },
    Wish { job: u8, what: u8 },
    Node { node: u8, what: u8 },
    Move { job: u8 },
    Wait { seconds: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..100, any::<bool>()).prop_map(|(priority, keyed)| Step::Submit { priority, keyed }),
        6 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(job, card, preempt)| Step::Grant { job, card, preempt }),
        6 => (any::<u8>(), 0u8..6).prop_map(|(job, what)| Step::Report { job, what }),
        2 => (any::<u8>(), 0u8..5).prop_map(|(job, what)| Step::Wish { job, what }),
        2 => (0u8..3, 0u8..6).prop_map(|(node, what)| Step::Node { node, what }),
        2 => any::<u8>().prop_map(|job| Step::Move { job }),
        1 => (0u16..4000).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// Room for four blocks on a card: free, or held by others when that is allowed.
fn room(state: &State, choice: u8, preempt: bool) -> Option<(tessera_ledger::Slice, Vec<JobId>)> {
    let cards: Vec<_> = state.cards().collect();
    let (id, card) = cards.get(usize::from(choice) % cards.len().max(1))?;
    let usable = |block: BlockState| block == BlockState::Free || (preempt && matches!(block, BlockState::Running(_)));
    let fits =
        |start: &u32| card.extents.all(tessera_ledger::BlockIndex(*start), tessera_ledger::BlockCount(4), usable);
    let start = (0..card.blocks.0).find(fits)?;
    let slice = slice(id.node.0, id.index, start, 4);
    let here = card.extents.as_slice().iter().filter(|extent| extent.start.0 < start + 4 && start < extent.end());
    let owners = here.filter_map(|extent| extent.state.owner());
    let mut victims: Vec<JobId> = owners.filter_map(|owner| Some(state.allocation(owner.allocation)?.job)).collect();
    victims.dedup();
    Some((slice, victims))
}

fn command(state: &State, step: &Step) -> Option<Command> {
    let plan = |part| Command::CommitPlan { plan: Plan { revision: state.revision(), parts: vec![part] } };
    let jobs: Vec<JobId> = state.jobs_from(JobId(0)).map(|job| job.id).collect();
    let pick = |choice: u8| jobs.get(usize::from(choice) % jobs.len().max(1)).copied();
    Some(match *step {
        Step::Submit { priority, .. } => {
            let mut spec = pool::spec();
            spec.priority = u32::from(priority);
            spec.virtual_card.compute = tessera_ledger::MilliTflops::from_tflops(4);
            tessera_testkit::submission(spec)
        }
        Step::Grant { job, card, preempt } => {
            let (slice, victims) = room(state, card, preempt)?;
            let workers = vec![PlannedWorker { virtual_card: 0, node: slice.card.node, slices: vec![slice] }];
            plan(PlanPart::Grant { job: pick(job)?, workers, victims })
        }
        Step::Report { job, what } => {
            let allocation = state.allocation(state.job(pick(job)?)?.allocation?)?;
            let worker = allocation.workers.first()?;
            let observation = match what {
                0..=2 => Observation::Running,
                3 => exited(i32::from(job % 2)),
                4 => saved(u64::from(job), 0),
                _ => Observation::Unconfirmed { message: "still there".to_owned() },
            };
            let reports = vec![WorkerReport { worker: allocation.owner(worker.rank), observation }];
            Command::ReportWorkers { node: worker.node, reports }
        }
        Step::Wish { job, what } => {
            let job = pick(job)?;
            match what {
                0 => Command::CancelJob { job },
                1 => Command::HoldJob { job },
                2 => Command::ReleaseJob { job },
                3 => Command::SuspendJob { job },
                _ => Command::ResumeJob { job },
            }
        }
        Step::Node { node, what } => {
            let node = NodeId(u32::from(node));
            let reason = String::new();
            match what {
                0 => Command::NodeLost { node, epoch: state.node(node)?.epoch },
                1 => Command::NodeReturned { node, incarnation: 1 },
                2 => Command::SetEligibility { node, eligibility: Eligibility::Draining, reason },
                3 => Command::SetEligibility { node, eligibility: Eligibility::Eligible, reason },
                4 => Command::ConfirmStopped { node },
                _ => Command::ForgetNode { node },
            }
        }
        Step::Move { job } => {
            let (slice, _) = room(state, job, false)?;
            let workers = vec![PlannedWorker { virtual_card: 0, node: slice.card.node, slices: vec![slice] }];
            plan(PlanPart::Move { job: pick(job)?, workers })
        }
        Step::Wait { .. } => Command::Tick,
    })
}

/// Applies the steps; answers the log that they became.
fn play(pool: &mut Pool, steps: &[Step], first_key: u128) -> Vec<(EntryPosition, Request)> {
    let mut log = vec![];
    for (number, step) in (first_key..).zip(steps) {
        if let Step::Wait { seconds } = step {
            pool.time += u64::from(*seconds) * 1000;
        }
        let Some(command) = command(&pool.state, step) else { continue };
        let keyed = matches!(step, Step::Submit { keyed: true, .. });
        let key = keyed.then_some(RequestKey { id: RequestId(number << 64 | 5), fingerprint: 9 });
        let request = Request { key, actor: "tester".to_owned(), command };
        pool.apply(std::slice::from_ref(&request));
        log.push((EntryPosition { revision: pool.state.revision(), time: LogTime(pool.time) }, request));
    }
    log
}

fn small_pool() -> Pool {
    Pool::with_nodes(&[
        &[card(CardKind::Gpu, 9), card(CardKind::Npu, 20)],
        &[card(CardKind::Gpu, 10)],
        &[card(CardKind::Cpu, 6)],
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_restored_member_stays_equal_to_the_others(
        before in prop::collection::vec(step(), 0..60),
        after in prop::collection::vec(step(), 0..30),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut pool = small_pool();
        play(&mut pool, &before, 1);
        let bytes = written(&pool.state);
        prop_assert_eq!(&bytes, &written(&pool.state), "the same state gives the same bytes");

        // However the bytes are cut into chunks, they say the same.
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let chunks = places.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec().into());
        let mut restored = decode_snapshot(chunks).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(laws::check(&restored), vec![]);
        prop_assert_eq!(&bytes, &written(&restored));

        for (at, request) in play(&mut pool, &after, 1000) {
            restored.apply(at, &[request]);
        }
        prop_assert_eq!(restored.digest(), pool.state.digest());
        prop_assert_eq!(written(&restored), written(&pool.state));
    }

    #[test]
    fn damage_is_never_taken_for_the_state_that_was_written(
        steps in prop::collection::vec(step(), 0..40),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut pool = small_pool();
        play(&mut pool, &steps, 1);
        let whole = written(&pool.state);
        let mut bytes = whole.clone();
        bytes[at.index(whole.len())] ^= 1 << bit;
        if let Ok(state) = read(&bytes) {
            prop_assert_eq!(written(&state), whole);
        }
    }

    #[test]
    fn a_piece_is_not_taken_for_the_whole(
        steps in prop::collection::vec(step(), 0..40),
        at in any::<prop::sample::Index>(),
    ) {
        let mut pool = small_pool();
        play(&mut pool, &steps, 1);
        let bytes = written(&pool.state);
        let cut = read(&bytes[..at.index(bytes.len())]);
        prop_assert!(matches!(cut, Err(WireError::NotWhole { .. })), "{:?}", cut.err());
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn no_bit_of_a_snapshot_of_a_small_pool_may_change() {
    let whole = written(&small_pool().state);
    for place in 0..8 * whole.len() {
        let mut bytes = whole.clone();
        bytes[place / 8] ^= 1 << (place % 8);
        if let Ok(state) = read(&bytes) {
            assert!(written(&state) == whole, "bit {} of byte {} changed the state unnoticed", place % 8, place / 8);
        }
    }
}

#[test]
fn large_states_come_in_chunks_of_about_a_mebibyte() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let script = "x".repeat(100_000);
    let spec = std::sync::Arc::new(tessera_ledger::JobSpec { script, ..pool::spec() });
    for _ in 0..40 {
        pool.run(tessera_testkit::submission(spec.clone()));
    }
    let chunks: Vec<_> = encode_snapshot(&pool.state).collect();
    let sizes: Vec<usize> = chunks.iter().map(|chunk| chunk.len() >> 20).collect();
    assert_eq!(sizes, [1, 1, 1, 0]);
    let restored = decode_snapshot(chunks).unwrap();
    assert_eq!(written(&restored), written(&pool.state));
}

#[test]
fn a_snapshot_of_a_newer_release_is_refused_with_what_to_do() {
    let mut bytes = written(&State::new());
    // Length of the record, tag and length of the header, then the tag of its format and the format itself.
    let format = bytes.iter().position(|byte| *byte == 0x08).unwrap() + 1;
    assert_eq!(bytes[format], 1);
    bytes[format] = 2;
    let error = read(&bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the snapshot is in format 2, and this release reads formats up to 1; it was written by a newer release of Tessera: \
         start that release or a newer one"
    );
}

#[test]
fn records_after_the_last_and_missing_ones_are_noticed() {
    let whole = written(&Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]).state);
    let twice = [whole.clone(), whole.clone()].concat();
    assert_eq!(
        read(&twice).unwrap_err().to_string(),
        "the snapshot is not whole: records follow the last one; fetch it again"
    );
    let header = 1 + usize::from(whole[0]);
    let headless = read(&whole[header..]).unwrap_err().to_string();
    assert_eq!(headless, "the snapshot is not whole: it must have one header, at its beginning; fetch it again");
    let node = header + 1 + usize::from(whole[header]);
    let without_node = [&whole[..header], &whole[node..]].concat();
    let missing = read(&without_node).unwrap_err().to_string();
    assert_eq!(missing, "the snapshot is not whole: it announces 5 records and has 4; fetch it again");
    assert_eq!(Revision(1), read(&whole).unwrap().revision());
}

#[test]
fn a_record_that_is_longer_than_any_is_refused_before_it_has_come() {
    // The lengths of a record of 64 MiB and of one that is a byte longer.
    let said = |length: [u8; 4]| read(&length).unwrap_err().to_string();
    assert_eq!(
        said([0x80, 0x80, 0x80, 0x20]),
        "the snapshot is not whole: 4 bytes of a record are left over at the end; fetch it again"
    );
    assert_eq!(
        said([0x81, 0x80, 0x80, 0x20]),
        "the snapshot is not whole: a record of 67108865 bytes is longer than any release writes; fetch it again"
    );
}
