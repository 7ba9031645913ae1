//! The guard of queues that go by attained service ([`order`](crate::order)): which jobs are the oldest, and how much
//! of its share they ask for.

use std::sync::Arc;

use crate::event::Touched;
use crate::ids::JobId;
use crate::job::Job;
use crate::state::{PersistentMap, State, WaitingKey};
use crate::units::{MilliTflops, Percent};

/// By queue the jobs that are not guarded and can be, the oldest first.
pub(crate) type Unguarded = PersistentMap<String, PersistentMap<(u64, JobId), ()>>;

impl State {
    /// Lets the guard of a queue come to its next oldest jobs, as far as its share reaches.
    pub(super) fn advance_guard(&mut self, queue: &str) {
        while let Some(job) = self.next_guarded(queue) {
            self.with_job(job, |job| job.guarded = true);
        }
    }

    /// The oldest job that is not guarded, if the share of the guard has room for it: always where nobody is.
    fn next_guarded(&self, name: &str) -> Option<JobId> {
        let queue = self.queues.get(name)?;
        let guard = queue.settings.attained?.guard;
        let ((_, oldest), ()) = self.unguarded.get(name)?.into_iter().next()?;
        let asked = self.jobs.get(oldest)?.asked();
        let pool = self.capacity().amount(self.config().reference_precision).compute;
        let line = self.queue_line(name);
        let maxima = line.iter().filter_map(|name| self.queues.get(name)?.settings.maximum);
        let most = maxima.map(|maximum| maximum.compute).fold(pool, MilliTflops::min);
        let fits = queue.guarded.saturating_add(asked).0 <= guard.of(most.0);
        (guard > Percent(0) && (queue.guarded == MilliTflops::ZERO || fits)).then_some(*oldest)
    }

    /// Takes over what a job is to the guard of its queue, which goes by attained service, if it was something else
    /// before.
    pub(super) fn follow_guard(&mut self, id: JobId, before: Guarded) {
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        let now = Guarded::of(&job);
        if before == now {
            return;
        }
        if before.is_guarded != now.is_guarded {
            self.with_queue(&job.spec.queue, |queue| {
                let (MilliTflops(sum), MilliTflops(asked)) = (queue.guarded, job.asked());
                let sum = if now.is_guarded { sum.saturating_add(asked) } else { sum.saturating_sub(asked) };
                queue.guarded = MilliTflops(sum);
            });
        }
        if before.may_be != now.may_be {
            file(&mut self.unguarded, &job, now.may_be);
        }
        // Each that becomes guarded is told so by whoever goes through them.
        if !now.is_guarded {
            self.advance_guard(&job.spec.queue);
        }
    }

    /// Computes anew who is yet to be guarded, by queue.
    pub(crate) fn find_unguarded(&self) -> Unguarded {
        let mut found = Unguarded::new();
        let ordered = |job: &&Arc<Job>| job.awaits_guard() && self.order_of(&job.spec.queue).is_some();
        self.jobs_from(JobId(0)).filter(ordered).for_each(|job| file(&mut found, job, true));
        found
    }

    /// Changes the order of a queue: its jobs are filed anew. Nobody is guarded any more who was under the order
    /// before.
    pub(super) fn reorder(&mut self, name: &str, change: impl FnOnce(&mut Self)) {
        let of_queue = |job: &&Arc<Job>| job.spec.queue == name && !job.state.is_terminal();
        let jobs: Vec<JobId> = self.jobs_from(JobId(0)).filter(of_queue).map(|job| job.id).collect();
        for id in &jobs {
            let Some(job) = self.jobs.get(id).cloned().filter(|job| job.is_waiting()) else { continue };
            self.waiting.remove_cow(&self.waiting_key(&job));
        }
        change(self);
        self.with_queue(name, |queue| queue.guarded = MilliTflops::ZERO);
        self.unguarded.remove_cow(&name.to_owned());
        let (revision, is_ordered) = (self.revision, self.order_of(name).is_some());
        for id in jobs {
            let Some(job) = self.jobs.get_mut_cow(&id) else { continue };
            let changed = Arc::make_mut(job);
            (changed.guarded, changed.revision) = (false, revision);
            let job = Arc::clone(job);
            if is_ordered && job.awaits_guard() {
                file(&mut self.unguarded, &job, true);
            }
            if job.is_waiting() {
                self.waiting.insert_cow(self.waiting_key(&job), ());
            }
            self.touched.push(Touched::Job(id));
        }
        self.advance_guard(name);
    }
}

/// The part of a job in the guard of its queue: it is guarded, or it may come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guarded {
    is_guarded: bool,
    may_be: bool,
}

impl Guarded {
    /// A job that is not known yet.
    pub(crate) const UNKNOWN: Self = Self { is_guarded: false, may_be: false };

    pub(crate) fn of(job: &Job) -> Self {
        Self { is_guarded: job.guarded, may_be: job.awaits_guard() }
    }
}

/// Files a job by its queue and age, or takes it out.
fn file(unguarded: &mut Unguarded, job: &Job, enter: bool) {
    let key = (WaitingKey::age_of(job), job.id);
    let of_queue = unguarded.get_or_default_cow(job.spec.queue.clone());
    if enter {
        of_queue.insert_cow(key, ());
    } else {
        of_queue.remove_cow(&key);
    }
    if of_queue.into_iter().next().is_none() {
        unguarded.remove_cow(&job.spec.queue);
    }
}
