//! Commands that stay go on through an outage of the control plane, as jobs do. The patience of one request is not that
//! of somebody who waits.

use std::time::{Duration, Instant};

use tessera_client::ClientError;

use crate::command::Desk;
use crate::failure::Failure;
use crate::print::remark;

/// How long one command goes on without an answer.
#[derive(Debug)]
pub struct Outage {
    members: String,
    longest: Duration,
    longest_once_answered: Duration,
    began: Option<Instant>,
}

impl Outage {
    /// The patience of a command that has had no answer yet: as long as its user said (`--timeout`), or that of one
    /// request, so that a wrong address is found at once.
    #[must_use]
    pub fn before_an_answer(desk: &Desk) -> Self {
        let longest = desk.longest_outage.unwrap_or(Duration::ZERO);
        Self { longest, ..Self::after_an_answer(desk) }
    }

    /// The patience of a command that was answered before: as long as its user said, or for ever.
    #[must_use]
    pub fn after_an_answer(desk: &Desk) -> Self {
        Self::of_at_most(desk, desk.longest_outage.unwrap_or(Duration::MAX))
    }

    /// The patience of a command whose user said how long.
    #[must_use]
    pub fn of_at_most(desk: &Desk, longest: Duration) -> Self {
        let members: Vec<String> = desk.client.members().iter().map(ToString::to_string).collect();
        Self { members: members.join(", "), longest, longest_once_answered: longest, began: None }
    }

    /// The command was answered.
    pub fn is_over(&mut self) {
        self.began = None;
        self.longest = self.longest_once_answered;
    }

    /// Says once that members are waited for, where `error` is an outage; `what` was tried.
    ///
    /// # Errors
    /// The [`Failure`] with which the command ends: it was refused, or the outage lasts for too long.
    pub fn goes_on(&mut self, what: &str, error: &ClientError) -> Result<(), Failure> {
        let ClientError::Unavailable(silence) = error else { return Err(Failure::call(what, error)) };
        let lasts = self.began.map_or(silence.elapsed, |began| began.elapsed());
        if lasts >= self.longest {
            return Err(Failure::call(what, error));
        }
        if self.began.is_none() {
            self.began = Instant::now().checked_sub(silence.elapsed);
            remark(&format!("[the control plane does not answer; waiting for {}]", self.members));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tessera_client::{Trouble, Unavailable};

    use super::*;

    fn outage(longest: Duration) -> Outage {
        Outage { members: "m0:1".to_owned(), longest, longest_once_answered: Duration::MAX, began: None }
    }

    fn after(elapsed: u64) -> ClientError {
        ClientError::Unavailable(Box::new(Unavailable {
            trouble: Trouble::Unreachable,
            elapsed: Duration::from_secs(elapsed),
            members: Vec::new(),
            request_id: None,
            outcome_unknown: false,
        }))
    }

    #[test]
    fn an_outage_is_waited_through_for_as_long_as_was_said() {
        let mut said = outage(Duration::from_secs(60));
        assert!(said.goes_on("it", &after(3)).is_ok());
        assert!(outage(Duration::from_secs(60)).goes_on("it", &after(61)).is_err());
        assert!(outage(Duration::MAX).goes_on("it", &after(100_000)).is_ok());
    }

    #[test]
    fn who_was_never_answered_and_said_nothing_gives_up_as_one_request_does() {
        let mut silent = outage(Duration::ZERO);
        assert!(silent.goes_on("it", &after(3)).is_err());
        silent.is_over();
        assert!(silent.goes_on("it", &after(3)).is_ok(), "one that was answered once goes on");
    }

    #[test]
    fn a_refusal_is_no_outage() {
        assert!(outage(Duration::MAX).goes_on("it", &ClientError::NoMembers).is_err());
    }
}
