//! The jobs of a stream that are unanswered, and the messages that carry them.

use std::collections::VecDeque;

use bytes::Bytes;
use prost::Message;
use tessera_api::v1::SubmitJobRequest;

/// Most jobs of one message: beyond some hundreds, a message costs nothing any more, and makes its answers late.
pub(super) const JOBS: usize = 256;
/// Bytes of one message, unless one job alone has more.
const BYTES: usize = 256 << 10;

/// `SubmitJobsRequest` with its jobs already encoded: a job is encoded once, however often it is sent.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Parcel {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    jobs: Vec<Bytes>,
}

/// A job that was not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) request_id: String,
    /// Its `SubmitJobRequest`.
    pub(super) encoded: Bytes,
}

impl Pending {
    pub(super) fn of(job: SubmitJobRequest) -> Self {
        Self { encoded: job.encode_to_vec().into(), request_id: job.request_id }
    }
}

/// The unanswered jobs in the order in which they were sent on the current stream.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Place on the stream of the first one kept.
    first: u64,
    /// `None`: answered.
    jobs: VecDeque<Option<Pending>>,
    unanswered: usize,
}

impl Window {
    pub(super) fn len(&self) -> usize {
        self.unanswered
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unanswered == 0
    }

    pub(super) fn push(&mut self, job: Pending) {
        self.unanswered += 1;
        self.jobs.push_back(Some(job));
    }

    /// The request id of the job at a place of the stream, which is answered now; `None` when none is waited for there.
    pub(super) fn answered(&mut self, index: u64) -> Option<String> {
        let place = usize::try_from(index.checked_sub(self.first)?).ok()?;
        let job = self.jobs.get_mut(place)?.take()?;
        self.unanswered -= 1;
        while let Some(None) = self.jobs.front() {
            self.jobs.pop_front();
            self.first += 1;
        }
        Some(job.request_id)
    }

    /// Has another stream begin with what is unanswered; answers the first request id of that.
    pub(super) fn rewind(&mut self) -> Option<&str> {
        self.jobs.retain(Option::is_some);
        self.first = 0;
        self.jobs.front()?.as_ref().map(|job| job.request_id.as_str())
    }

    /// The encoded jobs that are unanswered, in order.
    pub(super) fn unanswered(&self) -> Vec<Bytes> {
        self.jobs.iter().flatten().map(|job| job.encoded.clone()).collect()
    }
}

/// Jobs in messages that are not too large.
pub(super) fn parcels(jobs: Vec<Bytes>) -> Vec<Parcel> {
    let mut parcels: Vec<Parcel> = Vec::new();
    let mut bytes = 0;
    for job in jobs {
        bytes += job.len();
        match parcels.last_mut() {
            Some(parcel) if parcel.jobs.len() < JOBS && bytes <= BYTES => parcel.jobs.push(job),
            _ => {
                bytes = job.len();
                parcels.push(Parcel { jobs: vec![job] });
            }
        }
    }
    parcels
}

#[cfg(test)]
mod tests {
    use tessera_api::v1::{JobSpec, SubmitJobsRequest};

    use super::*;

    fn job(name: &str) -> SubmitJobRequest {
        let spec = JobSpec { name: name.to_owned(), ..JobSpec::default() };
        SubmitJobRequest { request_id: format!("id-{name}"), spec: Some(spec) }
    }

    #[test]
    fn a_parcel_is_the_message_of_the_api() {
        let jobs = vec![job("a"), job("b")];
        let parcel = parcels(jobs.iter().cloned().map(|job| Pending::of(job).encoded).collect());
        let [parcel] = &parcel[..] else { panic!("two small jobs share a message: {parcel:?}") };
        let read = SubmitJobsRequest::decode(parcel.encode_to_vec().as_slice()).expect("it is that message");
        assert_eq!(read.jobs, jobs);
    }

    #[test]
    fn messages_are_bounded_in_number_and_bytes() {
        let cut = |lengths: &[usize]| -> Vec<usize> {
            let jobs = lengths.iter().map(|length| Bytes::from(vec![0; *length])).collect();
            parcels(jobs).iter().map(|parcel| parcel.jobs.len()).collect()
        };
        assert_eq!(cut(&[1; JOBS + 1]), [JOBS, 1]);
        assert_eq!(cut(&[BYTES / 2, BYTES / 2, 1]), [2, 1]);
        assert_eq!(cut(&[1, 3 * BYTES, 1]), [1, 1, 1], "a large one travels alone");
        assert!(cut(&[]).is_empty());
    }

    #[test]
    fn answers_come_in_any_order_and_what_is_left_begins_the_next_stream() {
        let mut window = Window::default();
        for name in ["a", "b", "c", "d"] {
            window.push(Pending::of(job(name)));
        }
        assert_eq!(window.answered(2).as_deref(), Some("id-c"));
        assert_eq!(window.answered(2), None, "answered already");
        assert_eq!(window.answered(4), None, "never sent");
        assert_eq!(window.answered(0).as_deref(), Some("id-a"));
        assert_eq!(window.answered(0), None, "answered long ago");
        assert_eq!(window.len(), 2);
        assert_eq!(window.rewind(), Some("id-b"));
        assert_eq!(window.unanswered(), ["b", "d"].map(|name| Pending::of(job(name)).encoded));
        assert_eq!(window.answered(1).as_deref(), Some("id-d"), "places are those of the new stream");
        assert_eq!(window.answered(0).as_deref(), Some("id-b"));
        assert!(window.is_empty() && window.rewind().is_none());
    }
}
