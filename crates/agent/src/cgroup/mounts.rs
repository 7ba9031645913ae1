//! The hierarchies of control groups mounted on this machine, and the group of this process in each of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::group::is_gone;

/// The group, below an agent's, of its supervisors.
const SUPERVISORS: &str = "supervisors";
/// The group of all agents of a machine, unless they are configured otherwise.
pub const GROUP_OF_ALL: &str = "tessera";
/// The number of times that a group is made whose parent is removed meanwhile.
const TRIES: usize = 8;

/// The hierarchies found on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// The version 2 hierarchy, if mounted.
    pub unified: Option<Hierarchy>,
    pub legacy: Vec<Hierarchy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    pub mount: PathBuf,
    /// Version 1: its controllers, or `name=...`. Version 2: the controllers of its root.
    pub controllers: Vec<String>,
    /// The group of this process, from the hierarchy's root.
    pub own: String,
}

impl Hierarchies {
    /// Finds them under a root folder: `/`, or a tree of fixtures in tests.
    ///
    /// # Errors
    /// When `/proc` cannot be read. A machine without control groups is no error.
    pub fn detect(root: &Path) -> io::Result<Self> {
        let mounts = fs::read_to_string(root.join("proc/self/mountinfo"))?;
        let own = fs::read_to_string(root.join("proc/self/cgroup"))?;
        let mut found = Self::default();
        for line in mounts.lines() {
            let Some(mount) = parse_mount(line) else { continue };
            let path = root.join(mount.point.trim_start_matches('/'));
            match mount.kind {
                "cgroup2" if found.unified.is_none() => found.unified = Some(unified(path, &own)),
                "cgroup" => found.legacy.push(legacy(path, mount.options, &own)),
                _ => {}
            }
        }
        Ok(found)
    }

    fn all(&self) -> impl Iterator<Item = &Hierarchy> {
        self.unified.iter().chain(&self.legacy)
    }

    /// The version 1 hierarchy with a controller.
    #[must_use]
    pub fn legacy_with(&self, controller: &str) -> Option<&Hierarchy> {
        self.legacy.iter().find(|hierarchy| hierarchy.controllers.iter().any(|name| name == controller))
    }

    /// The version 2 hierarchy, when it has a controller.
    #[must_use]
    pub fn unified_with(&self, controller: &str) -> Option<&Hierarchy> {
        self.unified.as_ref().filter(|hierarchy| hierarchy.controllers.iter().any(|name| name == controller))
    }
}

/// Moves this process out of the groups by which a service manager would kill it together with the agent: the version 2
/// group and systemd's named one. On a machine where the agent is in the root group there is nothing to leave.
///
/// # Errors
/// What the kernel says; the worker can run all the same, but not outlive a restart of the service.
pub fn leave_service_groups(hierarchies: &Hierarchies, root: &str) -> io::Result<()> {
    let named = hierarchies.legacy_with("name=systemd");
    for hierarchy in hierarchies.unified.iter().chain(named) {
        let target = format!("{root}/{SUPERVISORS}");
        let own = hierarchy.own.trim_matches('/');
        if own.is_empty() || own == target {
            continue;
        }
        let group = hierarchy.mount.join(&target);
        while_removed(|| {
            fs::create_dir_all(&group)?;
            fs::write(group.join("cgroup.procs"), "0")
        })?;
    }
    Ok(())
}

/// Removes the groups that an agent made below `root` and that one itself, where nobody is in them: the agent is gone,
/// and this process, which leaves them now, may have been the last. What is in use is left to whoever ends later.
pub fn remove_empty_groups(hierarchies: &Hierarchies, root: &str) {
    for hierarchy in hierarchies.all() {
        let of_agent = hierarchy.mount.join(root);
        let supervisors = of_agent.join(SUPERVISORS);
        if supervisors.is_dir() {
            // Where it may not, the next agent uses the group as it is.
            let _ = fs::write(hierarchy.mount.join("cgroup.procs"), "0");
        }
        // What is above may be an operator's, who sets limits there.
        let above = of_agent.parent().filter(|above| **above == hierarchy.mount.join(GROUP_OF_ALL));
        for group in [Some(supervisors.as_path()), Some(of_agent.as_path()), above].into_iter().flatten() {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Makes a group, also while those above it are removed as empty: other agents of this machine, which share them, may
/// just have ended.
pub(super) fn while_removed<T>(mut make: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match make() {
            Err(error) if is_gone(&error) => {}
            made => return made,
        }
    }
    make()
}

struct Mount<'a> {
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

/// A line of mountinfo: `36 35 98:0 /root /point rw,opts shared:1 - kind source options`.
fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let kind = after.next()?;
    let options = after.nth(1).unwrap_or_default();
    Some(Mount { point: before.split(' ').nth(4)?, kind, options })
}

fn unified(mount: PathBuf, own: &str) -> Hierarchy {
    let controllers = fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned();
    Hierarchy { mount, controllers: controllers.split_ascii_whitespace().map(str::to_owned).collect(), own }
}

fn legacy(mount: PathBuf, options: &str, own: &str) -> Hierarchy {
    let controllers: Vec<String> = options
        .split(',')
        .filter(|option| !matches!(*option, "rw" | "ro" | "xattr" | "noprefix" | "clone_children" | "none"))
        .map(str::to_owned)
        .collect();
    let own = own.lines().find_map(|line| own_legacy_path(line, &controllers)).unwrap_or("/").to_owned();
    Hierarchy { mount, controllers, own }
}

/// A line of `/proc/self/cgroup`: `4:memory:/path`.
fn own_legacy_path<'a>(line: &'a str, controllers: &[String]) -> Option<&'a str> {
    let mut parts = line.splitn(3, ':').skip(1);
    let names = parts.next()?;
    let path = parts.next()?;
    names.split(',').any(|name| controllers.iter().any(|controller| controller == name)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
broken line
";
    const OWN: &str = "9:name=systemd:/system.slice/agent.service\n4:memory:/box\n1:cpu,cpuacct:/\n0::/agent\n";

    fn fixture(mounts: &str, own: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(root.path().join("proc/self")).expect("folder");
        fs::create_dir_all(root.path().join("sys/fs/cgroup/unified")).expect("folder");
        fs::write(root.path().join("proc/self/mountinfo"), mounts).expect("file");
        fs::write(root.path().join("proc/self/cgroup"), own).expect("file");
        fs::write(root.path().join("sys/fs/cgroup/unified/cgroup.controllers"), "hugetlb\n").expect("file");
        root
    }

    #[test]
    fn a_hybrid_machine_is_understood() {
        let root = fixture(MOUNTS, OWN);
        let found = Hierarchies::detect(root.path()).expect("readable");
        assert_eq!(found.legacy_with("cpu").expect("cpu").own, "/");
        assert_eq!(found.legacy_with("memory").expect("memory").own, "/box");
        assert_eq!(found.legacy_with("name=systemd").expect("systemd").own, "/system.slice/agent.service");
        assert!(found.legacy_with("freezer").is_none());
        assert_eq!(found.unified.as_ref().expect("version 2").own, "/agent");
        assert!(found.unified_with("hugetlb").is_some());
        assert!(found.unified_with("cpu").is_none());
    }

    #[test]
    fn a_machine_without_control_groups_is_no_error() {
        let root = fixture("23 1 254:0 / / rw - ext4 /dev/vda rw\n", "");
        assert_eq!(Hierarchies::detect(root.path()).expect("readable"), Hierarchies::default());
    }

    #[test]
    fn a_supervisor_leaves_only_the_groups_that_a_service_manager_kills() {
        let root = fixture(MOUNTS, OWN);
        let found = Hierarchies::detect(root.path()).expect("readable");
        leave_service_groups(&found, "tessera/a").expect("writable");
        let cgroups = root.path().join("sys/fs/cgroup");
        let moved = |hierarchy: &str| cgroups.join(hierarchy).join("tessera/a/supervisors/cgroup.procs").exists();
        assert!(moved("unified") && moved("systemd"));
        assert!(!moved("memory") && !moved("cpu"));
    }

    #[test]
    fn groups_in_which_nobody_is_left_go_from_the_bottom_up() {
        let root = fixture(MOUNTS, OWN);
        let found = Hierarchies::detect(root.path()).expect("readable");
        let cgroups = root.path().join("sys/fs/cgroup");
        let make = |group: &str| fs::create_dir_all(cgroups.join(group)).expect("folder");
        let is_there = |group: &str| cgroups.join(group).exists();
        make("unified/tessera/a/supervisors");
        make("memory/tessera/a/uid-1-1-0");
        make("cpu/tessera/a");
        make("cpu/tessera/b");
        remove_empty_groups(&found, "tessera/a");
        assert!(!is_there("unified/tessera") && !is_there("cpu/tessera/a"));
        assert!(is_there("memory/tessera/a/uid-1-1-0"), "a worker is in it");
        assert!(is_there("cpu/tessera/b"), "it is another agent's");
        make("cpu/mine/c");
        remove_empty_groups(&found, "mine/c");
        assert!(is_there("cpu/mine") && !is_there("cpu/mine/c"), "an operator has made it");
    }

    #[test]
    fn a_group_is_made_though_those_above_it_are_removed_meanwhile() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let (above, mut tries) = (root.path().join("tessera"), 0);
        fs::create_dir(&above).expect("folder");
        while_removed(|| {
            tries += 1;
            if tries == 1 {
                fs::remove_dir(&above)?;
                return fs::create_dir(above.join("a"));
            }
            fs::create_dir_all(above.join("a"))
        })
        .expect("made");
        assert_eq!(tries, 2);
    }

    #[test]
    fn in_the_root_group_there_is_nothing_to_leave() {
        let root = fixture(MOUNTS, "9:name=systemd:/\n0::/\n");
        let found = Hierarchies::detect(root.path()).expect("readable");
        leave_service_groups(&found, "tessera/a").expect("nothing to do");
        assert!(!root.path().join("sys/fs/cgroup/unified/tessera").exists());
    }
}
