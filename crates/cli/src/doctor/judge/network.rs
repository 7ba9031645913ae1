//! Can others be reached, and can this host be reached?

use crate::doctor::facts::{Facts, PortFacts, WayFacts};
use crate::doctor::finding::{Check, Finding};

const PORT: Check = Check("network.port", "what does not listen is reached by nobody");
const NAME: Check = Check("network.name", "a name that is resolved slowly delays every new connection");
const WAY: Check =
    Check("network.round_trip", "every write waits for a round trip between members, elections for several");
/// A name should not take longer, in microseconds.
const SLOW_NAME_US: u64 = 500_000;
/// Round trips of clients and agents that are said, in microseconds.
const SLOW_WAY_US: u64 = 200_000;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let ports = facts.ports.iter().map(judge_port);
    let ways = facts.ways.iter().flat_map(|way| judge_way(facts, way));
    ports.chain(ways).collect()
}

fn judge_port(port: &PortFacts) -> Finding {
    let PortFacts { of, address, answers, bindable } = port;
    let finding = match (answers, bindable) {
        (true, _) => PORT.ok("something answers there"),
        (false, Ok(())) => PORT.ok("nothing listens there yet, and it is free"),
        (false, Err(error)) => PORT.failure(
            format!("nothing answers there, and it cannot be listened at: {error}"),
            "choose an address of this host, end what has the port, or let the service listen below 1024",
        ),
    };
    finding.of(format!("{of} {address}"))
}

fn judge_way(facts: &Facts, way: &WayFacts) -> Vec<Finding> {
    let milliseconds = |us: u64| us as f64 / 1000.0;
    let name = match &way.resolved_us {
        Ok(us) if *us > SLOW_NAME_US => NAME
            .warning(format!("resolved in {:.0} ms", milliseconds(*us)), "look at DNS, or name the host in /etc/hosts"),
        Ok(us) => NAME.ok(format!("resolved in {:.1} ms", milliseconds(*us))),
        Err(error) => NAME.failure(format!("not resolved: {error}"), "name an address, or look at DNS and /etc/hosts"),
    };
    // Between members an election must not begin because a heartbeat was on its way.
    let (slow, too_slow) = match &facts.member {
        Some(member) => (member.heartbeat_ms * 500, member.election_ms * 1000),
        None => (SLOW_WAY_US, u64::MAX),
    };
    let next = "look at the network; between distant sites raise `heartbeat` and `election_timeout_*` of all members";
    let round_trip = match &way.round_trip_us {
        Ok(us) => {
            let seen = format!("{:.1} ms", milliseconds(*us));
            match *us {
                us if us > too_slow => WAY.failure(seen, next),
                us if us > slow => WAY.warning(seen, next),
                _ => WAY.ok(seen),
            }
        }
        Err(error) => WAY.failure(
            format!("no connection: {error}"),
            "start the member, or look at routes and firewalls between the hosts",
        ),
    };
    [name, round_trip].map(|finding| finding.of(way.address.clone())).to_vec()
}
