//! Queues as their owners see them: turns by fair share, guarantees that are lent and recalled, and what that
//! never does.

use std::time::Duration;

use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use CardKind::Gpu;

use crate::world::{World, cards, job};

/// A job of a queue.
fn of(queue: &str, tflops: u64, memory: u64) -> JobSpec {
    JobSpec { queue: queue.to_owned(), ..job(tflops, memory) }
}

fn with_priority(spec: JobSpec, priority: u32) -> JobSpec {
    JobSpec { priority, ..spec }
}

/// A pool of cards with 10 TFLOPS and 100 MiB each.
fn pool(count: usize) -> World {
    let mut world = World::default();
    world.node("a", cards(&vec![(Gpu, 10, 100); count]));
    world
}

fn submit_many(world: &mut World, count: usize, spec: &JobSpec) -> Vec<JobId> {
    (0..count).map(|_| world.submit(spec.clone())).collect()
}

#[test]
fn what_is_left_over_is_shared_by_weight_whoever_came_first() {
    let mut world = pool(4);
    world.queue_of("light", "", (0, 0), None, 1);
    world.queue_of("heavy", "", (0, 0), None, 3);
    submit_many(&mut world, 50, &of("light", 1, 1));
    submit_many(&mut world, 50, &of("heavy", 1, 1));
    world.settle(10);
    assert_eq!((world.standing("light").0, world.standing("heavy").0), (10, 30));
}

#[test]
fn the_resource_counts_of_which_a_queue_holds_more() {
    // Each job of `wide` takes a tenth of a card's memory and a twentieth of its compute.
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 20, 100), (Gpu, 20, 100)]));
    world.queue_of("fast", "", (0, 0), None, 1);
    world.queue_of("wide", "", (0, 0), None, 1);
    submit_many(&mut world, 60, &of("fast", 2, 5));
    submit_many(&mut world, 60, &of("wide", 1, 10));
    world.settle(10);
    let ((compute, _), (_, memory)) = (world.standing("fast"), world.standing("wide"));
    let (fast, wide) = (compute * 100 / 40, memory * 100 / 200);
    assert!(fast.abs_diff(wide) <= 5, "{fast} % of the compute against {wide} % of the memory");
    assert!(fast >= 60, "{fast} %");
}

#[test]
fn within_a_queue_priority_decides_and_between_queues_it_does_not() {
    let mut world = pool(1);
    world.queue_of("a", "", (0, 0), None, 1);
    world.queue_of("b", "", (0, 0), None, 1);
    let low = world.submit(with_priority(of("a", 5, 10), 10));
    let high = world.submit(with_priority(of("a", 5, 10), 20));
    let highest = world.submit(with_priority(of("b", 5, 10), 90));
    world.settle(5);
    let states = [low, high, highest].map(|id| world.job_state(id));
    assert_eq!(states, [JobState::Pending, JobState::Running, JobState::Running]);
    let more = world.submit(with_priority(of("b", 5, 10), 100));
    assert_eq!(world.settle(5), vec![highest], "only a lower priority of its own queue gives way");
    assert_eq!(world.job_state(more), JobState::Running);
}

#[test]
fn a_queue_that_held_much_yesterday_gets_less_today() {
    let mut world = pool(2);
    world.queue_of("greedy", "", (0, 0), None, 1);
    world.queue_of("modest", "", (0, 0), None, 1);
    let yesterday = submit_many(&mut world, 20, &of("greedy", 1, 1));
    world.settle(5);
    assert_eq!(world.standing("greedy").0, 20);
    world.pass(Duration::from_secs(7 * 24 * 3600));
    yesterday.into_iter().for_each(|id| world.finish(id));
    submit_many(&mut world, 20, &of("greedy", 1, 1));
    submit_many(&mut world, 20, &of("modest", 1, 1));
    world.settle(5);
    let (greedy, modest) = (world.standing("greedy").0, world.standing("modest").0);
    assert_eq!((greedy, modest), (5, 15), "half a week's use of the whole pool counts as half of it");
}

#[test]
fn fair_share_alone_makes_nobody_give_way() {
    let mut world = pool(2);
    world.queue_of("early", "", (0, 0), None, 1);
    world.queue_of("late", "", (0, 0), None, 100);
    submit_many(&mut world, 20, &of("early", 1, 1));
    world.settle(5);
    submit_many(&mut world, 20, &with_priority(of("late", 1, 1), 100));
    assert_eq!(world.settle(5), vec![]);
    assert_eq!((world.standing("early").0, world.standing("late").0), (20, 0));
}

#[test]
fn a_guarantee_is_lent_and_comes_back_whatever_the_priorities() {
    let mut world = pool(2);
    world.queue_of("owner", "", (10, 1000), None, 1);
    world.queue_of("borrower", "", (5, 1000), None, 1);
    submit_many(&mut world, 20, &with_priority(of("borrower", 1, 1), 100));
    assert_eq!(world.settle(5), vec![]);
    assert_eq!(world.standing("borrower").0, 20, "what nobody uses is lent, beyond every guarantee");
    submit_many(&mut world, 20, &with_priority(of("owner", 1, 1), 0));
    let gave_way = world.settle(40);
    assert_eq!((world.standing("owner").0, world.standing("borrower").0), (10, 10));
    assert_eq!(gave_way.len(), 10, "as much as the owner is guaranteed, and no more");
}

#[test]
fn a_loan_is_called_back_only_as_far_as_it_goes() {
    let mut world = pool(2);
    world.queue_of("owner", "", (20, 1000), None, 1);
    world.queue_of("borrower", "", (8, 1000), None, 1);
    submit_many(&mut world, 4, &of("borrower", 5, 1));
    world.settle(5);
    // 20 of 8: after three jobs it holds 5, after two 10, which is still above 8.
    submit_many(&mut world, 20, &of("owner", 1, 1));
    world.settle(60);
    assert_eq!((world.standing("borrower").0, world.standing("owner").0), (5, 15));
}

#[test]
fn who_is_not_preemptible_is_safe_within_a_guarantee_and_on_loan_beyond() {
    let mut world = pool(2);
    world.queue_of("owner", "", (10, 1000), None, 1);
    world.queue_of("borrower", "", (10, 1000), None, 1);
    let firm = JobSpec { preemptible: false, ..of("borrower", 5, 1) };
    let firm = submit_many(&mut world, 2, &firm);
    world.settle(5);
    let loose = submit_many(&mut world, 2, &of("borrower", 5, 1));
    world.settle(5);
    submit_many(&mut world, 2, &of("owner", 5, 1));
    let mut gave_way = world.settle(10);
    gave_way.sort_unstable();
    assert_eq!(gave_way, loose, "those give way who are not guaranteed");

    let mut world = pool(2);
    world.queue_of("owner", "", (10, 1000), None, 1);
    world.queue_of("borrower", "", (10, 1000), None, 1);
    let spec = JobSpec { preemptible: false, ..of("borrower", 5, 1) };
    let all = submit_many(&mut world, 4, &spec);
    world.settle(5);
    submit_many(&mut world, 4, &of("owner", 5, 1));
    let gave_way = world.settle(10);
    assert_eq!(gave_way.len(), 2, "no loan is made that cannot be recalled");
    assert!(gave_way.iter().all(|id| all.contains(id)));
    let urgent = world.submit(with_priority(of("borrower", 5, 1), 100));
    assert_eq!(world.settle(5), vec![], "within its guarantee nothing of it gives way");
    assert_eq!(world.job_state(urgent), JobState::Pending);
    assert_eq!(firm.len(), 2);
}

#[test]
fn guarantees_count_in_the_tree_where_lender_and_borrower_part() {
    let mut world = pool(3);
    world.queue_of("left", "", (20, 3000), None, 1);
    world.queue_of("left/a", "left", (10, 1000), None, 1);
    world.queue_of("left/b", "left", (10, 1000), None, 1);
    world.queue_of("right", "", (10, 1000), None, 1);
    submit_many(&mut world, 20, &of("left/a", 1, 1));
    submit_many(&mut world, 10, &of("right", 1, 1));
    world.settle(10);
    assert_eq!((world.standing("left/a").0, world.standing("right").0), (20, 10));
    submit_many(&mut world, 20, &of("left/b", 1, 1));
    world.settle(40);
    let held = ["left/a", "left/b", "right", "left"].map(|queue| world.standing(queue).0);
    assert_eq!(held, [10, 10, 10, 20], "the sister gives back what she borrowed, the neighbour keeps what is his");
}

#[test]
fn a_guarantee_within_a_queue_that_has_none_is_no_claim_on_others() {
    let mut world = pool(1);
    world.queue_of("top", "", (0, 0), None, 1);
    world.queue_of("top/a", "top", (10, 1000), None, 1);
    world.queue_of("other", "", (0, 0), None, 1);
    submit_many(&mut world, 10, &of("other", 1, 1));
    world.settle(10);
    submit_many(&mut world, 10, &of("top/a", 1, 1));
    assert_eq!(world.settle(10), vec![]);
}

/// A department that is guaranteed 10 of 20 TFLOPS, with two teams that are guaranteed nothing; a neighbour has
/// borrowed all.
fn department() -> World {
    let mut world = pool(2);
    world.queue_of("department", "", (10, 1000), None, 1);
    world.queue_of("team", "department", (0, 0), None, 1);
    world.queue_of("sister", "department", (0, 0), None, 1);
    world.queue_of("neighbour", "", (0, 0), None, 1);
    submit_many(&mut world, 20, &with_priority(of("neighbour", 1, 1), 100));
    assert_eq!(world.settle(5), vec![]);
    assert_eq!(world.standing("neighbour").0, 20);
    world
}

#[test]
fn the_teams_of_a_department_call_back_what_it_is_guaranteed() {
    let mut world = department();
    submit_many(&mut world, 20, &of("team", 1, 1));
    let gave_way = world.settle(40);
    assert_eq!(gave_way.len(), 10, "as much as the department is guaranteed, and no more");
    assert_eq!(["team", "neighbour"].map(|queue| world.standing(queue).0), [10, 10]);
    submit_many(&mut world, 20, &of("sister", 1, 1));
    assert_eq!(world.settle(40), vec![], "teams that are guaranteed nothing settle it by fair share");
    assert_eq!(["team", "sister", "neighbour"].map(|queue| world.standing(queue).0), [10, 0, 10]);
}

#[test]
fn a_team_is_tried_again_when_its_department_has_less() {
    let mut world = department();
    let sisters = submit_many(&mut world, 10, &of("sister", 1, 1));
    world.settle(20);
    let mut pool = Pool::new(&world.state);
    world.state.take_touched();
    let mut decide = |world: &mut World| {
        let touched = world.state.take_touched();
        pool.refresh(&world.state, &touched);
        let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
        world.commit(&decision)
    };
    let teams = world.submit(of("team", 1, 1));
    assert_eq!(decide(&mut world), vec![], "the department holds all that it is guaranteed");
    world.apply(Command::SuspendJob { job: sisters[0] });
    let parts = decide(&mut world);
    let [PlanPart::Grant { job, victims, .. }] = &parts[..] else { panic!("a grant was expected: {parts:?}") };
    assert_eq!((*job, victims.len()), (teams, 1), "it need not wait until the sister's job has stopped");
}

#[test]
fn who_stays_within_what_the_department_is_guaranteed_goes_first() {
    let mut world = pool(1);
    world.queue_of("department", "", (10, 1000), None, 1);
    world.queue_of("team", "department", (0, 0), None, 1);
    world.queue_of("neighbour", "", (0, 0), None, 100);
    submit_many(&mut world, 10, &with_priority(of("neighbour", 1, 1), 100));
    submit_many(&mut world, 10, &with_priority(of("team", 1, 1), 0));
    assert_eq!(world.settle(5), vec![]);
    assert_eq!(["team", "neighbour"].map(|queue| world.standing(queue).0), [10, 0]);
}

#[test]
fn the_jobs_of_a_queue_itself_give_back_what_the_queues_below_lent_and_no_more() {
    let mut world = pool(2);
    world.queue_of("top", "", (20, 2000), None, 1);
    world.queue_of("top/a", "top", (8, 800), None, 1);
    let firm = JobSpec { preemptible: false, ..of("top", 2, 1) };
    let firm = submit_many(&mut world, 6, &firm);
    world.settle(5);
    submit_many(&mut world, 4, &of("top", 2, 1));
    world.settle(5);
    assert_eq!(world.standing("top").0, 20);
    submit_many(&mut world, 10, &of("top/a", 1, 1));
    let gave_way = world.settle(40);
    assert_eq!((world.standing("top").0, world.standing("top/a").0), (20, 8));
    assert_eq!(gave_way.len(), 4, "{gave_way:?}");
    assert!(firm.iter().all(|id| world.job_state(*id) == JobState::Running), "12 of the 20 are their own");
}

#[test]
fn whole_gangs_are_recalled_and_nobody_in_vain() {
    let mut world = pool(4);
    world.queue_of("owner", "", (20, 1000), None, 1);
    world.queue_of("borrower", "", (0, 0), None, 1);
    let gang = world.submit(JobSpec { gang: 3, ..of("borrower", 10, 10) });
    let single = world.submit(of("borrower", 10, 10));
    world.settle(5);
    world.submit(of("owner", 10, 10));
    assert_eq!(world.settle(5), vec![single], "it costs less than the gang");
    world.submit(of("owner", 10, 10));
    assert_eq!(world.settle(5), vec![gang]);
    let too_much = world.submit(of("owner", 10, 90));
    assert_eq!(world.settle(5), vec![], "it would be beyond the guarantee");
    assert_eq!(world.job_state(too_much), JobState::Running, "and borrows what the gang left");
}

#[test]
fn those_give_way_who_lose_least() {
    let mut world = World::of_this_release();
    world.node("a", cards(&[(Gpu, 10, 100); 3]));
    let checkpoint = CheckpointPolicy { mode: CheckpointMode::Cooperative, ..CheckpointPolicy::default() };
    let saved = world.submit(JobSpec { checkpoint: checkpoint.clone(), ..job(10, 10) });
    // It says that it saves itself, and nobody has seen that: all its work would be gone.
    let old = world.submit(JobSpec { checkpoint, ..job(10, 10) });
    world.settle(5);
    world.pass(Duration::from_secs(3600));
    let young = world.submit(job(10, 10));
    world.settle(5);
    world.pass(Duration::from_secs(30));
    world.save(saved, 1);
    world.pass(Duration::from_secs(30));
    for expected in [saved, young, old] {
        world.submit(with_priority(job(10, 10), 90));
        assert_eq!(world.settle(5), vec![expected], "of {saved}, {young}, {old}");
    }
}

/// A job that was seen to save itself when it was stopped loses nothing by being stopped again, however long ago it
/// saved.
#[test]
fn those_give_way_who_saved_themselves_before() {
    let mut world = World::of_this_release();
    world.node("a", cards(&[(Gpu, 10, 100); 2]));
    let checkpoint = CheckpointPolicy { mode: CheckpointMode::Cooperative, ..CheckpointPolicy::default() };
    let proven = world.submit(JobSpec { checkpoint, ..job(10, 10) });
    world.settle(5);
    assert_eq!(world.apply(Command::SuspendJob { job: proven }), Outcome::Done);
    world.save(proven, CheckpointKey::LAST);
    world.stop(proven);
    assert_eq!(world.apply(Command::ResumeJob { job: proven }), Outcome::Done);
    world.settle(5);
    world.pass(Duration::from_secs(3600));
    let young = world.submit(job(10, 10));
    world.settle(5);
    world.pass(Duration::from_secs(10));
    world.submit(with_priority(job(10, 10), 90));
    assert_eq!(world.settle(5), vec![proven], "{young} would lose ten seconds");
}

#[test]
fn the_lowest_gives_way_so_that_nobody_gives_way_in_turn() {
    let mut world = pool(2);
    let cheap = world.submit(with_priority(job(4, 10), 60));
    let dear = world.submit(with_priority(job(10, 10), 10));
    world.settle(5);
    world.pass(Duration::from_secs(3600));
    world.submit(with_priority(job(10, 10), 90));
    assert_eq!(world.settle(5), vec![dear]);
    assert_eq!(world.job_state(cheap), JobState::Running);
}

#[test]
fn waiting_protects_and_never_attacks() {
    let mut world = pool(1);
    let first = world.submit(with_priority(job(10, 10), 50));
    world.settle(5);
    let patient = world.submit(with_priority(job(10, 10), 40));
    world.pass(Duration::from_secs(20 * 900));
    assert_eq!(world.settle(5), vec![], "it has waited for more than the ten points, and still only waits");
    world.finish(first);
    let newer = world.submit(with_priority(job(10, 10), 55));
    world.settle(5);
    assert_eq!(world.job_state(patient), JobState::Running, "its waiting counts for more than fifteen points");
    assert_eq!(world.job_state(newer), JobState::Pending);
    let urgent = world.submit(with_priority(job(10, 10), 61));
    assert_eq!(world.settle(5), vec![patient]);
    assert_eq!(world.job_state(urgent), JobState::Running);
}

/// A queue that can take the smaller of two cards, which is dear because others ask for its model alone; and a job of
/// the queue that takes one of the cards whole.
fn dear_but_affordable() -> (World, JobSpec) {
    let mut world = World::default();
    world.queue("small", "", Some((15, 1000)));
    world.node("a", cards(&[(Gpu, 20, 100)]));
    world.node("b", cards(&[(Gpu, 8, 100)]));
    for _ in 0..6 {
        let mut other = JobSpec { held: true, ..job(8, 10) };
        other.virtual_card.models = [format!("{}-8", Gpu.name())].into();
        world.submit(other);
    }
    let mut whole = of("small", 1, 0);
    whole.virtual_card.whole_cards = true;
    (world, whole)
}

#[test]
fn a_job_preempts_on_the_card_that_its_queue_can_take_where_prices_prefer_another() {
    let (mut world, whole) = dear_but_affordable();
    let lesser = world.submit(JobSpec { priority: 10, ..whole.clone() });
    world.place();
    world.start(lesser);
    let urgent = world.submit(JobSpec { priority: 90, ..whole });
    world.place();
    assert_eq!(world.job_state(lesser), JobState::Suspending, "only together are they too much for their queue");
    world.settle(5);
    assert_ne!(world.job_state(urgent), JobState::Pending);
}

#[test]
fn a_job_takes_the_card_that_its_queue_can_take_where_prices_prefer_another() {
    let (mut world, whole) = dear_but_affordable();
    let id = world.submit(whole);
    world.place();
    assert_eq!(world.job_state(id), JobState::Starting, "its queue can take the card of 8 TFLOPS");
}
