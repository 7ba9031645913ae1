//! Properties that must hold in every state, and the exploration of a world.

#![expect(clippy::print_stdout, reason = "what was explored is shown to whoever runs it by hand")]

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use stateright::{Checker, HasDiscoveries, Model, Property};
use tessera_ledger::{BlockCounts, laws};

use crate::models::steps::{Protocol, by_job};
use crate::models::world::{Flaw, Setting, World};

pub const LAWS: &str = "the laws hold";
pub const BLOCKS: &str = "no block has two workers";
pub const JOBS: &str = "no job runs twice at once";
pub const ENDS: &str = "where nothing more can happen every job is over and every block is free";

/// The promises, and what must be seen to happen.
pub fn all(setting: &Setting) -> Vec<Property<Protocol>> {
    let mut promises = vec![
        Property::always(LAWS, |_, world: &World| laws::check(&world.ledger).is_empty()),
        Property::always(BLOCKS, |_, world: &World| blocks_have_one_worker(world)),
        Property::always(JOBS, |_, world: &World| jobs_run_once(world)),
        Property::always(ENDS, |protocol: &Protocol, world: &World| {
            !protocol.steps(world).is_empty() || is_settled(protocol, world)
        }),
    ];
    promises.extend((setting.seen)());
    promises
}

/// Each node of these worlds has one block.
fn blocks_have_one_worker(world: &World) -> bool {
    world.agents.iter().all(|agent| agent.workers.values().filter(|worker| worker.holds()).count() <= 1)
}

fn jobs_run_once(world: &World) -> bool {
    by_job(world).values().all(|workers| workers.windows(2).all(|pair| pair[0].1.allocation == pair[1].1.allocation))
}

fn is_settled(protocol: &Protocol, world: &World) -> bool {
    let mut jobs = world.ledger.jobs_from(Default::default());
    let blocks = u64::try_from(protocol.setting.nodes).expect("few nodes");
    let free = BlockCounts { free: blocks, ..BlockCounts::default() };
    jobs.all(|job| job.state.is_terminal())
        && world.ledger.allocations().next().is_none()
        && world.ledger.moves().next().is_none()
        && world.ledger.block_counts() == free
}

/// Explores everything and expects every promise to be kept.
pub fn keeps_its_promises(what: &str, setting: &Setting) {
    let checker = Protocol { setting: setting.clone() }.checker().threads(2).spawn_dfs().join();
    println!("{what}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    for promise in checker.model().properties() {
        let found = checker.discovery(promise.name);
        if promise.expectation.discovery_is_failure() {
            assert!(found.is_none(), "{what}: not so: {}\n{:#?}", promise.name, found.map(|path| path.into_actions()));
        } else {
            assert!(found.is_some(), "{what}: never seen: {}", promise.name);
        }
    }
}

/// Without a rule, this promise is broken.
pub fn breaks(setting: &Setting, flaw: Flaw, promise: &str) {
    let setting = Setting { flaw: Some(flaw), ..setting.clone() };
    let failures = HasDiscoveries::AnyFailures;
    let checker = Protocol { setting }.checker().finish_when(failures).threads(2).spawn_bfs().join();
    let broken: Vec<&str> = checker
        .model()
        .properties()
        .into_iter()
        .filter(|property| property.expectation.discovery_is_failure())
        .map(|property| property.name)
        .filter(|name| checker.discovery(name).is_some())
        .collect();
    println!("without a rule ({flaw:?}): {} states, broken: {broken:?}", checker.unique_state_count());
    assert!(broken.contains(&promise), "{flaw:?}: expected to break: {promise}; broken: {broken:?}");
}

/// Progress of a walk through a state: only entered, or left again.
#[derive(Clone, Copy, PartialEq)]
enum Visit {
    Entered,
    Left,
}

/// Walks everything and expects that no state is ever reached again from itself. With [`ENDS`] this says that whatever
/// happens, it ends.
pub fn never_goes_in_circles(what: &str, setting: &Setting) {
    let protocol = Protocol { setting: setting.clone() };
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut visits: BTreeMap<u64, Visit> = BTreeMap::new();
    let mut stack = Vec::new();
    for world in protocol.init_states() {
        visits.insert(hasher.hash_one(&world), Visit::Entered);
        stack.push((hasher.hash_one(&world), protocol.next_states(&world)));
    }
    while let Some((name, following)) = stack.last_mut() {
        let Some(world) = following.pop() else {
            visits.insert(*name, Visit::Left);
            stack.pop();
            continue;
        };
        let name = hasher.hash_one(&world);
        let visit = visits.get(&name).copied();
        assert!(visit != Some(Visit::Entered), "{what}: goes in circles through {:?}", protocol.steps(&world));
        if visit.is_none() {
            visits.insert(name, Visit::Entered);
            stack.push((name, protocol.next_states(&world)));
        }
    }
    println!("{what}: no circle in {} states", visits.len());
}
