//! A profile of the processor time of a process: its stacks, looked at again and again for a while.
//!
//! A timer of the kernel interrupts whichever thread computes, and its stack is written down. That is done only while
//! somebody asks for it. Threads that wait are not seen; [`of_process`](crate::of_process) tells what they wait for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use pprof::{Frames, ProfilerGuardBuilder};

use crate::Part;

/// Looks in a second of processor time: no round number, so that nothing that is done each hundredth of a second is
/// always met or never.
const RATE: i32 = 99;
pub const LONGEST: Duration = Duration::from_secs(60);
/// Libraries in which an interrupted stack cannot be walked: the walk itself may need a lock that is held there.
const LEFT_OUT: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// True while a profile is made: there is one timer in a process.
static BUSY: AtomicBool = AtomicBool::new(false);

/// The right to profile this process; there is one of it.
#[derive(Debug)]
pub struct Profiler(());

impl Profiler {
    /// Takes the right; `None` while somebody else has it.
    #[must_use]
    pub fn take() -> Option<Self> {
        (!BUSY.swap(true, Ordering::Acquire)).then_some(Self(()))
    }

    /// Has the process looked at for so long, which takes that long; a part of what it tells of itself.
    #[must_use]
    pub fn part(self, time: Duration) -> Part {
        Part::new("process/profile.folded", profile(time))
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        BUSY.store(false, Ordering::Release);
    }
}

/// Looks for so long, and answers the stacks as text: in each line a thread and its calls from the outermost to the
/// innermost, separated by semicolons, then how often that was seen. Flame graphs are drawn from such files.
///
/// # Errors
/// The kernel gives no timer; the text says so.
fn profile(time: Duration) -> Result<Vec<u8>, String> {
    let unmade = |error: pprof::Error| format!("the kernel does not let this process be profiled: {error}");
    let profiler = ProfilerGuardBuilder::default().frequency(RATE).blocklist(&LEFT_OUT).build().map_err(unmade)?;
    sleep(time.min(LONGEST));
    let seen = profiler.report().build().map_err(unmade)?;
    drop(profiler);
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (stack, count) in &seen.data {
        *lines.entry(line(stack)).or_default() += usize::try_from(*count).unwrap_or_default();
    }
    Ok(lines.into_iter().flat_map(|(stack, count)| format!("{stack} {count}\n").into_bytes()).collect())
}

fn line(stack: &Frames) -> String {
    let mut words = vec![stack.thread_name.clone()];
    // A call may stand for several: those that were inlined in it.
    let calls = stack.frames.iter().rev().flat_map(|symbols| symbols.iter().rev());
    words.extend(calls.map(|symbol| symbol.name().replace([';', '\n'], ",")));
    words.join(";")
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::thread;

    use super::*;

    #[inline(never)]
    fn computes_all_the_time(stop: &AtomicBool) {
        let mut sum = 1_u64;
        while !stop.load(Ordering::Relaxed) {
            for number in 0..10_000 {
                sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
            }
        }
    }

    #[test]
    fn what_a_thread_computes_is_seen_under_its_name() {
        let stop = AtomicBool::new(false);
        let told = thread::scope(|scope| {
            let busy = || computes_all_the_time(&stop);
            thread::Builder::new().name("busy".to_owned()).spawn_scoped(scope, busy).expect("a thread");
            let told = loop {
                let profiler = Profiler::take().expect("nobody else makes one");
                let part = profiler.part(Duration::from_millis(300));
                let told = String::from_utf8(part.content.expect("a profile")).expect("text");
                // On a machine that is busy the thread may have had no turn.
                if told.lines().any(|line| line.starts_with("busy;") && line.contains("computes_all_the_time")) {
                    break told;
                }
            };
            let one = Profiler::take().expect("the one before is made");
            assert!(Profiler::take().is_none(), "one at a time");
            drop(one);
            stop.store(true, Ordering::Relaxed);
            told
        });
        let counted =
            told.lines().all(|line| line.rsplit_once(' ').is_some_and(|(_, count)| count.parse::<u64>().is_ok()));
        assert!(counted, "{told}");
    }
}
