//! Commands that stay go on through an outage of the control plane, as jobs do. The patience of one request is not that
//! of somebody who waits.

use std::time::Duration;

use tessera_client::ClientError;
use tokio::time::Instant;

use crate::command::Desk;
use crate::failure::Failure;
use crate::print::remark_beside;

/// Time that is too short for asking once more.
const SHORT: Duration = Duration::from_secs(1);
/// The time for which a stream holds that ends an outage without bringing anything.
const HELD: Duration = Duration::from_secs(20);

/// The patience of one command with members that do not answer.
#[derive(Debug)]
pub struct Outage {
    members: String,
    /// Time for one request.
    request: Duration,
    longest: Duration,
    longest_once_answered: Duration,
    /// The moments at which it began and was noticed last; `None`: members answer.
    silent: Option<(Instant, Instant)>,
}

impl Outage {
    /// The patience of a command that has had no answer yet: as long as its user said (`--timeout`), or that of one
    /// request, so that a wrong address is found at once.
    #[must_use]
    pub fn before_an_answer(desk: &Desk) -> Self {
        Self { longest: desk.patience.unwrap_or(Duration::ZERO), ..Self::after_an_answer(desk) }
    }

    /// The patience of a command that was answered before: as long as its user said, or for ever.
    #[must_use]
    pub fn after_an_answer(desk: &Desk) -> Self {
        let longest = desk.patience.unwrap_or(Duration::MAX);
        let members: Vec<String> = desk.client.members().iter().map(ToString::to_string).collect();
        let (members, request) = (members.join(", "), desk.timeout);
        Self { members, request, longest, longest_once_answered: longest, silent: None }
    }

    /// The patience of a command whose work goes on without members, however long its user gives to requests.
    #[must_use]
    pub fn without_end(desk: &Desk) -> Self {
        Self { longest: Duration::MAX, longest_once_answered: Duration::MAX, ..Self::after_an_answer(desk) }
    }

    /// The patience of one request.
    #[must_use]
    pub fn never(desk: &Desk) -> Self {
        Self { longest: Duration::ZERO, longest_once_answered: Duration::ZERO, ..Self::after_an_answer(desk) }
    }

    /// The patience of a command that only stays if its user wants that.
    #[must_use]
    pub fn of_stay(desk: &Desk, stays: bool) -> Self {
        if stays { Self::before_an_answer(desk) } else { Self::never(desk) }
    }

    /// Asks until there is an answer, and says once that members are waited for; `what` is tried. What asks is told how
    /// long it may take.
    ///
    /// # Errors
    /// The [`Failure`] with which the command ends: it was refused, or the outage lasts for too long.
    pub async fn through<T>(
        &mut self,
        what: &str,
        mut ask: impl AsyncFnMut(Duration) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        loop {
            match ask(self.patience()).await {
                Ok(answer) => {
                    self.answered();
                    return Ok(answer);
                }
                Err(error) => self.goes_on(what, &error)?,
            }
        }
    }

    /// Returns the time for one request: in an outage, no more than what is left of the patience.
    fn patience(&self) -> Duration {
        let left = self.silent.map_or(self.request, |(began, _)| self.longest.saturating_sub(began.elapsed()));
        left.min(self.request)
    }

    fn answered(&mut self) {
        if self.silent.take().is_some() || self.longest != self.longest_once_answered {
            tracing::debug!("a member answers");
        }
        self.longest = self.longest_once_answered;
    }

    /// Ends the command where `error` is no outage, or the outage is too long.
    ///
    /// # Errors
    /// The [`Failure`] with which it ends.
    pub fn goes_on(&mut self, what: &str, error: &ClientError) -> Result<(), Failure> {
        let ClientError::Unavailable(silence) = error else { return Err(Failure::call(what, error)) };
        let now = Instant::now();
        let broke = now.checked_sub(silence.elapsed).unwrap_or(now);
        let before = self.silent.filter(|(_, noticed)| broke.saturating_duration_since(*noticed) < HELD);
        let began = before.map_or(broke, |(began, _)| began);
        self.silent = Some((began, now));
        if now - began + SHORT > self.longest {
            return Err(Failure::call(what, error));
        }
        if before.is_none() {
            let why: Vec<String> = silence.to_string().lines().take(2).map(|line| line.trim().to_owned()).collect();
            remark_beside(format!("[{what}: {}; waiting for {}]", why.join(": "), self.members));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tessera_client::{Trouble, Unavailable};
    use tokio::time::sleep;

    use super::*;

    const REQUEST: Duration = Duration::from_secs(10);

    fn outage(longest: Duration, longest_once_answered: Duration) -> Outage {
        Outage { members: "m0:1".to_owned(), request: REQUEST, longest, longest_once_answered, silent: None }
    }

    /// The error of a call that nobody has answered.
    pub(crate) fn after(elapsed: Duration) -> ClientError {
        ClientError::Unavailable(Box::new(Unavailable {
            trouble: Trouble::Unreachable,
            elapsed,
            members: Vec::new(),
            request_id: None,
            outcome_unknown: false,
        }))
    }

    /// A request that gives up just before its time has passed, as those of the client do.
    async fn unanswered(patience: Duration) -> Result<(), ClientError> {
        let elapsed = patience.saturating_sub(Duration::from_millis(300));
        sleep(elapsed).await;
        Err(after(elapsed))
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_waited_through_for_as_long_as_was_said_and_no_longer() {
        for seconds in [1, 10, 25, 600] {
            let (began, longest) = (Instant::now(), Duration::from_secs(seconds));
            let mut said = Outage { request: longest.min(REQUEST), ..outage(longest, longest) };
            assert!(said.through("it", unanswered).await.is_err());
            let lasted = began.elapsed();
            assert!(lasted <= longest && lasted + SHORT >= longest, "{lasted:?} of {longest:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_never_answered_and_said_nothing_gives_up_as_one_request_does() {
        let mut silent = outage(Duration::ZERO, Duration::MAX);
        assert!(silent.through("it", unanswered).await.is_err());
        silent.answered();
        let mut asked = 0;
        let at_last = async |patience| {
            asked += 1;
            if asked < 1000 { unanswered(patience).await } else { Ok(()) }
        };
        assert!(silent.through("it", at_last).await.is_ok(), "one that was answered once goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_held_without_bringing_anything_ended_the_outage() {
        let mut follows = outage(Duration::from_secs(60), Duration::from_secs(60));
        let broken = Duration::from_secs(40);
        for _ in 0..3 {
            sleep(broken).await;
            assert!(follows.goes_on("it", &after(broken)).is_ok());
            sleep(Duration::from_secs(3600)).await;
        }
    }

    #[tokio::test]
    async fn a_refusal_is_no_outage() {
        let refused = async |_| Err::<(), _>(ClientError::NoMembers);
        assert!(outage(Duration::MAX, Duration::MAX).through("it", refused).await.is_err());
    }
}
