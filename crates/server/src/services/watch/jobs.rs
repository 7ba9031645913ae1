//! Watching jobs.

use prost::Message as _;
use tessera_api::event_view::{job_event, job_of};
use tessera_api::job_filter::JobFilter;
use tessera_api::resume::{ResumeTokens, WatchPlace};
use tessera_api::v1::watch_jobs_response::Message;
use tessera_api::v1::{self, watch_jobs_request};
use tessera_api::{Refusal, job_view};
use tessera_ledger::{EntryEvents, Event, JobId, Revision, State};

use super::follower::{Topic, Word};
use super::start::Start;

/// Jobs listed in one step.
const LISTED: usize = 64;

/// Bytes of the jobs listed in one step, one job more.
const BYTES: usize = 256 << 10;

/// Jobs looked at in one step of the list.
const LOOKED_AT: usize = 4096;

/// The jobs that a filter takes.
#[derive(Debug)]
pub(crate) struct JobTopic {
    filter: JobFilter,
    tokens: ResumeTokens,
    progress_only: bool,
}

impl JobTopic {
    /// Reads what a request wants to watch, and from where.
    pub(crate) fn of(request: &v1::WatchJobsRequest) -> Result<(Self, Start), Refusal> {
        let topic = Self {
            filter: JobFilter::of_watch(request.filter.as_ref())?,
            tokens: ResumeTokens::of_jobs(request.filter.as_ref()),
            progress_only: request.progress_only,
        };
        let start = match &request.start {
            None | Some(watch_jobs_request::Start::Oldest(false)) => Start::List,
            Some(watch_jobs_request::Start::Oldest(true)) => Start::Oldest,
            Some(watch_jobs_request::Start::AfterRevision(revision)) => Start::After(Revision(*revision)),
            Some(watch_jobs_request::Start::ResumeToken(token)) => Start::Resume(topic.tokens.read(token)?),
        };
        Ok((topic, start))
    }

    fn takes(&self, state: &State, job: JobId) -> bool {
        match state.job(job) {
            Some(job) => self.filter.takes(state, job),
            None => self.filter.takes_removed(job),
        }
    }
}

impl Topic for JobTopic {
    type Message = v1::WatchJobsResponse;
    type Change = v1::JobEvent;
    /// The last job that was looked at.
    type Listing = JobId;

    const NAME: &'static str = "jobs";

    fn progress_only(&self) -> bool {
        self.progress_only
    }

    fn list(&self, state: &State, last: &mut JobId) -> Option<Vec<v1::WatchJobsResponse>> {
        let (mut listed, mut bytes) = (Vec::new(), 0);
        let before = *last;
        for job in state.jobs_from(JobId(last.0.saturating_add(1))).take(LOOKED_AT) {
            if listed.len() == LISTED || bytes >= BYTES {
                break;
            }
            *last = job.id;
            if self.filter.takes(state, job) {
                let view = job_view::job(state, job);
                bytes += view.encoded_len();
                let message = Some(Message::Listed(view));
                listed.push(v1::WatchJobsResponse { message, resume_token: String::new() });
            }
        }
        (*last != before).then_some(listed)
    }

    fn change(&self, state: &State, entry: &EntryEvents, ordinal: u32, event: &Event) -> Option<v1::JobEvent> {
        if !self.takes(state, job_of(event)?) {
            return None;
        }
        job_event(state, entry, ordinal)
    }

    fn message(&self, word: Word<v1::JobEvent>, resume_token: String) -> v1::WatchJobsResponse {
        let message = match word {
            Word::Synced(revision) => Message::Synced(v1::WatchSynced { revision: revision.0 }),
            Word::Changed(event) => Message::Event(event),
            Word::Progress(revision) => Message::Progress(v1::WatchProgress { revision: revision.0 }),
        };
        v1::WatchJobsResponse { message: Some(message), resume_token }
    }

    fn token(&self, place: WatchPlace) -> String {
        self.tokens.make(place)
    }
}
