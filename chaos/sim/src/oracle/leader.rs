//! Since when the same member leads and writes without a pause: what a leader has to do in time, it has to do from then
//! on.

use std::time::Duration;

use super::View;
use super::newest_entry::NewestEntry;

/// Longest time between entries of a leader that can write: it writes a tick every few seconds.
const PAUSE: Duration = Duration::from_secs(6);

/// The leader, followed from look to look.
#[derive(Default)]
pub struct Leader {
    /// The member and its term; `None`: nobody does, or not awake.
    who: Option<(String, u64)>,
    since: Duration,
    newest: NewestEntry,
}

impl Leader {
    /// Looks who leads: of several who believe it, the one with the newest term.
    pub fn look(&mut self, view: &View<'_>) {
        let awake = view.members.iter().filter(|member| !member.stopped);
        let leads = awake.filter_map(|member| Some((member.leads?, &member.name)));
        let who = leads.max().map(|(term, name)| (name.clone(), term));
        // An entry after a time in which nobody could write, though somebody may have led.
        let was_silent = self.newest.look(view).is_some_and(|before| view.now > before + PAUSE);
        if who.is_none() || who != self.who || was_silent {
            self.since = view.now;
        }
        self.who = who;
    }

    /// Since when it has been the same one.
    pub const fn since(&self) -> Duration {
        self.since
    }
}
