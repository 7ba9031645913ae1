//! Tries what an agent does for each worker, by the agent's own code: a PID namespace, and a control group with limits.

use std::path::Path;

use tessera_agent::AgentConfig;
use tessera_agent::cgroup::{Hierarchies, Limits, WorkerGroup};
use tessera_agent::supervisor::probe::whole_trees_end;

use crate::doctor::facts::{ContainmentFacts, Seen};

/// Files of a group that are of use, in both versions.
const FILES: [&str; 8] = [
    "cgroup.kill",
    "cgroup.freeze",
    "freezer.state",
    "cpu.max",
    "cpu.cfs_quota_us",
    "memory.max",
    "memory.high",
    "pids.max",
];

/// Makes a group beside those of workers, looks at it, and removes it.
pub(super) fn try_here(agent: &AgentConfig) -> Seen<ContainmentFacts> {
    let hierarchies = Hierarchies::detect(Path::new("/")).map_err(|error| error.to_string())?;
    let name = format!("{}/doctor-{}", agent.effective_cgroup_root(), std::process::id());
    let limits =
        Limits { cpu_millicores: Some(1_000), cpu_elastic: false, memory_bytes: Some(64 << 20), processes: Some(64) };
    let group = WorkerGroup::create(&hierarchies, &name, limits);
    let record = group.record();
    let folders: Vec<&Path> = record.folders().into_iter().map(|(path, _)| path.as_path()).collect();
    let there = |file: &&str| folders.iter().any(|folder| folder.join(file).exists());
    let group_files: Vec<String> = FILES.iter().filter(|file| there(file)).map(|file| (*file).to_owned()).collect();
    let facts = ContainmentFacts {
        whole_trees_end: whole_trees_end(),
        hierarchies: described(&hierarchies),
        tracked: group.is_tracked(),
        missing: record.missing.clone(),
        group_files,
    };
    group.remove();
    Ok(facts)
}

fn described(hierarchies: &Hierarchies) -> String {
    let unified = hierarchies.unified.as_ref().map(|of| format!("version 2 with {}", listed(&of.controllers)));
    let legacy: Vec<String> = hierarchies.legacy.iter().map(|of| of.controllers.join(",")).collect();
    let legacy = (!legacy.is_empty()).then(|| format!("version 1 with {}", legacy.join(" ")));
    let all: Vec<String> = unified.into_iter().chain(legacy).collect();
    if all.is_empty() { "no control groups are mounted".to_owned() } else { all.join(", ") }
}

fn listed(controllers: &[String]) -> String {
    if controllers.is_empty() { "no controllers".to_owned() } else { controllers.join(" ") }
}
