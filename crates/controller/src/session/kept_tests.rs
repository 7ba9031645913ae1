use tessera_ledger::{CheckpointKey, JobId, Observation, Owner, Rank, SavedPart, StopCause};

use super::*;
use crate::fixture::{Ledger, exit, job, owner};

const LAST: u64 = CheckpointKey::LAST;

/// A pool of three nodes, and a job that runs on the first and has saved itself there.
fn saved() -> (Ledger, [NodeId; 3], JobId, Owner, PartKey) {
    let mut ledger = Ledger::default();
    let nodes = ["a", "b", "c"].map(|name| ledger.node(name, &[10]));
    let id = ledger.submit(job(4));
    let allocation = ledger.grant(id, &[(nodes[0], 0, 4)]);
    let worker = owner(&allocation, 0);
    ledger.report(nodes[0], worker, Observation::Running);
    ledger.report(nodes[0], worker, Observation::Saved(part(1)));
    let checkpoint = CheckpointKey { attempt: 1, sequence: 1 };
    let key = PartKey { job: id, checkpoint, epoch: allocation.epoch, rank: Rank(0) };
    (ledger, nodes, id, worker, key)
}

fn part(sequence: u64) -> SavedPart {
    let hash = [u8::try_from(sequence % 251).unwrap_or(0); 32];
    SavedPart { hash, ticket: 5, ..tessera_testkit::saved(sequence, 10) }
}

fn orders(ledger: &Ledger, node: NodeId, parts: &[PartKey]) -> Option<CheckpointOrders> {
    said(parts).orders(Term(1), node, Elsewhere::default(), &ledger.state)
}

fn said(parts: &[PartKey]) -> KeptHere {
    let mut kept = KeptHere::default();
    kept.said(Kept { parts: parts.iter().copied().collect(), absent: BTreeSet::new() });
    // It was told before that there is no shared store.
    kept.stores = Some(Vec::new());
    kept
}

#[test]
fn what_an_agent_says_is_told_to_the_ledger_where_that_knows_otherwise() {
    let (ledger, [home, other, _], .., key) = saved();
    let state = &ledger.state;
    assert_eq!(said(&[key]).news(home, state), None, "it is known");
    let copied = said(&[key]).news(other, state);
    assert_eq!(copied, Some(Command::NoteKept { node: other, kept: vec![key], gone: vec![] }));
    assert_eq!(KeptHere::default().news(home, state), None, "it has said nothing");
    let mut once = said(&[key]);
    assert!(once.news(other, state).is_some());
    assert_eq!(once.news(other, state), None, "it is under way");
    once.compare_again();
    assert!(once.news(other, state).is_some(), "it did not come into the log");
}

/// The list may have been made before something was saved that another leader was told of.
#[test]
fn what_is_not_named_is_looked_for_and_forgotten_only_when_it_is_not_there() {
    let (mut ledger, [home, ..], _, _, key) = saved();
    let mut kept = said(&[]);
    assert_eq!(kept.news(home, &ledger.state), None, "the list may be older than it");
    let missed = |kept: &mut KeptHere, ledger: &Ledger| -> Vec<_> {
        let orders = kept.orders(Term(1), home, Elsewhere::default(), &ledger.state);
        orders.into_iter().flat_map(|orders| orders.missed).map(|source| (source.name, source.ticket)).collect()
    };
    let asked = vec![(Some(part_name(&key)), Bytes::copy_from_slice(&5_u128.to_be_bytes()))];
    assert_eq!(missed(&mut kept, &ledger), asked);
    assert_eq!(missed(&mut kept, &ledger), asked, "until it is answered");
    kept.said(Kept { parts: BTreeSet::from([key]), absent: BTreeSet::new() });
    assert_eq!((kept.news(home, &ledger.state), missed(&mut kept, &ledger)), (None, vec![]), "it was there");
    kept.said(Kept { parts: BTreeSet::new(), absent: BTreeSet::from([key]) });
    let gone = Command::NoteKept { node: home, kept: vec![], gone: vec![key] };
    assert_eq!(kept.news(home, &ledger.state), Some(gone.clone()));
    ledger.apply(gone);
    assert_eq!(missed(&mut kept, &ledger), []);
}

#[test]
fn what_can_never_be_used_is_removed_and_nothing_else() {
    let (mut ledger, [home, ..], id, worker, key) = saved();
    let of = |sequence| PartKey { checkpoint: CheckpointKey { attempt: 1, sequence }, ..key };
    let needless = |ledger: &Ledger| -> Vec<u64> {
        let orders = orders(ledger, home, &[of(1), of(2), of(LAST)]);
        orders.map(|orders| orders.needless.iter().map(|name| name.sequence).collect()).unwrap_or_default()
    };
    assert_eq!(needless(&ledger), [0; 0], "the others may be told yet");
    for sequence in [2, 3, 4] {
        ledger.report(home, worker, Observation::Saved(part(sequence)));
    }
    assert_eq!(needless(&ledger), [2], "two newer ones count, and the first is to be copied");
    ledger.apply(Command::CancelJob { job: id });
    let stop = exit(StopCause::Ordered, None, false);
    ledger.report(home, worker, Observation::Stopped(stop));
    assert_eq!(needless(&ledger), [1, 2, LAST], "the job is over");
    let stranger = PartKey { job: JobId(4_711), ..key };
    assert!(orders(&ledger, home, &[stranger]).is_some(), "its job is forgotten");
}

#[test]
fn one_other_node_is_told_to_copy_and_looks_cost_little() {
    let (mut ledger, nodes, .., key) = saved();
    let plan = CopyPlan::default();
    let now = Instant::now();
    let orders = |ledger: &Ledger, at| nodes.map(|node| plan.of(node, &ledger.state, at).copies.len());
    let first = orders(&ledger, now);
    assert_eq!((first[0], first.iter().sum::<usize>()), (0, 1));
    let onto = nodes[first.iter().position(|copies| *copies == 1).expect("one of them")];
    let source = plan.of(onto, &ledger.state, now).copies.remove(0);
    assert_eq!((source.name, source.addresses.len()), (Some(part_name(&key)), 1));
    ledger.apply(Command::NoteKept { node: onto, kept: vec![key], gone: vec![] });
    assert_eq!(orders(&ledger, now).iter().sum::<usize>(), 1, "it was looked just now");
    assert_eq!(orders(&ledger, now + LOOK).iter().sum::<usize>(), 0);
}

/// The shared stores are named to every node for as long as anything lies in them.
#[test]
fn the_stores_that_nodes_share_are_named_to_all() {
    let (mut ledger, [home, .., third], id, worker, _) = saved();
    let named = |ledger: &Ledger| CopyPlan::default().of(third, &ledger.state, Instant::now()).stores;
    assert_eq!(named(&ledger), Vec::<Bytes>::new(), "what a node keeps is in none");
    let shared = SavedPart { ticket: 77, shared: true, ..part(2) };
    ledger.report(home, worker, Observation::Saved(shared));
    assert_eq!(named(&ledger), [Bytes::copy_from_slice(&77_u128.to_be_bytes())]);
    let elsewhere = CopyPlan::default().of(third, &ledger.state, Instant::now());
    let mut kept = KeptHere::default();
    let mut told = |elsewhere| kept.orders(Term(1), third, elsewhere, &ledger.state).map(|orders| orders.stores);
    assert_eq!(told(Elsewhere::default()), Some(vec![]), "that there is none is told, too, once");
    assert_eq!(told(Elsewhere::default()), None);
    assert_eq!(told(elsewhere).map(|stores| stores.len()), Some(1));
    assert_eq!(told(Elsewhere::default()), Some(vec![]), "and that nothing lies in it any more");
    ledger.apply(Command::CancelJob { job: id });
    let stop = exit(StopCause::Ordered, None, false);
    ledger.report(home, worker, Observation::Stopped(stop));
    assert_eq!(named(&ledger), Vec::<Bytes>::new(), "its job is over");
}

/// A worker that is being started is told where its checkpoint can be had now, until it runs.
#[test]
fn where_a_checkpoint_can_be_had_now_is_said_until_its_worker_runs() {
    let (mut ledger, [home, other, third], id, worker, key) = saved();
    let sources = |ledger: &Ledger, node| {
        let orders = orders(ledger, node, &[]);
        orders.map(|orders| orders.sources.into_iter().flat_map(|source| source.addresses).collect::<Vec<_>>())
    };
    assert_eq!(sources(&ledger, home), None, "it goes on from nothing");
    let stop = exit(StopCause::Ordered, Some(0), true);
    ledger.apply(Command::SuspendJob { job: id });
    ledger.report(home, worker, Observation::Stopped(stop));
    ledger.apply(Command::ResumeJob { job: id });
    let allocation = ledger.grant(id, &[(other, 0, 4)]);
    let address = |node| ledger.state.node(node).expect("it is known").description.address.clone();
    let (first, copied) = (address(home), vec![address(home), address(third)]);
    assert_eq!(sources(&ledger, other), Some(vec![first]));
    assert_eq!(sources(&ledger, third), None, "it starts nothing");
    ledger.apply(Command::NoteKept { node: third, kept: vec![key], gone: vec![] });
    assert_eq!(sources(&ledger, other), Some(copied), "a copy was made since");
    ledger.report(other, owner(&allocation, 0), Observation::Running);
    assert_eq!(sources(&ledger, other), None, "it has what it needs");
}
