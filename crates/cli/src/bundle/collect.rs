//! Asks for the parts: the members, the host, the logs. All at once, each with a bound in time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use serde::Serialize;
use tessera_api::v1::{
    Consistency, GetPoolConfigRequest, GetPoolRequest, JobFilter, ListNodesRequest, ListQueuesRequest,
    VerifyPoolRequest,
};
use tessera_client::watch::Start;
use tessera_client::{Address, Client, ClientError};

use super::parts::Parts;
use super::redact::{WITHHELD, redact};
use super::{http, processes};
use crate::command::{PAGE, silence};
use crate::doctor::Report;
use crate::doctor::facts::Facts;
use crate::survey::Survey;
use crate::view::{ConfigView, JobUpdateView, MemberVerdictView, NodeView, PoolUpdateView, PoolView, QueueView};

/// Most time for one question.
const PATIENCE: Duration = Duration::from_secs(10);
/// Events of each sort that are kept, the newest.
const EVENTS: usize = 5_000;
/// Pages of nodes.
const PAGES: usize = 4;
/// Bytes of a log that are kept, the newest.
const LOG: u64 = 4 << 20;
/// Lines of the journal.
const JOURNAL: [&str; 9] =
    ["--no-pager", "-o", "short-iso", "-n", "5000", "-u", "tessera-controller", "-u", "tessera-agent"];

/// What is asked for beside the members.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Where pages of metrics are, as `host:port`.
    pub pages: Vec<String>,
    /// Files of logs.
    pub logs: Vec<PathBuf>,
    /// Files of configuration: whose, and where.
    pub files: Vec<(&'static str, PathBuf)>,
}

/// Collects everything that can be had.
pub async fn collect(client: &Client, report: Report, facts: Facts, wanted: &Wanted) -> Parts {
    let client = client.with_deadline(PATIENCE);
    let survey = Survey::take(&client).await;
    let (of_members, of_pool, of_pages, of_host, journal) = tokio::join!(
        join_all(survey.answers.iter().map(|(address, answer)| member(&client, address, answer.is_ok()))),
        pool(&client),
        pages(&survey, wanted),
        tokio::task::spawn_blocking(processes::look),
        journal(),
    );
    let mut parts = Parts::default();
    parts.put_json("cluster.json", Ok(survey.view()));
    doctor(&mut parts, report, facts);
    of_members.into_iter().for_each(|member| parts.join(member));
    parts.join(of_pool);
    parts.join(of_pages);
    match of_host {
        Ok(of_host) => parts.join(of_host),
        Err(error) => parts.miss("host/process-*", error.to_string()),
    }
    for (of, path) in &wanted.files {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
        let shown = text.and_then(|text| redact(&text).map_err(|error| format!("{}: {error}", path.display())));
        parts.put(&format!("host/{of}.toml"), shown.map(String::into_bytes));
    }
    parts.put("host/journal.log", journal);
    for path in &wanted.logs {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        parts.put(&format!("host/logs/{name}"), newest(path));
    }
    parts
}

/// What the doctor said; errors in files may quote what is in them, and are left out.
fn doctor(parts: &mut Parts, mut report: Report, mut facts: Facts) {
    let untold = "what is wrong is said by `tessera operator doctor` on that host".to_owned();
    for finding in report.findings.iter_mut().filter(|finding| finding.check == "configuration") {
        finding.seen.clone_from(&untold);
    }
    facts.unusable.iter_mut().for_each(|(_, why)| why.clone_from(&untold));
    parts.put_json("host/doctor.json", Ok(report));
    parts.put_json("host/facts.json", Ok(facts));
}

fn folder(address: &str) -> String {
    format!("members/{}", address.replace([':', '/'], "_"))
}

/// What one member says: its own count of the ledger, and whether its laws hold.
async fn member(client: &Client, address: &Address, answers: bool) -> Parts {
    let mut parts = Parts::default();
    let folder = folder(&address.to_string());
    if !answers {
        parts.miss(&folder, "this member did not answer; cluster.json says how");
        return parts;
    }
    let consistency = Consistency::Stale.into();
    match client.only(address) {
        Ok(one) => {
            let one = one.with_deadline(PATIENCE);
            let (pool, verdict) = tokio::join!(
                one.get_pool(GetPoolRequest { consistency }),
                one.verify_pool(VerifyPoolRequest { consistency })
            );
            parts.put_json(&format!("{folder}/ledger.json"), pool.map(PoolView::from).map_err(|error| silence(&error)));
            let verdict = verdict.map(|answer| MemberVerdictView::answered(address.to_string(), answer));
            parts.put_json(&format!("{folder}/verify.json"), verdict.map_err(|error| silence(&error)));
        }
        Err(error) => parts.miss(&folder, silence(&error)),
    }
    let own = "only its own host has its file, its log and its process: run `tessera operator debug` there too";
    parts.miss(&format!("{folder}/configuration, log and process"), own);
    parts
}

/// Settings, queues, nodes and events, as any member has them.
async fn pool(client: &Client) -> Parts {
    let mut parts = Parts::default();
    let consistency = Consistency::Stale.into();
    let (config, queues, nodes, jobs, changes) = tokio::join!(
        client.get_pool_config(GetPoolConfigRequest { consistency }),
        client.list_queues(ListQueuesRequest { page_size: PAGE, consistency, ..ListQueuesRequest::default() }),
        nodes(client, consistency),
        job_events(client),
        pool_events(client),
    );
    parts.put_json("pool/config.json", config.map(ConfigView::from).map_err(|error| silence(&error)));
    let queues = queues.map(|answer| answer.queues.into_iter().map(QueueView::from).collect::<Vec<_>>());
    parts.put_json("pool/queues.json", queues.map_err(|error| silence(&error)));
    match nodes {
        Ok((nodes, whole)) => {
            parts.put_json("pool/nodes.json", Ok(nodes));
            if !whole {
                parts.miss("pool/nodes.json, the rest", format!("the first {} nodes are kept", PAGES * PAGE as usize));
            }
        }
        Err(error) => parts.miss("pool/nodes.json", silence(&error)),
    }
    parts.put("pool/job-events.jsonl", jobs);
    parts.put("pool/pool-events.jsonl", changes);
    parts
}

/// The first nodes, without the values of their labels, and whether they are all.
async fn nodes(client: &Client, consistency: i32) -> Result<(Vec<NodeView>, bool), ClientError> {
    let (mut nodes, mut page_token) = (Vec::new(), String::new());
    for _ in 0..PAGES {
        let request = ListNodesRequest { page_size: PAGE, page_token, consistency, ..ListNodesRequest::default() };
        let answer = client.list_nodes(request).await?;
        nodes.extend(answer.nodes.into_iter().map(NodeView::from));
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    for value in nodes.iter_mut().flat_map(|node| node.labels.values_mut()) {
        WITHHELD.clone_into(value);
    }
    Ok((nodes, page_token.is_empty()))
}

/// The newest events of a sort, one JSON object in a line.
#[derive(Default)]
struct Newest(VecDeque<String>);

impl Newest {
    fn keep(&mut self, event: &impl Serialize) {
        if self.0.len() == EVENTS {
            self.0.pop_front();
        }
        // What is shown everywhere else can be written.
        self.0.extend(serde_json::to_string(event));
    }

    fn finish(self, ended: Result<Result<(), ClientError>, tokio::time::error::Elapsed>) -> Result<Vec<u8>, String> {
        match ended {
            Ok(Err(error)) if self.0.is_empty() => Err(silence(&error)),
            Err(_elapsed) if self.0.is_empty() => Err(format!("none came within {} s", PATIENCE.as_secs())),
            _ => Ok(self.0.into_iter().flat_map(|line| line.into_bytes().into_iter().chain([b'\n'])).collect()),
        }
    }
}

/// Events of jobs. Of a job that is listed nothing is kept: it has what was submitted.
async fn job_events(client: &Client) -> Result<Vec<u8>, String> {
    let mut newest = Newest::default();
    let mut watch = client.watch_jobs(JobFilter::default(), Start::Oldest);
    let reading = async {
        loop {
            match JobUpdateView::from(watch.next().await?) {
                event @ JobUpdateView::Event(_) => newest.keep(&event),
                JobUpdateView::Synced { .. } => return Ok(()),
                JobUpdateView::Listed { .. } | JobUpdateView::Relisting { .. } | JobUpdateView::Progress { .. } => {}
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, reading).await;
    newest.finish(ended)
}

/// Events of nodes, cards, queues and settings.
async fn pool_events(client: &Client) -> Result<Vec<u8>, String> {
    let mut newest = Newest::default();
    let mut watch = client.watch_pool(Start::Oldest);
    let reading = async {
        loop {
            match PoolUpdateView::from(watch.next().await?) {
                event @ PoolUpdateView::Event(_) => newest.keep(&event),
                PoolUpdateView::Synced { .. } => return Ok(()),
                _ => {}
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, reading).await;
    newest.finish(ended)
}

/// The pages of metrics.
async fn pages(survey: &Survey, wanted: &Wanted) -> Parts {
    let mut parts = Parts::default();
    let read = join_all(wanted.pages.iter().map(|address| http::page(address, "/metrics"))).await;
    for (address, page) in wanted.pages.iter().zip(read) {
        parts.put(&format!("metrics/{}.txt", address.replace(':', "_")), page);
    }
    let members = survey.answers.len();
    if wanted.pages.len() < members {
        let why = "members do not tell each other where their pages are: name them with --http HOST:PORT";
        parts.miss(&format!("metrics of {} of {members} members", members - wanted.pages.len()), why);
    }
    parts
}

/// What the service manager kept of the logs of this host.
async fn journal() -> Result<Vec<u8>, String> {
    let mut command = tokio::process::Command::new("journalctl");
    command.args(JOURNAL).stdin(std::process::Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(output.stdout),
        Ok(Ok(output)) => Err(format!("journalctl: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Ok(Err(error)) => Err(format!("journalctl: {error}; name files of logs with --log")),
        Err(_elapsed) => Err(format!("journalctl took more than {} s", PATIENCE.as_secs())),
    }
}

/// The end of a file.
fn newest(path: &Path) -> Result<Vec<u8>, String> {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG)))?;
        let mut content = Vec::new();
        file.take(LOG).read_to_end(&mut content)?;
        Ok(content)
    };
    read().map_err(|error: std::io::Error| format!("{}: {error}", path.display()))
}
