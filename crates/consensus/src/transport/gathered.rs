//! Appends on their way to a follower, in which a bare word of what is committed goes along with the entries after it.

use std::time::Duration;

use futures::stream::Fuse;
use futures::{Stream, StreamExt};
use openraft::raft::AppendEntriesRequest;
use tokio::time::{Instant, timeout_at};

use crate::types::TypeConfig;

/// The longest time for which the notice that entries are committed waits for more entries to go along with. Under load
/// there nearly always are some, and each message of its own costs both members about as much as an entry. A follower
/// may apply an entry that no other follows this much later.
const COMMIT_WAITS: Duration = Duration::from_millis(2);

type Append = AppendEntriesRequest<TypeConfig>;

/// The requests that are sent. One that carries no entries is left out when another one comes soon: that one says what
/// is committed too, and an answer to it is an answer to both.
pub(super) struct Gathered<S: Stream<Item = Append>> {
    input: Fuse<S>,
    /// The first request finds out where the logs meet: it never waits.
    begun: bool,
    /// A word that waits, and until when.
    word: Option<(Append, Instant)>,
}

impl<S: Stream<Item = Append> + Unpin> Gathered<S> {
    pub(super) fn new(input: S) -> Self {
        Gathered { input: input.fuse(), begun: false, word: None }
    }

    /// The next request to send. Dropping the future loses none.
    pub(super) async fn next(&mut self) -> Option<Append> {
        loop {
            let next = match &self.word {
                None => self.input.next().await,
                Some((_, until)) => match timeout_at(*until, self.input.next()).await {
                    Ok(Some(next)) => Some(next),
                    Ok(None) | Err(_) => return self.word.take().map(|(word, _)| word),
                },
            }?;
            let waits_until = self.word.take().map(|(_, until)| until);
            let first = !std::mem::replace(&mut self.begun, true);
            if first || !next.entries.is_empty() {
                return Some(next);
            }
            self.word = Some((next, waits_until.unwrap_or_else(|| Instant::now() + COMMIT_WAITS)));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;
    use openraft::entry::RaftPayload;

    use super::*;
    use crate::machine::{LogIndex, Term};
    use crate::types::{Entry, Payload, log_id};

    fn append(last: u64, entries: usize) -> Append {
        let id = |index| log_id(Term(1), LogIndex(index));
        let first = last + 1 - entries as u64;
        let entries = (first..=last).map(|index| Entry { id: id(index), payload: Payload::blank() }).collect();
        AppendEntriesRequest {
            vote: openraft::Vote::new_committed(1, 1),
            prev_log_id: Some(id(first - 1)),
            leader_commit: Some(id(last - 1)),
            entries,
        }
    }

    fn committed(request: Option<Append>) -> Option<(u64, usize)> {
        request.map(|request| (request.leader_commit.map_or(0, |id| id.index), request.entries.len()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_word_of_what_is_committed_goes_with_the_next_entries() {
        let (send, requests) = mpsc::unbounded();
        let mut gathered = Gathered::new(requests);
        for (last, entries) in [(9, 0), (10, 1), (10, 0), (10, 0), (12, 2)] {
            send.unbounded_send(append(last, entries)).expect("it is read");
        }
        assert_eq!(committed(gathered.next().await), Some((8, 0)), "the first one never waits");
        assert_eq!(committed(gathered.next().await), Some((9, 1)));
        assert_eq!(committed(gathered.next().await), Some((11, 2)), "two words went along");
    }

    #[tokio::test(start_paused = true)]
    async fn a_word_that_nothing_follows_goes_soon_and_none_is_lost_at_the_end() {
        let (send, requests) = mpsc::unbounded();
        let mut gathered = Gathered::new(requests);
        send.unbounded_send(append(10, 1)).expect("it is read");
        gathered.next().await;
        let began = Instant::now();
        send.unbounded_send(append(11, 0)).expect("it is read");
        assert_eq!(committed(gathered.next().await), Some((10, 0)));
        assert!(began.elapsed() >= COMMIT_WAITS && began.elapsed() < 2 * COMMIT_WAITS);
        send.unbounded_send(append(12, 0)).expect("it is read");
        drop(send);
        assert_eq!(committed(gathered.next().await), Some((11, 0)));
        assert_eq!(committed(gathered.next().await), None);
        assert_eq!(committed(gathered.next().await), None);
    }
}
