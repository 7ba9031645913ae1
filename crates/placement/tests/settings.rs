//! Settings that placement goes by, each set in several ways to see what it does. Those that need a stage of their own
//! are tested beside their subject (tests/settings.txt at the root names the test of each).

use tessera_ledger::*;

use CardKind::Gpu;

use crate::world::{World, cards, job};

fn with_card(change: impl FnOnce(&mut VirtualCardRequest)) -> JobSpec {
    let mut spec = job(2, 10);
    change(&mut spec.virtual_card);
    spec
}

#[test]
fn a_virtual_card_is_backed_by_cards_of_the_vendors_and_models_that_it_names() {
    let mut world = World::default();
    let mut list = cards(&[(Gpu, 10, 100), (Gpu, 10, 100), (Gpu, 10, 100)]);
    for (card, (vendor, model)) in list.iter_mut().zip([("acme", "One"), ("acme", "Two"), ("zeta", "One")]) {
        (card.vendor, card.model) = (vendor.to_owned(), model.to_owned());
    }
    world.node("a", list);
    let named = |name: &str| [name.to_owned()].into();
    let two = world.submit(with_card(|card| card.models = named("Two")));
    let zeta = world.submit(with_card(|card| card.vendors = named("zeta")));
    let both = world.submit(with_card(|card| (card.vendors, card.models) = (named("acme"), named("One"))));
    world.place();
    let cards_of = |id| world.slices(id).iter().map(|slice| slice.card.index).collect::<Vec<_>>();
    assert_eq!([two, zeta, both].map(cards_of), [[1], [2], [0]]);
    let neither = with_card(|card| (card.vendors, card.models) = (named("zeta"), named("Two")));
    assert_eq!(world.try_submit(neither), None, "there is room, and no such card");
}

#[test]
fn a_job_gives_way_as_often_within_an_hour_as_the_pool_says() {
    for most in [0, 2] {
        let mut world = World::default();
        world.node("a", cards(&[(Gpu, 10, 100)]));
        let config = PoolConfig { preemptions_per_hour: most, ..PoolConfig::default() };
        assert_eq!(world.apply(Command::SetConfig { config, expected: None }), Outcome::Done);
        let victim = world.submit(JobSpec { priority: 10, ..job(10, 10) });
        world.settle(4);
        for time in 0..3 {
            let urgent = world.submit(JobSpec { priority: 90, ..job(10, 10) });
            let gave_way = world.settle(4);
            assert_eq!(gave_way == [victim], time < most, "time {time} of {most}");
            if gave_way.is_empty() {
                world.apply(Command::CancelJob { job: urgent });
            } else {
                world.finish(urgent);
            }
            world.settle(4);
        }
    }
}

#[test]
fn a_guarantee_is_called_back_as_far_as_it_goes_in_compute_and_memory() {
    for (tflops, memory, jobs) in [(20, 50, 5), (20, 100, 10), (3, 200, 3)] {
        let mut world = World::default();
        world.node("a", cards(&[(Gpu, 20, 200)]));
        world.queue_of("owner", "", (tflops, memory), None, 1);
        world.queue_of("borrower", "", (0, 0), None, 1);
        for queue in ["borrower", "owner"] {
            for _ in 0..20 {
                world.submit(JobSpec { queue: queue.to_owned(), ..job(1, 10) });
            }
            world.settle(40);
        }
        assert_eq!((world.standing("owner"), world.standing("borrower").0), ((jobs, jobs * 10), 20 - jobs));
    }
}
