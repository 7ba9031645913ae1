//! Limits on the resources that the clients of a member may have open or under way at once, each refused with its own
//! reason beyond that.
//!
//! What agents and the other members need is never counted against clients: their connections are told from those of
//! clients by their first call, and their calls pass by.

use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tessera_api::error::{LIMIT, Refusal};
use tessera_api::v1::ErrorReason;
use tessera_connection::seats::SeatLimits;
use tessera_metrics::{Counters, Gauges, table};
use tonic::Status;

/// Limits on the resources that the clients of one member may have open or under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberLimits {
    /// Connections of clients. A quarter as many again may be open that have made no call yet.
    pub connections: usize,
    /// The longest time that a connection may be open without any call, and that a request may take to arrive.
    pub silence: Duration,
    /// Calls that are answered at once, watches and streams of output only while they are being opened.
    pub requests: usize,
    /// Bytes of requests that are being received or answered.
    pub request_bytes: usize,
    pub watches: usize,
    /// Bytes of large messages that wait for watchers to read them.
    pub watch_bytes: usize,
    /// Streams of workers' output.
    pub log_streams: usize,
    /// Streams of submissions, those that are passed on to the leader too.
    pub submission_streams: usize,
    /// Callers that wait for the laws to be checked; one check at a time serves all that wait for it.
    pub verifications: usize,
}

impl Default for MemberLimits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            silence: Duration::from_secs(10),
            requests: 1_024,
            request_bytes: 64 << 20,
            watches: 2_000,
            watch_bytes: 64 << 20,
            log_streams: 256,
            submission_streams: 256,
            verifications: 64,
        }
    }
}

impl MemberLimits {
    /// The part that bounds connections.
    pub(crate) const fn seats(&self) -> SeatLimits {
        SeatLimits { connections: self.connections, silence: self.silence }
    }

    /// The conditions that must hold: for each, true if it does, and the sentence that demands it.
    #[must_use]
    pub fn rules(&self) -> [(bool, &'static str); 4] {
        let streams = [self.watches, self.log_streams, self.submission_streams];
        let counts = [self.connections, self.requests, self.verifications].into_iter().chain(streams);
        let largest = 2 * tessera_api::limits::REQUEST;
        [
            (counts.into_iter().all(|count| count > 0), "limits must all be at least 1"),
            (self.request_bytes >= largest, "limits.request_bytes must be at least 8 MiB: two of the largest requests"),
            (self.watch_bytes >= largest, "limits.watch_bytes must be at least 8 MiB: two of the largest messages"),
            (self.silence >= Duration::from_secs(1), "limits.silence must be at least a second"),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limited {
    Connections,
    Requests,
    RequestBytes,
    Watches,
    WatchBytes,
    LogStreams,
    SubmissionStreams,
    Verifications,
}

impl Limited {
    const ALL: [Self; 8] = [
        Self::Connections,
        Self::Requests,
        Self::RequestBytes,
        Self::Watches,
        Self::WatchBytes,
        Self::LogStreams,
        Self::SubmissionStreams,
        Self::Verifications,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Requests => "requests",
            Self::RequestBytes => "request_bytes",
            Self::Watches => "watches",
            Self::WatchBytes => "watch_bytes",
            Self::LogStreams => "log_streams",
            Self::SubmissionStreams => "submission_streams",
            Self::Verifications => "verifications",
        }
    }

    const fn of(self, limits: &MemberLimits) -> usize {
        match self {
            Self::Connections => limits.connections,
            Self::Requests => limits.requests,
            Self::RequestBytes => limits.request_bytes,
            Self::Watches => limits.watches,
            Self::WatchBytes => limits.watch_bytes,
            Self::LogStreams => limits.log_streams,
            Self::SubmissionStreams => limits.submission_streams,
            Self::Verifications => limits.verifications,
        }
    }
}

/// The current use of each limit, and the number of refusals because of it. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct LimitMeters {
    limits: MemberLimits,
    used: Gauges<1>,
    most: Gauges<1>,
    refused: Counters<1>,
}

impl LimitMeters {
    pub(crate) fn new(limits: MemberLimits) -> Self {
        let (used, most) = (table::LIMIT_USED.unregistered(), table::LIMIT_MOST.unregistered());
        let meters = Self { limits, used, most, refused: table::LIMIT_REFUSED.unregistered() };
        for limited in Limited::ALL {
            let most = i64::try_from(limited.of(&limits)).unwrap_or(i64::MAX);
            meters.most.of([limited.name()]).set(most);
            meters.used(limited).set(0);
        }
        meters
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.used.register(registry);
        self.most.register(registry);
        self.refused.register(registry);
    }

    /// The gauge of what is used of a limit.
    pub(crate) fn used(&self, limited: Limited) -> Gauge {
        self.used.of([limited.name()])
    }

    /// Counts one more of something until what is answered is dropped.
    pub(crate) fn one(&self, limited: Limited) -> Use {
        let gauge = self.used(limited);
        gauge.inc();
        Use { gauge, amount: 1 }
    }

    /// Counts a refusal, and words it.
    pub(crate) fn refuse(&self, limited: Limited) -> Status {
        self.refused.of([limited.name()]).inc();
        refusal(limited, limited.of(&self.limits))
    }
}

/// A part of a limit that is used until this is dropped.
#[derive(Debug)]
pub(crate) struct Use {
    gauge: Gauge,
    amount: i64,
}

impl Drop for Use {
    fn drop(&mut self) {
        self.gauge.dec_by(self.amount);
    }
}

fn refusal(limited: Limited, most: usize) -> Status {
    let (reason, sentence) = match limited {
        Limited::Connections => (
            ErrorReason::TooManyConnections,
            format!(
                "this member keeps {most} connections of clients and has as many; close some, or ask another member"
            ),
        ),
        Limited::Requests => (
            ErrorReason::TooManyRequests,
            format!(
                "this member answers {most} calls at once and has as many; nothing was changed, back off and retry"
            ),
        ),
        Limited::RequestBytes => (
            ErrorReason::TooManyRequestBytes,
            format!("this member holds {most} bytes of requests at once; nothing was changed, back off and retry"),
        ),
        Limited::Watches | Limited::WatchBytes => (
            ErrorReason::TooManyWatches,
            format!("{most} watches are open on this member, as many as it keeps; close some, or ask another member"),
        ),
        Limited::LogStreams => (
            ErrorReason::TooManyLogStreams,
            format!(
                "{most} streams of output are open on this member, as many as it keeps; close some, or ask another"
            ),
        ),
        Limited::SubmissionStreams => (
            ErrorReason::TooManySubmissionStreams,
            format!(
                "{most} streams of submissions are open on this member, as many as it keeps; close some, or ask another"
            ),
        ),
        Limited::Verifications => (
            ErrorReason::TooManyVerifications,
            format!(
                "{most} callers wait for the laws to be checked, as many as may; retry when they have their answer"
            ),
        ),
    };
    Refusal::new(reason, sentence).with(LIMIT, most.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_and_refused_is_shown_beside_the_limit() {
        let meters = LimitMeters::new(MemberLimits { watches: 7, ..MemberLimits::default() });
        let open = [meters.one(Limited::Watches), meters.one(Limited::Watches)];
        drop(meters.refuse(Limited::Watches));
        let page = || {
            let (mut registry, mut page) = (Registry::default(), String::new());
            meters.register(&mut registry);
            prometheus_client::encoding::text::encode(&mut page, &registry).expect("writing to a string succeeds");
            page
        };
        for line in [
            "tessera_limit_used{limit=\"watches\"} 2",
            "tessera_limit_most{limit=\"watches\"} 7",
            "tessera_limit_refused_total{limit=\"watches\"} 1",
            "tessera_limit_used{limit=\"connections\"} 0",
        ] {
            assert!(page().contains(line), "{line} is not in:\n{}", page());
        }
        drop(open);
        assert!(page().contains("tessera_limit_used{limit=\"watches\"} 0"));
    }

    #[test]
    fn limits_that_could_not_work_are_named() {
        let defaults = MemberLimits::default();
        assert!(defaults.rules().iter().all(|(holds, _)| *holds));
        let broken = MemberLimits { request_bytes: 1 << 20, watches: 0, ..defaults };
        let named: Vec<&str> = broken.rules().iter().filter(|(holds, _)| !holds).map(|(_, named)| *named).collect();
        assert!(named.len() == 2 && named[0].contains("at least 1") && named[1].contains("request_bytes"), "{named:?}");
    }
}
