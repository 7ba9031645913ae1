//! A profile of the processor time of a process: its stacks, looked at again and again for a while.
//!
//! A timer of the kernel interrupts whichever thread computes, and its stack is written down. That is done only while
//! somebody asks for it. Threads that wait are not seen; [`of_process`](crate::of_process) tells what they wait for.
//!
//! Stacks are addresses here. A process of its own gives them names (`names`): the tables of names are larger than
//! all else that a member holds, and whoever has read them once keeps them.

mod looks;
mod maps;
mod names;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use self::looks::Looks;
use self::maps::Maps;
use crate::Part;

pub use self::names::{WORD, answer};

pub const LONGEST: Duration = Duration::from_secs(60);
/// The pause after which is taken what was looked at: there is room for a multiple of what comes until then.
const PAUSE: Duration = Duration::from_millis(20);
/// Different stacks that are kept; of further ones the thread alone is.
const STACKS: usize = 8192;

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
    ///
    /// These are stacks as text: in each line a thread and its calls from the outermost to the innermost, separated by
    /// semicolons, then how often that was seen. Flame graphs are drawn from such files.
    #[must_use]
    pub fn part(self, time: Duration) -> Part {
        let seen = profile(time).map(|seen| seen.text().into_bytes());
        Part::new("process/profile.folded", seen)
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        BUSY.store(false, Ordering::Release);
    }
}

/// Looks for so long.
///
/// # Errors
/// The kernel gives no timer, or does not say what lies where; the text says which.
fn profile(time: Duration) -> Result<Seen, String> {
    let unmade = |error: &dyn std::error::Error| format!("the kernel does not let this process be profiled: {error}");
    let maps = Maps::of_this_process().map_err(|error| unmade(&error))?;
    let looks = Looks::begin(&maps.unwalkable()).map_err(|error| unmade(&error))?;
    let (begun, mut seen) = (Instant::now(), Seen::default());
    while let Some(left) = time.min(LONGEST).checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        sleep(left.min(PAUSE));
        looks.take(|thread, calls| seen.note(thread, calls));
    }
    seen.missed = looks.missed();
    Ok(seen)
}

/// Everything that was seen.
#[derive(Debug, Default)]
struct Seen {
    /// Names of the threads that were met.
    threads: HashMap<i32, String>,
    /// Stacks by thread, innermost call first, and how often each was seen.
    stacks: BTreeMap<(String, Box<[usize]>), u64>,
    /// Looks for which there was no room.
    missed: usize,
}

impl Seen {
    fn note(&mut self, thread: i32, calls: &[usize]) {
        let name = self.threads.entry(thread).or_insert_with(|| {
            let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
            name.map_or_else(|_| "a thread that is over".to_owned(), |name| name.trim_end().to_owned())
        });
        let mut stack = (name.clone(), Box::from(calls));
        if self.stacks.len() >= STACKS && !self.stacks.contains_key(&stack) {
            stack.1 = Box::default();
        }
        *self.stacks.entry(stack).or_default() += 1;
    }

    fn text(self) -> String {
        let mut calls: Vec<usize> = self.stacks.keys().flat_map(|(_, calls)| calls.iter().copied()).collect();
        calls.sort_unstable();
        calls.dedup();
        // Read anew: what was loaded meanwhile has names, too.
        let names = names::of(&Maps::of_this_process().unwrap_or_default(), &calls);
        let mut lines: BTreeMap<String, u64> = BTreeMap::new();
        for ((thread, calls), count) in self.stacks {
            let calls = calls.iter().rev().filter_map(|call| names.get(call)).map(String::as_str);
            let words: Vec<&str> = [thread.as_str()].into_iter().chain(calls).collect();
            *lines.entry(words.join(";")).or_default() += count;
        }
        if self.missed > 0 {
            lines.insert("looks for which there was no room".to_owned(), self.missed as u64);
        }
        lines.into_iter().map(|(stack, count)| format!("{stack} {count}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_profile_is_made_at_a_time() {
        let one = Profiler::take().expect("nobody else makes one");
        assert!(Profiler::take().is_none());
        drop(one);
        assert!(Profiler::take().is_some());
    }

    #[test]
    fn so_many_stacks_are_told_apart_and_none_is_lost() {
        let mut seen = Seen::default();
        for call in 0..STACKS + 100 {
            seen.note(0, &[call]);
        }
        seen.note(0, &[0]);
        assert_eq!(seen.stacks.len(), STACKS + 1);
        assert_eq!(seen.stacks.values().sum::<u64>(), STACKS as u64 + 101);
    }
}
