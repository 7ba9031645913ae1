//! Since when the same member leads without a pause: what a leader has to do in time, it has to do from then on.

use std::time::Duration;

use super::View;

/// Who leads, followed from look to look.
#[derive(Default)]
pub struct Leader {
    /// The member and its term; `None`: nobody does, or not awake.
    who: Option<(String, u64)>,
    since: Duration,
}

impl Leader {
    /// Looks who leads: of several who believe it, the one with the newest term.
    pub fn look(&mut self, view: &View<'_>) {
        let awake = view.members.iter().filter(|member| !member.stopped);
        let leads = awake.filter_map(|member| Some((member.leads?, &member.name)));
        let who = leads.max().map(|(term, name)| (name.clone(), term));
        if who.is_none() || who != self.who {
            self.since = view.now;
        }
        self.who = who;
    }

    /// Since when it has been the same one.
    pub const fn since(&self) -> Duration {
        self.since
    }
}
