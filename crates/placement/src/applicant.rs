//! Who asks: a request against the classes of cards that the pool has, and what it counts for in its queue. Whoever is
//! tried, in a round of decisions or outside of one, is one of these.

use std::sync::Arc;

use tessera_ledger::{JobSpec, PoolConfig, QueueAmount};

use crate::demand::Demand;
use crate::index::class::Classes;
use crate::request::Request;

/// A job that asks for room, or any of several that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Applicant {
    /// Its spec; of several that are alike one.
    pub(crate) spec: Arc<JobSpec>,
    /// What it asks for, and where it stands.
    pub(crate) request: Arc<Request>,
    /// What that means for the cards of the pool.
    pub(crate) demand: Arc<Demand>,
    /// The same for as few virtual cards as it starts with. Nobody gives way for more, and no cards are kept for more.
    pub(crate) least: Arc<Demand>,
    /// What that counts for in its queue at least.
    pub(crate) amount: QueueAmount,
}

impl Applicant {
    /// A job with such a spec, which gave way before or never did.
    pub(crate) fn of(spec: &Arc<JobSpec>, gave_way: bool, classes: &Classes, config: &PoolConfig) -> Self {
        Self::with(spec, Arc::new(Request::of(spec, gave_way)), classes, config)
    }

    /// The same where its request is known.
    pub(crate) fn with(spec: &Arc<JobSpec>, request: Arc<Request>, classes: &Classes, config: &PoolConfig) -> Self {
        let demand = Arc::new(Demand::compile(spec, &request, classes, config));
        let least = match demand.gang_min == demand.gang {
            true => Arc::clone(&demand),
            false => Arc::new(demand.of_gang(demand.gang_min)),
        };
        let amount = least.least(config.block_size);
        Self { spec: Arc::clone(spec), request, demand, least, amount }
    }

    /// The queue that it names.
    pub(crate) fn queue(&self) -> &str {
        &self.request.queue
    }
}
