//! The steps that can happen in a world, and their outcomes.

mod outcomes;

use std::collections::BTreeMap;

use tessera_ledger::{
    AllocationPhase, BlockState, CardId, JobId, JobState, MoveId, MovePhase, NodeId, NodeState, PlanPart,
    PlannedWorker, State,
};

use crate::models::agent::{Life, Name, Session};
use crate::models::world::{Flaw, Setting, World};
use crate::pool;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next job is submitted.
    Submit,
    Cancel(JobId),
    /// Placement decides against the ledger as it is now.
    Decide,
    /// The decision of placement is committed.
    Commit,
    /// An agent says hello to the leader, or to one that was deposed.
    Connect {
        node: usize,
        deposed: bool,
    },
    /// A session breaks; what was under way is lost.
    Break(usize),
    /// The leader gives orders.
    Order(usize),
    Obey(usize),
    Report(usize),
    /// A report is committed and acknowledged, or the session breaks before the acknowledgement arrives.
    Take {
        node: usize,
        acknowledged: bool,
    },
    Lease(usize),
    /// A node's lease runs out.
    Expire(usize),
    Condemn(usize),
    /// The loss of the node that is condemned is committed.
    Lose,
    Return(usize),
    /// An agent starts again.
    Restart(usize),
    /// A worker ends by itself.
    Exit(usize, Name),
    /// A worker that was told to stop is gone.
    Die(usize, Name),
    /// A worker that was told to stop does not go.
    Stick(usize, Name),
    /// Another leader is elected.
    Elect,
    Advance(MoveId, MovePhase, bool),
}

/// A world and all that can happen in it.
pub struct Protocol {
    pub setting: Setting,
}

fn id(node: usize) -> NodeId {
    NodeId(u32::try_from(node).expect("few nodes"))
}

impl Protocol {
    pub fn has(&self, flaw: Flaw) -> bool {
        self.setting.flaw == Some(flaw)
    }

    fn agent_steps(&self, world: &World, node: usize, steps: &mut Vec<Step>) {
        let agent = &world.agents[node];
        match &agent.session {
            None => {
                steps.push(Step::Connect { node, deposed: false });
                let refused = agent.highest_term >= world.term && !self.has(Flaw::TermUnchecked);
                if node < self.setting.faulty && world.deposed.is_some() && !refused && !agent.left_deposed {
                    steps.push(Step::Connect { node, deposed: true });
                }
            }
            Some(session) => self.session_steps(world, node, session, steps),
        }
        for (name, worker) in &agent.workers {
            match worker.life {
                Life::Computes => steps.push(Step::Exit(node, *name)),
                Life::Stopping => {
                    steps.push(Step::Die(node, *name));
                    if world.left.stuck > 0 {
                        steps.push(Step::Stick(node, *name));
                    }
                }
                Life::Stuck => steps.push(Step::Die(node, *name)),
                Life::Waiting | Life::Over(_) => {}
            }
        }
        if node >= self.setting.faulty {
            return;
        }
        if agent.leased && world.left.expiries > 0 {
            steps.push(Step::Expire(node));
        }
        if world.left.restarts > 0 {
            steps.push(Step::Restart(node));
        }
        let heard = agent.session.as_ref().is_some_and(|session| !session.deposed);
        let over = !agent.leased || self.has(Flaw::LossBeforeEnd);
        let free = world.loss.is_none() && world.left.losses > 0;
        if free && !heard && over && world.ledger.is_ready(id(node)) {
            steps.push(Step::Condemn(node));
        }
    }

    fn session_steps(&self, world: &World, node: usize, session: &Session, steps: &mut Vec<Step>) {
        let agent = &world.agents[node];
        let Some(view) = self.view(world, session) else { return steps.push(Step::Break(node)) };
        if world.left.breaks > 0 || session.deposed {
            steps.push(Step::Break(node));
        }
        if session.orders.is_some() {
            steps.push(Step::Obey(node));
        } else {
            let orders = session.changes(id(node), view, self.has(Flaw::TargetBeforeSource));
            if orders.complete || !orders.list.is_empty() {
                steps.push(Step::Order(node));
            }
        }
        if session.report.is_some() {
            steps.push(Step::Take { node, acknowledged: true });
            if world.left.breaks > 0 && !session.deposed {
                steps.push(Step::Take { node, acknowledged: false });
            }
        } else if !agent.news(self.has(Flaw::KillBelieved)).is_empty() {
            steps.push(Step::Report(node));
        }
        let leads = !session.deposed || self.has(Flaw::LeaseWithoutQuorum);
        let condemned = !session.deposed && world.is_condemned(id(node));
        if !agent.leased && leads && view.is_ready(id(node)) && !condemned {
            steps.push(Step::Lease(node));
        }
        let lost = view.node(id(node)).is_some_and(|node| node.state == NodeState::Lost);
        let settled = session.report.is_none() && session.begun && session.holds_only_granted(view);
        if !session.deposed && lost && (settled || self.has(Flaw::ReturnUnreconciled)) {
            steps.push(Step::Return(node));
        }
    }

    /// The ledger as the leader at the other end of a session knows it.
    fn view<'a>(&self, world: &'a World, session: &Session) -> Option<&'a State> {
        if session.deposed { world.deposed.as_ref() } else { Some(&world.ledger) }
    }

    /// The first job that fits, or a move.
    fn decide(world: &World) -> Option<PlanPart> {
        let view = &world.ledger;
        for job in view.waiting().filter(|job| job.is_eligible(view.time())) {
            for preempting in [false, true] {
                let mut victims = Vec::new();
                let mut workers = Vec::new();
                for node in view.nodes().filter(|node| node.grantable()) {
                    let state = view.card(CardId { node: node.id, index: 0 })?.extents.as_slice()[0].state;
                    let victim = Self::victim(view, state, job.spec.priority).filter(|_| preempting);
                    if workers.len() == job.spec.gang as usize || (state != BlockState::Free && victim.is_none()) {
                        continue;
                    }
                    victims.extend(victim.filter(|victim| !victims.contains(victim)));
                    workers.push(Self::worker(workers.len(), node.id));
                }
                if workers.len() == job.spec.gang as usize {
                    return Some(PlanPart::Grant { job: job.id, workers, victims });
                }
            }
        }
        let job = view.jobs_from(JobId(0)).find(|job| job.state == JobState::Running && job.moving.is_none())?;
        let free = |node: &NodeId| {
            let card = view.card(CardId { node: *node, index: 0 });
            card.is_some_and(|card| card.extents.as_slice()[0].state == BlockState::Free)
        };
        let target = view.nodes().filter(|node| node.grantable()).map(|node| node.id).find(free)?;
        let moved = PlanPart::Move { job: job.id, workers: vec![Self::worker(0, target)] };
        (world.left.moves > 0 && job.spec.gang == 1).then_some(moved)
    }

    fn worker(virtual_card: usize, node: NodeId) -> PlannedWorker {
        let virtual_card = u32::try_from(virtual_card).expect("small gangs");
        PlannedWorker { virtual_card, node, slices: vec![pool::slice(node.0, 0, 0, 1)] }
    }

    fn victim(view: &State, block: BlockState, priority: u32) -> Option<JobId> {
        let (BlockState::Held(owner) | BlockState::Running(owner)) = block else { return None };
        let allocation =
            view.allocation(owner.allocation).filter(|allocation| allocation.phase == AllocationPhase::Active)?;
        let job = view.job(allocation.job)?;
        let runs = matches!(job.state, JobState::Starting | JobState::Running);
        (runs && job.spec.priority < priority).then_some(job.id)
    }

    fn advances(&self, world: &World, steps: &mut Vec<Step>) {
        if world.inherited && self.has(Flaw::MovesLeftBehind) {
            return;
        }
        for movement in world.ledger.moves() {
            if !matches!(movement.phase, MovePhase::Reserved | MovePhase::Transferring) {
                continue;
            }
            let target = world.ledger.allocation(movement.target);
            let alive =
                target.is_some_and(|target| target.workers.iter().all(|worker| world.ledger.is_ready(worker.node)));
            steps.push(Step::Advance(movement.id, movement.phase, alive));
        }
    }

    /// Everything that can happen.
    pub fn steps(&self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        if world.submitted < self.setting.jobs.len() {
            steps.push(Step::Submit);
        }
        if world.left.cancels > 0 {
            let open = world.ledger.jobs_from(JobId(0)).filter(|job| !job.state.is_terminal());
            steps.extend(open.map(|job| Step::Cancel(job.id)));
        }
        if world.plan.is_some() {
            steps.push(Step::Commit);
        } else if Self::decide(world).is_some() {
            steps.push(Step::Decide);
        }
        if world.loss.is_some() {
            steps.push(Step::Lose);
        }
        if world.left.elections > 0 {
            steps.push(Step::Elect);
        }
        for node in 0..world.agents.len() {
            self.agent_steps(world, node, &mut steps);
        }
        self.advances(world, &mut steps);
        steps
    }
}

/// The computing workers of each job, each with its node, for the properties that must hold of them.
pub fn by_job(world: &World) -> BTreeMap<JobId, Vec<(usize, Name)>> {
    let mut jobs: BTreeMap<JobId, Vec<(usize, Name)>> = BTreeMap::new();
    for (node, agent) in world.agents.iter().enumerate() {
        for (name, worker) in &agent.workers {
            if matches!(worker.life, Life::Computes | Life::Stopping) {
                jobs.entry(worker.job).or_default().push((node, *name));
            }
        }
    }
    jobs
}
