//! Proof that the simulation sees: each bug is planted in turn, and seeds are run until one of them fails.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use planted::Bug;

use crate::many;
use crate::report::Report;
use crate::script::Script;

/// The bugs to catch, and the runs to catch them in.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program that runs a seed.
    pub program: PathBuf,
    pub bugs: Vec<Bug>,
    /// The first seed of each.
    pub first: u64,
    /// Most seeds for each; `None`: as many as are stated for it.
    pub most: Option<u64>,
    /// Time after which no further run is begun.
    pub until: Option<Instant>,
    /// Runs at once.
    pub jobs: usize,
}

/// The result for one bug.
#[derive(Clone, Debug)]
pub struct Proof {
    pub bug: Bug,
    /// Seeds that were run.
    pub seeds: u64,
    /// The seed that caught it, and what was seen.
    pub caught: Option<(u64, String)>,
}

/// Within how many seeds each bug is caught.
#[must_use]
pub const fn stated(bug: Bug) -> u64 {
    match bug {
        // See docs/failure-model.md: nothing that a pool does shows it.
        Bug::EpochUncheckedInLedger => 0,
        // It takes another bug for a snapshot to be wrong.
        Bug::RestoredUnchecked => 0,
        Bug::StrangerBelieved | Bug::DeafnessRenewed | Bug::LeaseNotHonoured => 1,
        _ => 10,
    }
}

/// Returns whether the simulation can see it.
#[must_use]
pub const fn is_visible(bug: Bug) -> bool {
    stated(bug) > 0
}

/// The script in which it shows; `None`: drawn faults do.
#[must_use]
pub const fn script(bug: Bug) -> Option<Script> {
    match bug {
        Bug::LeaseWithoutQuorum => Some(Script::Stranded),
        Bug::LeaseFromReceipt => Some(Script::SlowLine),
        Bug::TermUncheckedAtAgent | Bug::FenceUncheckedAtSupervisor => Some(Script::Deposed),
        Bug::NewLeaderDoesNotWait => Some(Script::Orphaned),
        Bug::CeilingIgnored => Some(Script::Retimed),
        Bug::AcknowledgedBeforeFsync => Some(Script::Blackouts),
        Bug::PlanNotValidated => Some(Script::StalePlans),
        Bug::KillBelieved => Some(Script::Moves),
        Bug::SilenceBelieved => Some(Script::Bereaved),
        Bug::LogTimeFromWallClock => Some(Script::Astray),
        Bug::AgentsKept | Bug::SourceBelieved | Bug::CheckpointPassedOver | Bug::AbsenceBelieved => {
            Some(Script::Interrupted)
        }
        Bug::StrangerBelieved | Bug::DeafnessRenewed => Some(Script::Stranger),
        Bug::SilenceIsEvidence | Bug::LeaseNotHonoured => Some(Script::FalseAlarm),
        Bug::SilentAfterPause => Some(Script::Pauses),
        _ => None,
    }
}

/// The rule in front of it that must be broken too, or it is never asked: agents do not let a deposed leader speak to
/// supervisors, and members do not take a snapshot that lost something.
#[must_use]
pub const fn hidden_behind(bug: Bug) -> Option<Bug> {
    match bug {
        Bug::FenceUncheckedAtSupervisor => Some(Bug::TermUncheckedAtAgent),
        Bug::RequestsForgotten | Bug::SnapshotWithoutLast => Some(Bug::RestoredUnchecked),
        _ => None,
    }
}

/// Plants each bug in turn.
///
/// # Errors
/// When a run cannot be started.
pub fn run(plan: &Plan) -> anyhow::Result<Vec<Proof>> {
    let (next, proofs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            while let Some(bug) = plan.bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let proof = prove(plan, *bug)?;
                eprintln!("{}", line(&proof));
                proofs.lock().map_err(|_| anyhow::anyhow!("another proof panicked"))?.push(proof);
            }
            Ok(())
        };
        let workers: Vec<_> = (0..plan.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a proof panicked"))??;
        }
        Ok::<(), anyhow::Error>(())
    })?;
    let mut proofs = proofs.into_inner().map_err(|_| anyhow::anyhow!("a proof panicked"))?;
    proofs.sort_by_key(|proof| proof.bug);
    Ok(proofs)
}

fn prove(plan: &Plan, bug: Bug) -> anyhow::Result<Proof> {
    let mut proof = Proof { bug, seeds: 0, caught: None };
    let given = script(bug).map(|script| ["--script", script.name()]);
    let given = given.as_ref().map_or(&[][..], |given| given);
    let front: Vec<&str> = hidden_behind(bug).map(|front| ["--plant", front.name()]).into_iter().flatten().collect();
    let around = [given, front.as_slice()].concat();
    let with = [around.as_slice(), &["--plant", bug.name()]].concat();
    for seed in plan.first..plan.first + plan.most.unwrap_or_else(|| stated(bug)) {
        if plan.until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        proof.seeds += 1;
        let Some(seen) = failure(&many::one_by(&plan.program, seed, &with)?) else { continue };
        // What fails without the bug as well says nothing about the bug.
        if many::one_by(&plan.program, seed, given)?.violation.is_none() {
            proof.caught = Some((seed, seen));
            break;
        }
    }
    Ok(proof)
}

fn failure(report: &Report) -> Option<String> {
    let (oracle, what) = report.violation.as_ref()?;
    let panic = report.ending.lines().find(|line| line.contains("panicked at"));
    Some(format!("{oracle}: {what}{}", panic.map(|line| format!(" ({line})")).unwrap_or_default()))
}

fn line(proof: &Proof) -> String {
    let Proof { bug, seeds, caught } = proof;
    match caught {
        Some((seed, seen)) => {
            let seen: String = seen.chars().take(150).collect();
            format!("{bug:<30} {seeds:>6} {seed:>6}  {seen}")
        }
        None => format!("{bug:<30} {seeds:>6}      -  not caught"),
    }
}

/// A table of how it went.
#[must_use]
pub fn table(proofs: &[Proof]) -> String {
    let mut text = format!("{:<30} {:>6} {:>6}  {}\n", "bug", "seeds", "seed", "what was seen");
    for proof in proofs {
        // Writing into a string does not fail.
        let _ = writeln!(text, "{}", line(proof));
    }
    text
}
