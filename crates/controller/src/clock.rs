//! The watch over this member's wall clock. Log time does not follow it, but what it shows is written into logs and
//! shown to people, and a clock that is wrong on one member may be wrong because its host is: it leads only when nobody
//! better can.

use std::time::Duration;

use tessera_consensus::{ClockStatus, Consensus, Leadership, MemberId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::machine::LedgerMachine;

/// The interval between comparisons of the clocks.
const PERIOD: Duration = Duration::from_millis(500);

/// For how long a clock must have been off before leadership is handed over.
const PATIENCE: Duration = Duration::from_secs(1);

/// The shortest time between two handovers. Leadership that returns earlier is retained: the other members cannot
/// retain it, or have a reason of their own not to.
const KEPT: Duration = Duration::from_secs(60);

/// The time limit for a handover of leadership.
const HANDOVER: Duration = Duration::from_secs(5);

/// An action that follows from a look at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Say that the clock is off, by so many milliseconds.
    Complain(i64),
    /// Say that it is right again.
    Relax,
    /// Hand leadership to a member with a clock that is right.
    StepDown(MemberId),
}

/// The state of the watch over the clock.
#[derive(Debug, Default)]
struct ClockWatch {
    off_since: Option<Instant>,
    handed_over_at: Option<Instant>,
}

impl ClockWatch {
    /// One look at the clock; `successor` is a voter that leadership could be handed to, when this member leads.
    fn on(&mut self, now: Instant, clock: ClockStatus, successor: Option<MemberId>) -> Vec<Effect> {
        let Some(offset_ms) = clock.offset_ms else { return Vec::new() };
        if !clock.off {
            let was_off = self.off_since.take().is_some();
            return was_off.then_some(Effect::Relax).into_iter().collect();
        }
        let mut effects = Vec::new();
        let since = *self.off_since.get_or_insert_with(|| {
            effects.push(Effect::Complain(offset_ms));
            now
        });
        let settled = now.saturating_duration_since(since) >= PATIENCE;
        let lately = self.handed_over_at.is_some_and(|at| now.saturating_duration_since(at) < KEPT);
        if let (Some(successor), true, false) = (successor, settled, lately) {
            self.handed_over_at = Some(now);
            effects.push(Effect::StepDown(successor));
        }
        effects
    }
}

/// Watches until `end`.
pub(crate) async fn watch(consensus: Consensus<LedgerMachine>, end: CancellationToken) {
    let mut state = ClockWatch::default();
    loop {
        let leads = matches!(*consensus.leadership().borrow(), Leadership::Leading { .. });
        let successor = leads.then(|| consensus.voter_with_right_clock()).flatten();
        for effect in state.on(Instant::now(), consensus.clock(), successor) {
            match effect {
                Effect::Complain(offset_ms) => tracing::error!(
                    offset_ms,
                    "this member's wall clock is off: a quorum of the members' clocks agree on another time; set it right, and \
                     look at what keeps it (NTP); this member leads only when no other can"
                ),
                Effect::Relax => tracing::info!("this member's wall clock is right again"),
                Effect::StepDown(to) => {
                    let handed = consensus.transfer_leadership(Some(to), Instant::now() + HANDOVER).await;
                    tracing::warn!(%to, ?handed, "leadership is handed over because this member's wall clock is off");
                }
            }
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: ClockStatus = ClockStatus { offset_ms: Some(20), off: false };
    const OFF: ClockStatus = ClockStatus { offset_ms: Some(60_000), off: true };
    const UNKNOWN: ClockStatus = ClockStatus { offset_ms: None, off: false };

    #[test]
    fn a_leader_whose_clock_is_off_hands_leadership_to_one_whose_clock_is_right() {
        let (mut watch, began) = (ClockWatch::default(), Instant::now());
        let other = Some(MemberId(2));
        assert_eq!(watch.on(began, RIGHT, other), []);
        assert_eq!(watch.on(began, OFF, other), [Effect::Complain(60_000)], "it may be a mistake");
        assert_eq!(watch.on(began + PATIENCE, OFF, None), [], "nobody else has a clock that is right");
        assert_eq!(watch.on(began + PATIENCE, UNKNOWN, other), []);
        assert_eq!(watch.on(began + PATIENCE, OFF, other), [Effect::StepDown(MemberId(2))]);
        assert_eq!(watch.on(began + PATIENCE * 2, OFF, other), [], "it came back: it is kept for a while");
        assert_eq!(watch.on(began + PATIENCE + KEPT, OFF, other), [Effect::StepDown(MemberId(2))]);
        assert_eq!(watch.on(began + PATIENCE + KEPT, RIGHT, other), [Effect::Relax]);
        assert_eq!(watch.on(began + PATIENCE + KEPT, RIGHT, other), []);
    }
}
