//! The clock, the kernel and the memory.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;

use nix::errno::Errno;

use crate::doctor::facts::{ClockFacts, KernelFacts, MemoryFacts, Seen};

fn read(path: &str) -> Seen<String> {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(|error| format!("{path}: {error}"))
}

/// Asks the kernel whether the clock is kept right; sets nothing.
#[allow(unsafe_code)]
pub(super) fn clock() -> Seen<ClockFacts> {
    let mut times = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zeros are a valid `timex`, and `modes` of zero asks without setting anything.
    let state = unsafe { libc::adjtimex(times.as_mut_ptr()) };
    if state < 0 {
        return Err(format!("adjtimex: {}", Errno::last()));
    }
    // SAFETY: it was zeroed, and the kernel has filled it.
    let times = unsafe { times.assume_init() };
    let unsynchronised = state == libc::TIME_ERROR || times.status & libc::STA_UNSYNC != 0;
    // `monotonic 0 0` and `boottime 0 0`; kernels without time namespaces have no such file.
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let namespace_offsets =
        offsets.lines().filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse().ok()).collect();
    Ok(ClockFacts { synchronised: !unsynchronised, max_error_us: times.maxerror, namespace_offsets })
}

/// The release of the kernel, and its features.
pub(super) fn kernel() -> Seen<KernelFacts> {
    let status = read("/proc/self/status")?;
    let huge = read("/sys/kernel/mm/transparent_hugepage/enabled").ok();
    Ok(KernelFacts {
        release: read("/proc/sys/kernel/osrelease")?,
        pidfd: pidfd(),
        user_namespaces: read("/proc/sys/user/max_user_namespaces").ok().and_then(|text| text.parse().ok()),
        seccomp_actions: read("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default(),
        no_new_privileges: status.lines().any(|line| line.strip_prefix("NoNewPrivs:").is_some_and(|v| v.trim() == "1")),
        entropy: read("/proc/sys/kernel/random/entropy_avail").ok().and_then(|text| text.parse().ok()),
        huge_pages: huge.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
    })
}

#[allow(unsafe_code)]
fn pidfd() -> Seen<()> {
    // SAFETY: it takes two numbers; what it opens is closed at once, and belongs to nobody else.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
    let Ok(descriptor) = i32::try_from(opened) else { return Err("no descriptor".to_owned()) };
    if descriptor < 0 {
        return Err(Errno::last().to_string());
    }
    // SAFETY: as above.
    unsafe { libc::close(descriptor) };
    Ok(())
}

pub(super) fn memory() -> Seen<MemoryFacts> {
    if !Path::new("/proc/meminfo").exists() {
        return Err("/proc is not mounted".to_owned());
    }
    Ok(parse_memory(&read("/proc/meminfo")?))
}

fn parse_memory(text: &str) -> MemoryFacts {
    let kib = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    let (swap, free) = (kib("SwapTotal"), kib("SwapFree"));
    MemoryFacts {
        available_kib: kib("MemAvailable"),
        total_kib: kib("MemTotal"),
        swap_kib: swap,
        swap_used_kib: swap.saturating_sub(free),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let text = "MemTotal:  16000 kB\nMemAvailable:  9000 kB\nSwapTotal: 400 kB\nSwapFree: 100 kB\n";
        let expected = MemoryFacts { available_kib: 9000, total_kib: 16_000, swap_kib: 400, swap_used_kib: 300 };
        assert_eq!(parse_memory(text), expected);
    }
}
