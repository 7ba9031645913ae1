//! Cards that some requests depend on are kept for them while others can do the work elsewhere, as far as the mix
//! is known.

#![expect(clippy::print_stdout, reason = "what was explored is shown to whoever runs it by hand")]

use std::collections::BTreeSet;

use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use crate::world::{World, card, job};

/// Nodes of two cards of 10 TFLOPS whose model is rare, and of those that have another.
const RARE: u64 = 20;
const PLAIN: u64 = 60;

/// Requests that differ in what they ask of the card and of the host: no two need to be worth the same.
fn requests(models: &[&str]) -> Vec<JobSpec> {
    let models: BTreeSet<String> = models.iter().map(|model| (*model).to_owned()).collect();
    let request = |(tflops, cpu): (u64, u64)| {
        let mut spec = job(tflops, 0);
        spec.virtual_card.models.clone_from(&models);
        spec.host = HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(cpu / 4) };
        spec
    };
    let sizes = [10, 10, 10, 7, 5, 3];
    let hosts = [1_000, 2_000, 3_000, 4_500, 5_000, 6_000];
    sizes.into_iter().flat_map(|tflops| hosts.map(|cpu| (tflops, cpu))).map(request).collect()
}

/// The next number of a fixed sequence.
fn draw(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*seed >> 33).unwrap() % below
}

/// Offers as much work as the pool can hold, a quarter of it for the rare model, which is a quarter of the pool.
/// Answers how much of it was placed, in per cent.
fn placed(seed: u64, told: bool) -> u64 {
    let mut world = World::default();
    for node in 0..RARE + PLAIN {
        let model = if node < RARE { "rare" } else { "plain" };
        let card = |index| CardDescription { model: model.to_owned(), ..card(index, CardKind::Gpu, 10, 0) };
        let host = HostCapacity { cpu: MilliCpus(20_000), memory: Mebibytes(20_000) };
        world.hosted_node(&format!("node-{node}"), vec![card(0), card(1)], &[], Some(host));
    }
    let (only_rare, any) = (requests(&["rare"]), requests(&[]));
    let mut pool = Pool::new(&world.state);
    world.state.take_touched();
    if told {
        only_rare.iter().for_each(|spec| pool.observe(spec, 10));
        any.iter().for_each(|spec| pool.observe(spec, 30));
    }
    let (mut seed, mut offered, mut placed) = (seed, 0, 0);
    let all = (RARE + PLAIN) * 20;
    while offered < all {
        let list = if draw(&mut seed, 4) == 0 { &only_rare } else { &any };
        let spec = list[draw(&mut seed, list.len())].clone();
        let compute = spec.virtual_card.compute.0 / 1000;
        offered += compute;
        let id = world.submit(spec);
        let touched = world.state.take_touched();
        pool.refresh(&world.state, &touched);
        let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
        if world.commit(&decision).is_empty() {
            world.apply(Command::CancelJob { job: id });
        } else {
            placed += compute;
        }
    }
    placed * 100 / all
}

#[test]
fn a_rare_model_is_kept_for_those_who_need_it() {
    for seed in 0..4 {
        for told in [false, true] {
            let placed = placed(seed, told);
            println!("seed {seed}, told {told}: {placed} %");
            assert!(placed >= 93, "seed {seed}, told {told}: {placed} % of the work was placed");
        }
    }
}
