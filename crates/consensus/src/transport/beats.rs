//! A leader's heartbeats to one other member: one line for all of them.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use super::frames::Broken;
use super::line::{Line, broken, unexpected};
use super::links::{CallError, Links};
use crate::ids::Member;
use crate::pb;

/// The line that heartbeats to a member go over; `None`: none was sent yet, or the line broke.
#[derive(Default)]
pub(super) struct Beats(Option<Box<Beating>>);

/// A line that heartbeats go over. A heartbeat that is given up leaves it open: a busy peer answers late, and dialling
/// anew makes it busier.
struct Beating {
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

    async fn ask(&mut self, heartbeat: &pb::HeartbeatRequest) -> Result<pb::HeartbeatResponse, CallError> {
        let line = loop {
            match &mut self.way {
                Way::Opening(opening) => self.way = Way::Open(opening.await?),
                Way::Open(line) => break line,
            }
        };
        let answer = exchange(line, &mut self.owed, heartbeat).await.map_err(|error| broken(&error))?;
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

impl Beats {
    /// Sends one heartbeat and waits for its answer.
    pub(super) async fn beat(
        &mut self,
        links: &Arc<Links>,
        peer: &Member,
        heartbeat: pb::HeartbeatRequest,
        deadline: Instant,
    ) -> Result<pb::HeartbeatResponse, CallError> {
        let mut line = self.0.take().unwrap_or_else(|| Box::new(Beating::new(links, peer)));
        let patience = deadline.saturating_duration_since(Instant::now());
        match timeout_at(deadline, line.ask(&heartbeat)).await {
            Ok(Ok(answer)) => {
                self.0 = Some(line);
                Ok(answer)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                if line.answered.elapsed() < links.shared.config.silence() {
                    self.0 = Some(line);
                }
                Err(CallError::Timeout(patience))
            }
        }
    }
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
