//! Is the clock right, and is it the host's?

use crate::doctor::facts::Facts;
use crate::doctor::finding::{Check, Finding};

const SYNCHRONISED: Check = Check(
    "clock.synchronised",
    "a member whose clock is off hands leadership over, and request ids from the future are refused",
);
const NAMESPACE: Check =
    Check("clock.namespace", "leases are counted on CLOCK_BOOTTIME; in a time namespace it is not the host's");
/// An error above this is said, in microseconds: a tenth of what members' clocks may be apart.
const LARGE_ERROR_US: i64 = 1_000_000;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let clock = match &facts.clock {
        Ok(clock) => clock,
        Err(error) => return vec![SYNCHRONISED.warning(format!("the clock cannot be asked: {error}"), "look at NTP")],
    };
    let error = clock.max_error_us as f64 / 1000.0;
    let synchronised = if !clock.synchronised {
        SYNCHRONISED.warning(
            "the kernel says that nobody keeps the clock right",
            "run chrony, systemd-timesyncd or ntpd; `timedatectl` says which is there",
        )
    } else if clock.max_error_us > LARGE_ERROR_US {
        SYNCHRONISED.warning(format!("kept right, but it may be off by {error:.0} ms"), "look at the servers of NTP")
    } else {
        SYNCHRONISED.ok(format!("kept right, within {error:.0} ms"))
    };
    let namespace = if clock.namespace_offsets.iter().any(|offset| *offset != 0) {
        NAMESPACE.warning(
            format!("clocks are shifted by {:?} s here", clock.namespace_offsets),
            "run members and agents outside of time namespaces",
        )
    } else {
        NAMESPACE.ok("the host's own clocks")
    };
    vec![synchronised, namespace]
}
