//! The choice of the member that is asked next.
//!
//! Every member answers every call, so the one that answered last is asked again. A member that fails is left for the
//! one whose failure lies longest back. A named leader is followed unless it has itself just failed (the hint is then
//! older than the failure) or leads in an older term than a leader that was named before: a member that is cut off can
//! go on naming itself, or nobody, for long, so going round beats believing.

use std::time::Duration;

use tokio::time::Instant;
use tonic::transport::Channel;

use crate::address::Address;

/// A leader that failed so recently is not followed again on a hint: whoever names it has not noticed yet.
const HINT_DISTRUST: Duration = Duration::from_secs(1);
/// Members that a client learns by hints beside those it was told of. The one that was heard longest ago, or never,
/// gives its place to the next: members come and go. One that has just failed keeps its place while there is another,
/// so that a hint does not lead back to it as to somebody new.
const MAX_LEARNED: usize = 16;

/// A member with its connection.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
    pub(crate) channel: Channel,
}

#[derive(Debug)]
struct Member {
    target: Target,
    failed_at: Option<Instant>,
    heard_at: Option<Instant>,
}

/// The members a client knows, and which one it talks to.
#[derive(Debug)]
pub(crate) struct Routes {
    members: Vec<Member>,
    current: usize,
    told: usize,
    term: u64,
}

impl Routes {
    /// Begins with the first of `targets`, of which there must be one.
    pub(crate) fn new(targets: Vec<Target>) -> Self {
        let told = targets.len();
        let members = targets.into_iter().map(Member::fresh).collect();
        Self { members, current: 0, told, term: 0 }
    }

    /// The member to ask now.
    pub(crate) fn current(&self) -> Target {
        self.members[self.current].target.clone()
    }

    /// Every member that is known, told or learned.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.members.iter().map(|member| &member.target.address)
    }

    /// The member to ask beside `address`, which is silent.
    pub(crate) fn beside(&self, address: &Address) -> Option<Target> {
        let from = self.position(address).unwrap_or(self.current);
        let next = self.best_after(from);
        (next != from).then(|| self.members[next].target.clone())
    }

    /// Returns whether `address` has answered anything, on any call, since `then`.
    pub(crate) fn heard_since(&self, address: &Address, then: Instant) -> bool {
        let member = self.position(address).map(|at| &self.members[at]);
        member.and_then(|member| member.heard_at).is_some_and(|heard| heard >= then)
    }

    /// `address` answered: it is asked again.
    pub(crate) fn answered(&mut self, address: &Address, now: Instant) {
        if let Some(at) = self.position(address) {
            self.current = at;
            self.members[at].failed_at = None;
            self.members[at].heard_at = Some(now);
        }
    }

    /// `address` is alive, whatever it said.
    pub(crate) fn heard(&mut self, address: &Address, now: Instant) {
        if let Some(at) = self.position(address) {
            self.members[at].heard_at = Some(now);
        }
    }

    /// `address` could not do it: another is asked next.
    pub(crate) fn failed(&mut self, address: &Address, now: Instant) {
        let Some(at) = self.position(address) else { return };
        self.members[at].failed_at = Some(now);
        if self.current == at {
            self.current = self.best_after(at);
        }
    }

    /// Somebody named `leader`; follows unless there is reason not to. `connect` is used for a leader not known so far.
    pub(crate) fn hinted(
        &mut self,
        leader: &Address,
        term: Option<u64>,
        now: Instant,
        connect: impl FnOnce(&Address) -> Option<Channel>,
    ) {
        if term.is_some_and(|term| term < self.term) {
            return;
        }
        let Some(at) = self.position(leader).or_else(|| self.learn(leader, now, connect)) else { return };
        self.term = self.term.max(term.unwrap_or(0));
        if !self.members[at].has_just_failed(now) {
            self.current = at;
        }
    }

    fn learn(
        &mut self,
        leader: &Address,
        now: Instant,
        connect: impl FnOnce(&Address) -> Option<Channel>,
    ) -> Option<usize> {
        let channel = connect(leader)?;
        let learned = Member::fresh(Target { address: leader.clone(), channel });
        if self.members.len() < self.told + MAX_LEARNED {
            self.members.push(learned);
            return Some(self.members.len() - 1);
        }
        let others = (self.told..self.members.len()).filter(|at| *at != self.current);
        let at = others.min_by_key(|at| {
            let member = &self.members[*at];
            (member.has_just_failed(now), member.heard_at)
        })?;
        self.members[at] = learned;
        Some(at)
    }

    fn position(&self, address: &Address) -> Option<usize> {
        self.members.iter().position(|member| member.target.address == *address)
    }

    /// The member whose failure lies longest back (never counts longest), beginning after `from`.
    fn best_after(&self, from: usize) -> usize {
        let count = self.members.len();
        let others = (1..count).map(|step| (from + step) % count);
        others.min_by_key(|&at| self.members[at].failed_at).unwrap_or(from)
    }
}

impl Member {
    fn fresh(target: Target) -> Self {
        Self { target, failed_at: None, heard_at: None }
    }

    fn has_just_failed(&self, now: Instant) -> bool {
        self.failed_at.is_some_and(|failed| now < failed + HINT_DISTRUST)
    }
}

#[cfg(test)]
mod tests {
    use tessera_connection::{Outbound, Terms};

    use super::*;

    fn address(port: u16) -> Address {
        format!("127.0.0.1:{port}").parse().expect("a good address")
    }

    fn channel() -> Channel {
        Outbound::default().lazily("127.0.0.1:1", &Terms::default()).expect("an address")
    }

    fn three() -> Routes {
        Routes::new((1..=3).map(|port| Target { address: address(port), channel: channel() }).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn failures_go_round_and_an_answer_stays() {
        let mut routes = three();
        for (failed, next) in [(1, 2), (2, 3), (3, 1), (1, 2)] {
            routes.failed(&address(failed), Instant::now());
            assert_eq!(routes.current().address, address(next));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        routes.answered(&address(3), Instant::now());
        assert_eq!(routes.current().address, address(3));
        routes.failed(&address(1), Instant::now());
        assert_eq!(routes.current().address, address(3), "the failure of another does not matter");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_is_followed_but_not_back_to_the_dead() {
        let mut routes = three();
        routes.failed(&address(1), Instant::now());
        routes.failed(&address(2), Instant::now());
        routes.hinted(&address(1), None, Instant::now(), |_| None);
        assert_eq!(routes.current().address, address(3), "1 has just failed");
        tokio::time::advance(HINT_DISTRUST).await;
        routes.hinted(&address(1), None, Instant::now(), |_| None);
        assert_eq!(routes.current().address, address(1));
    }

    #[tokio::test]
    async fn the_highest_term_wins() {
        let mut routes = three();
        routes.hinted(&address(2), Some(7), Instant::now(), |_| None);
        routes.hinted(&address(3), Some(6), Instant::now(), |_| None);
        assert_eq!(routes.current().address, address(2));
    }

    #[tokio::test]
    async fn leaders_are_learned_within_a_bound() {
        let mut routes = three();
        for port in 10..60 {
            routes.hinted(&address(port), None, Instant::now(), |_| Some(channel()));
        }
        assert_eq!(routes.members.len(), 3 + MAX_LEARNED);
    }

    #[tokio::test]
    async fn a_leader_is_found_however_many_there_were_before() {
        let mut routes = three();
        routes.hinted(&address(9), None, Instant::now(), |_| Some(channel()));
        routes.answered(&address(9), Instant::now());
        for port in 10..60 {
            routes.hinted(&address(port), None, Instant::now(), |_| Some(channel()));
            assert_eq!(routes.current().address, address(port));
        }
        assert!((1..=3).chain([9]).all(|port| routes.position(&address(port)).is_some()), "told, or heard");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_just_failed_is_not_taken_for_somebody_new() {
        let mut routes = three();
        for port in (10..).take(MAX_LEARNED) {
            routes.hinted(&address(port), None, Instant::now(), |_| Some(channel()));
        }
        routes.failed(&address(10), Instant::now());
        routes.hinted(&address(60), None, Instant::now(), |_| Some(channel()));
        routes.hinted(&address(10), None, Instant::now(), |_| Some(channel()));
        assert_eq!(routes.current().address, address(60), "10 has just failed");
        tokio::time::advance(HINT_DISTRUST).await;
        routes.hinted(&address(10), None, Instant::now(), |_| Some(channel()));
        assert_eq!(routes.current().address, address(10));
    }

    #[tokio::test]
    async fn nobody_is_beside_a_single_member() {
        let routes = Routes::new(vec![Target { address: address(1), channel: channel() }]);
        assert!(routes.beside(&address(1)).is_none());
        assert_eq!(three().beside(&address(2)).map(|target| target.address), Some(address(3)));
    }
}
