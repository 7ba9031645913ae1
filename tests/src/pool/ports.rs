//! Ports on which the processes of a pool listen.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Ports of members and agents: below those that the kernel gives to connections that go out, which would take one that
/// was found free before whoever it is for listens on it.
const PORTS: Range<u16> = 10_000..18_000;

/// An address on which nobody listens, another one each time.
pub(super) fn free_address(host: &str) -> Result<String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other processes that test begin elsewhere.
    let begin = u16::try_from(std::process::id().wrapping_mul(211) % u32::from(PORTS.end - PORTS.start))?;
    for _ in PORTS {
        let place = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
        if let Ok(socket) = TcpListener::bind((host, PORTS.start + place)) {
            return Ok(socket.local_addr()?.to_string());
        }
    }
    bail!("all ports from {} to {} of {host} are taken", PORTS.start, PORTS.end)
}
