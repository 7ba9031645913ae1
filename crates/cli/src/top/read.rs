//! Reads what is looked at, page by page, until nobody looks any more.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use tessera_api::v1::{
    Card, GetCardRequest, GetJobRequest, GetNodeRequest, GetPoolRequest, GetQueueRequest, JobFilter, JobState,
    ListCardsRequest, ListJobsRequest, ListNodesRequest, ListQueuesRequest, WhyRequest,
};
use tessera_client::{Client, ClientError};
use tokio::sync::{mpsc, watch};

use super::entry::{Entry, Subject};
use super::overview::Overview;
use super::state::{Update, Wants};
use crate::args::TopTab;
use crate::command::{PAGE, node_named, silence};
use crate::print::page_of;
use crate::survey::Survey;
use crate::view::{
    CardDetailView, CardView, Clock, JobView, NodeDetailView, NodeView, PoolView, QueueView, UseView, WhyView,
    busy_share,
};
use crate::{uses, waits};

/// Pages of a list that are read in one pass.
pub const PAGES: usize = 8;
/// Least time for the answers of one pass; a leader that is gone is noticed within it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the members.
#[derive(Clone, Debug)]
pub struct Reader {
    client: Client,
    consistency: i32,
    interval: Duration,
}

/// A page of a list: its rows, and the token of the next one.
type Page = (Vec<Entry>, String);

impl Reader {
    /// A reader that begins a pass every `interval`.
    #[must_use]
    pub fn new(client: &Client, consistency: i32, interval: Duration) -> Self {
        Self { client: client.with_deadline(PATIENCE.max(interval)), consistency, interval }
    }

    /// Reads until nobody listens.
    pub async fn run(self, mut wants: watch::Receiver<Wants>, out: mpsc::Sender<Update>) {
        let mut round: Option<(TopTab, bool, String)> = None;
        loop {
            let wanted = wants.borrow_and_update().clone();
            if !wanted.paused {
                let pass = self.pass(&wanted, &mut round, &out);
                // Another list or another page is wanted: this pass is not worth its end.
                tokio::select! {
                    passed = pass => if let Err(error) = passed {
                        round = None;
                        // It is noticed below when nobody listens.
                        let _ = out.send(Update::Trouble(silence(&error))).await;
                    },
                    changed = wants.changed() => if changed.is_err() { return } else { continue },
                }
            }
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                changed = wants.changed() => if changed.is_err() { return },
            }
            if out.is_closed() {
                return;
            }
        }
    }

    async fn pass(
        &self,
        wanted: &Wants,
        round: &mut Option<(TopTab, bool, String)>,
        out: &mpsc::Sender<Update>,
    ) -> Result<(), ClientError> {
        let send = async |update| {
            // Nobody listens when the view is being left.
            let _ = out.send(update).await;
        };
        if let Some(subject) = &wanted.detail {
            let text = self.detail(subject).await?;
            send(Update::Detail { subject: subject.clone(), text }).await;
        }
        let at = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
        send(Update::Overview { overview: Box::new(self.overview().await?), at }).await;
        for _ in 0..PAGES {
            // A round that was begun for another list is given up.
            let begun = round.take().filter(|(tab, all, _)| (*tab, *all) == (wanted.tab, wanted.all));
            let token = begun.map(|(_, _, token)| token).unwrap_or_default();
            let first = token.is_empty();
            let (entries, next) = self.page(wanted.tab, wanted.all, token).await?;
            let last = next.is_empty();
            send(Update::Page { tab: wanted.tab, entries, first, last }).await;
            if last {
                break;
            }
            *round = Some((wanted.tab, wanted.all, next));
        }
        if !wanted.jobs.is_empty() {
            send(Update::Used(self.uses(&wanted.jobs).await)).await;
        }
        Ok(())
    }

    /// The pool at a glance.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn overview(&self) -> Result<Overview, ClientError> {
        let request = GetPoolRequest { consistency: self.consistency };
        let (pool, survey) = tokio::join!(self.client.get_pool(request), Survey::take(&self.client));
        Ok(Overview::of(PoolView::from(pool?), survey.view()))
    }

    async fn page(&self, tab: TopTab, all: bool, page_token: String) -> Result<Page, ClientError> {
        let clock = Clock::now();
        Ok(match tab {
            TopTab::Jobs => {
                let (jobs, token) = self.jobs(all, page_token).await?;
                (jobs.iter().map(|job| Entry::job(job, &clock)).collect(), token)
            }
            TopTab::Nodes => {
                let (nodes, token) = self.nodes(page_token).await?;
                (nodes.iter().map(Entry::node).collect(), token)
            }
            TopTab::Cards => {
                let (cards, token) = self.cards(page_token).await?;
                (cards.iter().map(Entry::card).collect(), token)
            }
            TopTab::Queues => {
                let (queues, token) = self.queues(page_token).await?;
                (queues.iter().map(Entry::queue).collect(), token)
            }
        })
    }

    /// A page of jobs with what they wait for.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn jobs(&self, all: bool, page_token: String) -> Result<(Vec<JobView>, String), ClientError> {
        let filter = JobFilter { states: if all { Vec::new() } else { live_states() }, ..JobFilter::default() };
        let consistency = self.consistency;
        let request = ListJobsRequest { filter: Some(filter), page_size: PAGE, page_token, consistency };
        let answer = self.client.list_jobs(request).await?;
        let mut jobs: Vec<JobView> = answer.jobs.into_iter().map(JobView::from).collect();
        waits::add(&self.client, consistency, &mut jobs).await;
        Ok((jobs, answer.next_page_token))
    }

    /// A page of nodes.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn nodes(&self, page_token: String) -> Result<(Vec<NodeView>, String), ClientError> {
        let consistency = self.consistency;
        let request = ListNodesRequest { page_size: PAGE, page_token, consistency, ..ListNodesRequest::default() };
        let answer = self.client.list_nodes(request).await?;
        Ok((answer.nodes.into_iter().map(NodeView::from).collect(), answer.next_page_token))
    }

    /// A page of cards.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn cards(&self, page_token: String) -> Result<(Vec<CardView>, String), ClientError> {
        let consistency = self.consistency;
        let request = ListCardsRequest { page_size: PAGE, page_token, consistency, ..ListCardsRequest::default() };
        let answer = self.client.list_cards(request).await?;
        Ok((answer.cards.into_iter().map(CardView::from).collect(), answer.next_page_token))
    }

    /// A page of queues.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn queues(&self, page_token: String) -> Result<(Vec<QueueView>, String), ClientError> {
        let consistency = self.consistency;
        let answer = self.client.list_queues(ListQueuesRequest { page_size: PAGE, page_token, consistency }).await?;
        Ok((answer.queues.into_iter().map(QueueView::from).collect(), answer.next_page_token))
    }

    /// The share of time that each card of these nodes computed. A node that cannot be read has no entries.
    pub async fn readings(&self, nodes: &[String]) -> BTreeMap<(String, u32), f64> {
        let ask = |node: &String| {
            self.client.get_node(GetNodeRequest { node: Some(node_named(node)), consistency: self.consistency })
        };
        let answers = join_all(nodes.iter().map(ask)).await;
        let busy = |card: Card| {
            let of = (card.node_name, card.description.unwrap_or_default().index);
            Some((of, busy_share(&card.sample?)?))
        };
        answers.into_iter().flatten().flat_map(|answer| answer.cards).filter_map(busy).collect()
    }

    /// The use that jobs make of their allocations; empty where nobody leads.
    pub async fn uses(&self, jobs: &[u64]) -> BTreeMap<u64, UseView> {
        uses::of(&self.client, jobs, false).await.unwrap_or_default()
    }

    /// The page about a row, as the command that shows it by itself prints it.
    async fn detail(&self, subject: &Subject) -> Result<String, ClientError> {
        let (clock, consistency) = (Clock::now(), self.consistency);
        let answered = match subject {
            Subject::Job(job_id) => self.job_page(*job_id, &clock).await,
            Subject::Node(name) => {
                let request = GetNodeRequest { node: Some(node_named(name)), consistency };
                self.client.get_node(request).await.map(|answer| page_of(&NodeDetailView::from(answer), &clock))
            }
            Subject::Card(node, index) => {
                let request = GetCardRequest { node: Some(node_named(node)), index: *index, consistency };
                self.client.get_card(request).await.map(|answer| page_of(&CardDetailView::from(answer), &clock))
            }
            Subject::Queue(name) => {
                let request = GetQueueRequest { name: name.clone(), consistency };
                let answer = self.client.get_queue(request).await;
                answer.map(|answer| page_of(&QueueView::from(answer.queue.unwrap_or_default()), &clock))
            }
        };
        match answered {
            // It has gone meanwhile, which is something to show.
            Err(ClientError::Refused(error)) => Ok(error.message.clone()),
            answered => answered,
        }
    }

    async fn job_page(&self, job_id: u64, clock: &Clock) -> Result<String, ClientError> {
        let consistency = self.consistency;
        let answer = self.client.get_job(GetJobRequest { job_id, consistency }).await?;
        let mut job = JobView::from(answer.job.unwrap_or_default());
        job.used = uses::of(&self.client, &[job_id], true).await.unwrap_or_default().remove(&job_id);
        let page = page_of(&job, clock);
        if !job.is_waiting() {
            return Ok(page);
        }
        let why = self.client.why(WhyRequest { job_id, consistency, ..WhyRequest::default() }).await?;
        Ok(format!("{}\n{page}", page_of(&WhyView::of(job_id, why), clock)))
    }
}

/// States of jobs that are not over.
fn live_states() -> Vec<i32> {
    use JobState as S;
    [S::Pending, S::Starting, S::Running, S::Suspending, S::Suspended, S::Moving, S::Completing].map(i32::from).to_vec()
}
