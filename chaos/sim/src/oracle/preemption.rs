//! L4: preemption terminates and helps. Within a queue a job gives way only to one of strictly higher priority, and
//! only if it may be preempted at all. Between queues only a loan is recalled: the one who gets it stays within what
//! its queue is guaranteed, and the one who gives it holds it above what its own is. Either happens to one job only so
//! often in an hour, and nothing else preempts.
//!
//! Judged at the very grant: entries that preempt are carried out again, request by request and part by part. Queues
//! have no queues below them in these pools.

use tessera_ledger::{
    Command, Event, Job, JobId, JobState, Outcome, Plan, PlanPart, QueueAmount, Reason, Request, State, WorkerState,
};

use super::{Oracle, first_of};
use crate::journal::Applied;

pub struct Preemption;

/// The amount that a job holds, as its queue counts it.
fn held(state: &State, job: &Job) -> QueueAmount {
    let allocation = job.allocation.and_then(|id| state.allocation(id));
    let workers = allocation.into_iter().flat_map(|allocation| allocation.workers.iter());
    let slices = workers.filter(|worker| worker.state != WorkerState::Stopped).flat_map(|worker| &worker.slices);
    slices.fold(QueueAmount::default(), |sum, slice| {
        let compute = state.config().block_size.saturating_mul(slice.length.0);
        sum.plus(QueueAmount { compute, memory: slice.memory })
    })
}

/// Explains what is wrong with the choice of one victim; `back` is the amount that earlier victims of its queue gave
/// back in the same grant.
fn unjust(before: &State, after: &State, victim: &Job, winner: &Job, back: QueueAmount) -> Option<&'static str> {
    let own = after.job(victim.id).map_or(0, |job| job.preempted_at.len());
    let per_hour = before.config().preemptions_per_hour;
    if victim.spec.queue == winner.spec.queue {
        let wrong = [
            (!victim.is_preemptible(), "it is not preemptible"),
            (victim.effective_priority() >= winner.spec.priority, "its priority is not lower"),
            (own > per_hour as usize, "it was preempted too often within an hour"),
        ];
        return first_of(wrong);
    }
    let lender = before.queue(&victim.spec.queue)?;
    let (holds, guaranteed) = (lender.standing().minus(back), lender.settings.guaranteed);
    let borrower = after.queue(&winner.spec.queue)?;
    let wrong = [
        (own > per_hour.max(1) as usize, "it was preempted too often within an hour"),
        (!holds.is_above_with(guaranteed, held(before, victim)), "its queue is guaranteed what it holds"),
        (!victim.is_preemptible() && lender.firm.within(guaranteed), "it is not preemptible, nor on loan"),
        (
            !borrower.standing().within(borrower.settings.guaranteed),
            "the queue that recalls has more than its guarantee",
        ),
    ];
    first_of(wrong)
}

/// One grant with its victims; answers how many there were.
fn judge(before: &State, after: &State, winner: JobId, victims: &[JobId]) -> Result<usize, String> {
    let unknown = |id: &JobId| format!("job {id} takes part in a preemption and is not in the ledger");
    let winner = before.job(winner).ok_or_else(|| unknown(&winner))?;
    let mut given: Vec<(&str, QueueAmount)> = Vec::new();
    for id in victims {
        let victim = before.job(*id).ok_or_else(|| unknown(id))?;
        let back = given.iter().filter(|(queue, _)| *queue == victim.spec.queue);
        let back = back.fold(QueueAmount::default(), |sum, (_, amount)| sum.plus(*amount));
        if let Some(why) = unjust(before, after, victim, winner, back) {
            return Err(format!(
                "job {id} (queue {}, priority {}) was preempted for job {} (queue {}, priority {}), and {why}",
                victim.spec.queue,
                victim.effective_priority(),
                winner.id,
                winner.spec.queue,
                winner.spec.priority
            ));
        }
        given.push((&victim.spec.queue, held(before, victim)));
    }
    Ok(victims.len())
}

/// Carries an entry out again, and judges every grant that preempts; answers how many gave way. What was one entry is
/// many here: the numbers that follow from that are nobody's matter.
fn replayed(entry: &Applied) -> Result<usize, String> {
    let (mut state, mut gave_way) = (entry.before.clone(), 0);
    let mut at = entry.at;
    let mut apply = |state: &mut State, request: &Request| {
        state.apply(at, std::slice::from_ref(request));
        at.revision.0 += 1;
    };
    for (request, outcome) in entry.requests.iter().zip(&entry.outcomes) {
        let (Command::CommitPlan { plan }, Outcome::Planned(answers)) = (&request.command, outcome) else {
            apply(&mut state, request);
            continue;
        };
        for (part, _) in plan.parts.iter().zip(answers).filter(|(_, answer)| answer.is_ok()) {
            let before = state.clone();
            let plan = Plan { revision: plan.revision, parts: vec![part.clone()] };
            let alone = Request { key: None, actor: request.actor.clone(), command: Command::CommitPlan { plan } };
            apply(&mut state, &alone);
            if let PlanPart::Grant { job, victims, .. } = part {
                gave_way += judge(&before, &state, *job, victims)?;
            }
        }
    }
    Ok(gave_way)
}

impl Oracle for Preemption {
    fn name(&self) -> &'static str {
        "preemption terminates and helps (L4)"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        let preempted = |event: &&Event| {
            let Event::Job { from: Some(from), to: JobState::Suspending, reason, .. } = event else { return false };
            *from != JobState::Suspending && matches!(reason, Reason::Preempted { .. })
        };
        let told = entry.events.iter().filter(preempted).count();
        if told == 0 {
            return Ok(());
        }
        let gave_way = replayed(entry).map_err(|what| format!("revision {}: {what}", entry.at.revision))?;
        if told != gave_way {
            return Err(format!("revision {}: {told} jobs are preempted, by grants {gave_way}", entry.at.revision));
        }
        Ok(())
    }
}
