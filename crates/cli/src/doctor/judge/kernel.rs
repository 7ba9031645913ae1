//! Can the kernel do what agents need?

use crate::doctor::facts::{ContainmentFacts, Facts, KernelFacts};
use crate::doctor::finding::{Check, Finding};

const RELEASE: Check =
    Check("kernel.release", "workers are born into control groups (5.7), and these killed whole (5.14)");
const TREES: Check = Check("kernel.pid_namespaces", "all that a worker forked must end with its supervisor");
const GROUPS: Check = Check("kernel.cgroups", "limits of workers, and the proof that nothing of them is left");
const PIDFD: Check = Check("kernel.pidfd", "a process is told apart from a later one with the same number");
const USERS: Check = Check("kernel.user_namespaces", "agents that do not run as root could give workers more");
const FILTERS: Check = Check("kernel.seccomp", "services are hardened by filters of system calls");
const PRIVILEGES: Check = Check("kernel.no_new_privileges", "an agent becomes other users to run their work");
const ENTROPY: Check = Check("kernel.entropy", "identities are made from random numbers");
/// Needed for all that agents do.
const WANTED: (u32, u32) = (5, 14);
/// Bits below which reading random numbers may wait, on kernels before 5.18.
const LITTLE_ENTROPY: u64 = 160;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = match &facts.kernel {
        Ok(kernel) => judge_kernel(facts, kernel),
        Err(error) => vec![RELEASE.warning(format!("/proc cannot be read: {error}"), "mount /proc")],
    };
    match &facts.containment {
        None => found.push(GROUPS.not_applicable("no agent is configured here")),
        Some(Ok(containment)) => found.extend(judge_containment(containment)),
        Some(Err(error)) => found.push(GROUPS.failure(
            format!("control groups cannot be tried: {error}"),
            "run this as the user of the agent, which is root",
        )),
    }
    found
}

fn judge_kernel(facts: &Facts, kernel: &KernelFacts) -> Vec<Finding> {
    let release = match version(&kernel.release) {
        Some(version) if version < WANTED => {
            RELEASE.warning(kernel.release.clone(), format!("run Linux {}.{} or newer on nodes", WANTED.0, WANTED.1))
        }
        _ => RELEASE.ok(kernel.release.clone()),
    };
    let pidfd = match &kernel.pidfd {
        Ok(()) => PIDFD.ok("pidfd_open works"),
        Err(error) => PIDFD.warning(format!("pidfd_open fails: {error}"), "run Linux 5.3 or newer"),
    };
    let users = match kernel.user_namespaces {
        None => USERS.ok("not built in; not needed by an agent that runs as root"),
        Some(most) => USERS.ok(format!("{most} may be made; not needed by an agent that runs as root")),
    };
    let filters = if kernel.seccomp_actions.is_empty() {
        FILTERS.warning(
            "not built in",
            "the units' SystemCallFilter has no effect: use a kernel with CONFIG_SECCOMP_FILTER",
        )
    } else {
        FILTERS.ok(kernel.seccomp_actions.clone())
    };
    let entropy = match kernel.entropy {
        Some(bits) if bits < LITTLE_ENTROPY => {
            ENTROPY.warning(format!("{bits} bits"), "run rngd, or add a virtio-rng device")
        }
        Some(bits) => ENTROPY.ok(format!("{bits} bits")),
        None => ENTROPY.not_applicable("the kernel does not say"),
    };
    let mut found = vec![release, pidfd, users, filters, entropy];
    if facts.agent.is_some() && kernel.no_new_privileges {
        let next = "remove NoNewPrivileges from the agent's unit only if jobs need setuid programs";
        found.push(PRIVILEGES.ok(format!("set for this process: workers cannot gain privileges; {next}")));
    }
    found
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn judge_containment(containment: &ContainmentFacts) -> Vec<Finding> {
    let trees = match &containment.whole_trees_end {
        Ok(()) => TREES.ok("a whole tree of processes ends with its supervisor"),
        Err(why) => TREES.warning(
            why.clone(),
            "run the agent as root; until then a silent node keeps its blocks until it is back (docs/operations.md, Nodes)",
        ),
    };
    let seen = format!("{}; there are {}", containment.hierarchies, containment.group_files.join(", "));
    let next = "run the agent as root, or delegate it a subtree with these controllers (`Delegate=yes` in its unit)";
    let groups = if !containment.tracked {
        GROUPS.failure(format!("{seen}; {}", containment.missing.join("; ")), next)
    } else if containment.missing.is_empty() {
        GROUPS.ok(seen)
    } else {
        GROUPS.warning(format!("{seen}; {}", containment.missing.join("; ")), next)
    };
    vec![trees, groups]
}
