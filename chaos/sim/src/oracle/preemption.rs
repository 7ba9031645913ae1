//! L4: preemption terminates and helps. A job gives way only to one of strictly higher priority, only so often in an hour, and
//! only if it may be preempted at all.

use tessera_ledger::{Event, JobId, Reason, Revision};

use super::{Oracle, View};

/// See the module. Queues have no guarantees in these pools, so that only priority counts.
#[derive(Default)]
pub struct Preemption {
    known: Revision,
}

impl Oracle for Preemption {
    fn name(&self) -> &'static str {
        "preemption terminates and helps (L4)"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let Some(newest) = view.newest().filter(|state| state.revision() > self.known) else { return Ok(()) };
        for entry in newest.events_after(self.known).into_iter().flatten() {
            for event in entry.events.iter() {
                let Event::Job { job, reason: Reason::Preempted { beneficiary }, .. } = event else { continue };
                let (Some(victim), Some(winner)) = (newest.job(*job), newest.job(*beneficiary)) else { continue };
                if victim.spec.priority >= winner.spec.priority || !victim.spec.preemptible {
                    return Err(format!(
                        "job {job} (priority {}, preemptible: {}) was preempted for job {beneficiary} (priority {})",
                        victim.spec.priority, victim.spec.preemptible, winner.spec.priority
                    ));
                }
            }
        }
        self.known = newest.revision();
        let most = newest.config().preemptions_per_hour as usize;
        let often = newest.jobs_from(JobId(1)).find(|job| job.preempted_at.len() > most);
        often.map_or(Ok(()), |job| {
            Err(format!(
                "job {} was preempted {} times within an hour; {most} are allowed",
                job.id,
                job.preempted_at.len()
            ))
        })
    }
}
