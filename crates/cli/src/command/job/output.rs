//! The output of a job as it comes: that of rank 0, attempt after attempt, each byte once.

use std::io::{self, Write};
use std::time::Duration;

use tessera_api::v1::{Attempt, ErrorReason, GetJobRequest, LogStream, StreamLogsRequest};
use tessera_client::{Client, ClientError};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use super::follow::Standing;
use crate::args::JobNumber;
use crate::failure::Failure;
use crate::print::{remark_beside, unwritten};

/// The time for which output may still come after the job is over.
const LAST_OUTPUT: Duration = Duration::from_secs(10);

/// Prints what a job prints. Dropping it ends that.
pub(super) struct Output {
    /// True once the job is over; sent anew with every change of it, for attempts may have begun.
    over: watch::Sender<bool>,
    readers: JoinSet<Result<(), Failure>>,
}

impl Output {
    pub(super) fn new(client: &Client, job: JobNumber) -> Self {
        let (over, news) = watch::channel(false);
        let readers =
            [LogStream::Stdout, LogStream::Stderr].map(|stream| copy(client.clone(), job, stream, news.clone()));
        Self { over, readers: readers.into_iter().collect() }
    }

    pub(super) fn on(&self, standing: &Standing) {
        self.over.send_replace(standing.is_over());
    }

    /// Waits for what was written before the end.
    pub(super) async fn drain(&mut self) -> Result<(), Failure> {
        let Some(ended) = self.rest().await else {
            let missing = "[some output may be missing: the node does not answer; `tessera job logs` reads it later]";
            let _ = remark_beside(missing.to_owned()).await;
            return Ok(());
        };
        ended
    }

    /// The same in silence; `None`: some may be missing.
    pub(super) async fn rest(&mut self) -> Option<Result<(), Failure>> {
        let all = async {
            while let Some(ended) = self.readers.join_next().await {
                // A reader is never aborted here and does not panic.
                ended.unwrap_or(Ok(()))?;
            }
            Ok(())
        };
        tokio::time::timeout(LAST_OUTPUT, all).await.ok()
    }
}

/// Copies one stream of all attempts, one after the other; `news`: whether the job is over.
async fn copy(
    client: Client,
    job: JobNumber,
    stream: LogStream,
    mut news: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut read = 0;
    while news.changed().await.is_ok() {
        let over = *news.borrow_and_update();
        for attempt in begun(&history(&client, job).await, read) {
            copy_attempt(&client, job, attempt, stream).await?;
            read = attempt;
        }
        if over {
            break;
        }
    }
    Ok(())
}

/// The attempts after one that have run, or have ended before that was seen.
fn begun(history: &[Attempt], after: u32) -> Vec<u32> {
    let begun = history.iter().filter(|attempt| attempt.started_at.is_some() || attempt.ended_at.is_some());
    begun.map(|attempt| attempt.number).filter(|number| *number > after).collect()
}

async fn history(client: &Client, job: JobNumber) -> Vec<Attempt> {
    loop {
        match client.get_job(GetJobRequest { job_id: job.0, ..GetJobRequest::default() }).await {
            Ok(answer) => return answer.job.unwrap_or_default().history,
            // Whoever follows the job says so.
            Err(ClientError::Unavailable(_)) => {}
            Err(error) => {
                remark_beside(format!("[the output cannot be read: {error}]"));
                return Vec::new();
            }
        }
    }
}

async fn copy_attempt(client: &Client, job: JobNumber, attempt: u32, stream: LogStream) -> Result<(), Failure> {
    let (rank, offset) = (0, 0);
    let request = StreamLogsRequest { job_id: job.0, attempt, rank, stream: stream.into(), offset, follow: true };
    let mut reader = client.stream_logs(request);
    loop {
        let chunk = match reader.next().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(()),
            // It never came to have output.
            Err(error) if error.reason() == Some(ErrorReason::WorkerUnknown) => return Ok(()),
            Err(ClientError::Unavailable(_)) => continue,
            Err(error) => {
                remark_beside(format!("[the output ended: {error}]"));
                return Ok(());
            }
        };
        // Whoever reads it may let it wait, and signals are heard meanwhile.
        let written = spawn_blocking(move || write(stream, &chunk.data)).await;
        written.unwrap_or_else(|error| Err(error.into())).map_err(|error| unwritten(&error))?;
    }
}

fn write(stream: LogStream, data: &[u8]) -> io::Result<()> {
    match stream {
        LogStream::Stderr => io::stderr().write_all(data),
        _ => io::stdout().write_all(data).and_then(|()| io::stdout().flush()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_is_read_once_and_none_before_it_runs() {
        let now = Some(prost_types::Timestamp::default());
        let attempt = |number, started_at, ended_at| Attempt { number, started_at, ended_at, ..Attempt::default() };
        let history = [attempt(1, now, now), attempt(2, None, now), attempt(3, now, None), attempt(4, None, None)];
        assert_eq!(begun(&history, 0), [1, 2, 3]);
        assert_eq!(begun(&history, 1), [2, 3], "also one whose run nobody saw");
        assert_eq!(begun(&history, 3), [0; 0]);
    }
}
