//! The mix: which requests the pool sees, and how often each. It follows from the jobs in the ledger, whatever has
//! become of them, and from a past that was told ([`crate::Pool::observe`]).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tessera_ledger::{Job, JobId, JobSpec, PoolConfig, State};

use crate::demand::Demand;
use crate::index::class::Classes;
use crate::request::Request;

/// A request and how many virtual cards of it were seen.
#[derive(Clone, Debug)]
struct Seen {
    request: Arc<Request>,
    spec: Arc<JobSpec>,
    /// The request against as many classes, once it was asked for.
    compiled: Option<(usize, Demand)>,
    /// By jobs in the ledger.
    counted: u64,
    /// In a past that was told.
    told: u64,
}

impl Seen {
    fn weight(&self) -> u64 {
        self.counted + self.told
    }
}

/// Most requests that are looked at: twice as many as prices are made for, because some fit no card.
const COMPILED: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    seen: BTreeMap<Arc<Request>, Seen>,
    jobs: BTreeMap<JobId, Arc<Request>>,
    /// Virtual cards that jobs in the ledger ask for.
    counted: u64,
}

impl Mix {
    /// Counts all jobs of the ledger; a past that was told stays.
    pub(crate) fn read(&mut self, state: &State) {
        self.jobs.clear();
        self.seen.retain(|_, seen| seen.told > 0);
        for seen in self.seen.values_mut() {
            (seen.counted, seen.compiled) = (0, None);
        }
        self.counted = 0;
        for job in state.jobs_from(JobId(0)) {
            self.update(job.id, Some(job));
        }
    }

    /// Takes over what the ledger says of a job.
    pub(crate) fn update(&mut self, id: JobId, job: Option<&Arc<Job>>) {
        match job {
            None => self.forget(id),
            Some(job) if !self.jobs.contains_key(&id) => {
                let key = self.add(&job.spec, |seen, gang| seen.counted += gang);
                self.counted = self.counted.saturating_add(u64::from(job.spec.gang));
                self.jobs.insert(id, key);
            }
            Some(_) => {}
        }
    }

    /// Counts requests of the past.
    pub(crate) fn tell(&mut self, spec: &JobSpec, weight: u64) {
        self.add(&Arc::new(spec.clone()), |seen, gang| seen.told += gang.saturating_mul(weight));
    }

    fn add(&mut self, spec: &Arc<JobSpec>, count: impl FnOnce(&mut Seen, u64)) -> Arc<Request> {
        let seen = match self.seen.entry(Arc::new(Request::anywhere(spec))) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let request = Arc::clone(new.key());
                new.insert(Seen { request, spec: Arc::clone(spec), compiled: None, counted: 0, told: 0 })
            }
        };
        count(seen, u64::from(spec.gang));
        Arc::clone(&seen.request)
    }

    fn forget(&mut self, id: JobId) {
        let Some(key) = self.jobs.remove(&id) else { return };
        let Some(seen) = self.seen.get_mut(&key) else { return };
        let gang = u64::from(seen.spec.gang);
        seen.counted = seen.counted.saturating_sub(gang);
        self.counted = self.counted.saturating_sub(gang);
        if seen.counted == 0 && seen.told == 0 {
            self.seen.remove(&key);
        }
    }

    /// Virtual cards that jobs in the ledger ask for, whatever has become of them.
    pub(crate) const fn counted(&self) -> u64 {
        self.counted
    }

    /// Compiles the requests seen most often, as far as they are not compiled against the present classes. When the
    /// pool's settings change, all are forgotten.
    pub(crate) fn compile(&mut self, classes: &Classes, config: &PoolConfig) {
        let mut seen: Vec<(&Arc<Request>, &mut Seen)> = self.seen.iter_mut().collect();
        seen.sort_by_key(|(_, seen)| Reverse(seen.weight()));
        for (place, (request, seen)) in seen.into_iter().enumerate() {
            if place >= COMPILED {
                seen.compiled = None;
            } else if seen.compiled.as_ref().is_none_or(|(known, _)| *known != classes.len()) {
                seen.compiled = Some((classes.len(), Demand::compile(&seen.spec, request, classes, config)));
            }
        }
    }

    /// The requests as they were compiled last, and how often each was seen.
    pub(crate) fn demands(&self) -> impl Iterator<Item = (&Demand, u64)> {
        let compiled = self.seen.values().filter_map(|seen| Some((seen, seen.compiled.as_ref()?)));
        compiled.map(|(seen, (_, demand))| (demand, seen.weight()))
    }
}
