//! A leader's heartbeats to one other member: one line for all of them, or a stream where it knows no lines.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status, Streaming};

use super::frames::Broken;
use super::line::{Line, broken, unexpected};
use super::links::{CallError, Client, InUse, Lane, Links, failed};
use crate::ids::Member;
use crate::pb;

/// The other side's half of a stream, which need not be open yet for requests to go.
pub(super) enum Answers<A> {
    Opening(BoxFuture<'static, Result<Streaming<A>, Status>>),
    Open(Box<Streaming<A>>),
}

impl<A> Answers<A> {
    pub(super) async fn next(&mut self) -> Result<Option<A>, Status> {
        loop {
            match self {
                Answers::Opening(opening) => *self = Answers::Open(Box::new(opening.await?)),
                Answers::Open(answers) => return answers.message().await,
            }
        }
    }
}

/// The way in which heartbeats are sent to a member.
pub(super) enum Beats {
    /// Nothing was sent yet, or what there was failed.
    Unopened,
    Line(Box<Beating>),
    /// The member knows no lines.
    Open(Stream),
    /// The member knows no streams of heartbeats: one call for each.
    Calls,
}

/// A line that heartbeats go over. A heartbeat that is given up leaves it open: a busy peer answers late, and dialling
/// anew makes it busier.
pub(super) struct Beating {
    way: Way,
    /// Answers that have not come.
    owed: u32,
    /// The moment at which the last answer came, or the line was dialled.
    answered: Instant,
}

enum Way {
    Opening(BoxFuture<'static, Result<Line, CallError>>),
    Open(Line),
}

impl Beating {
    fn new(links: &Arc<Links>, peer: &Member) -> Self {
        let (dialling, to) = (Arc::clone(links), peer.clone());
        let opening = Box::pin(async move { Line::open(&dialling, &to, pb::LineUse::Heartbeat).await });
        Beating { way: Way::Opening(opening), owed: 0, answered: Instant::now() }
    }

    async fn ask(
        &mut self,
        links: &Links,
        peer: &Member,
        heartbeat: &pb::HeartbeatRequest,
    ) -> Result<pb::HeartbeatResponse, CallError> {
        let line = loop {
            match &mut self.way {
                Way::Opening(opening) => self.way = Way::Open(opening.await?),
                Way::Open(line) => break line,
            }
        };
        let answer = exchange(line, &mut self.owed, heartbeat).await.map_err(|error| broken(links, peer, &error))?;
        self.answered = Instant::now();
        match answer {
            pb::line_answer::Answer::Heartbeat(answer) => Ok(answer),
            other => Err(unexpected(other)),
        }
    }
}

/// Sends a heartbeat and passes over the answers to those that were given up.
async fn exchange(
    line: &mut Line,
    owed: &mut u32,
    heartbeat: &pb::HeartbeatRequest,
) -> Result<pb::line_answer::Answer, Broken> {
    // What was given up may be half written.
    line.flush().await?;
    line.push(heartbeat)?;
    *owed += 1;
    line.flush().await?;
    loop {
        let answer = line.answer().await?;
        *owed -= 1;
        if *owed == 0 || matches!(answer, pb::line_answer::Answer::Refusal(_)) {
            return Ok(answer);
        }
    }
}

/// A stream whose heartbeats were all answered.
pub(super) struct Stream {
    connection: InUse,
    requests: mpsc::Sender<pb::HeartbeatsRequest>,
    answers: Answers<pb::HeartbeatsResponse>,
}

impl Stream {
    fn open(links: &Links, peer: &Member) -> Result<Self, CallError> {
        let connection = links.connect(peer, Lane::Control)?;
        let (requests, outgoing) = mpsc::channel(1);
        let mut client = connection.client();
        let opening = async move { client.heartbeats(ReceiverStream::new(outgoing)).await.map(Response::into_inner) };
        Ok(Stream { connection, requests, answers: Answers::Opening(Box::pin(opening)) })
    }

    async fn ask(&mut self, heartbeat: pb::HeartbeatRequest) -> Result<pb::HeartbeatResponse, Status> {
        // There is room: the one before was answered. A stream that ended says why below.
        let _ = self.requests.send(pb::HeartbeatsRequest { heartbeat: Some(heartbeat) }).await;
        let answer = self.answers.next().await?.and_then(|answer| answer.answer);
        answer.ok_or_else(|| Status::unavailable("the stream of heartbeats ended"))
    }
}

impl Beats {
    /// Sends one heartbeat and waits for its answer. One that is given up on a stream takes that along, so that no late
    /// answer is taken for that of the next.
    pub(super) async fn beat(
        &mut self,
        links: &Arc<Links>,
        peer: &Member,
        heartbeat: pb::HeartbeatRequest,
        deadline: Instant,
    ) -> Result<pb::HeartbeatResponse, CallError> {
        let mut stream = match std::mem::replace(self, Beats::Unopened) {
            Beats::Line(line) => return self.beat_on_line(line, links, peer, &heartbeat, deadline).await,
            Beats::Unopened if links.has_lines(peer) => {
                let line = Box::new(Beating::new(links, peer));
                return self.beat_on_line(line, links, peer, &heartbeat, deadline).await;
            }
            Beats::Open(stream) => stream,
            Beats::Unopened => Stream::open(links, peer)?,
            Beats::Calls => {
                *self = Beats::Calls;
                return call(links, peer, heartbeat, deadline).await;
            }
        };
        match timeout_at(deadline, stream.ask(heartbeat.clone())).await {
            Ok(Ok(answer)) => {
                stream.connection.note_answer();
                *self = Beats::Open(stream);
                Ok(answer)
            }
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                *self = Beats::Calls;
                call(links, peer, heartbeat, deadline).await
            }
            Ok(Err(status)) => Err(failed(&stream.connection, status)),
            Err(_) => {
                stream.connection.note_silence();
                Err(CallError::Timeout(deadline.saturating_duration_since(Instant::now())))
            }
        }
    }

    async fn beat_on_line(
        &mut self,
        mut line: Box<Beating>,
        links: &Links,
        peer: &Member,
        heartbeat: &pb::HeartbeatRequest,
        deadline: Instant,
    ) -> Result<pb::HeartbeatResponse, CallError> {
        let patience = deadline.saturating_duration_since(Instant::now());
        match timeout_at(deadline, line.ask(links, peer, heartbeat)).await {
            Ok(Ok(answer)) => {
                *self = Beats::Line(line);
                Ok(answer)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                if line.answered.elapsed() < links.shared.config.silence() {
                    *self = Beats::Line(line);
                }
                Err(CallError::Timeout(patience))
            }
        }
    }
}

/// A heartbeat as members of before this release understand it.
async fn call(
    links: &Links,
    peer: &Member,
    heartbeat: pb::HeartbeatRequest,
    deadline: Instant,
) -> Result<pb::HeartbeatResponse, CallError> {
    let method = |mut client: Client, request| async move { client.heartbeat(request).await };
    links.call(peer, Lane::Control, deadline, heartbeat, method).await
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::io::{DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;
    use crate::transport::frames::{Arriving, Leaving, decoded};

    async fn received(far: &mut DuplexStream, arriving: &mut Arriving) -> pb::HeartbeatRequest {
        let message = poll_fn(|cx| arriving.poll_next(far, cx)).await.expect("it is whole");
        decoded(message.expect("one more")).expect("a heartbeat")
    }

    async fn answer(far: &mut DuplexStream, clock_ms: u64) {
        let answer = pb::line_answer::Answer::Heartbeat(pb::HeartbeatResponse { outcome: None, clock_ms, stamp: None });
        let mut leaving = Leaving::default();
        leaving.push(&pb::LineAnswer { answer: Some(answer) }).expect("it is small");
        poll_fn(|cx| leaving.poll_flush(far, cx)).await.expect("there is room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_not_taken_for_that_of_the_next_heartbeat() {
        // Too small for a heartbeat: the first is given up half written.
        let (near, mut far) = duplex(8);
        let (mut line, mut owed) = (Line::over(Box::new(near)), 0);
        let heartbeat =
            pb::HeartbeatRequest { header: Some(pb::Header { to: 7, ..pb::Header::default() }), ..Default::default() };
        let given_up = timeout(Duration::from_millis(40), exchange(&mut line, &mut owed, &heartbeat)).await;
        assert!(given_up.is_err() && owed == 1);
        let peer = async {
            let mut arriving = Arriving::new(1_000);
            for clock_ms in [1, 2] {
                assert_eq!(received(&mut far, &mut arriving).await, heartbeat, "each arrives whole");
                answer(&mut far, clock_ms).await;
            }
        };
        let (answered, ()) = tokio::join!(exchange(&mut line, &mut owed, &heartbeat), peer);
        let answered = answered.expect("the line is open");
        assert!(matches!(answered, pb::line_answer::Answer::Heartbeat(answer) if answer.clock_ms == 2));
        assert_eq!(owed, 0);
    }
}
