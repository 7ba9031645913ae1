//! The ledger as the API shows it.

use tessera_api::event_view::{job_event, pool_event};
use tessera_api::job_filter::JobFilter;
use tessera_api::{agent, job_view, pool_view, queue_view, v1};
use tessera_ledger::{CardId, Command, JobId, NodeId, Observation, PlanPart, PlannedWorker, Rank, Revision, Span};

use crate::pool::{Pool, exited, slice};

/// P9: 50 TFLOPS on node 0 of the reference pool are blocks 1-18 (GPU), 19-38 (NPU) and 39-50 (FPGA).
fn example_a() -> (Pool, JobId) {
    let mut pool = Pool::reference();
    let job = pool.submit(|spec| {
        spec.virtual_card.compute = tessera_ledger::MilliTflops::from_tflops(50);
        spec.virtual_card.span = Span::Node;
        spec.virtual_card.mixed = true;
        spec.labels.insert("team".to_owned(), "vision".to_owned());
    });
    pool.grant(job, vec![slice(0, 0, 0, 9), slice(0, 1, 0, 9), slice(0, 2, 0, 20), slice(0, 3, 0, 12)]);
    pool.report_all(job, &Observation::Running);
    (pool, job)
}

#[test]
fn a_running_job_shows_where_it_is() {
    let (pool, id) = example_a();
    let state = &pool.state;
    let job = job_view::job(state, state.job(id).expect("it was submitted"));
    assert_eq!(job.state(), v1::JobState::Running);
    assert_eq!(job.reason.as_ref().map(|reason| reason.code.as_str()), Some("STARTED"));
    let allocation = job.allocation.expect("it runs");
    assert_eq!((allocation.master_address.as_str(), allocation.master_port), ("127.0.0.1", 20_001));
    let worker = &allocation.workers[0];
    assert_eq!((worker.node_name.as_str(), worker.state()), ("n0", v1::WorkerState::Running));
    let numbers: Vec<_> =
        worker.slices.iter().map(|slice| (slice.kind(), slice.first_block_number, slice.last_block_number)).collect();
    assert_eq!(
        numbers,
        [
            (v1::CardKind::Gpu, 1, 9),
            (v1::CardKind::Gpu, 10, 18),
            (v1::CardKind::Npu, 19, 38),
            (v1::CardKind::Fpga, 39, 50),
        ]
    );
    assert!(job.started_at.is_some() && job.ended_at.is_none());
}

#[test]
fn an_ended_job_shows_how_it_went() {
    let (mut pool, id) = example_a();
    pool.report_all(id, &exited(0));
    let job = job_view::job(&pool.state, pool.state.job(id).expect("it is kept for a while"));
    assert_eq!(job.state(), v1::JobState::Completed);
    assert!(job.allocation.is_none() && job.ended_at.is_some());
    let attempt = &job.history[0];
    assert_eq!((attempt.number, attempt.exit_code, attempt.nodes.clone()), (1, Some(0), vec!["n0".to_owned()]));
    assert_eq!(attempt.reason.as_ref().map(|reason| reason.code.as_str()), Some("EXITED"));
}

#[test]
fn the_block_map_names_the_holder_of_every_block() {
    let (pool, id) = example_a();
    let state = &pool.state;
    let fpga = CardId { node: NodeId(0), index: 3 };
    let map = pool_view::card_blocks(state, fpga, state.card(fpga).expect("a card of the reference pool"));
    let runs: Vec<_> = map
        .runs
        .iter()
        .map(|run| {
            let owner = run.owner.as_ref().map(|owner| (owner.job_id, owner.priority));
            (run.first_block_number, run.last_block_number, run.state(), owner)
        })
        .collect();
    assert_eq!(runs, [(39, 50, v1::BlockState::Running, Some((id.0, 50))), (51, 63, v1::BlockState::Free, None)]);
}

#[test]
fn the_pool_in_numbers_is_the_reference_pool() {
    let (pool, _) = example_a();
    let view = pool_view::pool(&pool.state, "test");
    let blocks = view.blocks.expect("always there");
    assert_eq!((blocks.running, blocks.free), (50, 150));
    let kinds: Vec<_> = view
        .kinds
        .iter()
        .map(|kind| (kind.kind(), kind.cards, kind.blocks.as_ref().map(|blocks| blocks.free + blocks.running)))
        .collect();
    assert_eq!(
        kinds,
        [(v1::CardKind::Gpu, 6, Some(66)), (v1::CardKind::Npu, 5, Some(74)), (v1::CardKind::Fpga, 5, Some(60)),]
    );
    let running = view.jobs.iter().find(|count| count.state() == v1::JobState::Running);
    assert_eq!(running.map(|count| count.count), Some(1));
    let node = pool_view::node(&pool.state, pool.state.node(NodeId(1)).expect("node 1"));
    assert_eq!((node.name.as_str(), node.first_block_number, node.cards), ("n1", 64, 4));
    assert_eq!(node.job_ids, [0u64; 0]);
    let queue = queue_view::queue(&pool.state, pool.state.queue("default").expect("always there"));
    assert_eq!((queue.jobs, queue.used.map(|used| used.milli_tflops)), (1, Some(50_000)));
}

#[test]
fn nodes_are_found_by_name_and_by_number() {
    use v1::node_ref::Ref;
    let pool = Pool::reference();
    let find = |r#ref| pool_view::node_of_ref("node", &pool.state, Some(&v1::NodeRef { r#ref: Some(r#ref) }));
    assert_eq!(find(Ref::Name("n2".to_owned())), Ok(NodeId(2)));
    assert_eq!(find(Ref::Id(2)), Ok(NodeId(2)));
    for unknown in [Ref::Name("x".repeat(253)), Ref::Id(9)] {
        let refusal = find(unknown).expect_err("no such node");
        assert_eq!(refusal.reason(), v1::ErrorReason::NodeUnknown);
        assert!(refusal.message().len() < 200);
    }
    for nobody in ["x".repeat(100_000), "two\nlines".to_owned()] {
        let refusal = find(Ref::Name(nobody)).expect_err("no node is called so");
        assert_eq!(
            (refusal.reason(), refusal.fields()[0].field.as_str()),
            (v1::ErrorReason::InvalidField, "node.name")
        );
        assert!(refusal.message().len() < 200);
    }
    let missing = pool_view::node_of_ref("node", &pool.state, None).expect_err("nothing named");
    assert_eq!(missing.message(), "node: must be set");
}

#[test]
fn events_are_told_in_order_to_those_whom_they_concern() {
    let (mut pool, id) = example_a();
    pool.report_all(id, &exited(3));
    let mut jobs = vec![];
    let mut places = vec![];
    for entry in pool.state.events_after(Revision(0)).expect("nothing is compacted") {
        for ordinal in 0..u32::try_from(entry.events.len()).expect("few events") {
            let (job, other) = (job_event(&pool.state, entry, ordinal), pool_event(&pool.state, entry, ordinal));
            assert!(job.is_some() != other.is_some(), "every event concerns exactly one kind of watch");
            let place = job.as_ref().map(|event| (event.revision, event.ordinal));
            places.push(place.or(other.map(|event| (event.revision, event.ordinal))));
            if let Some(v1::job_event::Change::State(change)) = job.and_then(|event| event.change) {
                jobs.push((change.from(), change.to(), change.reason.map(|reason| reason.code).unwrap_or_default()));
            }
        }
    }
    assert!(places.is_sorted());
    let expected = [
        (v1::JobState::Unspecified, v1::JobState::Pending, "SUBMITTED"),
        (v1::JobState::Pending, v1::JobState::Starting, "GRANTED"),
        (v1::JobState::Starting, v1::JobState::Running, "STARTED"),
        (v1::JobState::Running, v1::JobState::Completing, "NON_ZERO_EXIT"),
        (v1::JobState::Completing, v1::JobState::Pending, "BACKOFF"),
    ];
    assert_eq!(jobs, expected.map(|(from, to, code)| (from, to, code.to_owned())));
    let entry = pool.state.events_after(Revision(0)).and_then(|mut entries| entries.next()).expect("an entry");
    assert!(job_event(&pool.state, entry, 999).is_none());
}

#[test]
fn a_filter_takes_what_meets_all_of_it() {
    let (pool, id) = example_a();
    let job = pool.state.job(id).expect("it was submitted");
    let takes =
        |filter: &v1::JobFilter| JobFilter::of_list(Some(filter)).expect("a good filter").takes(&pool.state, job);
    let states = vec![v1::JobState::Running.into()];
    let labels = [("team".to_owned(), "vision".to_owned())].into();
    let right = v1::JobFilter {
        job_ids: vec![id.0],
        states,
        queue: "default".to_owned(),
        submitter: "tester".to_owned(),
        labels,
        node_name: "n0".to_owned(),
    };
    assert!(takes(&right) && takes(&v1::JobFilter::default()));
    for wrong in [
        v1::JobFilter { job_ids: vec![99], ..right.clone() },
        v1::JobFilter { states: vec![v1::JobState::Failed.into()], ..right.clone() },
        v1::JobFilter { queue: "other".to_owned(), ..right.clone() },
        v1::JobFilter { submitter: "eve".to_owned(), ..right.clone() },
        v1::JobFilter { labels: [("team".to_owned(), "nlp".to_owned())].into(), ..right.clone() },
        v1::JobFilter { node_name: "n1".to_owned(), ..right.clone() },
    ] {
        assert!(!takes(&wrong), "{wrong:?}");
    }
    let refused = |filter| JobFilter::of_watch(Some(&filter)).expect_err("a bad filter").message().to_owned();
    assert_eq!(refused(v1::JobFilter { states: vec![0], ..Default::default() }), "filter.states[0]: must be set");
    assert!(refused(right).starts_with("filter.node_name: must not be set in a watch"));
    let one =
        JobFilter::of_watch(Some(&v1::JobFilter { job_ids: vec![5], ..Default::default() })).expect("a good filter");
    assert!(one.takes_removed(JobId(5)) && !one.takes_removed(JobId(6)));
    let by_queue = JobFilter { queue: "default".to_owned(), ..JobFilter::default() };
    assert!(!by_queue.takes_removed(JobId(5)));
}

/// A virtual card over two nodes: each of its workers is told of all its slices, with their shares.
#[test]
fn workers_are_told_of_the_whole_virtual_card() {
    let mut pool = Pool::reference();
    let job = pool.submit(|spec| {
        spec.virtual_card.compute = tessera_ledger::MilliTflops::from_tflops(12);
        spec.virtual_card.span = Span::Pool;
    });
    let worker = |node: u32, blocks| PlannedWorker {
        virtual_card: 0,
        node: NodeId(node),
        slices: vec![slice(node, 0, 0, blocks)],
    };
    let workers = vec![worker(0, 3), worker(1, 9)];
    let spec = &pool.state.job(job).expect("it is in the ledger").spec;
    let planned = job_view::planned_workers(&pool.state, spec, &workers);
    assert_eq!(planned.iter().map(|worker| worker.node_name.as_str()).collect::<Vec<_>>(), ["n0", "n1"]);
    pool.accept(PlanPart::Grant { job, workers, victims: vec![] });
    let allocation = pool.allocation_of(job);
    let slices = agent::placed_slices(&pool.state, &allocation, allocation.worker(Rank(1)).expect("two workers"));
    let told: Vec<_> = slices
        .iter()
        .map(|slice| (slice.node_name.as_str(), slice.rank, slice.first_block_number, slice.weight))
        .collect();
    assert_eq!(told, [("n0", 0, 1, 0.25), ("n1", 1, 64, 0.75)]);
    pool.run(Command::Tick);
}
