//! Decisions of a pool, made again from the disk of a stopped member.

use std::path::Path;

use tessera_api::v1::JobState;
use tessera_controller::past::{Past, PastError};
use tessera_ledger::{JobId, PlanPart};
use tessera_placement::Limits;
use tessera_simulate::replay::{Finding, PastDecision, Replay};
use tessera_store::StoreError;

use crate::pool::agent::FakeAgent;
use crate::pool::members::{Members, job, opened};

/// Makes every decision of a data folder again.
fn decisions(folder: &Path, follows: Option<u64>) -> Vec<PastDecision> {
    let mut past = Past::open(folder).expect("the member has stopped");
    let beginning = past.beginning().expect("it can be read");
    let mut replay = Replay::new(beginning, Limits::default(), follows.map(JobId));
    let mut decisions = Vec::new();
    loop {
        let entries = past.read_on().expect("they can be read");
        if entries.is_empty() {
            return decisions;
        }
        for entry in entries {
            decisions.extend(replay.apply(entry.at, entry.requests.as_deref()));
        }
    }
}

/// Files of a folder with their sizes, but for the log that RocksDB writes about itself.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let listed = std::fs::read_dir(folder.join("db")).expect("the folder is there");
    let mut files: Vec<(String, u64)> = listed
        .map(|file| file.expect("it can be listed"))
        .map(|file| (file.file_name().to_string_lossy().into_owned(), file.metadata().expect("it is there").len()))
        .collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_decision_of_a_stopped_member_comes_out_the_same_again() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let members = Members::alone(opened(folder.path()).await, |_| {}).await;
    let agents = ["a", "b"].map(|name| FakeAgent::start(name, 10, members.addresses()));
    members.wait_for_nodes(2).await;
    let first = [4, 9, 3, 3].map(job);
    let mut running = Vec::new();
    for spec in first {
        running.push(members.submit(spec).await);
    }
    for id in &running {
        members.wait_for(*id, JobState::Running).await;
    }
    let waiting = members.submit(job(8)).await;
    assert!(
        matches!(Past::open(folder.path()), Err(PastError::Store(StoreError::Locked { .. }))),
        "a running member is not looked into"
    );
    agents.iter().for_each(|agent| agent.finish(running[1]));
    members.wait_for(running[1], JobState::Completed).await;
    members.wait_for(waiting, JobState::Running).await;
    for id in running.iter().copied().chain([waiting]) {
        agents.iter().for_each(|agent| agent.finish(id));
        members.wait_for(id, JobState::Completed).await;
    }
    agents.iter().for_each(FakeAgent::stop);
    members.stop().await;
    drop(opened(folder.path()).await);

    let before = files(folder.path());
    let decisions = decisions(folder.path(), Some(waiting));
    assert_eq!(files(folder.path()), before, "nothing was changed by looking");
    let granted: Vec<u64> = decisions
        .iter()
        .flat_map(|decision| &decision.parts)
        .filter_map(|part| match part {
            PlanPart::Grant { job, .. } => Some(job.0),
            _ => None,
        })
        .collect();
    assert!(running.iter().chain([&waiting]).all(|id| granted.contains(id)), "{granted:?}");
    for decision in &decisions {
        let same = matches!(decision.finding, Finding::Same | Finding::SameFromFreshIndex);
        assert!(same, "{decision:?}");
        assert!(decision.refused.iter().all(Option::is_none), "{decision:?}");
    }
    let about: Vec<&PastDecision> = decisions.iter().filter(|decision| decision.concerns(JobId(waiting))).collect();
    assert_eq!(about.len(), 1);
    assert!(about[0].explanation.is_some());
}
