//! The clock of a node, compared with log time: a gang's workers end on several nodes, and whose end came first decides
//! how the gang ended.

use std::collections::VecDeque;

use tessera_ledger::{LogTime, Observation};

use super::messages::{Heard, Sighting};

/// Comparisons that count, the newest ones.
const COMPARED: usize = 16;
/// A clock that seems to have lost so much since the last message, in milliseconds, was set, or its host stood still:
/// what was known of it says nothing any more.
const SET_BACK_MS: i64 = 1_000;

/// The lead of a node's clock over log time, as its hello and its last heartbeats say.
#[derive(Debug, Default)]
pub(super) struct NodeClock {
    ahead_ms: VecDeque<i64>,
}

impl NodeClock {
    /// Takes what was heard at `now`: learns from messages that say when they were sent, and turns the times in reports
    /// into log time. A hello does both: what ended while its agent was cut off goes before what that brought about.
    pub fn hear(&mut self, heard: &mut Heard, now: LogTime) {
        match heard {
            Heard::Hello(greeting) => {
                self.note(greeting.sent_at, now);
                self.correct(&mut greeting.workers, now);
            }
            Heard::Heartbeat(heartbeat, ..) => self.note(heartbeat.sent_at, now),
            Heard::Report(report) => self.correct(&mut report.workers, now),
        }
    }

    /// Notes a message that was sent at `sent` by the node's clock and arrived at `now`.
    fn note(&mut self, sent: LogTime, now: LogTime) {
        if sent == LogTime(0) {
            return;
        }
        let ahead = sent.0.wrapping_sub(now.0).cast_signed();
        if self.ahead_ms.back().is_some_and(|last| ahead < last.saturating_sub(SET_BACK_MS)) {
            self.ahead_ms.clear();
        }
        if self.ahead_ms.len() == COMPARED {
            self.ahead_ms.pop_front();
        }
        self.ahead_ms.push_back(ahead);
    }

    /// Turns times into log time, which is `now` at most, also of a clock that was set since. The message that was
    /// least long on its way tells the most; before the first one no time is known.
    fn correct(&self, workers: &mut [Sighting], now: LogTime) {
        let ahead = self.ahead_ms.iter().max();
        for sighting in workers {
            if let Some(Observation::Stopped(exit)) = &mut sighting.observation {
                let known = ahead.filter(|_| exit.ended_at != LogTime(0));
                let corrected = |ahead: &i64| LogTime(exit.ended_at.0.saturating_sub_signed(*ahead)).min(now);
                exit.ended_at = known.map_or(LogTime(0), corrected);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tessera_consensus::Term;
    use tessera_ledger::{AllocationId, Epoch, Owner, Rank, StopCause, WorkerExit};

    use super::*;
    use crate::fixture::node;
    use crate::session::messages::Greeting;

    fn end(at: u64) -> Sighting {
        let exit = WorkerExit { ended_at: LogTime(at), ..tessera_testkit::exit(StopCause::Exited, Some(1)) };
        let worker = Owner { allocation: AllocationId(1), epoch: Epoch(1), rank: Rank(0) };
        Sighting { worker, observation: Some(Observation::Stopped(exit)), saved: None }
    }

    fn ended(clock: &NodeClock, at: u64) -> u64 {
        let mut sighting = [end(at)];
        clock.correct(&mut sighting, LogTime(90_000));
        time_of(&sighting)
    }

    fn time_of(sightings: &[Sighting]) -> u64 {
        match &sightings[0].observation {
            Some(Observation::Stopped(exit)) => exit.ended_at.0,
            other => panic!("it is still an end: {other:?}"),
        }
    }

    #[test]
    fn times_of_a_clock_that_is_wrong_are_corrected_by_the_fastest_heartbeat() {
        let mut clock = NodeClock::default();
        assert_eq!(ended(&clock, 5_000), 0, "nothing is known of it");
        clock.note(LogTime(61_000), LogTime(1_040));
        clock.note(LogTime(62_000), LogTime(2_002));
        assert_eq!(ended(&clock, 65_000), 5_002, "a minute ahead, less 2 ms on the way");
        assert_eq!(ended(&clock, 0), 0, "an agent that says none");
        clock.note(LogTime(10_000), LogTime(20_000));
        assert_eq!(ended(&clock, 11_000), 21_000, "it was set");
        assert_eq!(ended(&clock, 3_600_000), 90_000, "told by the clock as it was before it was set back");
    }

    #[test]
    fn a_hello_says_by_which_clock_its_ends_are_told() {
        let told = |sent_at| {
            let greeting = Greeting {
                node: node("a"),
                cards: Vec::new(),
                workers: vec![end(55_000)],
                highest_term: Term(0),
                cluster: String::new(),
                sent_at: LogTime(sent_at),
            };
            let (mut clock, mut hello) = (NodeClock::default(), Heard::Hello(Box::new(greeting)));
            clock.hear(&mut hello, LogTime(9_000));
            match hello {
                Heard::Hello(greeting) => time_of(&greeting.workers),
                other => panic!("it is still a hello: {other:?}"),
            }
        };
        assert_eq!(told(60_000), 4_000, "51 s ahead");
        assert_eq!(told(0), 0, "an agent that does not say");
    }
}
