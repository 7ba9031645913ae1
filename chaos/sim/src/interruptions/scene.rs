//! One scene: a job, what is done to it until the moment comes, who is hit then, and how the job ends.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tessera_agent::supervisor::status::Cause;
use tessera_agent::worker::WorkerId;
use tessera_ledger::{Eligibility, Event, Job, JobId, JobState, MovePhase, Node, NodeId, NodeState, Rank, State};

use super::Pair;
use super::deed::{Deed, Kind, NODES};
use super::moment::{Moment, Sighting, seen_in};
use crate::fault::Fault;
use crate::journal::Applied;
use crate::machine::now;
use crate::operator::Order;
use crate::simulation::Simulation;
use crate::world::World;

/// Within so long the moment comes, and whoever is to be hit then is there.
const COMES_WITHIN: Duration = Duration::from_secs(40);
/// Within so long a job ends after somebody was hit.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
/// For so long what was done to a job stays so.
const STAYS: Duration = Duration::from_secs(2);
/// The time that a node is drained within: enough for a move, were nobody hit.
const DRAINED_WITHIN: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is not over.
    GoesOn,
    /// The job has come to a good end after somebody was hit.
    Over,
    /// The moment never came, or whoever was to be hit was not there.
    Missed,
    /// A requirement was violated: the description of it.
    Broken(String),
}

pub struct Scene {
    pub pair: Pair,
    name: String,
    began: Duration,
    job: Option<JobId>,
    /// The moment, and when somebody is hit for it.
    sighting: Option<(Sighting, Duration)>,
    hit_at: Option<Duration>,
}

impl Scene {
    /// A scene begins; its job has the name.
    pub fn new(pair: Pair, name: String) -> Self {
        Self { pair, name, began: now(), job: None, sighting: None, hit_at: None }
    }

    /// Takes in an entry of the log. `delay`: from the moment to the hit.
    pub fn learn(&mut self, entry: &Applied, delay: Duration) {
        let submitted = entry.events.iter().find_map(|event| match event {
            Event::Job { job, from: None, .. } => Some(*job),
            _ => None,
        });
        let own = |job: &JobId| entry.after.job(*job).is_some_and(|job| job.spec.name == self.name);
        self.job = self.job.or(submitted.filter(own));
        if self.sighting.is_none() {
            let wanted = |seen: &Sighting| seen.moment == self.pair.moment && Some(seen.job) == self.job;
            self.sighting = seen_in(entry).into_iter().find(wanted).map(|seen| (seen, now() + delay));
        }
    }

    /// The fault that hits the victim, and its duration, once it is time and the victim is there.
    pub fn hit(&mut self, pool: &Simulation, random: &mut SmallRng) -> Option<(Fault, Duration)> {
        let (sighting, at) = self.sighting.as_ref().filter(|(_, at)| self.hit_at.is_none() && *at <= now())?;
        let fault = self.pair.victim.fault(sighting, pool, random)?;
        self.hit_at = Some((*at).max(now()));
        Some(fault)
    }

    pub fn standing(&self, state: &State, world: &World) -> Standing {
        let job = self.job(state);
        if self.pair.victim.leaves_leases() && job.is_some_and(|job| lost_its_lease(job, world)) {
            return Standing::Broken(
                "a lease has ended, and a majority of the members was there all the time".to_owned(),
            );
        }
        let ended = job.is_some_and(|job| job.state.is_terminal());
        let Some(hit_at) = self.hit_at else {
            let missed = ended || now() > self.began + COMES_WITHIN;
            return if missed { Standing::Missed } else { Standing::GoesOn };
        };
        match job {
            Some(job) if ended && job.state != JobState::Completed => {
                Standing::Broken(format!("job {} ended as {}: {}", job.id, job.state.name(), job.reason.code()))
            }
            Some(_) if ended => Standing::Over,
            _ if now() > hit_at + ENDS_WITHIN => {
                Standing::Broken(format!("the job of it has not ended {ENDS_WITHIN:?} later"))
            }
            _ => Standing::GoesOn,
        }
    }

    /// The order to give to the pool now.
    pub fn wish(&self, state: &State) -> Option<Order> {
        match self.hit_at {
            None => self.lead_up(state),
            Some(at) if now() > at + STAYS => tidying(state),
            Some(_) => None,
        }
    }

    fn job<'a>(&self, state: &'a State) -> Option<&'a Job> {
        state.job(self.job?).map(|job| &**job)
    }

    /// The next order that leads to the moment.
    fn lead_up(&self, state: &State) -> Option<Order> {
        let Some(job) = self.job(state) else { return self.submission(state) };
        let saved = job.checkpoints.that_count().next().is_some();
        let ready = saved && job.state == JobState::Running && job.moving.is_none();
        match self.pair.moment {
            Moment::GivenUp if !ready => give_up(state, job),
            Moment::Resumed if job.parked && job.state == JobState::Suspended => come_back(state, job),
            Moment::Growing if job.state == JobState::Running => opening(state),
            _ if !ready => None,
            Moment::Reserved
            | Moment::Suspending
            | Moment::Transferring
            | Moment::Resuming
            | Moment::Confirmed
            | Moment::GivenUp => {
                let target = name_of(state, elsewhere(state, job)?)?;
                Some(Order::Do(Deed::Move(job.id, target)))
            }
            Moment::Suspended | Moment::Saved | Moment::Resumed => Some(Order::Do(Deed::Suspend(job.id))),
            Moment::Preempted => Some(Order::Do(Deed::Submit(Kind::Rival, format!("{} rival", self.name)))),
            Moment::Drained => Some(Order::Do(Deed::DrainWithin(name_of(state, last_node(job)?)?, DRAINED_WITHIN))),
            Moment::PartSaved | Moment::Growing => None,
        }
    }

    fn submission(&self, state: &State) -> Option<Order> {
        let kind = match self.pair.moment {
            Moment::PartSaved => Kind::Gang,
            Moment::Growing => Kind::Growing,
            _ => Kind::Lone,
        };
        // A gang that is to grow has room for one at first.
        let closes = (kind == Kind::Growing).then(|| open_nodes(state).nth(1)).flatten();
        Some(match closes {
            Some(node) => Order::Cordon(node.description.name.clone()),
            None => Order::Do(Deed::Submit(kind, self.name.clone())),
        })
    }
}

/// Returns whether a worker of a job was stopped because nobody renewed its lease.
fn lost_its_lease(job: &Job, world: &World) -> bool {
    let workers = job.history.iter().flat_map(|attempt| {
        let ranks = (0u32..).map(Rank).zip(attempt.nodes.iter());
        ranks.map(|(rank, _)| WorkerId { allocation: attempt.allocation, epoch: attempt.epoch, rank })
    });
    workers.into_iter().any(|worker| world.fate(worker).cause == Some(Cause::LeaseExpired))
}

/// A moment's way from the step to the hit: none, or some that is drawn.
pub fn delay(at_once: bool, random: &mut SmallRng) -> Duration {
    let longest = [0, 20, 300][random.random_range(0..3)];
    let drawn = Duration::from_millis(random.random_range(0..=longest));
    if at_once { Duration::ZERO } else { drawn }
}

/// Nothing is left of a scene: every node takes work, and every job is over.
pub fn is_at_rest(state: &State) -> bool {
    let nodes = open_nodes(state).filter(|node| node.state == NodeState::Ready).count();
    nodes == NODES && state.jobs_from(JobId(1)).all(|job| job.state.is_terminal())
}

/// The next order that undoes the effects of a scene.
pub fn tidying(state: &State) -> Option<Order> {
    let parked = state.jobs_from(JobId(1)).find(|job| job.parked && job.state == JobState::Suspended);
    opening(state).or_else(|| parked.map(|job| Order::Do(Deed::Resume(job.id))))
}

fn open_nodes(state: &State) -> impl Iterator<Item = &Node> {
    state.nodes().filter(|node| node.eligibility == Eligibility::Eligible).map(|node| &**node)
}

/// A node that takes no work is opened.
fn opening(state: &State) -> Option<Order> {
    let closed = state.nodes().find(|node| node.eligibility != Eligibility::Eligible)?;
    Some(Order::Uncordon(closed.description.name.clone()))
}

/// The place that a move has reserved takes no work any more.
fn give_up(state: &State, job: &Job) -> Option<Order> {
    let movement = state.move_in_progress(job.moving?).filter(|movement| movement.phase == MovePhase::Reserved)?;
    let target = state.allocation(movement.target)?.workers.first()?.node;
    Some(Order::Cordon(name_of(state, target)?))
}

/// A job that was suspended comes back, and not to where it was.
fn come_back(state: &State, job: &Job) -> Option<Order> {
    let left = state.node(last_node(job)?)?;
    Some(match left.eligibility {
        Eligibility::Eligible => Order::Cordon(left.description.name.clone()),
        _ => Order::Do(Deed::Resume(job.id)),
    })
}

fn last_node(job: &Job) -> Option<NodeId> {
    job.history.last()?.nodes.first().copied()
}

/// A node that has nothing of a job, not even of what it saved: what is there already need not be brought.
fn elsewhere(state: &State, job: &Job) -> Option<NodeId> {
    let newest = job.checkpoints.that_count().next()?;
    let has_some = |node: NodeId| newest.parts.iter().any(|part| part.nodes.contains(&node));
    let source = last_node(job)?;
    let free = open_nodes(state).map(|node| node.id).filter(|node| *node != source);
    free.min_by_key(|node| has_some(*node))
}

fn name_of(state: &State, node: NodeId) -> Option<String> {
    Some(state.node(node)?.description.name.clone())
}
