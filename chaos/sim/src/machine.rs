//! The two questions that any library may put to the operating system behind our back: what time is it, and give me
//! something random.
//!
//! A simulation answers both itself, for the whole process: the C library's functions are replaced by ones that answer
//! from simulated time and from the run's seed. So neither the seeds of hash maps nor the instants that a library takes
//! can make two runs of one seed differ. One process simulates one seed, on one thread.
#![allow(unsafe_code, reason = "the two functions of the C library are replaced at its binary interface")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// True if this process simulates; before that, the system is asked.
static SIMULATING: AtomicBool = AtomicBool::new(false);
/// Simulated nanoseconds since the run began.
static NOW: AtomicU64 = AtomicU64::new(0);
/// State of the generator behind `getrandom`.
static ENTROPY: AtomicU64 = AtomicU64::new(0);

/// Reading of clocks when a run begins: some days of uptime, so that nothing lies before zero.
const EPOCH: Duration = Duration::from_secs(1_000_000);
/// 2026-01-01, the day of every run.
const DAY: Duration = Duration::from_secs(1_767_225_600);
/// Milliseconds of the day that have passed when the run begins.
static BEGINS_AT: AtomicU64 = AtomicU64::new(0);

/// The reading of correct wall clocks when a run begins.
pub fn wall_epoch() -> Duration {
    DAY + Duration::from_millis(BEGINS_AT.load(Ordering::Relaxed))
}

/// The run begins at this time of the day. To be called before anything looks at a clock.
pub fn begin_at(time: Duration) {
    BEGINS_AT.store(u64::try_from(time.as_millis()).unwrap_or_default(), Ordering::Relaxed);
}

/// Simulated time since the run began.
pub fn now() -> Duration {
    Duration::from_nanos(NOW.load(Ordering::Relaxed))
}

/// Moves simulated time on.
pub fn set_now(now: Duration) {
    NOW.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// From now on this process lives in simulated time, and randomness comes from the seed. To be called before
/// anything else.
pub fn begin(seed: u64) {
    ENTROPY.store(mix(seed), Ordering::Relaxed);
    SIMULATING.store(true, Ordering::Relaxed);
}

/// One step of SplitMix64 (public domain, Sebastiano Vigna): every seed gives another stream, similar seeds
/// unrelated ones.
pub fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn next_entropy() -> u64 {
    mix(ENTROPY.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed))
}

/// In the place of the C library's `getrandom`.
///
/// # Safety
/// As the original: `buffer` points to `length` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, flags: u32) -> isize {
    if !SIMULATING.load(Ordering::Relaxed) {
        // SAFETY: the arguments are those of the system call.
        let read = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return isize::try_from(read).unwrap_or(-1);
    }
    // SAFETY: the caller keeps to the contract of getrandom(2).
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    for chunk in bytes.chunks_mut(8) {
        let random = next_entropy().to_le_bytes();
        chunk.copy_from_slice(&random[..chunk.len()]);
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}

/// In the place of the C library's `clock_gettime`, for every clock.
///
/// # Safety
/// As the original: `time` points to a `timespec` that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: i32, time: *mut libc::timespec) -> i32 {
    if !SIMULATING.load(Ordering::Relaxed) {
        // SAFETY: the arguments are those of the system call.
        let read = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        return i32::try_from(read).unwrap_or(-1);
    }
    let since = now() + if clock == libc::CLOCK_REALTIME { wall_epoch() } else { EPOCH };
    // SAFETY: the caller keeps to the contract of clock_gettime(2).
    unsafe {
        (*time).tv_sec = libc::time_t::try_from(since.as_secs()).unwrap_or(libc::time_t::MAX);
        (*time).tv_nsec = libc::c_long::from(since.subsec_nanos());
    }
    0
}
