//! The engine against the judge: what the real ledger and the real placement do is possible, avoids no placement, keeps
//! the laws, and is the same every time.

use proptest::prelude::*;
use tessera_ledger::{CardKind, laws};
use tessera_placement::Limits;
use tessera_simulate::engine::{Engine, Scale};
use tessera_simulate::placer::{Choice, Moves};
use tessera_simulate::saturate::{self, Judge};
use tessera_simulate::trace::{Ask, TraceJob, TraceNode};

fn nodes() -> impl Strategy<Value = Vec<TraceNode>> {
    let node = (1u64..33, 1u64..65, 0u32..5, prop::sample::select(vec!["T4", "P100", "V100"]));
    prop::collection::vec(node, 1..6).prop_map(|list| {
        let node = |(number, (cpu, memory, cards, model)): (usize, (u64, u64, u32, &str))| TraceNode {
            name: format!("n{number}"),
            cpu_milli: cpu * 1000,
            memory_mib: memory * 1024,
            cards,
            model: model.to_owned(),
            card_memory_mib: None,
        };
        list.into_iter().enumerate().map(node).collect()
    })
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let share = (1u32..=1000).prop_map(|milli| (1, milli));
    let cards = prop_oneof![Just((0u32, 0u32)), share, (1u32..5).prop_map(|count| (count, 1000))];
    let ask = (1u64..9000, 0u64..9000, cards, any::<bool>());
    prop::collection::vec(ask, 1..30).prop_map(|list| {
        let ask = |(cpu_milli, memory_mib, (cards, card_milli), any): (u64, u64, (u32, u32), bool)| Ask {
            cpu_milli,
            memory_mib,
            cards,
            card_milli,
            card_memory_mib: 0,
            models: if any || cards == 0 { Default::default() } else { ["T4".to_owned(), "V100".to_owned()].into() },
        };
        list.into_iter().map(ask).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Requests that fit by the rules of the trace are placed, others are not, and every place is possible; with moves
    /// and without.
    #[test]
    fn the_mapping_is_exact(nodes in nodes(), asks in asks(), moves in any::<bool>()) {
        let moves = if moves { Moves::PerHundred(50) } else { Moves::None };
        let mut placer = Choice::Tessera.placer(&nodes, 0, moves).expect("the nodes are acceptable");
        let mut judge = Judge::new(&nodes);
        for (number, ask) in (0u64..).zip(&asks) {
            let answer = placer.arrive(number, ask).expect("the engine goes on");
            prop_assert_eq!(answer.refused, 0, "the ledger takes what placement plans");
            judge.hear(number, ask, &answer).expect("it fits where it was put");
        }
        prop_assert_eq!(judge.avoidable, 0);
    }

    /// Blocks in use are what was granted and not given back, and the laws hold, whatever ends in whatever order.
    #[test]
    fn what_is_granted_and_ended_adds_up(
        nodes in nodes(),
        asks in asks(),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let mut engine = Engine::new(&nodes, &[], Scale::default(), Limits::default()).expect("acceptable nodes");
        let mut running = Vec::new();
        let mut ends = ends.into_iter();
        for (number, ask) in (1u64..).zip(&asks) {
            engine.advance_to(number * 1000);
            // What the pool could never hold is refused, and that is an answer too.
            let _ = engine.submit(&TraceJob::of(format!("job-{number}"), ask.clone()));
            loop {
                let decided = engine.decide().expect("the engine goes on");
                prop_assert!(decided.refused.is_empty(), "{:?}", decided.refused);
                running.extend(decided.placed);
                if !decided.more {
                    break;
                }
            }
            if let Some(end) = ends.next().filter(|_| !running.is_empty()) {
                let ended = running.swap_remove(end.index(running.len()));
                engine.finish(ended.job).expect("it runs");
            }
            prop_assert_eq!(engine.running(), running.len() as u64);
        }
        let of_jobs: u64 = running
            .iter()
            .filter_map(|one| engine.state().job(one.job))
            .filter(|job| job.spec.virtual_card.kinds.contains(&CardKind::Gpu))
            .map(|job| job.spec.virtual_card.compute.0 / 1000)
            .sum();
        let cards = engine.state().cards().filter(|(_, card)| card.description.kind == CardKind::Gpu);
        let held: u64 = cards.map(|(_, card)| card.extents.counts().running).sum();
        prop_assert_eq!(held, of_jobs);
        prop_assert!(laws::check(engine.state()).is_empty());
    }

    /// The same arrivals give the same result.
    #[test]
    fn a_run_can_be_repeated(nodes in nodes(), asks in asks(), seed in any::<u64>()) {
        prop_assume!(nodes.iter().any(|node| node.cards > 0) && asks.iter().any(|ask| ask.cards > 0));
        let run = || {
            let mut placer = Choice::Tessera.placer(&nodes, seed, Moves::None).expect("acceptable nodes");
            let run = saturate::run(&nodes, &asks, seed, placer.as_mut()).expect("it goes well");
            (run.at_100.to_bits(), run.at_130.to_bits(), run.arrivals, run.rejected, run.avoidable)
        };
        prop_assert_eq!(run(), run());
    }
}

/// The real lists, where they are at hand: every placer turns away only what does not fit.
#[test]
fn on_real_traces_nothing_is_turned_away_that_fits() {
    let Some(folder) = std::env::var_os("TESSERA_TRACES").map(std::path::PathBuf::from) else {
        // Without the traces the generated ones above say the same.
        return;
    };
    let nodes = folder.join("openb/openb_node_list_gpu_node.csv");
    let nodes = tessera_simulate::trace::read_nodes(&nodes).expect("the list of nodes");
    let jobs = folder.join("openb/openb_pod_list_default.csv");
    let jobs = tessera_simulate::trace::read_jobs(&jobs).expect("the list of pods").jobs;
    assert_eq!((nodes.len(), jobs.len()), (1213, 8152));
    // A part of the cluster, so that it is soon full.
    let nodes = &nodes[..120];
    let asks: Vec<Ask> = jobs.into_iter().map(|job| job.ask).collect();
    for policy in Choice::all() {
        let mut placer = policy.placer(nodes, 1, Moves::None).expect("acceptable nodes");
        let run = saturate::run(nodes, &asks, 1, placer.as_mut()).expect("it goes well");
        assert_eq!((run.avoidable, run.plan_refusals), (0, 0), "{}", policy.name());
        assert!(run.at_130 > 60.0, "{}: {}", policy.name(), run.at_130);
    }
}
