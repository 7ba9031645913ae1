//! The number of checkpoints retained: as many as a job asks for, as long as its queue has room for them. The
//! checkpoint that a job would resume from is never given up for room.

use tessera_ledger::{
    CardKind, CheckpointMode, Command, JobId, Mebibytes, NodeId, Observation, Outcome, QueueSettings, Rank, Rejection,
    SavedPart, StopCause,
};

use crate::pool::{self, Pool, card, saved, slice, stopped};

const MEBIBYTE: u64 = 1 << 20;

fn pool() -> Pool {
    let cards = [card(CardKind::Gpu, 10)];
    Pool::with_nodes(&[&cards[..]; 2])
}

fn queue(name: &str, parent: &str, checkpoints: Option<u64>) -> QueueSettings {
    let checkpoints = checkpoints.map(Mebibytes);
    QueueSettings { parent: parent.to_owned(), checkpoints, ..QueueSettings::new(name) }
}

fn set(pool: &mut Pool, queue: QueueSettings) {
    assert_eq!(pool.run(Command::SetQueue { queue }), Outcome::Done);
}

fn running(pool: &mut Pool, block: u32, queue: &str, keep: Option<u32>) -> JobId {
    let job = pool.submit(|spec| {
        spec.queue = queue.to_owned();
        spec.checkpoint.mode = CheckpointMode::Cooperative;
        spec.checkpoint.keep = keep;
    });
    pool.grant(job, vec![slice(0, 0, block, 1)]);
    pool.report_all(job, &Observation::Running);
    job
}

/// It saves so many MiB, and another node keeps a copy.
fn save(pool: &mut Pool, job: JobId, sequence: u64, mebibytes: u64) {
    let Observation::Saved(part) = saved(sequence, sequence) else { panic!("it is one") };
    let hash = [u8::try_from(sequence).expect("small"); 32];
    pool.report_all(job, &Observation::Saved(SavedPart { bytes: mebibytes * MEBIBYTE, hash, ..part }));
    let known = pool.state.job(job).expect("it is known").checkpoints.that_count().next().cloned().expect("it counts");
    let kept = vec![known.part_key(job, Rank(0))];
    pool.run(Command::NoteKept { node: NodeId(1), kept, gone: vec![] });
}

fn kept(pool: &Pool, job: JobId) -> Vec<u64> {
    let job = pool.state.job(job).expect("it is known");
    job.checkpoints.that_count().map(|checkpoint| checkpoint.key.sequence).collect()
}

#[test]
fn a_job_keeps_as_many_as_it_asks_for() {
    let mut pool = pool();
    let jobs = [(None, 2), (Some(1), 1), (Some(4), 4)];
    for (block, (keep, count)) in (0..).zip(jobs) {
        let job = running(&mut pool, block, "default", keep);
        (1..=6).for_each(|sequence| save(&mut pool, job, sequence, 1));
        let newest: Vec<u64> = (1..=6).rev().take(count).collect();
        assert_eq!(kept(&pool, job), newest, "{keep:?}");
    }
    let mut spec = pool::spec();
    spec.checkpoint.keep = Some(17);
    let beyond = pool.run(tessera_testkit::submission(spec));
    let Outcome::Rejected(Rejection::Invalid { field, .. }) = beyond else { panic!("it is too much: {beyond:?}") };
    assert_eq!(field, "spec.checkpoint.keep");
}

#[test]
fn a_queue_gives_up_its_oldest_but_never_what_a_job_would_go_on_from() {
    let mut pool = pool();
    set(&mut pool, queue("research", "", Some(100)));
    set(&mut pool, queue("research/vision", "research", None));
    let above = running(&mut pool, 0, "research", Some(3));
    let below = running(&mut pool, 1, "research/vision", Some(3));
    let elsewhere = running(&mut pool, 2, "default", Some(3));
    for sequence in 1..=2 {
        for job in [above, below, elsewhere] {
            save(&mut pool, job, sequence, 20);
        }
    }
    assert_eq!(pool.state.checkpoint_bytes("research"), 80 * MEBIBYTE);
    assert_eq!(pool.state.checkpoint_bytes("research/vision"), 40 * MEBIBYTE);
    save(&mut pool, below, 3, 30);
    assert_eq!((kept(&pool, above), kept(&pool, below)), (vec![2], vec![3, 2, 1]), "the oldest of all went");
    save(&mut pool, above, 3, 90);
    assert_eq!((kept(&pool, above), kept(&pool, below)), (vec![3], vec![3]), "each has the newest, whatever it takes");
    assert_eq!(pool.state.checkpoint_bytes("research"), 120 * MEBIBYTE);
    assert_eq!(kept(&pool, elsewhere), [2, 1], "another queue has room of its own");
    let usage = pool.state.checkpoint_bytes("default");
    pool.run(Command::CancelJob { job: above });
    pool.report_all(above, &stopped(StopCause::Ordered, Some(0)));
    assert_eq!(pool.state.checkpoint_bytes("research"), 30 * MEBIBYTE, "it is over");
    assert_eq!(pool.state.checkpoint_bytes("default"), usage);
}

#[test]
fn a_quota_that_is_set_later_or_above_holds_at_once() {
    let mut pool = pool();
    set(&mut pool, queue("a", "", None));
    let job = running(&mut pool, 0, "a", Some(3));
    (1..=3).for_each(|sequence| save(&mut pool, job, sequence, 10));
    assert_eq!(kept(&pool, job), [3, 2, 1]);
    set(&mut pool, queue("a", "", Some(25)));
    assert_eq!(kept(&pool, job), [3, 2]);
}

#[test]
fn a_newest_that_one_node_alone_has_does_not_cost_the_one_that_two_have() {
    let mut pool = pool();
    set(&mut pool, queue("a", "", Some(1)));
    let job = running(&mut pool, 0, "a", Some(3));
    save(&mut pool, job, 1, 10);
    let Observation::Saved(part) = saved(2, 2) else { panic!("it is one") };
    pool.report_all(job, &Observation::Saved(SavedPart { bytes: 10 * MEBIBYTE, ..part }));
    assert_eq!(kept(&pool, job), [2, 1]);
}

/// Copies may take longer than a program waits between two saves.
#[test]
fn the_one_that_is_being_copied_is_kept_although_newer_ones_come() {
    let mut pool = pool();
    set(&mut pool, queue("a", "", Some(1)));
    let job = running(&mut pool, 0, "a", Some(1));
    save(&mut pool, job, 1, 10);
    for sequence in 2..=5 {
        let Observation::Saved(part) = saved(sequence, sequence) else { panic!("it is one") };
        pool.report_all(job, &Observation::Saved(SavedPart { bytes: 10 * MEBIBYTE, ..part }));
    }
    assert_eq!(kept(&pool, job), [5, 2, 1], "the second is on its way to another node");
    let second = pool.state.job(job).expect("it is known").checkpoints.iter().nth(1).cloned().expect("it is there");
    let copied = vec![second.part_key(job, Rank(0))];
    pool.run(Command::NoteKept { node: NodeId(1), kept: copied, gone: vec![] });
    assert_eq!(kept(&pool, job), [5, 2]);
}

/// Its node may be fetching it: only what the attempt has saved itself takes its place.
#[test]
fn what_an_attempt_began_from_is_kept_until_it_has_saved_itself() {
    let mut pool = pool();
    set(&mut pool, queue("a", "", None));
    let job = running(&mut pool, 0, "a", Some(3));
    (1..=3).for_each(|sequence| save(&mut pool, job, sequence, 10));
    pool.run(Command::SuspendJob { job });
    pool.report_all(job, &stopped(StopCause::Ordered, Some(15)));
    pool.run(Command::ResumeJob { job });
    // The newest two lie where nobody can fetch them now.
    let newest: Vec<_> = pool.state.job(job).expect("it is known").checkpoints.that_count().take(2).cloned().collect();
    let gone: Vec<_> = newest.iter().map(|checkpoint| checkpoint.part_key(job, Rank(0))).collect();
    for node in [NodeId(0), NodeId(1)] {
        pool.run(Command::NoteKept { node, kept: vec![], gone: gone.clone() });
    }
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    assert_eq!(pool.allocation_of(job).from.map(|from| from.sequence), Some(1));
    set(&mut pool, queue("a", "", Some(1)));
    assert!(kept(&pool, job).contains(&1), "{:?}", kept(&pool, job));
    pool.report_all(job, &Observation::Running);
    save(&mut pool, job, 4, 10);
    assert_eq!(kept(&pool, job), [4]);
}
