//! The wait code of a job, which says in one word what it waits for, for lists: only what is known already is looked
//! at, so that a thousand rows cost no more than reading them. [`explain`](crate::explain) finds out the rest.

use std::collections::BTreeMap;

use tessera_ledger::{Job, JobSpec, LogTime, State};
use tessera_placement::{Lack, Pool};

use crate::shortage::refused_for_size;
use crate::why::standing;
use crate::words::WaitCode;

/// The code of what a job waited for when it was tried last. A lack is judged by the sums over all its cards; where
/// these would be enough, the code is [`WaitCode::NoRoom`].
#[must_use]
pub fn waits_for(pool: &Pool, state: &State, job: &Job, now: LogTime) -> WaitCode {
    let kept_back = standing(state, job, now.max(state.time())).map(|explanation| explanation.code);
    kept_back.unwrap_or_else(|| code_of(pool, state, &job.spec, pool.lack_of(job.id)))
}

/// Counts the waiting jobs per queue and wait code, by what was known when they were tried last. Jobs that a person
/// keeps back are not among them. Costs as much as there are different requests, not jobs.
#[must_use]
pub fn waits_by_queue(pool: &Pool, state: &State) -> BTreeMap<(String, WaitCode), u64> {
    let mut waits: BTreeMap<(String, WaitCode), u64> = BTreeMap::new();
    let mut add = |queue: &str, code: WaitCode, jobs: usize| {
        if jobs > 0 {
            *waits.entry((queue.to_owned(), code)).or_default() += jobs as u64;
        }
    };
    for (spec, jobs, lack) in pool.lacks() {
        let refused = refused_for_size(state, spec).map(|explanation| explanation.code);
        add(&spec.queue, refused.unwrap_or_else(|| code_of(pool, state, spec, lack)), jobs);
    }
    for job in pool.later().filter_map(|id| state.job(id)) {
        let code = if job.closed_until > job.not_before { WaitCode::OutsideWindow } else { WaitCode::Backoff };
        add(&job.spec.queue, code, 1);
    }
    waits
}

fn code_of(pool: &Pool, state: &State, spec: &JobSpec, lack: Lack) -> WaitCode {
    match lack {
        Lack::Nothing => WaitCode::Ready,
        Lack::Window => WaitCode::OutsideWindow,
        Lack::Queue => WaitCode::QueueMaximum,
        Lack::Cards if pool.largest_accepted(state, spec).is_none() => WaitCode::NoAcceptableCard,
        _ if !pool.has_labels(state, spec) => WaitCode::NoNodeWithLabels,
        Lack::Cards => WaitCode::NoBlocks,
        Lack::Compute => WaitCode::ComputeShort,
        Lack::Memory => WaitCode::MemoryShort,
        Lack::Room => WaitCode::NoRoom,
    }
}
