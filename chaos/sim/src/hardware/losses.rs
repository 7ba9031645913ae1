//! Failures of machines and supervisors: they get no turn, are killed, or lose power.

use rand::Rng;
use tessera_agent::worker::WorkerId;

use super::Machine;
use crate::machine::now;

impl Machine {
    /// The machine is so busy that supervisors get no turn, or it is no more and each gets one; programs go on.
    pub fn starve(&self, starved: bool) {
        let mut inner = self.inner();
        inner.starved = starved;
        inner.supervised.values_mut().for_each(|supervised| supervised.starve(starved));
        drop(inner);
        self.step();
    }

    /// One of the workers that have a supervisor.
    pub fn some_worker(&self, draw: usize) -> Option<WorkerId> {
        let inner = self.inner();
        inner.supervised.keys().copied().nth(draw.checked_rem(inner.supervised.len())?)
    }

    pub fn supervises(&self, worker: WorkerId) -> bool {
        self.inner().supervised.contains_key(&worker)
    }

    /// Kills a supervisor, and with it the worker; where the machine cannot give that, what it forked computes on until
    /// somebody searches for it. Answers whether there was one.
    pub fn kill_supervisor(&self, worker: WorkerId) -> bool {
        let mut inner = self.inner();
        let was_there = inner.supervised.remove(&worker).is_some();
        if was_there && inner.contained {
            inner.world.tear_away(&inner.name, worker);
        } else if was_there {
            inner.orphans.insert(worker);
        }
        was_there
    }

    /// The machine loses power and boots again at once: every process is gone, and so is what was not flushed.
    pub fn lose_power(&self) {
        let mut inner = self.inner();
        let orphans = std::mem::take(&mut inner.orphans);
        for worker in std::mem::take(&mut inner.supervised).into_keys().chain(orphans) {
            inner.world.tear_away(&inner.name, worker);
        }
        inner.folders.retain(|_, folder| folder.durable);
        let forgetful = inner.random.random_bool(0.5);
        for folder in inner.folders.values_mut() {
            // Only the last status of a worker is flushed.
            if forgetful && folder.status.as_ref().is_some_and(|status| !status.is_final()) {
                folder.status = None;
            }
        }
        inner.boots += 1;
        inner.booted = now();
    }
}
