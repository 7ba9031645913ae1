//! Asks for the parts: the members, the host, the logs. All at once, each with a bound in time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use serde::Serialize;
use tessera_api::v1::{
    Consistency, DiagnoseRequest, DiagnoseResponse, GetPoolConfigRequest, GetPoolRequest, JobFilter, ListNodesRequest,
    ListQueuesRequest, NodeRef, VerifyPoolRequest,
};
use tessera_client::watch::Start;
use tessera_client::{Address, Client, ClientError};

use super::parts::Parts;
use super::redact::{WITHHELD, redact};
use super::{http, processes};
use crate::command::{PAGE, node_named, silence};
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
/// Agents that are asked, and how many at once.
const AGENTS: usize = 64;
const AT_ONCE: usize = 16;
/// Parts that are taken of one process.
const PARTS: usize = 64;
/// Bytes of a log that are kept, the newest.
const LOG: u64 = 4 << 20;
/// Lines of the journal.
const JOURNAL: [&str; 9] =
    ["--no-pager", "-o", "short-iso", "-n", "5000", "-u", "tessera-controller", "-u", "tessera-agent"];

/// The sources to read beside the members.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The addresses of pages of metrics, as `host:port`.
    pub pages: Vec<String>,
    pub logs: Vec<PathBuf>,
    /// Files of configuration: whose, and where.
    pub files: Vec<(&'static str, PathBuf)>,
    /// The time for which members and agents sample their own stacks; `None`: they do not.
    pub profile: Option<Duration>,
}

/// Collects everything that can be had.
pub async fn collect(client: &Client, report: Report, facts: Facts, wanted: &Wanted) -> Parts {
    let client = client.with_deadline(PATIENCE);
    let survey = Survey::take(&client).await;
    let profile = wanted.profile;
    let (of_members, of_agents, of_pool, of_pages, of_host, journal) = tokio::join!(
        join_all(survey.answers.iter().map(|(address, answer)| member(&client, address, answer.is_ok(), profile))),
        agents(&client, profile),
        pool(&client),
        pages(wanted),
        tokio::task::spawn_blocking(processes::look),
        journal(),
    );
    let mut parts = Parts::default();
    parts.put_json("cluster.json", Ok(survey.view()));
    if profile.is_none() {
        parts.miss("*/process/profile.folded", "profiles were not asked for; --profile 10s has them made");
    }
    doctor(&mut parts, report, facts);
    // What others tell may be long, and what comes last may find no room.
    parts.join(of_pool);
    of_members.into_iter().for_each(|member| parts.join(member));
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
    parts.join(of_pages);
    parts.join(of_agents);
    parts
}

/// Adds the report and the facts of the doctor. Errors in configuration files may quote the content of the files, so
/// they are left out.
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

/// The parts of one member: its own count of the ledger, and whether its laws hold.
async fn member(client: &Client, address: &Address, answers: bool, profile: Option<Duration>) -> Parts {
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
            let (pool, verdict, told) = tokio::join!(
                one.get_pool(GetPoolRequest { consistency }),
                one.verify_pool(VerifyPoolRequest { consistency }),
                diagnose(&one, None, profile),
            );
            parts.join(diagnosed(&folder, told));
            parts.put_json(&format!("{folder}/ledger.json"), pool.map(PoolView::from).map_err(|error| silence(&error)));
            let verdict = verdict.map(|answer| MemberVerdictView::answered(address.to_string(), answer));
            parts.put_json(&format!("{folder}/verify.json"), verdict.map_err(|error| silence(&error)));
        }
        Err(error) => parts.miss(&folder, silence(&error)),
    }
    parts
}

/// Has a process tell of itself: a member, or the agent of a node.
async fn diagnose(
    client: &Client,
    node: Option<NodeRef>,
    profile: Option<Duration>,
) -> Result<DiagnoseResponse, ClientError> {
    let client = client.with_deadline(PATIENCE + profile.unwrap_or_default());
    let profile = profile.and_then(|time| time.try_into().ok());
    client.diagnose(DiagnoseRequest { node, profile }).await
}

/// Puts the parts that a process reports of itself into its folder.
fn diagnosed(folder: &str, told: Result<DiagnoseResponse, ClientError>) -> Parts {
    let mut parts = Parts::default();
    match told {
        Ok(told) => {
            if told.parts.len() > PARTS {
                parts.miss(
                    &format!("{folder}, the rest"),
                    format!("it told {} parts; {PARTS} are kept", told.parts.len()),
                );
            }
            for part in told.parts.into_iter().take(PARTS) {
                if !is_plain(&part.name) {
                    parts.miss(&format!("a part of {folder}"), "its name is not one that an archive may hold");
                    continue;
                }
                let content = if part.missing.is_empty() { Ok(part.content.to_vec()) } else { Err(part.missing) };
                parts.put(&format!("{folder}/{}", part.name), content);
            }
        }
        Err(error) => parts.miss(&format!("{folder}/configuration, log, metrics and process"), silence(&error)),
    }
    parts
}

/// Tells whether the name of a part, which another process chose, stays within its folder wherever the archive is
/// unpacked.
fn is_plain(name: &str) -> bool {
    let plain = |word: &str| {
        !word.is_empty()
            && word.chars().all(|character| character.is_ascii_alphanumeric() || "._-".contains(character))
            && word.chars().any(|character| character != '.')
    };
    name.len() <= 128 && name.split('/').all(plain)
}

/// The parts of the agents, which the members pass on. Agents whose sessions are open come first.
async fn agents(client: &Client, profile: Option<Duration>) -> Parts {
    let mut parts = Parts::default();
    let mut nodes = match nodes(client, Consistency::Stale.into()).await {
        Ok((nodes, _)) => nodes,
        Err(error) => {
            parts.miss("agents", silence(&error));
            return parts;
        }
    };
    nodes.sort_by_key(|node| node.connected != Some(true));
    if nodes.len() > AGENTS {
        parts.miss("agents, the rest", format!("of {} nodes the first {AGENTS} were asked", nodes.len()));
    }
    let ask = async |name: String| {
        let told = diagnose(client, Some(node_named(&name)), profile).await;
        diagnosed(&format!("agents/{}", name.replace('/', "_")), told)
    };
    for some in nodes.chunks(AT_ONCE).map(<[NodeView]>::to_vec).take(AGENTS / AT_ONCE) {
        join_all(some.into_iter().map(|node| ask(node.name.clone())))
            .await
            .into_iter()
            .for_each(|told| parts.join(told));
    }
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
    jobs.put(&mut parts, "pool/job-events.jsonl");
    changes.put(&mut parts, "pool/pool-events.jsonl");
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
    for value in nodes.iter_mut().flat_map(|node| node.node.labels.values_mut()) {
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

    fn ended(self, ended: Result<Result<(), ClientError>, tokio::time::error::Elapsed>) -> Events {
        let cut = match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(silence(&error)),
            Err(_elapsed) => Some(format!("they did not all come within {} s", PATIENCE.as_secs())),
        };
        Events {
            lines: self.0.into_iter().flat_map(|line| line.into_bytes().into_iter().chain([b'\n'])).collect(),
            cut,
        }
    }
}

/// Events that were read, and why those after them were not.
struct Events {
    lines: Vec<u8>,
    cut: Option<String>,
}

impl Events {
    fn put(self, parts: &mut Parts, name: &str) {
        if let Some(why) = self.cut {
            parts.miss(&format!("{name}, the newest"), why);
        }
        parts.put(name, Ok(self.lines));
    }
}

/// Events of jobs. Of a job that is listed nothing is kept: it has what was submitted.
async fn job_events(client: &Client) -> Events {
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
    newest.ended(ended)
}

/// Events of nodes, cards, queues and settings.
async fn pool_events(client: &Client) -> Events {
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
    newest.ended(ended)
}

/// Further pages of metrics, by their addresses.
async fn pages(wanted: &Wanted) -> Parts {
    let mut parts = Parts::default();
    let read = join_all(wanted.pages.iter().map(|address| http::page(address, "/metrics"))).await;
    for (address, page) in wanted.pages.iter().zip(read) {
        parts.put(&format!("metrics/{}.txt", address.replace(':', "_")), page);
    }
    parts
}

/// The newest log lines of this host that the service manager has.
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

#[cfg(test)]
mod tests {
    use tessera_api::v1::DiagnosticPart;

    use super::*;

    #[test]
    fn no_process_chooses_a_place_outside_its_folder_or_takes_all_of_the_bundle() {
        let part = |name: &str| DiagnosticPart {
            name: name.to_owned(),
            content: b"text".to_vec().into(),
            ..DiagnosticPart::default()
        };
        let hostile = ["../../etc/x", "/etc/x", "a/../b", "a//b", "", ".", "a\nb", &"a".repeat(129)].map(part);
        let good = (0..100).map(|number| part(&format!("process/{number}.txt")));
        let told = DiagnoseResponse { parts: hostile.into_iter().chain(good).collect() };
        let parts = diagnosed("agents/n0", Ok(told));
        assert_eq!(parts.files.len(), PARTS - 8);
        assert!(parts.files.iter().all(|(name, _)| name.starts_with("agents/n0/process/")));
        assert_eq!(parts.missing.len(), 9, "{:?}", parts.missing);
    }
}
