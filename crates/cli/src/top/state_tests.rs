use std::collections::BTreeMap;

use super::*;
use crate::top::keys::Wish;
use crate::view::{CardView, Clock, ClusterView, JobView, MemberStatusView, MemberView, NodeView, PoolView};
use tessera_api::v1;

pub fn args() -> TopArgs {
    let interval = std::time::Duration::from_secs(2);
    TopArgs { tab: TopTab::Jobs, interval, filter: String::new(), all: false, once: false }
}

fn blocks(free: u64, running: u64) -> Option<v1::BlockCounts> {
    Some(v1::BlockCounts { free, running, ..Default::default() })
}

pub fn pool() -> PoolView {
    let kind = |kind: v1::CardKind, cards, blocks| v1::KindSummary {
        kind: kind.into(),
        cards,
        blocks,
        memory_mib: 64 * 1024 * cards,
        memory_used_mib: 1024,
    };
    let config = v1::PoolConfig {
        block_milli_tflops: 1000,
        reference_precision: v1::Precision::Fp16.into(),
        ..Default::default()
    };
    let pool = v1::Pool {
        cluster_id: "lab".to_owned(),
        config: Some(config),
        blocks: blocks(112, 88),
        kinds: vec![kind(v1::CardKind::Gpu, 6, blocks(12, 54)), kind(v1::CardKind::Npu, 5, blocks(100, 34))],
        nodes: vec![v1::NodeCount { state: v1::NodeState::Ready.into(), count: 4 }],
        jobs: vec![v1::JobCount { state: v1::JobState::Running.into(), count: 2 }],
    };
    v1::GetPoolResponse { pool: Some(pool), read: Some(v1::ReadState { revision: 40, age: None }) }.into()
}

pub fn cluster() -> ClusterView {
    let member = |id: u64| {
        let answer =
            v1::GetClusterStatusResponse { admitted: true, member_id: id, writable: true, ..Default::default() };
        MemberStatusView::answered(format!("10.0.0.{id}:7400"), answer)
    };
    let leader = v1::Member { id: 1, name: "m1".to_owned(), address: "10.0.0.1:7400".to_owned(), ..Default::default() };
    ClusterView {
        cluster_id: "lab".to_owned(),
        writable: true,
        leader: Some(MemberView::from(leader)),
        term: 5,
        changing_voters: false,
        voters: 3,
        level: 1,
        level_held: false,
        members: (1..=3).map(member).collect(),
    }
}

fn job(id: u64, name: &str, state: v1::JobState, on: &[(&str, u32)]) -> JobView {
    let slice = |card: u32| v1::SliceView {
        slice: Some(v1::Slice { card_index: card, ..Default::default() }),
        first_block_number: 1,
        last_block_number: 9,
        ..Default::default()
    };
    let worker = |(rank, (node, card)): (usize, &(&str, u32))| v1::Worker {
        rank: u32::try_from(rank).unwrap_or(0),
        node_name: (*node).to_owned(),
        slices: vec![slice(*card)],
        ..Default::default()
    };
    let workers: Vec<v1::Worker> = on.iter().enumerate().map(worker).collect();
    let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    JobView::from(v1::Job {
        id,
        state: state.into(),
        spec: Some(v1::JobSpec { name: name.to_owned(), queue: "default".to_owned(), ..Default::default() }),
        reason: Some(v1::Reason { code: "NO_ROOM".to_owned(), sentence: "no room".to_owned() }),
        started_at: if workers.is_empty() { None } else { time(1_000_000) },
        allocation: (!workers.is_empty()).then(|| v1::Allocation { workers, ..Default::default() }),
        ..Default::default()
    })
}

pub fn jobs() -> Vec<Entry> {
    use v1::JobState as S;
    let jobs = [
        job(9, "wait", S::Pending, &[]),
        job(7, "train", S::Running, &[("node-a", 0), ("node-b", 1)]),
        job(3, "eval", S::Running, &[("node-a", 1)]),
    ];
    jobs.iter().map(|job| Entry::job(job, &Clock::at(1_000_090))).collect()
}

pub fn nodes() -> Vec<Entry> {
    let node = |name: &str, state: v1::NodeState, counts: v1::BlockCounts| {
        NodeView::from(v1::Node {
            name: name.to_owned(),
            state: state.into(),
            eligibility: v1::Eligibility::Eligible.into(),
            cards: 2,
            blocks: Some(counts),
            ..Default::default()
        })
    };
    let counts = |free, running, lost| v1::BlockCounts { free, running, lost, ..Default::default() };
    vec![
        Entry::node(&node("node-a", v1::NodeState::Ready, counts(2, 18, 0))),
        Entry::node(&node("node-b", v1::NodeState::Lost, counts(0, 10, 10))),
    ]
}

pub fn cards() -> Vec<Entry> {
    let card = |index: u32, busy: Option<f64>| {
        CardView::from(v1::Card {
            node_name: "node-a".to_owned(),
            description: Some(v1::CardDescription {
                index,
                kind: v1::CardKind::Gpu.into(),
                health: v1::CardHealth::Healthy.into(),
                memory_mib: 1000,
                ..Default::default()
            }),
            memory_used_mib: 250,
            block_counts: Some(v1::BlockCounts { free: 1, running: 9, ..Default::default() }),
            sample: busy.map(|utilization_ratio| v1::CardSample { utilization_ratio, ..Default::default() }),
            ..Default::default()
        })
    };
    vec![Entry::card(&card(0, Some(0.93))), Entry::card(&card(1, None))]
}

fn whole(tab: TopTab, entries: Vec<Entry>) -> Update {
    Update::Page { tab, entries, first: true, last: true }
}

/// A state that has read everything once.
pub fn filled(tab: TopTab) -> State {
    let mut state = State::new(&TopArgs { tab, ..args() });
    state.resize(10);
    let overview = Box::new(Overview::of(pool(), cluster()));
    state.apply(Update::Overview { overview, at: "14:03:22".to_owned() });
    state.apply(whole(TopTab::Jobs, jobs()));
    state.apply(whole(TopTab::Nodes, nodes()));
    state.apply(whole(TopTab::Cards, cards()));
    let used = v1::JobUse { utilization_ratio: 0.7, ..Default::default() }.into();
    state.apply(Update::Used(BTreeMap::from([(7, used)])));
    state
}

fn shown(state: &State) -> Vec<Subject> {
    state.rows().iter().map(|entry| entry.subject.clone()).collect()
}

fn ids(state: &State) -> Vec<u64> {
    let id = |subject: Subject| if let Subject::Job(id) = subject { id } else { 0 };
    shown(state).into_iter().map(id).collect()
}

#[test]
fn a_job_shows_what_it_uses_and_nothing_where_nobody_told() {
    let state = filled(TopTab::Jobs);
    let used = |id: u64| {
        let rows = state.rows();
        rows.iter().find(|entry| entry.subject == Subject::Job(id)).map(|entry| entry.cells[USE].text.clone())
    };
    assert_eq!(used(7).as_deref(), Some("70%"));
    assert_eq!(used(3).as_deref(), Some("-"));
    assert_eq!(state.wants().jobs, [7, 3], "job 9 holds nothing");
}

#[test]
fn numbers_sort_by_size_and_turn_round() {
    let mut state = filled(TopTab::Jobs);
    assert_eq!(ids(&state), [9, 7, 3], "as the members have them");
    for _ in 0..=4 {
        state.on(Wish::Sort);
    }
    assert_eq!(ids(&state), [7, 3, 9], "by blocks");
    state.on(Wish::Reverse);
    assert_eq!(ids(&state), [9, 3, 7]);
}

#[test]
fn the_selected_row_stays_selected_when_the_list_changes() {
    let mut state = filled(TopTab::Jobs);
    state.on(Wish::Rows(1));
    assert_eq!(state.selected().map(|entry| &entry.subject), Some(&Subject::Job(7)));
    let mut newer = jobs();
    newer.insert(0, Entry::job(&job(12, "new", v1::JobState::Pending, &[]), &Clock::at(0)));
    state.apply(whole(TopTab::Jobs, newer));
    assert_eq!(state.selected().map(|entry| &entry.subject), Some(&Subject::Job(7)));
    state.on(Wish::Last);
    assert_eq!(state.selected().map(|entry| &entry.subject), Some(&Subject::Job(3)));
    state.on(Wish::Rows(5));
    assert_eq!(state.selected().map(|entry| &entry.subject), Some(&Subject::Job(3)), "there is nothing below");
}

#[test]
fn a_filter_is_written_kept_and_dropped() {
    let mut state = filled(TopTab::Jobs);
    state.on(Wish::Filter);
    "TRAI".chars().for_each(|letter| state.write(Some(letter)));
    assert_eq!(ids(&state), [7]);
    state.write(None);
    assert!(!state.writing);
    assert_eq!(ids(&state), [7], "it is kept");
    state.on(Wish::Back);
    assert_eq!(ids(&state), [9, 7, 3]);
    state.filter = "node-b".to_owned();
    assert_eq!(ids(&state), [7], "jobs are found by their nodes");
}

#[test]
fn a_long_list_is_shown_as_it_comes_and_then_replaced_whole() {
    let mut state = State::new(&TopArgs { tab: TopTab::Nodes, ..args() });
    let mut both = nodes();
    let (second, first) = (both.split_off(1), both);
    let page =
        |entries: &[Entry], first, last| Update::Page { tab: TopTab::Nodes, entries: entries.to_vec(), first, last };
    state.apply(page(&first, true, false));
    assert_eq!(shown(&state).len(), 1, "what has come so far");
    state.apply(page(&second, false, true));
    assert_eq!(shown(&state).len(), 2);
    state.apply(page(&first, true, false));
    assert_eq!(shown(&state).len(), 2, "the next round is shown when it is complete");
    state.apply(page(&[], false, true));
    assert_eq!(shown(&state).len(), 1, "a node has gone");
}

#[test]
fn what_is_read_follows_what_is_looked_at() {
    let mut state = filled(TopTab::Jobs);
    assert_eq!(state.wants().jobs, [7, 3]);
    state.on(Wish::Rows(1));
    state.on(Wish::Open);
    assert_eq!(state.wants().detail, Some(Subject::Job(7)));
    state.apply(Update::Detail { subject: Subject::Job(3), text: "late".to_owned() });
    assert_eq!(state.detail, None, "a page that nobody looks at any more");
    state.on(Wish::NextTab);
    let wants = state.wants();
    assert_eq!((wants.tab, wants.detail, wants.jobs), (TopTab::Nodes, None, Vec::new()));
}

#[test]
fn trouble_is_said_until_somebody_answers_and_nothing_is_forgotten() {
    let mut state = filled(TopTab::Jobs);
    state.apply(Update::Trouble("no member answers".to_owned()));
    assert!(state.trouble.is_some());
    assert_eq!(ids(&state), [9, 7, 3]);
    state.apply(Update::Overview { overview: Box::new(Overview::of(pool(), cluster())), at: "14:03:24".to_owned() });
    assert_eq!(state.trouble, None);
}

#[test]
fn paused_nothing_changes() {
    let mut state = filled(TopTab::Jobs);
    state.on(Wish::Pause);
    state.apply(whole(TopTab::Jobs, Vec::new()));
    assert_eq!(ids(&state).len(), 3);
    assert!(state.wants().paused);
    assert!(!state.on(Wish::Quit));
}
