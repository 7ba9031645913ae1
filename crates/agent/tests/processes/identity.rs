//! The identity of an agent and its work, whatever name somebody gives them.

use std::path::Path;

use tessera_agent::{Agent, AgentConfig, AgentError, IdentityError};
use tessera_api::v1::{WorkerDesire, WorkerPhase};

use super::agent::{Running, config, follow_until, get, start, worker_status};
use super::leader::{Leader, TERM, order};
use super::support::{control_groups, is_alive, pid_in};

/// An agent below a folder, with a worker that runs, and the worker's pid.
async fn with_work(data: &Path, config: AgentConfig, leader: &mut Leader) -> (Running, i32) {
    let agent = start(config).await;
    let address = leader.welcome().await.address;
    let script = "echo self=$$; exec sleep 1000";
    leader.order(true, vec![order(1, WorkerDesire::Run, script)]).await;
    let pid = pid_in(&follow_until(&address, 1, "self=").await, "self", &worker_status(data, 1));
    (agent, pid)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_started_under_another_name_is_refused_and_its_work_runs_on() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let (first, pid) = with_work(data.path(), config(data.path(), &leader), &mut leader).await;
    first.stop().await;

    let renamed = AgentConfig { node_name: "node-b".to_owned(), ..config(data.path(), &leader) };
    let refused = Agent::start(renamed).await.err().expect("refused");
    assert!(matches!(refused, AgentError::Identity(IdentityError::OtherName { .. })), "{refused}");
    let again = start(config(data.path(), &leader)).await;
    let hello = leader.welcome().await;
    assert_eq!((hello.node_name.as_str(), hello.workers[0].phase()), ("node-a", WorkerPhase::Running));
    assert!(is_alive(pid));
    leader.order(true, Vec::new()).await;
    leader.report_of(1, WorkerPhase::Stopped).await;
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_end_the_worker_of_the_same_name_and_number_in_another_pool() {
    let data = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let mut leaders = [Leader::start().await, Leader::start().await];
    let (mut agents, mut pids) = (Vec::new(), Vec::new());
    for (data, leader) in data.iter().zip(&mut leaders) {
        let mut config = config(data.path(), leader);
        // As two nodes of one name on one host have it that are not told otherwise.
        config.cgroup_root = Some(format!("{}/node-a", control_groups()));
        let (agent, pid) = with_work(data.path(), config, leader).await;
        agents.push(agent);
        pids.push(pid);
    }
    leaders[0].order(true, Vec::new()).await;
    leaders[0].report_of(1, WorkerPhase::Stopped).await;
    assert_eq!([is_alive(pids[0]), is_alive(pids[1])], [false, true]);
    leaders[1].order(true, Vec::new()).await;
    let over = leaders[1].report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(over.signal, Some(15), "by the word of its own pool");
    for agent in agents {
        agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_of_a_term_that_cannot_be_is_left_and_counted() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    leader.term = u64::MAX;
    let running = start(config(data.path(), &leader)).await;
    leader.welcome().await;
    leader.term = TERM;
    // It comes again, to be welcomed by a leader that can be.
    leader.welcome().await;
    leader.order(true, Vec::new()).await;
    let page = get(&running.http, "/metrics").await;
    assert!(page.contains("tessera_agent_terms_refused_total 1\n"), "{page}");
    running.stop().await;
}
