//! Three members with modelled disks in one process, and agents that speak the session protocol over loopback: from a
//! submission to the end of a job, over a change of leader, and over the loss of a node.

mod agent;
mod busy;
mod members;
mod past;

use std::time::Duration;

use agent::{FakeAgent, first_hello};
use members::{Members, eventually, job, leases, opened};
use tessera_api::error::{LEADER_ADDRESS, reason_of};
use tessera_api::v1::agent_service_client::AgentServiceClient;
use tessera_api::v1::session_request::Message;
use tessera_api::v1::session_response::Message as Told;
use tessera_api::v1::{self, ErrorReason, JobState, NodeState, SessionRequest, StopCause};
use tessera_connection::{Outbound, Terms};
use tessera_store::memory::{Flushing, MemoryDisk};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic_types::StatusExt as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_granted_ordered_run_and_completed() {
    let members = Members::start().await;
    let agent = FakeAgent::start("a", 10, members.addresses());
    members.wait_for_nodes(1).await;
    let id = members.submit(job(4)).await;
    members.wait_for(id, JobState::Running).await;
    assert_eq!(agent.starts(id), 1);
    eventually("a lease is granted", || async { agent.leases() > 0 }).await;
    agent.finish(id);
    members.wait_for(id, JobState::Completed).await;
    eventually("the worker is forgotten", || async { agent.workers() == 0 }).await;
    agent.stop();
    members.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_leader_carries_on_and_no_job_is_disturbed() {
    let mut members = Members::start().await;
    let agents = ["a", "b"].map(|name| FakeAgent::start(name, 10, members.addresses()));
    members.wait_for_nodes(2).await;
    let running = members.submit(job(4)).await;
    let waiting = members.submit(job(9)).await;
    members.wait_for(running, JobState::Running).await;
    members.wait_for(waiting, JobState::Running).await;
    let blocked = members.submit(job(8)).await;

    members.stop_leader().await;
    let after = members.submit(job(1)).await;
    members.wait_for(after, JobState::Running).await;
    assert_eq!(members.state(running).await, JobState::Running);
    let starts: usize = agents.iter().map(|agent| agent.starts(running)).sum();
    assert_eq!(starts, 1, "it was not started again");
    assert_eq!(members.state(blocked).await, JobState::Pending);

    for agent in &agents {
        agent.finish(waiting);
    }
    members.wait_for(waiting, JobState::Completed).await;
    members.wait_for(blocked, JobState::Running).await;
    for agent in &agents {
        for id in [running, blocked, after] {
            agent.finish(id);
        }
    }
    for id in [running, blocked, after] {
        members.wait_for(id, JobState::Completed).await;
    }
    for agent in agents {
        agent.stop();
    }
    members.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_nodes_work_is_retried_elsewhere_and_the_node_returns_when_it_has_reconciled() {
    let members = Members::start().await;
    let agents = ["a", "b", "c"].map(|name| FakeAgent::start(name, 10, members.addresses()));
    members.wait_for_nodes(3).await;
    let id = members.submit(job(10)).await;
    members.wait_for(id, JobState::Running).await;
    let first = agents.iter().position(|agent| agent.starts(id) == 1).expect("one of them runs it");
    agents[first].cut(true);
    members.wait_for_node(&agents[first].name, NodeState::Lost).await;
    eventually("another node runs it", || async {
        agents.iter().enumerate().any(|(place, agent)| place != first && agent.starts(id) == 1)
    })
    .await;
    members.wait_for(id, JobState::Running).await;

    agents[first].cut(false);
    members.wait_for_node(&agents[first].name, NodeState::Ready).await;
    assert_eq!(agents[first].stops(), [(id, StopCause::NotGranted)], "what was left there was stopped first");
    assert_eq!(members.state(id).await, JobState::Running);
    for agent in agents {
        agent.finish(id);
        agent.stop();
    }
    members.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_leader_grants_nothing_again_before_a_lease_of_before_timings_were_shortened_is_over() {
    let mut members = Members::start().await;
    members.set_leases(leases(2)).await;
    let agents = ["a", "b", "c"].map(|name| FakeAgent::start(name, 10, members.addresses()));
    members.wait_for_nodes(3).await;
    let id = members.submit(job(10)).await;
    members.wait_for(id, JobState::Running).await;
    let first = agents.iter().position(|agent| agent.starts(id) == 1).expect("one of them runs it");
    eventually("a lease is granted", || async { agents[first].leases() > 0 }).await;

    // The node falls silent under a long lease, the timings are shortened, and nobody is left who granted it.
    agents[first].cut(true);
    let killed_by = agents[first].killed_by().expect("a lease was granted");
    members.set_leases(leases(1)).await;
    members.stop_leader().await;
    assert_eq!(members.regrant_ceiling().await, leases(2).regrant_after);
    eventually("another node runs it", || async {
        agents.iter().enumerate().any(|(place, agent)| place != first && agent.starts(id) == 1)
    })
    .await;
    assert!(Instant::now() >= killed_by, "its work may still run for {:?}", killed_by - Instant::now());

    eventually("nobody waits for long leases any more", || async {
        members.regrant_ceiling().await == leases(1).regrant_after
    })
    .await;
    for agent in agents {
        agent.finish(id);
        agent.stop();
    }
    members.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_learn_of_changed_timings_within_their_session() {
    let members = Members::start().await;
    let agent = FakeAgent::start("a", 10, members.addresses());
    members.wait_for_nodes(1).await;
    let id = members.submit(job(4)).await;
    members.wait_for(id, JobState::Running).await;
    eventually("a lease is granted", || async { agent.leases() > 0 }).await;
    assert_eq!(agent.heartbeat(), Some(Duration::from_millis(100)));
    members.set_leases(tessera_ledger::LeaseTimings { heartbeat: Duration::from_millis(200), ..leases(2) }).await;
    eventually("it is told", || async { agent.heartbeat() == Some(Duration::from_millis(200)) }).await;
    assert_eq!((members.state(id).await, agent.starts(id)), (JobState::Running, 1));
    agent.finish(id);
    members.wait_for(id, JobState::Completed).await;
    agent.stop();
    members.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_do_not_lead_send_agents_to_the_leader() {
    let members = Members::start().await;
    let agent = FakeAgent::start("a", 10, members.addresses());
    members.wait_for_nodes(1).await;
    let mut refusals = Vec::new();
    for member in 0..3 {
        let (say, said) = mpsc::channel(1);
        say.send(first_hello("b")).await.expect("a new channel has room");
        let session = AgentServiceClient::new(members.channel(member)).session(ReceiverStream::new(said)).await;
        refusals.extend(session.err());
    }
    assert_eq!(refusals.len(), 2, "one of three leads");
    for status in refusals {
        assert_eq!(reason_of(&status), Some(ErrorReason::NotLeader));
        let info = status.get_details_error_info().expect("every refusal has a reason");
        assert!(members.addresses().contains(&info.metadata[LEADER_ADDRESS]), "{info:?}");
    }
    agent.stop();
    members.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_read_what_it_is_told_is_cut() {
    let store = MemoryDisk::new(Flushing::AtOnce).open().expect("a new disk can be opened");
    let members = Members::alone(store, |config| config.session_outbox = 8).await;
    // A small window, so that not much is buffered on the way.
    let terms = Terms { window_bytes: Some(1 << 16), ..Terms::default() };
    let channel = Outbound::default().connect(&members.addresses()[0], &terms).await.expect("the member listens");
    let (say, said) = mpsc::channel(16);
    say.send(first_hello("deaf")).await.expect("a new channel has room");
    let session = AgentServiceClient::new(channel).session(ReceiverStream::new(said)).await.expect("it leads");
    let mut unread = session.into_inner();
    let welcome = unread.message().await.expect("the session goes on").and_then(|response| response.message);
    assert!(matches!(welcome, Some(Told::Welcome(_))), "{welcome:?}");
    let mut report_id = 0;
    let talking = async {
        loop {
            report_id += 1;
            let report = v1::Report { report_id, ..Default::default() };
            if say.send(SessionRequest { message: Some(Message::Report(report)) }).await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), talking).await.expect("the leader cuts the session");
    let left = async { while let Ok(Some(_)) = unread.message().await {} };
    tokio::time::timeout(Duration::from_secs(30), left).await.expect("what was buffered comes to an end");
    let counted = "tessera_sessions_ended_total{cause=\"slow\"} 1";
    eventually("the cut is counted", || async { members.page(0).await.contains(counted) }).await;
    members.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_knows_who_it_is_after_a_restart_and_has_lost_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let members = Members::alone(opened(folder.path()).await, |_| {}).await;
    let agent = FakeAgent::start("a", 10, members.addresses());
    members.wait_for_nodes(1).await;
    agent.stop();
    let id = members.submit(v1::JobSpec { held: true, ..job(4) }).await;
    let address = members.addresses().remove(0);
    members.stop().await;

    // Also at another port: nobody else looks for the only one.
    for at in ["127.0.0.1:0", &address] {
        let members = Members::again(opened(folder.path()).await, at).await;
        assert_eq!(members.state(id).await, JobState::Pending);
        members.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_is_nearly_full_takes_no_more_jobs() {
    let disk = MemoryDisk::new(Flushing::AtOnce);
    disk.set_capacity(Some(1 << 20));
    let store = disk.open().expect("a new disk can be opened");
    let members = Members::alone(store, |config| config.disk_reserve_bytes = 1 << 30).await;
    let agent = FakeAgent::start("a", 10, members.addresses());
    members.wait_for_nodes(1).await;
    eventually("submissions are refused", || async {
        members.try_submit(job(4)).await.is_err_and(|status| reason_of(&status) == Some(ErrorReason::StorageFull))
    })
    .await;
    agent.stop();
    members.stop().await;
}
