//! The part of a virtual card over several nodes that one worker has.
//!
//! The first worker runs the program, and the first slice server, which serves it. Those of the other nodes serve their
//! slices and nothing else: they come to the first server at the port that the ledger gave to their card, prove the
//! token that the leader derived for it, and end when the card does. Where the first worker has no slices, its program
//! comes to the first server of the others, at another port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use tessera_api::v1 as wire;

use crate::reach::of_host;

/// The meeting point of the slice servers of a card over several nodes, and which of them are this worker's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Across {
    /// Address at which the first server listens: a port at all addresses of its host, because others may reach it at
    /// any of them.
    pub listen: String,
    /// Address at which the others reach the first server.
    pub address: String,
    /// Slices of the card that workers before this one have.
    pub before: usize,
    /// Slices of the card.
    pub of: usize,
    /// The nodes with the others.
    pub others: Vec<String>,
}

impl Across {
    /// The part of the worker of this order; `None` where its card lies on one node, or on others alone.
    #[must_use]
    pub fn of(order: &wire::WorkerOrder) -> Option<Self> {
        let own = order.worker.unwrap_or_default().rank;
        if !spreads(order) || !has_slices(order) {
            return None;
        }
        let before = order.slices.iter().filter(|slice| slice.rank < own).count();
        let (host, port) = (&order.card_address, u16::try_from(order.card_port).unwrap_or_default());
        let listen = everywhere(host, port);
        let mut others: Vec<String> =
            order.slices.iter().filter(|slice| slice.rank != own).map(|slice| slice.node_name.clone()).collect();
        others.dedup();
        let address = format!("tcp:{}", of_host(host, port));
        Some(Self { listen, address, before, of: order.slices.len(), others })
    }

    /// Address at which the server of this number, counted from 0 over the slices of the whole card, meets the others:
    /// number 0 listens, the others connect.
    #[must_use]
    pub fn group(&self, rank: usize) -> &str {
        if rank == 0 { &self.listen } else { &self.address }
    }
}

/// A port of this host at all its addresses, of the family by which others reach it.
fn everywhere(host: &str, port: u16) -> String {
    let any = match host.parse() {
        Ok(IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        Ok(IpAddr::V4(_)) | Err(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    format!("tcp:{}", SocketAddr::new(any, port))
}

/// The addresses of a card's first slice server when no slice of the card is with the program: where the server listens
/// for the program, and where the program reaches it. `None`: the order names no port for that.
#[must_use]
pub fn between_nodes(order: &wire::WorkerOrder) -> Option<(String, String)> {
    let (host, port) = (&order.server_address, u16::try_from(order.server_port).unwrap_or_default());
    (port > 0).then(|| (everywhere(host, port), format!("tcp:{}", of_host(host, port))))
}

/// Returns whether the virtual card of a worker has slices of several workers.
fn spreads(order: &wire::WorkerOrder) -> bool {
    order.slices.iter().any(|slice| Some(slice.rank) != order.slices.first().map(|first| first.rank))
}

/// Returns whether a worker of this order has slices of its virtual card.
#[must_use]
pub fn has_slices(order: &wire::WorkerOrder) -> bool {
    let own = order.worker.unwrap_or_default().rank;
    order.slices.iter().any(|slice| slice.rank == own)
}

/// Returns whether a worker of this order runs its job's program.
#[must_use]
pub const fn runs_program(order: &wire::WorkerOrder) -> bool {
    !order.only_serves
}

/// Returns whether a worker of this order has the first slice server of its virtual card.
#[must_use]
pub fn has_first_server(order: &wire::WorkerOrder) -> bool {
    order.slices.iter().map(|slice| slice.rank).min() == Some(order.worker.unwrap_or_default().rank)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::time::Duration;

    use tessera_devices::{Share, TorchDevice};
    use tessera_ledger::Mebibytes;

    use super::*;
    use crate::device::served::Served;
    use crate::device::{Plan, ProgramPlace};

    fn served() -> Served {
        Served {
            python: "/opt/python".into(),
            build: "/opt/build".into(),
            environment: BTreeMap::new(),
            start_within: Duration::from_secs(60),
            listen: IpAddr::from([0, 0, 0, 0]),
            host: "node-a".to_owned(),
            host_lease: Duration::from_secs(60),
            version: String::new(),
        }
    }

    /// The order to a worker of a card with two slices on its first node and one on its second.
    fn order(rank: u32, access: wire::Access) -> wire::WorkerOrder {
        let slice = |rank| wire::PlacedSlice { rank, ..Default::default() };
        let virtual_card = Some(wire::VirtualCardRequest { access: access.into(), ..Default::default() });
        wire::WorkerOrder {
            worker: Some(wire::WorkerRef { rank, ..Default::default() }),
            spec: Some(wire::JobSpec { virtual_card, ..Default::default() }),
            slices: vec![slice(0), slice(0), slice(1)],
            card_address: "fd00::7".to_owned(),
            card_port: 20_001,
            only_serves: rank > 0 && access == wire::Access::Device,
            ..Default::default()
        }
    }

    fn arguments(order: &wire::WorkerOrder, slice: usize, place: ProgramPlace) -> String {
        let part = Share(500);
        let device = TorchDevice {
            name: "cpu".to_owned(),
            environment: BTreeMap::new(),
            share: part,
            part,
            threads: 0,
            memory: Mebibytes(64),
        };
        let plan = Plan::new(&served(), &[device.clone(), device], place, BTreeMap::new());
        plan.across(Across::of(order)).arguments(slice, Path::new("/w/group")).join(" ")
    }

    #[test]
    fn servers_of_several_nodes_meet_at_the_first_of_them() {
        let slice = "--device cpu --memory 64MiB --share 0.500 --part 0.500";
        let listens = ProgramPlace::Here("/w/slice".into());
        let first = order(0, wire::Access::Device);
        let group = "--of 3 --group tcp:[::]:20001 --patience 120";
        assert_eq!(arguments(&first, 0, listens.clone()), format!("{slice} --rank 0 {group} --listen unix:/w/slice"));
        let group = "--of 3 --group tcp:[fd00::7]:20001 --patience inf";
        assert_eq!(arguments(&first, 1, listens.clone()), format!("{slice} --rank 1 {group}"));
        let second = order(1, wire::Access::Device);
        assert_eq!(arguments(&second, 0, ProgramPlace::WithFirst), format!("{slice} --rank 2 {group}"));
        assert_eq!((runs_program(&first), runs_program(&second)), (true, false));
        assert!(runs_program(&order(1, wire::Access::Worker)), "each of its workers has a program");
        let alone = wire::WorkerOrder { slices: first.slices[..2].to_vec(), ..first };
        assert_eq!(arguments(&alone, 1, listens), format!("{slice} --rank 1 --of 2 --group unix:/w/group"));
    }

    #[test]
    fn a_program_beside_its_card_comes_to_the_first_server_at_a_port_of_its_own() {
        let slice = |rank| wire::PlacedSlice { rank, ..Default::default() };
        let of_card = |rank| wire::WorkerOrder {
            slices: vec![slice(1), slice(2)],
            server_address: "fd00::7".to_owned(),
            server_port: 20_002,
            ..order(rank, wire::Access::Device)
        };
        let [program, first, second] = [0, 1, 2].map(of_card);
        let there = ("tcp:[::]:20002".to_owned(), "tcp:[fd00::7]:20002".to_owned());
        assert_eq!(between_nodes(&program), Some(there.clone()));
        assert_eq!([&program, &first, &second].map(has_first_server), [false, true, false]);
        assert_eq!(Across::of(&program), None, "it has no server that others meet");
        let place = ProgramPlace::OnOtherNode { listen: there.0, lease: Duration::from_secs(60) };
        let told = arguments(&first, 0, place);
        let expected =
            "--rank 0 --of 2 --group tcp:[::]:20001 --patience 120 --listen tcp:[::]:20002 --lease 60 --await-host";
        assert!(told.ends_with(expected), "{told}");
        assert!(arguments(&second, 0, ProgramPlace::WithFirst).contains("--rank 1 --of 2"));
    }
}
