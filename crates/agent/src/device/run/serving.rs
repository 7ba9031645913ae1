//! A worker whose program is on another node: it has servers of a card, and waits until that is over.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::processes::{Server, say_lost};
use super::{HOST_LOST, Problem, TELLS_WITHIN, Worker};

/// The problem of the job when a card's first server has ended with this status and its program is on another node. The
/// server ends well (`None`) once the program has ended, in whatever way. A silent host is reported by its own node
/// where that is possible. For this worker it is the loss of a part of the job, and the job is tried again.
fn of_served_elsewhere(ended: ExitStatus, lease: Duration, device: impl Fn() -> String) -> Option<Problem> {
    match ended.code() {
        Some(0) => None,
        Some(HOST_LOST) => Some(Problem::ProgramLost(lease)),
        _ => Some(Problem::Died(device(), ended)),
    }
}

impl Worker {
    /// Waits until the card is over: its first server ends when the program has ended, and these others when that is
    /// gone. To be told to stop means nothing to them: the program may save what is on the card, and ends by itself or
    /// is killed with all of its worker, as these are.
    pub(super) fn wait_for_card(&mut self, servers: &mut [Server]) -> Result<ExitStatus, Problem> {
        while servers.iter().any(|server| server.ended.is_none()) {
            self.next_server_end(servers)?;
        }
        Ok(ExitStatus::default())
    }

    /// The same for a card whose first server is with this worker, and its program on another node: nobody there knows
    /// how the server ends, so that this worker tells it.
    pub(super) fn serve_other_node(&mut self, servers: &mut [Server], lease: Duration) -> Result<ExitStatus, Problem> {
        while let Some(first) = servers.first()
            && first.ended.is_none()
        {
            self.next_server_end(servers)?;
        }
        let ended = servers.first().and_then(|first| first.ended).unwrap_or_default();
        let device = || self.plan.slices.first().map(|slice| slice.device.clone()).unwrap_or_default();
        let Some(problem) = of_served_elsewhere(ended, lease, device) else { return self.wait_for_card(servers) };
        say_lost(&device(), ended);
        self.wait_for_stop(TELLS_WITHIN)?;
        Err(problem)
    }

    /// Waits until one of the servers ends.
    fn next_server_end(&mut self, servers: &mut [Server]) -> Result<(), Problem> {
        let (ended, status) = self.next_end(|_| {})?;
        for server in servers.iter_mut().filter(|server| server.child.id() == ended) {
            server.ended = Some(status);
        }
        Ok(())
    }

    /// Waits to be told to stop, for so long at most.
    pub(super) fn wait_for_stop(&self, within: Duration) -> Result<(), Problem> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.next_stop()?.is_some() || left.is_zero() {
                return Ok(());
            }
            self.wait_for_signal(Some(left))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::super::FAULT;
    use super::*;
    use crate::supervisor::status::Cause;

    #[test]
    fn a_server_whose_program_is_on_another_node_ends_well_only_when_that_has_ended() {
        let cause = |wait_status| {
            let device = || "cpu".to_owned();
            of_served_elsewhere(ExitStatus::from_raw(wait_status), Duration::from_secs(9), device)
                .map(|problem| (problem.cause(), problem.to_string()))
        };
        let code = |code: i32| cause(code << 8);
        assert_eq!(code(0), None);
        let died = |how: &str| {
            Some((
                Some(Cause::NodeFault),
                format!("the slice server for cpu ended ({how}), and nobody had asked for that"),
            ))
        };
        assert_eq!(code(FAULT), died("exit status: 123"));
        assert_eq!(code(1), died("exit status: 1"));
        assert_eq!(cause(libc::SIGKILL), died("signal: 9 (SIGKILL)"));
        let lost = code(HOST_LOST).expect("a problem");
        assert_eq!(lost.0, Some(Cause::NodeFault), "it is tried again");
        assert!(lost.1.contains("not heard of for 9 s"), "{}", lost.1);
    }
}
