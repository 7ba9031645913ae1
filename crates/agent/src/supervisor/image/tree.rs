//! The processes of a worker as they are before they are dumped: those that will be, and those that would be lost.

use std::collections::BTreeSet;
use std::fs;

use super::driver;
use crate::process::{ProcessStat, live_descendants};

/// The kernel gives no process of a namespace that is in use a smaller number a second time.
const SMALLEST: i32 = 300;
/// Numbers of processes go up to here wherever nobody has changed that.
const LARGEST: i32 = 32_768;

/// The tree below a worker's first process.
#[derive(Debug)]
pub struct Tree {
    /// Its first process, as the worker sees it.
    pub root: i32,
    /// Its processes, as the host sees them.
    pub processes: Vec<i32>,
    /// Numbers of processes, threads, groups and sessions, as the worker sees them.
    numbers: BTreeSet<i32>,
}

impl Tree {
    /// Looks at the tree below `first`. `init` is that of its namespace. `supervisor` is the parent of both, and of
    /// what runs `beside` it and is not dumped.
    ///
    /// # Errors
    /// The sentence that tells why it cannot be dumped.
    pub fn of(first: i32, init: i32, supervisor: i32, beside: Option<i32>) -> Result<Self, String> {
        let listed = |error| format!("the processes of this host cannot be listed: {error}");
        let mut processes = live_descendants(first).map_err(listed)?;
        processes.push(first);
        let known: Vec<i32> = beside.into_iter().chain([first]).collect();
        if let Some(stray) = stray(init, supervisor, &known, &[]) {
            return Err(format!("process {stray} has outlived its parent, and would be lost"));
        }
        let root = numbers_of(first).first().copied().ok_or("its first process is gone")?;
        let numbers =
            processes.iter().flat_map(|pid| threads_of(*pid)).flat_map(|task| numbers_of_task(&task)).collect();
        Ok(Self { root, processes, numbers })
    }

    /// Its processes that have state on graphics cards: as the host sees them, and as they see themselves.
    pub fn on_cards(&self) -> Vec<(i32, i32)> {
        let used = self.processes.iter().filter(|pid| driver::is_used_by(**pid));
        used.filter_map(|pid| Some((*pid, *numbers_of(*pid).first()?))).collect()
    }

    /// The middle of the widest range of numbers that nothing in the tree has.
    pub fn free_from(&self) -> i32 {
        let taken = self.numbers.iter().copied().filter(|number| (SMALLEST..LARGEST).contains(number));
        let bounds: Vec<i32> = [SMALLEST].into_iter().chain(taken).chain([LARGEST]).collect();
        let widest = bounds.windows(2).max_by_key(|pair| pair[1] - pair[0]);
        widest.map_or(SMALLEST, |pair| pair[0] + (pair[1] - pair[0]) / 2)
    }
}

/// The processes below `first`, it included, that see themselves under these numbers, as the host sees them.
pub fn seen_as(own: &[i32], first: i32) -> Vec<i32> {
    let mut processes = whole_tree(first);
    processes.retain(|pid| numbers_of(*pid).first().is_some_and(|number| own.contains(number)));
    processes
}

/// Finds a live process of the worker that is not dumped with the rest: it is not the init of its namespace, not one of
/// these `roots` or below one, and not among those that were `dumped`.
pub fn stray(init: i32, supervisor: i32, roots: &[i32], dumped: &[i32]) -> Option<String> {
    let all = live_descendants(supervisor).unwrap_or_default();
    // Looked at afterwards: what they have started meanwhile is their own.
    let below: Vec<i32> = roots.iter().flat_map(|root| whole_tree(*root)).collect();
    let known = |pid: &i32| *pid == init || dumped.contains(pid) || below.contains(pid);
    // One that has ended since is nobody's.
    all.into_iter().find(|pid| !known(pid) && ProcessStat::read(*pid).is_some()).map(named)
}

/// The processes below this one, and it, as far as they are alive.
pub fn whole_tree(first: i32) -> Vec<i32> {
    let mut processes = live_descendants(first).unwrap_or_default();
    processes.push(first);
    processes
}

/// The child of the supervisor that sees itself under this number, as the host sees it.
pub fn child_that_is(root: i32, supervisor: i32) -> Option<i32> {
    let listed = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
    let mut children = listed.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    children.find(|pid| numbers_of(*pid).first() == Some(&root) && ProcessStat::read(*pid).is_some())
}

fn named(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let own = numbers_of(pid).first().copied().unwrap_or(pid);
    format!("{own} ({})", name.trim())
}

fn threads_of(pid: i32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    tasks.into_iter().flatten().flatten().map(|task| task.path().display().to_string()).collect()
}

/// The numbers of a process in its own namespace: its own, its group's and its session's.
pub fn numbers_of(pid: i32) -> Vec<i32> {
    numbers_of_task(&format!("/proc/{pid}"))
}

fn numbers_of_task(folder: &str) -> Vec<i32> {
    let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().last()?.parse().ok()
    };
    ["NSpid", "NSpgid", "NSsid"].into_iter().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(numbers: &[i32]) -> Tree {
        Tree { root: 2, processes: Vec::new(), numbers: numbers.iter().copied().collect() }
    }

    #[test]
    fn numbers_for_others_are_far_from_those_of_the_tree() {
        assert_eq!(tree(&[2, 3, 4]).free_from(), 300 + (32_768 - 300) / 2);
        assert_eq!(tree(&[2, 20_000]).free_from(), 300 + (20_000 - 300) / 2);
        assert_eq!(tree(&[2, 310, 400]).free_from(), 400 + (32_768 - 400) / 2);
    }
}
