//! For how long leases may be out there.

use super::Applied;
use crate::command::Outcome;
use crate::event::Event;
use crate::ids::NodeId;
use crate::lease::{LeaseCeiling, LeaseTimings};
use crate::rejection::Rejection;
use crate::state::State;
use crate::units::Revision;

impl State {
    /// The timings are about to become these. Leases are granted to nodes that the ledger knows, so that none can be
    /// out there while there never was one.
    pub(super) fn raise_lease_ceiling(&mut self, to: &LeaseTimings) {
        if self.config.leases != *to {
            let granted = self.next_node > NodeId(0);
            self.lease_ceiling = self.lease_ceiling.after_change(to, self.revision, granted);
        }
    }

    /// Leases of before the change are over, by the word of a leader that waited for them.
    pub(super) fn settle_leases(&mut self, changed_at: Revision) -> Applied {
        if changed_at != self.lease_ceiling.changed_at {
            return Err(Rejection::ConfigChanged);
        }
        let settled = LeaseCeiling { regrant_after: self.config.leases.regrant_after, changed_at };
        if settled != self.lease_ceiling {
            self.lease_ceiling = settled;
            self.pending_events.push(Event::Config);
        }
        Ok(Outcome::Done)
    }
}
