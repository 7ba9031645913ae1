//! Hosts for the members that can be cut off: network namespaces of the benchmark's own, joined by a bridge.
//!
//! The bridge lies in a network that only this process and its children see ([`enter_own_network`]), so that no address
//! and no rule of the machine is touched.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, unshare};

/// First three numbers of all addresses here.
const SUBNET: [u8; 3] = [10, 98, 0];
/// Last number of this process's own address.
const OWN: u8 = 254;
/// Port at which members listen; each has its host to itself.
const PORT: u16 = 7070;
/// Folder in which `ip netns` keeps the networks that it names.
const NAMED: &str = "/var/run/netns";

/// Puts this process into a network of its own. Must be called before it has a second thread.
///
/// # Errors
/// This takes root.
pub fn enter_own_network() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context("a network of the benchmark's own takes root")?;
    ip("link set lo up")
}

/// Hosts, one for each member. They go when this is dropped.
#[derive(Debug)]
pub struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// Makes `count` hosts, all reached from this process and from each other.
    ///
    /// # Errors
    /// The process is not in a network of its own, or `ip` fails.
    pub fn make(count: usize) -> Result<Self> {
        let mut hosts = Self { names: Vec::new() };
        ip("link add bridge type bridge")?;
        ip(&format!("addr add {}/24 dev bridge", address(OWN)))?;
        ip("link set bridge up")?;
        for seat in 0..count {
            let name = format!("tessera-chaos-{}-{seat}", std::process::id());
            ip(&format!("netns add {name}"))?;
            hosts.names.push(name.clone());
            let near = cable(seat);
            ip(&format!("link add {near} type veth peer name eth0 netns {name}"))?;
            ip(&format!("link set {near} master bridge up"))?;
            ip(&format!("-n {name} addr add {}/24 dev eth0", hosts.address(seat).ip()))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(hosts)
    }

    /// Address at which the member of a seat listens.
    #[must_use]
    pub fn address(&self, seat: usize) -> SocketAddr {
        let last = u8::try_from(seat + 1).unwrap_or(u8::MAX);
        SocketAddr::new(address(last), PORT)
    }

    /// The file that stands for a host's network.
    #[must_use]
    pub fn network(&self, seat: usize) -> PathBuf {
        Path::new(NAMED).join(&self.names[seat])
    }

    /// Packets to and from the host vanish.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn cut_off(&self, seat: usize) -> Result<()> {
        ip(&format!("link set {} down", cable(seat)))
    }

    /// The host is reached again.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn join(&self, seat: usize) -> Result<()> {
        ip(&format!("link set {} up", cable(seat)))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = ip(&format!("netns delete {name}")) {
                eprintln!("{error:#}");
            }
        }
        // The bridge takes its ends of the cables out of use; they went with the hosts.
        if let Err(error) = ip("link delete bridge") {
            eprintln!("{error:#}");
        }
    }
}

fn address(last: u8) -> IpAddr {
    let [a, b, c] = SUBNET;
    Ipv4Addr::new(a, b, c, last).into()
}

fn cable(seat: usize) -> String {
    format!("seat{seat}")
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output().context("cannot run ip (Debian: iproute2)")?;
    ensure!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
