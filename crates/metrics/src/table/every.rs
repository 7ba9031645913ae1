//! What members and agents both measure.

use super::{CounterKind, Declaration, GaugeKind, HistogramKind, Metric, Process, metrics};

/// Bounds in seconds for what should take microseconds to a second.
const MESSAGES: [f64; 11] = [0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

metrics! { Every;
    BUILD_INFO: GaugeKind "tessera_build_info" ["version", "revision"]
        "Release of this process, and the revision of the source that it was built from";
    ACTOR_MAILBOX_DEPTH: GaugeKind "tessera_actor_mailbox_depth" ["actor"] "Messages that wait in mailboxes";
    ACTOR_REFUSED: CounterKind "tessera_actor_refused_total" ["actor"]
        "Messages that were refused because a mailbox was full";
    ACTOR_PANICS: CounterKind "tessera_actor_panics_total" ["actor"] "Panics of actors; each is a bug";
    ACTOR_WAIT: HistogramKind "tessera_actor_wait_seconds" ["actor"] in MESSAGES
        "Time that messages waited in mailboxes";
    ACTOR_HANDLE: HistogramKind "tessera_actor_handle_seconds" ["actor"] in MESSAGES "Time to handle a message";
}
