//! Strangers end nobody and lock nobody out: whatever they send, no process of a member or an agent ends of it, and
//! when they have been silent for a little more than a minute the pool writes, and a member of which a copy ran reads.
//! That nothing is lost which was acknowledged is another oracle's matter.

use std::time::Duration;

use super::newest_entry::NewestEntry;
use super::{Oracle, View};

/// Silence of strangers after which all is as before: the minute in which a member is not listened to that two
/// processes speak for, an election, and a try of whoever reads.
const FORGOTTEN: Duration = Duration::from_secs(75);
/// Longest time without an entry then: whoever leads writes at least a tick every few seconds.
const UNWRITTEN: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Strangers {
    newest: NewestEntry,
}

impl Oracle for Strangers {
    fn name(&self) -> &'static str {
        "strangers lock nobody out"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let Some(aftermath) = &view.aftermath else { return Ok(()) };
        if let Some(ended) = aftermath.ended.first() {
            return Err(format!("the process on {ended} ended, and only strangers had done anything"));
        }
        self.newest.look(view);
        let Some(silent) = aftermath.silent_for.filter(|silent| *silent > FORGOTTEN) else { return Ok(()) };
        let unwritten = view.now.saturating_sub(self.newest.seen_at());
        if unwritten > UNWRITTEN {
            return Err(format!("{silent:?} after the last word of a stranger nothing was written for {unwritten:?}"));
        }
        if !aftermath.originals_read {
            return Err(format!("{silent:?} after its copy stopped a member does not read"));
        }
        Ok(())
    }
}
