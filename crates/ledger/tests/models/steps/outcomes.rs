//! Outcomes of the steps that can happen: the world after each of them.

use std::time::Duration;

use stateright::Model;
use tessera_ledger::{Command, NodeId, Observation, Plan, PlanPart, State, StopCause, WorkerReport, WorkerState};

use super::{Protocol, Step, id};

use crate::models::agent::{Agent, Life, Name, Said};
use crate::models::world::{Flaw, World};
use crate::pool;

impl Protocol {
    fn take(&self, world: &mut World, node: usize, acknowledged: bool) {
        let Some(session) = &mut world.agents[node].session else { return };
        let Some(report) = session.report.take() else { return };
        if session.deposed {
            // It cannot commit anything: it ends the session.
            world.agents[node].session = None;
            world.agents[node].left_deposed = true;
            return;
        }
        for (name, said) in &report {
            session.present.insert(*name, !said.is_end());
        }
        let news: Vec<WorkerReport> = report
            .iter()
            .filter(|(name, said)| is_news(&world.ledger, id(node), **name, **said))
            .map(|(name, said)| WorkerReport { worker: world.owner(*name), observation: observation(*said) })
            .collect();
        if !news.is_empty() {
            world.commit(Command::ReportWorkers { node: id(node), reports: news });
        }
        if acknowledged {
            world.agents[node].acknowledged(&report);
        } else {
            world.left.breaks -= 1;
            world.agents[node].session = None;
        }
    }

    fn connect(&self, world: &mut World, node: usize, deposed: bool) {
        let term = if deposed { world.term - 1 } else { world.term };
        let incarnation = world.agents[node].incarnation;
        let known = world.ledger.node(id(node)).map(|node| node.description.clone());
        if let Some(known) = known.filter(|known| !deposed && known.incarnation != incarnation) {
            let cards = pool::numbered(&[pool::card(tessera_ledger::CardKind::Gpu, 1)]);
            world.commit(Command::RegisterNode {
                node: tessera_ledger::NodeDescription { incarnation, ..known },
                cards,
            });
        }
        let agent: &mut Agent = &mut world.agents[node];
        agent.highest_term = agent.highest_term.max(term);
        agent.connect(deposed, self.has(Flaw::KillBelieved));
    }

    fn order(&self, world: &mut World, node: usize) {
        let Some(session) = world.agents[node].session.clone() else { return };
        let Some(view) = self.view(world, &session) else { return };
        let orders = session.changes(id(node), view, self.has(Flaw::TargetBeforeSource));
        let Some(session) = &mut world.agents[node].session else { return };
        session.begun = true;
        for (name, desire) in &orders.list {
            if *desire == crate::models::agent::Desire::Forget {
                session.present.remove(name);
                session.ordered.remove(name);
            } else {
                session.ordered.insert(*name, *desire);
            }
        }
        if orders.complete {
            let strangers: Vec<Name> = session.present.keys().copied().collect();
            for name in strangers.into_iter().filter(|name| !orders.list.contains_key(name)) {
                session.ordered.insert(name, crate::models::agent::Desire::Stop);
            }
        }
        session.orders = Some(orders);
    }

    fn submit(&self, world: &mut World) {
        let submission = self.setting.jobs[world.submitted];
        let mut spec = pool::spec();
        spec.priority = submission.priority;
        spec.gang = submission.gang;
        spec.retry.backoff = Duration::ZERO;
        world.submitted += 1;
        world.commit(tessera_testkit::submission(spec));
    }

    fn elect(&self, world: &mut World) {
        world.left.elections -= 1;
        world.term += 1;
        world.deposed = Some(world.ledger.clone());
        world.inherited |= world.ledger.moves().next().is_some();
        // What the deposed leader proposed and nobody committed before is never committed.
        (world.plan, world.loss) = (None, None);
        for (node, agent) in world.agents.iter_mut().enumerate() {
            if node >= self.setting.faulty {
                agent.session = None;
            }
            agent.session.iter_mut().for_each(|session| session.deposed = true);
        }
    }

    fn lose(&self, world: &mut World) {
        let Some((node, judged)) = world.loss.take() else { return };
        let present = world.ledger.node(node).map_or(judged, |node| node.epoch);
        let epoch = if self.has(Flaw::EpochUnchecked) { present } else { judged };
        let lost = world.commit(Command::NodeLost { node, epoch });
        if lost == tessera_ledger::Outcome::Done {
            // The session of a node that was lost is ended by its leader.
            let agent = &mut world.agents[node.0 as usize];
            agent.session = agent.session.take().filter(|session| session.deposed);
        }
    }

    fn worker_step(world: &mut World, node: usize, name: Name, life: Life) {
        if let Some(worker) = world.agents[node].workers.get_mut(&name) {
            worker.life = life;
        }
    }
}

/// Returns whether a report would change the ledger.
fn is_news(view: &State, node: NodeId, name: Name, said: Said) -> bool {
    let allocation = view.allocation(tessera_ledger::AllocationId(name.allocation));
    let worker = allocation.and_then(|allocation| allocation.worker(tessera_ledger::Rank(name.rank)));
    let Some(worker) = worker.filter(|worker| worker.node == node) else { return false };
    match said {
        Said::Running => matches!(worker.state, WorkerState::Held | WorkerState::Lost),
        Said::Unconfirmed => !matches!(worker.state, WorkerState::Stopped | WorkerState::Lost),
        Said::Completed | Said::Stopped | Said::LeaseExpired => worker.state != WorkerState::Stopped,
    }
}

fn observation(said: Said) -> Observation {
    match said {
        Said::Running => Observation::Running,
        Said::Unconfirmed => Observation::Unconfirmed { message: String::new() },
        Said::Completed => pool::exited(0),
        Said::Stopped => pool::stopped(StopCause::Ordered, None),
        Said::LeaseExpired => pool::stopped(StopCause::LeaseExpired, None),
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.setting)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Step>) {
        actions.extend(self.steps(world));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Submit => self.submit(&mut next),
            Step::Cancel(job) => {
                next.left.cancels -= 1;
                next.commit(Command::CancelJob { job });
            }
            Step::Decide => {
                let parts = Self::decide(world).into_iter().collect();
                next.plan = Some(Plan { revision: world.ledger.revision(), parts });
            }
            Step::Commit => {
                let plan = next.plan.take()?;
                if matches!(plan.parts[..], [PlanPart::Move { .. }]) {
                    next.left.moves = next.left.moves.saturating_sub(1);
                }
                next.commit(Command::CommitPlan { plan });
            }
            Step::Connect { node, deposed } => self.connect(&mut next, node, deposed),
            Step::Break(node) => {
                let deposed = next.agents[node].session.take().is_some_and(|session| session.deposed);
                next.agents[node].left_deposed |= deposed;
                next.left.breaks -= u8::from(!deposed);
            }
            Step::Order(node) => self.order(&mut next, node),
            Step::Obey(node) => {
                let orders = next.agents[node].session.as_mut()?.orders.take()?;
                next.agents[node].obey(orders);
            }
            Step::Report(node) => {
                let news = next.agents[node].news(self.has(Flaw::KillBelieved));
                next.agents[node].session.as_mut()?.report = Some(news);
            }
            Step::Take { node, acknowledged } => self.take(&mut next, node, acknowledged),
            Step::Lease(node) => next.agents[node].start_waiting(),
            Step::Expire(node) => {
                next.left.expiries -= 1;
                next.agents[node].expire();
                next.agents[node].session = None;
            }
            Step::Condemn(node) => {
                next.left.losses -= 1;
                next.loss = Some((id(node), next.ledger.node(id(node))?.epoch));
            }
            Step::Lose => self.lose(&mut next),
            Step::Return(node) => {
                let incarnation = next.agents[node].incarnation;
                next.commit(Command::NodeReturned { node: id(node), incarnation });
            }
            Step::Restart(node) => {
                next.left.restarts -= 1;
                next.agents[node].session = None;
                next.agents[node].incarnation += 1;
            }
            Step::Exit(node, name) => Self::worker_step(&mut next, node, name, Life::Over(Said::Completed)),
            Step::Die(node, name) => Self::worker_step(&mut next, node, name, Life::Over(Said::Stopped)),
            Step::Stick(node, name) => {
                next.left.stuck -= 1;
                Self::worker_step(&mut next, node, name, Life::Stuck);
            }
            Step::Elect => self.elect(&mut next),
            Step::Advance(id, from, proceed) => {
                next.commit(Command::AdvanceMove { id, from, proceed });
            }
        }
        if next.ledger.moves().next().is_none() {
            next.inherited = false;
        }
        Some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        crate::models::promises::all(&self.setting)
    }
}
