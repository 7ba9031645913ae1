//! Checkpoints: what is saved counts when it is whole, the next attempt goes on from the newest that counts and can be
//! had, and what was computed since is what an interruption costs (L5).

mod moves;

use tessera_ledger::{
    CardKind, CheckpointKey, Command, Eligibility, Event, JobId, JobState, NodeId, Observation, Outcome, PartKey,
    PlanPart, PlannedWorker, RESTORES_UNTIL_GIVEN_UP, Rank, Reason, Revision, SavedPart, StopCause, WorkerReport,
};

use crate::pool::{Pool, card, exited, saved, slice, stopped};

const LAST: u64 = CheckpointKey::LAST;

/// Nodes with one card of ten blocks each.
fn nodes(count: usize) -> Pool {
    let cards = [card(CardKind::Gpu, 10)];
    Pool::with_nodes(&vec![&cards[..]; count])
}

/// A job that runs on the card of a node.
fn running(pool: &mut Pool, node: u32) -> JobId {
    let job = pool.submit(|_| {});
    pool.grant(job, vec![slice(node, 0, 0, 1)]);
    pool.report_all(job, &Observation::Running);
    job
}

/// A gang of two that runs on the cards of the first two nodes.
fn gang(pool: &mut Pool) -> JobId {
    let job = pool.submit(|spec| spec.gang = 2);
    grant_gang(pool, job);
    pool.report_all(job, &Observation::Running);
    job
}

fn grant_gang(pool: &mut Pool, job: JobId) {
    let worker = |virtual_card: u32| PlannedWorker {
        virtual_card,
        node: NodeId(virtual_card),
        slices: vec![slice(virtual_card, 0, 0, 1)],
    };
    pool.accept(PlanPart::Grant { job, workers: vec![worker(0), worker(1)], victims: vec![] });
}

fn suspend(pool: &mut Pool, job: JobId, saves: Option<u64>) {
    pool.run(Command::SuspendJob { job });
    if let Some(progress) = saves {
        pool.report_all(job, &saved(LAST, progress));
    }
    pool.report_all(job, &stopped(StopCause::Ordered, Some(0)));
    pool.run(Command::ResumeJob { job });
}

/// The checkpoint from which the present attempt resumed.
fn from(pool: &Pool, job: JobId) -> Option<(u32, u64)> {
    let allocation = pool.allocation_of(job);
    let told = pool.state.job(job).unwrap().history.last().unwrap().from;
    assert_eq!(told, allocation.from, "the history says the same");
    allocation.from.map(|key| (key.attempt, key.sequence))
}

fn part(pool: &Pool, job: JobId, attempt: u32, sequence: u64) -> PartKey {
    let checkpoint = CheckpointKey { attempt, sequence };
    let epoch = pool.state.job(job).unwrap().checkpoints.get(checkpoint).expect("it is known").epoch;
    PartKey { job, checkpoint, epoch, rank: Rank(0) }
}

#[test]
fn a_job_goes_on_from_what_it_saved_when_it_was_stopped() {
    let mut pool = nodes(2);
    let job = running(&mut pool, 0);
    assert_eq!(from(&pool, job), None);
    pool.report_all(job, &saved(1, 100));
    suspend(&mut pool, job, Some(150));
    pool.grant(job, vec![slice(1, 0, 0, 1)]);
    assert_eq!(from(&pool, job), Some((1, LAST)));
    pool.report_all(job, &Observation::Running);
    suspend(&mut pool, job, None);
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    assert_eq!(from(&pool, job), Some((1, LAST)), "the second attempt saved nothing");
    pool.report_all(job, &exited(0));
    assert!(pool.state.job(job).unwrap().checkpoints.is_empty(), "it is over");
}

#[test]
fn an_interruption_costs_what_was_computed_since_the_newest_checkpoint() {
    let mut pool = nodes(1);
    let job = running(&mut pool, 0);
    pool.time += 60_000;
    pool.report_all(job, &saved(1, 0));
    pool.time += 5_000;
    suspend(&mut pool, job, None);
    let attempt = pool.state.job(job).unwrap().history[0].clone();
    let unsaved = attempt.unsaved(pool.state.time()).as_millis();
    assert!((5_000..6_000).contains(&unsaved), "{unsaved} ms of 65 s");
}

#[test]
fn a_gang_goes_on_whole_or_from_the_one_before() {
    let mut pool = nodes(2);
    let job = gang(&mut pool);
    pool.report_all(job, &saved(1, 10));
    pool.report(job, 0, saved(2, 20));
    pool.run(Command::SuspendJob { job });
    pool.report(job, 0, saved(LAST, 25));
    pool.report(job, 1, saved(LAST, 24));
    pool.report_all(job, &stopped(StopCause::Ordered, Some(0)));
    let kept: Vec<u64> = pool.state.job(job).unwrap().checkpoints.iter().map(|one| one.key.sequence).collect();
    assert_eq!(kept, [1], "its workers stopped at different places");
    pool.run(Command::ResumeJob { job });
    grant_gang(&mut pool, job);
    assert_eq!(from(&pool, job), Some((1, 1)));
}

/// A virtual card that spreads over nodes has one worker on each: how many, placement decides anew each time.
#[test]
fn another_number_of_workers_goes_on_when_only_the_first_wrote() {
    for (second_wrote, goes_on) in [(false, true), (true, false)] {
        let mut pool = nodes(2);
        let job = pool.submit(|spec| (spec.gang, spec.gang_min) = (2, Some(1)));
        grant_gang(&mut pool, job);
        pool.report_all(job, &Observation::Running);
        pool.run(Command::SuspendJob { job });
        pool.report(job, 0, saved(LAST, 5));
        let Observation::Saved(part) = saved(LAST, 5) else { panic!("it is") };
        let bytes = if second_wrote { part.bytes } else { 0 };
        pool.report(job, 1, Observation::Saved(tessera_ledger::SavedPart { bytes, ..part }));
        pool.report_all(job, &stopped(StopCause::Ordered, Some(0)));
        pool.run(Command::ResumeJob { job });
        pool.grant(job, vec![slice(0, 0, 0, 1)]);
        assert_eq!(from(&pool, job).is_some(), goes_on, "the second wrote: {second_wrote}");
    }
}

#[test]
fn what_cannot_be_had_is_passed_over_and_found_again_when_its_node_is_back() {
    let mut pool = nodes(3);
    let job = running(&mut pool, 0);
    pool.report_all(job, &saved(1, 10));
    let first = part(&pool, job, 1, 1);
    pool.run(Command::NoteKept { node: NodeId(1), kept: vec![first], gone: vec![] });
    pool.report_all(job, &saved(2, 20));
    let epoch = pool.state.node(NodeId(0)).unwrap().epoch;
    pool.run(Command::NodeLost { node: NodeId(0), epoch });
    pool.time += 10_000;
    pool.grant(job, vec![slice(2, 0, 0, 1)]);
    assert_eq!(from(&pool, job), Some((1, 1)), "the second lies on the lost node alone");
    let why = "the part of worker 0 is on n0: not ready";
    assert_eq!(pool.state.job(job).unwrap().history.last().unwrap().passed_over, why);
    let key = |sequence| CheckpointKey { attempt: 1, sequence };
    assert_eq!(skipped(&pool), [(key(2), Some(key(1)), why.to_owned())]);
    let incarnation = pool.state.node(NodeId(0)).unwrap().description.incarnation;
    pool.run(Command::NodeReturned { node: NodeId(0), incarnation });
    pool.report_all(job, &Observation::Running);
    suspend(&mut pool, job, None);
    pool.grant(job, vec![slice(2, 0, 0, 1)]);
    assert_eq!(from(&pool, job), Some((1, 2)));
    assert_eq!(pool.state.job(job).unwrap().history.last().unwrap().passed_over, "");
}

#[test]
fn an_attempt_that_begins_from_nothing_though_something_was_saved_says_why() {
    let mut pool = nodes(2);
    let job = running(&mut pool, 0);
    pool.report_all(job, &saved(1, 10));
    let only = part(&pool, job, 1, 1);
    suspend(&mut pool, job, None);
    pool.run(Command::NoteKept { node: NodeId(0), kept: vec![], gone: vec![only] });
    pool.grant(job, vec![slice(1, 0, 0, 1)]);
    assert_eq!(from(&pool, job), None);
    let why = "no node keeps the part of worker 0 any more";
    assert_eq!(pool.state.job(job).unwrap().history.last().unwrap().passed_over, why);
    assert_eq!(skipped(&pool), [(only.checkpoint, None, why.to_owned())]);
}

#[test]
fn the_newest_checkpoint_is_to_lie_on_two_nodes() {
    let mut pool = nodes(3);
    let job = running(&mut pool, 0);
    assert_eq!(pool.state.copies_to_make().count(), 0);
    pool.report_all(job, &saved(1, 10));
    let copies: Vec<_> = pool.state.copies_to_make().collect();
    let [(key, told, onto)] = copies.as_slice() else { panic!("one part, one copy: {copies:?}") };
    assert_eq!((*key, told.saved.progress), (part(&pool, job, 1, 1), 10));
    assert_ne!(*onto, NodeId(0));
    pool.run(Command::NoteKept { node: *onto, kept: vec![*key], gone: vec![] });
    assert_eq!(pool.state.copies_to_make().count(), 0);
    pool.run(Command::NoteKept { node: NodeId(0), kept: vec![], gone: vec![*key] });
    assert_eq!(pool.state.copies_to_make().count(), 1, "a disk was changed");
    let stranger = PartKey { rank: Rank(7), ..*key };
    assert_eq!(pool.run(Command::NoteKept { node: NodeId(2), kept: vec![stranger], gone: vec![] }), Outcome::Done);
}

/// A copy takes as long as several saves: what is being copied stays until it is, and the loss of a node costs no more
/// than that.
#[test]
fn copies_that_are_slower_than_saves_come_to_their_end() {
    for slowness in 1..9 {
        let mut pool = nodes(3);
        let job = running(&mut pool, 0);
        let mut under_way: Option<(PartKey, NodeId, u64)> = None;
        let mut copied = 0;
        for sequence in 1..=100 {
            pool.report_all(job, &saved(sequence, sequence));
            let ordered = pool.state.copies_to_make().next().map(|(key, _, onto)| (key, onto, sequence + slowness));
            under_way = under_way.or(ordered);
            let Some((key, onto, until)) = under_way.filter(|(.., until)| *until <= sequence) else { continue };
            assert!(until == sequence && pool.state.job(job).unwrap().checkpoints.holding(&key).is_some(), "{key:?}");
            pool.run(Command::NoteKept { node: onto, kept: vec![key], gone: vec![] });
            copied = key.checkpoint.sequence;
            under_way = None;
        }
        assert!(100 - copied <= 2 * slowness + 2, "{copied} of 100, when a copy takes {slowness} saves");
        let kept = pool.state.job(job).unwrap().checkpoints.iter().count();
        assert!(kept <= 4, "{kept} are kept");
    }
}

/// Workers that save at different places, one that says nothing, and a program that writes nothing: what never comes to
/// count is not gathered.
#[test]
fn what_does_not_count_is_bounded() {
    let gathered = |pool: &Pool, job| pool.state.job(job).unwrap().checkpoints.iter().count();
    for told in [&[(0, 1), (1, 2)][..], &[(0, 1)], &[(1, 1)]] {
        let mut pool = nodes(3);
        let job = gang(&mut pool);
        for sequence in 1..=200 {
            for (rank, apart) in told {
                pool.report(job, *rank, saved(sequence, 1_000 * sequence + apart));
            }
            assert!(gathered(&pool, job) <= 64, "{} of {told:?}", gathered(&pool, job));
        }
        let (checkpoint, epoch) = (CheckpointKey { attempt: 1, sequence: 1 }, pool.allocation_of(job).epoch);
        let first = PartKey { job, checkpoint, epoch, rank: Rank(told[0].0) };
        assert!(pool.state.job(job).unwrap().checkpoints.can_do_without(&first, 1), "nor on disks");
    }
    let mut pool = nodes(3);
    let job = running(&mut pool, 0);
    let Observation::Saved(part) = saved(1, 0) else { unreachable!() };
    pool.report_all(job, &Observation::Saved(SavedPart { bytes: (1 << 50) + 1, ..part.clone() }));
    assert_eq!(gathered(&pool, job), 0, "nothing has so many bytes");
    for sequence in 1..=200 {
        pool.report_all(job, &Observation::Saved(SavedPart { sequence, bytes: 0, ..part.clone() }));
        assert_eq!(gathered(&pool, job), 1);
    }
}

/// One worker of a gang takes ten periods to save its part: the parts that the others report meanwhile wait for it.
#[test]
fn a_worker_that_is_slow_to_save_is_waited_for() {
    let mut pool = nodes(3);
    let job = gang(&mut pool);
    for sequence in 1..=60 {
        pool.report(job, 1, saved(sequence, sequence));
        if sequence % 10 == 0 {
            pool.report(job, 0, saved(sequence - 9, sequence - 9));
            let newest = pool.state.job(job).unwrap().checkpoints.that_count().next().map(|one| one.key.sequence);
            assert_eq!(newest, Some(sequence - 9));
        }
    }
    let gathered = pool.state.job(job).unwrap().checkpoints.iter().count();
    assert!(gathered <= 13, "{gathered}");
}

#[test]
fn one_that_is_damaged_is_given_up_for_the_one_before() {
    let mut pool = nodes(2);
    let job = running(&mut pool, 0);
    pool.report_all(job, &saved(1, 10));
    suspend(&mut pool, job, Some(15));
    let unusable = |lost| Observation::Unusable { lost, message: "chunk 0 is not what was stored".to_owned() };
    for (lost, next) in [(false, (1, LAST)), (true, (1, 1))] {
        pool.grant(job, vec![slice(1, 0, 0, 1)]);
        assert_eq!(from(&pool, job), Some((1, LAST)));
        pool.report_all(job, &unusable(lost));
        let state = pool.state.job(job).unwrap();
        assert_eq!((state.state, state.retries), (JobState::Pending, 0), "it is not the job's fault");
        pool.time += 60_000;
        let newest = state.checkpoints.that_count().next().map(|one| (one.key.attempt, one.key.sequence));
        assert_eq!(newest, Some(next));
    }
    let key = |sequence| CheckpointKey { attempt: 1, sequence };
    let message = "chunk 0 is not what was stored".to_owned();
    assert_eq!(skipped(&pool), [(key(LAST), Some(key(1)), message.clone())]);
    let last = pool.state.job(job).unwrap().history.last().unwrap().reason.clone();
    assert_eq!(last, Some(Reason::CheckpointDamaged { checkpoint: key(LAST), message }));
    assert!(last.unwrap().to_string().contains("checkpoint 1.last cannot be used"));
}

/// The events about checkpoints that are of no use: which one, the newest one left to resume from, and why.
fn skipped(pool: &Pool) -> Vec<(CheckpointKey, Option<CheckpointKey>, String)> {
    let entries = pool.state.events_after(Revision(0)).unwrap();
    let of = |event: &Event| match event {
        Event::CheckpointSkipped { checkpoint, newest_left, message, .. } => {
            Some((*checkpoint, *newest_left, message.clone()))
        }
        _ => None,
    };
    entries.flat_map(|entry| entry.events.iter().filter_map(of).collect::<Vec<_>>()).collect()
}

#[test]
fn one_that_not_all_workers_saved_is_said_to_be_skipped() {
    let mut pool = nodes(2);
    let job = gang(&mut pool);
    pool.report_all(job, &saved(1, 10));
    pool.run(Command::SuspendJob { job });
    pool.report(job, 0, saved(LAST, 20));
    pool.report_all(job, &stopped(StopCause::Ordered, Some(15)));
    let key = |sequence| CheckpointKey { attempt: 1, sequence };
    assert_eq!(skipped(&pool), [(key(LAST), Some(key(1)), "1 of 2 workers saved their part".to_owned())]);
}

/// Ends the present attempt as one whose processes could not be restored; answers how long the next one waits, in
/// milliseconds, and what the job can go on from.
fn not_restored(pool: &mut Pool, job: JobId) -> (u64, Vec<u64>) {
    pool.report_all(job, &stopped(StopCause::NotRestored, None));
    let state = pool.state.job(job).unwrap();
    assert_eq!((state.state, state.retries), (JobState::Pending, 0), "it is not the job's fault");
    assert_eq!(state.reason.code(), "NOT_RESTORED");
    let wait = state.not_before.0 - pool.state.time().0;
    let left = state.checkpoints.that_count().map(|one| one.key.sequence).collect();
    pool.time += 600_000;
    (wait, left)
}

#[test]
fn one_that_cannot_be_restored_is_tried_for_a_while_and_then_given_up_for_the_one_before() {
    let mut pool = nodes(2);
    let job = running(&mut pool, 0);
    pool.report_all(job, &saved(1, 10));
    suspend(&mut pool, job, Some(15));
    let tries = u64::from(RESTORES_UNTIL_GIVEN_UP);
    for attempt in 1..tries {
        pool.grant(job, vec![slice(1, 0, 0, 1)]);
        assert_eq!(from(&pool, job), Some((1, LAST)));
        assert_eq!(not_restored(&mut pool, job), (1000 << (attempt - 1), vec![LAST, 1]), "attempt {attempt}");
    }
    // One that is lost before it ran says nothing of the checkpoint.
    pool.grant(job, vec![slice(1, 0, 0, 1)]);
    pool.report_all(job, &stopped(StopCause::Vanished, None));
    pool.time += 600_000;
    pool.grant(job, vec![slice(1, 0, 0, 1)]);
    assert_eq!(not_restored(&mut pool, job).1, [1]);
    let key = |sequence| CheckpointKey { attempt: 1, sequence };
    assert_eq!(skipped(&pool), [(key(LAST), Some(key(1)), "6 attempts in a row could not restore it".to_owned())]);
    pool.grant(job, vec![slice(1, 0, 0, 1)]);
    assert_eq!(from(&pool, job), Some((1, 1)));
    assert_eq!(not_restored(&mut pool, job), (1000, vec![1]), "it is another one, and counted anew");
    let node = pool.state.node(NodeId(1)).unwrap();
    assert_eq!((node.faults, node.eligibility), (0, Eligibility::Eligible), "nor is it the node's");
}

#[test]
fn one_that_was_restored_once_is_counted_anew() {
    let mut pool = nodes(1);
    let job = running(&mut pool, 0);
    suspend(&mut pool, job, Some(15));
    for round in 0..2 {
        for attempt in 1..RESTORES_UNTIL_GIVEN_UP {
            pool.grant(job, vec![slice(0, 0, 0, 1)]);
            assert_eq!(not_restored(&mut pool, job).1, [LAST], "round {round}, attempt {attempt}");
        }
        pool.grant(job, vec![slice(0, 0, 0, 1)]);
        pool.report_all(job, &Observation::Running);
        pool.report_all(job, &stopped(StopCause::Vanished, None));
        pool.time += 600_000;
    }
}

#[test]
fn what_an_older_allocation_saved_late_is_not_taken() {
    let mut pool = nodes(1);
    let job = running(&mut pool, 0);
    let old = pool.allocation_of(job);
    suspend(&mut pool, job, None);
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    let late = WorkerReport { worker: old.owner(Rank(0)), observation: saved(9, 9) };
    pool.run(Command::ReportWorkers { node: NodeId(0), reports: vec![late] });
    assert!(pool.state.job(job).unwrap().checkpoints.is_empty());
}
