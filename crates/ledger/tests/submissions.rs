//! Answers to requests, and the time for which they are remembered.

use tessera_ledger::{
    CardKind, Command, JobSpec, JobState, Mebibytes, Outcome, PoolConfig, QueueSettings, Rejection, Request, RequestId,
    RequestKey, Revision,
};
use tessera_testkit::submission;

use crate::pool::{Pool, card, one_card, rejected, spec, tflops};

/// L3: the same request id gives the same answer once; with another body it is refused.
#[test]
fn a_request_id_gives_the_same_answer_once() {
    let mut pool = one_card(8);
    let request = |fingerprint| Request {
        key: Some(RequestKey { id: RequestId(7), fingerprint }),
        actor: "ann".to_owned(),
        command: submission(spec()),
    };
    let first = pool.apply(&[request(1), request(1)]);
    assert_eq!(first[0], first[1]);
    assert_eq!(pool.apply(&[request(1)])[0], first[0]);
    assert_eq!(pool.state.job_count(JobState::Pending), 1);
    assert_eq!(rejected(pool.apply(&[request(2)]).remove(0)), Rejection::RequestIdReused);
}

/// L3: a copy of a refused request that comes late, when nothing would stand in its way any more, is refused as well.
#[test]
fn what_was_refused_under_an_id_stays_refused_under_it() {
    let mut pool = one_card(8);
    let request = |id, fingerprint| Request {
        key: Some(RequestKey { id: RequestId(id), fingerprint }),
        actor: "ann".to_owned(),
        command: submission(JobSpec { queue: "later".to_owned(), ..spec() }),
    };
    let unknown = Rejection::UnknownQueue("later".to_owned());
    for _ in 0..2 {
        let refused = rejected(pool.apply(&[request(7, 1)]).remove(0));
        assert_eq!(refused, unknown, "whoever asks again, at another member, hears the same");
    }
    assert_eq!(pool.run(Command::SetQueue { queue: QueueSettings::new("later") }), Outcome::Done);
    assert_eq!(rejected(pool.apply(&[request(7, 1)]).remove(0)), Rejection::RequestRefused);
    assert_eq!(rejected(pool.apply(&[request(7, 2)]).remove(0)), Rejection::RequestIdReused);
    assert_eq!(pool.state.job_count(JobState::Pending), 0);
    assert!(matches!(pool.apply(&[request(8, 1)])[..], [Outcome::Submitted(_)]));
}

/// P5b: a demand above the pool's total is refused at once, and the refusal names the total.
#[test]
fn a_demand_above_the_total_is_refused_at_once() {
    let mut pool = Pool::reference();
    let mut too_much = spec();
    too_much.virtual_card.compute = tflops(201);
    too_much.virtual_card.span = tessera_ledger::Span::Pool;
    let refusal = rejected(pool.run(submission(too_much.clone())));
    assert_eq!(refusal, Rejection::ExceedsPool { demand: tflops(201), total: tflops(200) });
    assert!(refusal.to_string().contains("200 TFLOPS"));
    too_much.virtual_card.compute = tflops(26);
    too_much.virtual_card.span = tessera_ledger::Span::Card;
    assert_eq!(
        rejected(pool.run(submission(too_much.clone()))),
        Rejection::ExceedsCard { demand: tflops(26), largest: tflops(25) }
    );
    // Together the cards have as much memory, and no single one does.
    let most = pool.state.cards().map(|(_, card)| card.description.memory.0).max().expect("there are cards");
    too_much.virtual_card.compute = tflops(1);
    too_much.virtual_card.memory = Mebibytes(most + 1);
    assert_eq!(
        rejected(pool.run(submission(too_much.clone()))),
        Rejection::ExceedsCardMemory { demand_mib: most + 1, largest_mib: most }
    );
    too_much.virtual_card.span = tessera_ledger::Span::Node;
    assert!(matches!(pool.run(submission(too_much)), Outcome::Submitted(_)));
}

/// P5b: so is a gang of which all cards together hold too few, although they have enough compute and memory in all.
#[test]
fn a_gang_that_empty_cards_do_not_hold_is_refused_at_once() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10), card(CardKind::Gpu, 10), card(CardKind::Gpu, 10)]]);
    let mut gang = |workers, least, compute, whole_cards| {
        let mut spec = spec();
        (spec.gang, spec.gang_min) = (workers, least);
        (spec.virtual_card.compute, spec.virtual_card.whole_cards) = (tflops(compute), whole_cards);
        pool.run(submission(spec))
    };
    let refused = |outcome| rejected(outcome);
    assert_eq!(refused(gang(4, None, 6, false)), Rejection::ExceedsGang { gang: 4, most: 3 });
    assert_eq!(refused(gang(4, None, 1, true)), Rejection::ExceedsGang { gang: 4, most: 3 });
    for fits in [gang(4, Some(3), 6, false), gang(3, None, 6, false), gang(6, None, 5, false)] {
        assert!(matches!(fits, Outcome::Submitted(_)), "{fits:?}");
    }
}

/// Ended jobs and answered requests are forgotten after a bounded time, and watches learn how far back they can go.
#[test]
fn the_ledger_forgets_in_bounded_time() {
    let mut pool = one_card(8);
    pool.run(Command::SetConfig { config: PoolConfig { event_limit: 3, ..PoolConfig::default() }, expected: None });
    let job = pool.submit(|_| {});
    pool.run(Command::CancelJob { job });
    pool.time += 25 * 3_600_000;
    pool.run(Command::Tick);
    assert!(pool.state.job(job).is_none());
    assert_eq!(pool.state.job_count(JobState::Cancelled), 0);
    for _ in 0..5 {
        pool.submit(|_| {});
    }
    assert!(pool.state.events_after(Revision(1)).is_none(), "too far back");
    let revisions: Vec<u64> =
        pool.state.events_after(pool.state.compacted()).unwrap().map(|entry| entry.revision.0).collect();
    let newest = pool.state.revision().0;
    assert_eq!(revisions, [newest - 2, newest - 1, newest]);
}

/// L3: what is forgotten leaves a floor under which an id that is not remembered is known to be old.
#[test]
fn a_forgotten_request_leaves_a_floor() {
    // A UUID of version 7 that was made at that millisecond.
    let made_at = |ms: u64| RequestId((u128::from(ms) << 80) | (7 << 76) | (2 << 62) | 9);
    let mut pool = one_card(8);
    let config = PoolConfig { request_limit: 2, ..pool.state.config().clone() };
    pool.run(Command::SetConfig { config, expected: None });
    pool.time += 600_000;
    let mut submit = |id| {
        let request = Request {
            key: Some(RequestKey { id, fingerprint: 1 }),
            actor: "ann".to_owned(),
            command: submission(spec()),
        };
        pool.apply(&[request]);
        (pool.state.request_floor().0, pool.state.requests_remembered())
    };
    assert_eq!(submit(made_at(5_000)), (0, 1));
    assert_eq!(submit(made_at(3_000)), (0, 2), "a client whose clock is behind");
    assert_eq!(submit(RequestId(77)), (5_000, 2), "the first is forgotten");
    assert_eq!(submit(made_at(9_000)), (5_000, 2), "the floor never sinks");
    assert_eq!(submit(made_at(9_001)), (5_000, 2), "an id that does not say when it was made moves no floor");
    assert_eq!(submit(made_at(9_002)), (9_000, 2));
    let read =
        tessera_ledger::wire::decode_snapshot(tessera_ledger::wire::encode_snapshot(&pool.state)).expect("whole");
    assert_eq!(read.request_floor().0, 9_000, "a snapshot keeps it");
}

/// A client whose clock is ahead shuts out nobody, however few ids are remembered.
#[test]
fn what_was_made_just_now_is_remembered_whatever_the_limit() {
    let made_at = |ms: u64, nth: u64| RequestId((u128::from(ms) << 80) | (7 << 76) | (2 << 62) | u128::from(nth));
    let mut pool = one_card(8);
    let config = PoolConfig { request_limit: 1, ..pool.state.config().clone() };
    pool.run(Command::SetConfig { config: config.clone(), expected: None });
    pool.time += 600_000;
    let now = pool.time;
    let ahead = [made_at(now + 110_000, 1), made_at(now - 110_000, 2), made_at(now, 3), made_at(now + 119_000, 4)];
    for id in ahead.into_iter().chain([made_at(now - 60_000, 5)]) {
        let request = Request {
            key: Some(RequestKey { id, fingerprint: 1 }),
            actor: "ann".to_owned(),
            command: submission(spec()),
        };
        assert!(matches!(pool.apply(&[request])[0], Outcome::Submitted(_)), "{id:?}");
    }
    assert_eq!((pool.state.request_floor().0, pool.state.requests_remembered()), (0, 5));
    pool.time += 240_000;
    pool.run(Command::Tick);
    assert_eq!((pool.state.request_floor().0, pool.state.requests_remembered()), (now + 119_000, 1));
    for brief in [0, 60] {
        let config = PoolConfig { request_retention: std::time::Duration::from_secs(brief), ..config.clone() };
        let refused = rejected(pool.run(Command::SetConfig { config, expected: None }));
        assert!(
            matches!(&refused, Rejection::Invalid { field, .. } if field == "config.request_retention"),
            "{refused:?}"
        );
    }
}
