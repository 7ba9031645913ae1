//! The leader's actors: started when leadership is won and the ledger is current, stopped when it is lost. They share a
//! `Reign`, which ends with the term; nothing of it reaches into the next one.

use std::sync::{Arc, Mutex};

use tessera_actor::{Address, Backoff, Supervisor};
use tessera_consensus::{Leadership, Term};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backup::schedule;
use crate::feed::Feed;
use crate::growth;
use crate::idle;
use crate::lifecycle;
use crate::lifecycle::leases::Leases;
use crate::new_pool;
use crate::placement_actor::{self, Question, Surroundings};
use crate::pool::PoolHandle;
use crate::session::directory::{self, Directory};
use crate::session::kept::CopyPlan;
use crate::upgrade;

/// One term of leadership of this member.
#[derive(Debug)]
pub(crate) struct Reign {
    pub term: Term,
    /// Cancelled when leadership is lost, or the process ends.
    pub end: CancellationToken,
    /// The table that decides when the lease of each node is over.
    pub leases: Mutex<Leases>,
    /// The sessions of the connected agents.
    pub directory: Arc<Directory>,
    /// Copies of checkpoints that are to be made.
    pub copies: CopyPlan,
    /// Runs the actors of this reign, sessions included.
    pub supervisor: Supervisor,
}

/// The pool, and the channels of the leader's actors.
#[derive(Debug)]
pub(crate) struct Office {
    pub pool: PoolHandle,
    pub feed: Feed,
    /// The address of the placement actor, for services.
    pub placement: watch::Sender<Option<Address<Question>>>,
    /// The present reign, for sessions.
    pub reign: watch::Sender<Option<Arc<Reign>>>,
}

/// The term in which this member leads and is ready to act.
fn ready_in(leadership: &Leadership) -> Option<Term> {
    match leadership {
        Leadership::Leading { term, ready: true } => Some(*term),
        Leadership::Leading { ready: false, .. } | Leadership::Following { .. } => None,
    }
}

/// Starts and stops the leader's actors until `end`.
pub(crate) async fn lead(office: Office, end: CancellationToken) {
    let mut leadership = office.pool.leadership();
    while !end.is_cancelled() {
        let term = ready_in(&leadership.borrow_and_update());
        let Some(term) = term else {
            tokio::select! {
                () = end.cancelled() => return,
                changed = leadership.changed() => if changed.is_err() { return },
            }
            continue;
        };
        let mut leads_no_more = office.pool.leadership();
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            _ = leads_no_more.wait_for(|now| ready_in(now) != Some(term)) => continue,
            () = new_pool::settle(&office.pool) => {}
        }
        let reign = begin(&office, term, end.child_token());
        tokio::select! {
            () = end.cancelled() => {}
            _ = leadership.wait_for(|now| ready_in(now) != Some(term)) => {}
        }
        finish(&office, &reign).await;
    }
}

fn begin(office: &Office, term: Term, end: CancellationToken) -> Arc<Reign> {
    let pool = &office.pool;
    let state = pool.view().current();
    tracing::info!(term = term.0, revision = state.revision().0, "this member leads");
    if let Err(error) = pool.config().outlasts_failover(&state.config().leases) {
        tracing::warn!(%error, "the pool's timings of leases do not suit this member's settings of consensus");
    }
    let leases = Leases::new(Instant::now(), &state);
    let reign = Arc::new(Reign {
        term,
        end: end.clone(),
        leases: Mutex::new(leases),
        directory: Arc::new(Directory::default()),
        copies: CopyPlan::default(),
        supervisor: Supervisor::new(pool.metrics().actors().clone()),
    });
    let surroundings = Surroundings {
        pool: pool.clone(),
        feed: office.feed.clone(),
        here: office.placement.clone(),
        end: end.clone(),
    };
    let start = move || placement_actor::run(surroundings.clone());
    reign.supervisor.restarting(placement_actor::NAME, Backoff::default(), end.clone(), start);

    let (routed, routing) = (pool.clone(), Arc::clone(&reign));
    let start = move || directory::route(routed.clone(), Arc::clone(&routing.directory), routing.end.clone());
    reign.supervisor.restarting("router", Backoff::default(), end.clone(), start);

    let (watched, watching) = (pool.clone(), Arc::clone(&reign));
    let start = move || lifecycle::run(watched.clone(), Arc::clone(&watching));
    reign.supervisor.restarting(lifecycle::NAME, Backoff::default(), end.clone(), start);

    let (grown, growing) = (pool.clone(), Arc::clone(&reign));
    let start = move || growth::run(grown.clone(), Arc::clone(&growing));
    reign.supervisor.restarting(growth::NAME, Backoff::default(), end.clone(), start);

    let (judged, judging) = (pool.clone(), Arc::clone(&reign));
    let start = move || idle::run(judged.clone(), Arc::clone(&judging));
    reign.supervisor.restarting(idle::NAME, Backoff::default(), end.clone(), start);

    let (raised, raising) = (pool.clone(), Arc::clone(&reign));
    let start = move || upgrade::run(raised.clone(), Arc::clone(&raising));
    reign.supervisor.restarting(upgrade::NAME, Backoff::default(), end.clone(), start);

    if let Some(plan) = pool.config().backup.clone() {
        let (saved, saving) = (pool.clone(), Arc::clone(&reign));
        let start = move || schedule::run(saved.clone(), plan.clone(), Arc::clone(&saving));
        reign.supervisor.restarting(schedule::NAME, Backoff::default(), end, start);
    }

    office.reign.send_replace(Some(Arc::clone(&reign)));
    reign
}

async fn finish(office: &Office, reign: &Reign) {
    tracing::info!(term = reign.term.0, "this member leads no more: its leader's actors end");
    reign.end.cancel();
    office.reign.send_replace(None);
    office.placement.send_replace(None);
    reign.supervisor.ended().await;
    office.pool.telemetry().clear();
    office.pool.metrics().nodes_silent(0, false);
}
