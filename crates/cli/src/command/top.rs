//! `tessera top` and `tessera job top`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::Serialize;
use tessera_client::ClientError;
use tokio::time::timeout;

use super::Desk;
use crate::args::{TopArgs, TopTab};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::{Detail, Page, Tabular};
use crate::signals::Signals;
use crate::top::draw::Palette;
use crate::top::read::Reader;
use crate::top::{Overview, State, terminal};
use crate::view::{CardView, Clock, JobUseView, JobView, NodeView, QueueView};

/// The longest time between the first failure of a terminal that goes away and its SIGHUP.
const HANGS_UP: Duration = Duration::from_millis(200);

/// Nodes that are asked at once how busy their cards are.
const AT_ONCE: usize = 16;

pub(super) async fn run(desk: Desk, args: TopArgs) -> Result<Exit, Failure> {
    let live = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.once || !live || !desk.printer.for_people() {
        return once(desk, args).await;
    }
    let reader = Reader::new(&desk.client, desk.consistency, args.interval);
    let palette = Palette { color: desk.printer.color() };
    // Ctrl-C is a key here, as `q` is.
    let mut signals = Signals::by(&[Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM])?;
    match terminal::show(State::new(&args), reader, palette, &mut signals).await {
        Ok(told) => Ok(told.map_or(Exit::Done, Exit::Signalled)),
        // A terminal that goes away fails, and says so by SIGHUP, in either order.
        Err(error) => match timeout(HANGS_UP, signals.next()).await {
            Ok(signal) => Ok(Exit::Signalled(signal)),
            Err(_elapsed) => Err(Failure::from_error(Exit::Failed, "the terminal cannot be used", &error)
                .next("`tessera top --once` prints the same without one")),
        },
    }
}

/// The numbers and one list.
#[derive(Serialize)]
struct Snapshot {
    #[serde(flatten)]
    overview: Overview,
    #[serde(flatten)]
    list: List,
}

#[derive(Serialize)]
enum List {
    #[serde(rename = "job_list")]
    Jobs(Vec<JobUseView>),
    #[serde(rename = "node_list")]
    Nodes(Vec<NodeView>),
    #[serde(rename = "card_list")]
    Cards(Vec<CardView>),
    #[serde(rename = "queue_list")]
    Queues(Vec<QueueView>),
}

async fn once(mut desk: Desk, args: TopArgs) -> Result<Exit, Failure> {
    let reader = Reader::new(&desk.client, desk.consistency, desk.timeout);
    let snapshot = read(&reader, &args).await.map_err(|error| Failure::call("the pool cannot be shown", &error))?;
    desk.printer.one(&snapshot)?;
    Ok(if snapshot.overview.cluster.writable { Exit::Done } else { Exit::Unavailable })
}

async fn read(reader: &Reader, args: &TopArgs) -> Result<Snapshot, ClientError> {
    let overview = reader.overview().await?;
    let list = match args.tab {
        TopTab::Jobs => List::Jobs(kept(jobs_with_use(reader, args.all).await?, args)),
        TopTab::Nodes => List::Nodes(kept(all(async |token| reader.nodes(token).await).await?, args)),
        TopTab::Cards => List::Cards(kept(all(async |token| reader.cards(token).await).await?, args)),
        TopTab::Queues => List::Queues(kept(all(async |token| reader.queues(token).await).await?, args)),
    };
    Ok(Snapshot { overview, list })
}

/// Every page of a list.
async fn all<V>(page: impl AsyncFn(String) -> Result<(Vec<V>, String), ClientError>) -> Result<Vec<V>, ClientError> {
    let (mut views, mut token) = (Vec::new(), String::new());
    loop {
        let (some, next) = page(token).await?;
        views.extend(some);
        if next.is_empty() {
            return Ok(views);
        }
        token = next;
    }
}

/// The views that contain the text of the filter in some cell, in any case; all of them when it is empty.
fn kept<V: Tabular>(views: Vec<V>, args: &TopArgs) -> Vec<V> {
    let (text, clock) = (args.filter.to_lowercase(), Clock::now());
    let has = |view: &V| view.cells(&clock).iter().any(|cell| cell.to_lowercase().contains(&text));
    views.into_iter().filter(|view| text.is_empty() || has(view)).collect()
}

/// Jobs with what they hold and use, those that hold most first.
async fn jobs_with_use(reader: &Reader, ended: bool) -> Result<Vec<JobUseView>, ClientError> {
    let jobs = all(async |token| reader.jobs(ended, token).await).await?;
    let ids: Vec<u64> = jobs.iter().filter(|job| job.allocation.is_some()).map(|job| job.id).collect();
    let mut uses = reader.uses(&ids).await;
    let used = |mut job: JobView| {
        job.used = uses.remove(&job.id);
        JobUseView::from(&job)
    };
    let mut jobs: Vec<JobUseView> = jobs.into_iter().map(used).collect();
    let mut nodes: Vec<String> = jobs.iter().flat_map(|job| job.cards.iter().map(|card| card.node.clone())).collect();
    nodes.sort();
    nodes.dedup();
    let mut busy = BTreeMap::new();
    for some in nodes.chunks(AT_ONCE) {
        busy.extend(reader.readings(some).await);
    }
    jobs.iter_mut().for_each(|job| job.tell_busy(&busy));
    jobs.sort_by_key(|job| std::cmp::Reverse(job.blocks));
    Ok(jobs)
}

/// `tessera job top`.
pub(super) async fn jobs(mut desk: Desk, ended: bool) -> Result<Exit, Failure> {
    let reader = Reader::new(&desk.client, desk.consistency, desk.timeout);
    let jobs = jobs_with_use(&reader, ended).await;
    desk.printer.list(&jobs.map_err(|error| Failure::call("the jobs cannot be listed", &error))?)?;
    Ok(Exit::Done)
}

impl Detail for Snapshot {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        let Overview { pool, cluster, warnings } = &self.overview;
        pool.detail(clock, out);
        out.line("leader", format!("{}, term {}", self.overview.leader(), cluster.term));
        for warning in warnings {
            out.line("warning", warning);
        }
        match &self.list {
            List::Jobs(jobs) => out.tabular("jobs", jobs, clock),
            List::Nodes(nodes) => out.tabular("nodes", nodes, clock),
            List::Cards(cards) => out.tabular("cards", cards, clock),
            List::Queues(queues) => out.tabular("queues", queues, clock),
        }
    }

    fn name(&self) -> String {
        let names = |of: Vec<String>| of.join("\n");
        match &self.list {
            List::Jobs(jobs) => names(jobs.iter().map(Tabular::name).collect()),
            List::Nodes(nodes) => names(nodes.iter().map(Tabular::name).collect()),
            List::Cards(cards) => names(cards.iter().map(Tabular::name).collect()),
            List::Queues(queues) => names(queues.iter().map(Tabular::name).collect()),
        }
    }
}
