//! The numbers an operator may turn, their defaults and the inequalities between them.
//!
//! # Why these defaults
//!
//! A follower starts an election when it has not heard from the leader for `election_timeout_max` (the lease, during
//! which it also refuses to vote for anyone else) plus a random share between `election_timeout_min` and
//! `election_timeout_max`: with 100 and 220 ms that is 320 to 440 ms of silence. Pre-vote makes an election that starts
//! nevertheless harmless: as long as the others hear the leader, nobody grants it and no term is burnt.
//!
//! What ends a reign over a stall is the leader itself, and sooner. So that a leader that reaches some voters but no
//! quorum falls silent, it sends no heartbeats once the newest one that a quorum acknowledged was *sent*
//! `election_timeout_max` ago. When a leader's process, or the way to its quorum, stands still, that acknowledgement
//! may be older than the stall by a heartbeat and a round trip. So a stall of up to about `election_timeout_max` -
//! `heartbeat` - one round trip is survived for certain, about 180 ms; a longer one may cost a reign. Hence
//! `election_timeout_max` must be at least four heartbeats. A leader whose process stood still for longer hands over
//! as soon as it goes on.
//!
//! The usual death is faster than a timeout. When the leader's process is killed, or its host reboots in order, the
//! kernel closes its sockets, and every follower holds one open for exactly this purpose (`Presence` in the raft
//! service). A follower that sees it close, and whose new connection the leader's host then refuses, gives up its own
//! lease (docs/decisions/0040): a quarter of `stagger` later the first follower asks for pre-votes, the next one a
//! `stagger` later, and so on for those ahead in the order that cannot win. With two round trips and two synced writes
//! that is 10 to 30 ms from the kill to the next leader. A closed socket alone, or a host that does not answer, never
//! shortens a lease: then the followers ask as soon as it is over, in the same order.

use std::time::Duration;

/// Settings of one member's consensus. All members of a cluster should have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsensusConfig {
    /// The interval at which the leader sends heartbeats.
    pub heartbeat: Duration,
    /// Shortest random share of an election timeout. It is also the deadline of one request for a vote, so it must
    /// leave room for a synced write.
    pub election_timeout_min: Duration,
    /// Longest random share of an election timeout, and the lease: a follower that heard the leader within it votes for
    /// nobody else, and a leader that no quorum acknowledged within it accepts no proposal.
    pub election_timeout_max: Duration,
    /// Distance between the attempts of two followers that both saw the leader's process end.
    pub stagger: Duration,
    /// A snapshot is taken after this many entries.
    pub snapshot_entries: u64,
    /// A snapshot is taken after entries of this many bytes.
    pub snapshot_bytes: u64,
    /// The number of entries that are kept from before a snapshot, for followers that are a little behind.
    pub keep_entries: u64,
    /// At most so many bytes of entries before a snapshot are kept.
    pub keep_bytes: u64,
    /// Most commands in one entry.
    pub max_batch_commands: usize,
    /// Most bytes of commands in one entry (one command may be larger than the rest of the batch, never than this).
    pub max_batch_bytes: usize,
    /// Most entries proposed and not yet applied; more commands wait and share the next entry.
    pub max_in_flight: usize,
    /// Most commands that wait to be proposed; beyond it callers get
    /// [`ProposeError::Overloaded`](crate::ProposeError::Overloaded).
    pub mailbox: usize,
    /// Most bytes of commands that wait to be proposed; beyond it callers get
    /// [`ProposeError::Overloaded`](crate::ProposeError::Overloaded).
    pub mailbox_bytes: usize,
    /// Most bytes of entries in one append request.
    pub append_bytes: u64,
    /// Most bytes of recent entries kept decoded in memory.
    pub cache_bytes: usize,
    /// The longest time for which an append, or one snapshot chunk, may go unanswered before the connection is given
    /// up.
    pub append_timeout: Duration,
    /// The longest time that a receiver may take to install a snapshot that has fully arrived.
    pub snapshot_install_timeout: Duration,
    /// A digest of the state is taken at every index that is a multiple of this (law L8).
    pub digest_interval: u64,
    /// The interval at which members compare digests, and their clocks with them.
    pub digest_period: Duration,
    /// The largest deviation of a member's wall clock from the time on which a quorum of the members' clocks agrees;
    /// beyond it the member hands leadership over.
    pub max_clock_offset: Duration,
}

impl Default for ConsensusConfig {
    fn default() -> Self {
        ConsensusConfig {
            heartbeat: Duration::from_millis(40),
            election_timeout_min: Duration::from_millis(100),
            election_timeout_max: Duration::from_millis(220),
            stagger: Duration::from_millis(20),
            snapshot_entries: 20_000,
            snapshot_bytes: 64 << 20,
            keep_entries: 5_000,
            keep_bytes: 32 << 20,
            max_batch_commands: 1_024,
            max_batch_bytes: 1 << 20,
            max_in_flight: 4,
            mailbox: 16_384,
            mailbox_bytes: 64 << 20,
            append_bytes: 2 << 20,
            cache_bytes: 64 << 20,
            append_timeout: Duration::from_secs(2),
            snapshot_install_timeout: Duration::from_secs(300),
            digest_interval: 1_000,
            digest_period: Duration::from_secs(5),
            max_clock_offset: Duration::from_secs(10),
        }
    }
}

/// Settings that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("consensus settings: {0}")]
pub struct BadConfig(pub String);

impl ConsensusConfig {
    /// The time for which a connection may carry no answer before it is given up: two leases.
    pub(crate) fn silence(&self) -> Duration {
        self.election_timeout_max * 2
    }

    /// Checks the inequalities between the settings.
    ///
    /// # Errors
    /// [`BadConfig`] naming the first inequality that does not hold.
    pub fn validate(&self) -> Result<(), BadConfig> {
        let rules = [
            (self.heartbeat >= Duration::from_millis(5), "heartbeat must be at least 5 ms"),
            (
                self.election_timeout_min >= self.heartbeat * 2,
                "election_timeout_min must be at least twice the heartbeat, or one lost packet starts an election",
            ),
            (
                self.election_timeout_max > self.election_timeout_min + Duration::from_millis(9),
                "election_timeout_max must exceed election_timeout_min by at least 10 ms, or votes split",
            ),
            (
                self.election_timeout_max >= self.heartbeat * 4,
                "election_timeout_max must be at least four heartbeats: a leader that no quorum acknowledged for so long falls \
                 silent",
            ),
            (
                self.stagger >= Duration::from_millis(5) && self.stagger <= self.election_timeout_min,
                "stagger must lie between 5 ms and election_timeout_min",
            ),
            (self.snapshot_entries > 0, "snapshot_entries must be positive"),
            (self.snapshot_bytes >= 1 << 16, "snapshot_bytes must be at least 64 KiB"),
            (
                self.max_batch_bytes as u64 <= self.append_bytes,
                "max_batch_bytes must not exceed append_bytes: an entry must fit into one request",
            ),
            (
                self.append_bytes <= MAX_MESSAGE_BYTES as u64 / 2,
                "append_bytes must not exceed 16 MiB, half of what a message may carry",
            ),
            (self.max_batch_commands > 0, "max_batch_commands must be positive"),
            (self.max_batch_bytes >= 1 << 10, "max_batch_bytes must be at least 1 KiB"),
            (self.max_in_flight > 0, "max_in_flight must be positive"),
            (self.mailbox >= self.max_batch_commands, "mailbox must hold at least one full batch"),
            (
                self.mailbox_bytes >= self.max_batch_bytes && self.mailbox_bytes <= MAX_MAILBOX_BYTES,
                "mailbox_bytes must hold at least one full batch and be at most 2 GiB",
            ),
            (
                self.append_timeout >= self.election_timeout_max,
                "append_timeout must not be shorter than election_timeout_max",
            ),
            (self.digest_interval > 0, "digest_interval must be positive"),
            (
                self.max_clock_offset >= Duration::from_secs(1),
                "max_clock_offset must be at least a second: a clock is read with the delay of a message",
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, broken)) => Err(BadConfig(broken.to_owned())),
        }
    }
}

/// Largest message between members, both ways.
pub(crate) const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// Most that [`ConsensusConfig::mailbox_bytes`] may be.
const MAX_MAILBOX_BYTES: usize = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together() {
        ConsensusConfig::default().validate().expect("defaults must be valid");
    }

    #[test]
    fn each_broken_inequality_is_named() {
        let broken = |change: fn(&mut ConsensusConfig)| {
            let mut config = ConsensusConfig::default();
            change(&mut config);
            config.validate().expect_err("must be refused").0
        };
        assert!(broken(|c| c.election_timeout_min = c.heartbeat).contains("election_timeout_min"));
        assert!(broken(|c| c.election_timeout_max = c.election_timeout_min).contains("election_timeout_max"));
        let three_heartbeats = |c: &mut ConsensusConfig| {
            (c.heartbeat, c.election_timeout_min) = (Duration::from_millis(60), Duration::from_millis(120));
        };
        assert!(broken(three_heartbeats).contains("four heartbeats"));
        assert!(broken(|c| c.heartbeat = Duration::ZERO).contains("heartbeat"));
        assert!(broken(|c| c.max_batch_bytes = 3 << 20).contains("max_batch_bytes"));
        assert!(broken(|c| c.append_bytes = 64 << 20).contains("append_bytes"));
        assert!(broken(|c| c.mailbox = 1).contains("mailbox"));
        assert!(broken(|c| c.mailbox_bytes = 1).contains("mailbox_bytes"));
        assert!(broken(|c| c.append_timeout = Duration::ZERO).contains("append_timeout"));
        assert!(broken(|c| c.stagger = Duration::ZERO).contains("stagger"));
        assert!(broken(|c| c.max_clock_offset = Duration::ZERO).contains("max_clock_offset"));
    }
}
