//! Processor time that a run costs: on a machine whose processors are all busy, throughput depends on nothing else.

use anyhow::Result;
use serde::Serialize;
use tokio::time::Duration;

use crate::process::processor_time;
use crate::trio::{Seat, Trio};

/// Processor time that members and clients have used up to some moment.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    leader: Duration,
    followers: Duration,
    clients: Duration,
}

/// Processor time per acknowledged write, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effort {
    /// Processor time of the leader.
    pub leader_us: f64,
    /// Processor time of both followers together.
    pub followers_us: f64,
    /// Processor time of the clients: this process.
    pub clients_us: f64,
}

impl Meter {
    /// Reads it.
    ///
    /// # Errors
    /// A member does not run.
    pub fn read(trio: &impl Trio, leader: Seat) -> Result<Self> {
        let of = |seat: Seat| processor_time(trio.seats().pid(seat)?);
        let second = leader.next();
        Ok(Self {
            leader: of(leader)?,
            followers: of(second)? + of(second.next())?,
            clients: processor_time(std::process::id())?,
        })
    }

    /// The processor time per write, for `writes` writes that were made between `self` and `later`.
    #[must_use]
    pub fn effort(self, later: Self, writes: usize) -> Effort {
        let each = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() * 1e6 / writes.max(1) as f64;
        Effort {
            leader_us: each(self.leader, later.leader),
            followers_us: each(self.followers, later.followers),
            clients_us: each(self.clients, later.clients),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_shared_by_all_writes() {
        let at = |ms: [u64; 3]| {
            let [leader, followers, clients] = ms.map(Duration::from_millis);
            Meter { leader, followers, clients }
        };
        let effort = at([100, 0, 50]).effort(at([1100, 500, 150]), 10_000);
        assert_eq!(effort, Effort { leader_us: 100.0, followers_us: 50.0, clients_us: 10.0 });
    }
}
