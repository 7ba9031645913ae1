use super::*;

fn part(rank: u32, progress: u64) -> CheckpointPart {
    let hash = [u8::try_from(progress).unwrap_or(0); 32];
    let saved = SavedPart {
        sequence: 0,
        progress,
        bytes: 10,
        hash,
        ticket: 0,
        shared: false,
        mode: CheckpointMode::Cooperative,
    };
    CheckpointPart { rank: Rank(rank), saved, nodes: BTreeSet::from([NodeId(rank)]) }
}

fn key(sequence: u64) -> CheckpointKey {
    CheckpointKey { attempt: 1, sequence }
}

fn noted(parts: &[(u64, u32, u64)]) -> Checkpoints {
    let mut all = Checkpoints::default();
    for (sequence, rank, progress) in parts {
        all.note(key(*sequence), Epoch(5), 2, part(*rank, *progress), LogTime(1), CHECKPOINTS_KEPT);
    }
    all
}

fn counting(all: &Checkpoints) -> Vec<u64> {
    all.that_count().map(|checkpoint| checkpoint.key.sequence).collect()
}

#[test]
fn a_checkpoint_counts_when_every_worker_saved_at_the_same_place() {
    assert_eq!(counting(&noted(&[(1, 0, 7)])), [0; 0]);
    assert_eq!(counting(&noted(&[(1, 0, 7), (1, 1, 8)])), [0; 0], "they are not at the same place");
    assert_eq!(counting(&noted(&[(1, 0, 7), (1, 1, 7)])), [1]);
    assert_eq!(counting(&noted(&[(1, 0, 7), (1, 1, 7), (2, 0, 9)])), [1], "the one before stands");
}

#[test]
fn the_newest_that_count_are_kept_and_what_may_come_to() {
    let all = noted(&[(1, 0, 1), (1, 1, 1), (2, 0, 2), (2, 1, 2), (3, 0, 3), (4, 0, 4), (4, 1, 4), (5, 1, 5)]);
    assert_eq!(counting(&all), [4, 2, 1], "the first is being copied");
    let known: Vec<u64> = all.iter().map(|checkpoint| checkpoint.key.sequence).collect();
    assert_eq!(known, [1, 2, 4, 5], "the third never will");
    let mut closed = all;
    closed.close();
    assert_eq!(closed.iter().count(), 3);
}

#[test]
fn one_that_outlives_a_node_is_kept_until_a_newer_one_does() {
    let mut all = noted(&[(1, 0, 1), (1, 1, 1)]);
    let copied = |all: &mut Checkpoints, sequence, rank| {
        let part = PartKey { job: JobId(1), checkpoint: key(sequence), epoch: Epoch(5), rank: Rank(rank) };
        assert!(all.keep(&part, NodeId(9), true, CHECKPOINTS_KEPT));
    };
    copied(&mut all, 1, 0);
    copied(&mut all, 1, 1);
    for sequence in 2..6 {
        for rank in 0..2 {
            all.note(key(sequence), Epoch(5), 2, part(rank, sequence), LogTime(1), CHECKPOINTS_KEPT);
        }
    }
    assert_eq!(counting(&all), [5, 4, 2, 1], "the second is being copied");
    copied(&mut all, 5, 0);
    assert_eq!(counting(&all), [5, 4, 2, 1], "a half of it is lost with a node");
    copied(&mut all, 5, 1);
    assert_eq!(counting(&all), [5, 4]);
}

#[test]
fn what_was_not_written_since_was_not_saved() {
    let mut all = noted(&[(1, 0, 7), (1, 1, 7), (2, 0, 7), (2, 1, 7)]);
    assert_eq!(counting(&all), [1]);
    all.note(key(3), Epoch(5), 2, part(0, 7), LogTime(2), CHECKPOINTS_KEPT);
    all.note(
        key(3),
        Epoch(5),
        2,
        CheckpointPart { saved: part(1, 8).saved, ..part(1, 7) },
        LogTime(2),
        CHECKPOINTS_KEPT,
    );
    assert_eq!(counting(&all), [1], "they are at different places");
    let mut empty = Checkpoints::default();
    let nothing = CheckpointPart { saved: SavedPart { bytes: 0, ..part(0, 0).saved }, ..part(0, 0) };
    empty.note(key(1), Epoch(5), 1, nothing, LogTime(1), CHECKPOINTS_KEPT);
    assert_eq!(counting(&empty), [0; 0], "nothing is in it");
}

#[test]
fn a_part_is_needless_when_it_can_never_be_used() {
    let all = noted(&[(2, 0, 2), (2, 1, 2)]);
    let part = |sequence, rank| PartKey { job: JobId(1), checkpoint: key(sequence), epoch: Epoch(5), rank: Rank(rank) };
    assert!(all.can_do_without(&part(1, 0), 1), "a newer one counts");
    assert!(!all.can_do_without(&part(2, 0), 2), "it is the newest");
    assert!(!all.can_do_without(&part(3, 0), 1), "it may be told yet");
    assert!(all.can_do_without(&part(3, 0), 2), "its attempt is over");
    let stranger = PartKey { epoch: Epoch(4), ..part(2, 0) };
    assert!(all.can_do_without(&stranger, 2), "it is of another allocation");
}
