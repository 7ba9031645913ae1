//! Control groups of both versions against a folder that stands in for the kernel's.

use super::*;

fn hierarchy(mount: &Path, controllers: &[&str]) -> Hierarchy {
    Hierarchy {
        mount: mount.to_owned(),
        controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
        own: "/".to_owned(),
    }
}

/// Makes a group folder with the control files that the kernel would put there.
fn group_with(mount: &Path, name: &str, files: &[&str]) -> PathBuf {
    let path = mount.join(name);
    fs::create_dir_all(&path).expect("folder");
    for file in files {
        fs::write(path.join(file), "").expect("file");
    }
    path
}

fn content(path: &Path, file: &str) -> String {
    fs::read_to_string(path.join(file)).unwrap_or_default()
}

const LIMITS: Limits =
    Limits { cpu_millicores: Some(500), cpu_elastic: false, memory_bytes: Some(64 << 20), processes: Some(9) };

#[test]
fn version_2_hands_controllers_down_and_sets_limits() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let mount = root.path();
    group_with(mount, "", &["cgroup.subtree_control"]);
    group_with(mount, "tessera", &["cgroup.subtree_control"]);
    let leaf = group_with(
        mount,
        "tessera/w",
        &["cgroup.procs", "cpu.max", "cpu.weight", "memory.max", "memory.swap.max", "memory.events", "pids.max"],
    );
    let found = Hierarchies { unified: Some(hierarchy(mount, &["cpu", "memory", "pids"])), legacy: Vec::new() };
    let group = WorkerGroup::create(&found, "tessera/w", LIMITS);
    assert_eq!(group.record().missing, Vec::<String>::new());
    assert_eq!((content(&leaf, "cpu.max"), content(&leaf, "cpu.weight")), ("50000 100000".to_owned(), "50".to_owned()));
    // The kernel takes each write for the whole; a plain file keeps what was longer.
    fs::write(leaf.join("cpu.max"), "").expect("file");
    drop(WorkerGroup::create(&found, "tessera/w", Limits { cpu_elastic: true, ..LIMITS }));
    assert_eq!(content(&leaf, "cpu.max"), "max 100000", "the weight alone divides what others want");
    assert_eq!(content(&leaf, "memory.max"), (64 << 20).to_string());
    assert_eq!((content(&leaf, "memory.swap.max"), content(&leaf, "pids.max")), ("0".to_owned(), "9".to_owned()));
    assert!(content(mount, "cgroup.subtree_control").starts_with('+'));
    assert!(content(&mount.join("tessera"), "cgroup.subtree_control").starts_with('+'));
    assert_eq!(group.join_files(true).expect("openable").len(), 0, "born into the only folder");
    assert_eq!(group.join_files(false).expect("openable").len(), 1);
    fs::write(leaf.join("memory.events"), "low 0\noom 3\noom_kill 2\n").expect("file");
    assert_eq!(group.memory_kills(), 2);
}

#[test]
fn hybrid_tracks_by_version_2_and_limits_by_version_1() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let (unified, cpu, memory) = (root.path().join("unified"), root.path().join("cpu"), root.path().join("memory"));
    group_with(&unified, "t/w", &["cgroup.procs", "cgroup.kill"]);
    let cpu_leaf = group_with(&cpu, "t/w", &["cgroup.procs", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares"]);
    let memory_leaf = group_with(&memory, "t/w", &["cgroup.procs", "memory.limit_in_bytes", "memory.oom_control"]);
    let pids = root.path().join("pids");
    let pids_leaf = group_with(&pids, "t/w", &["cgroup.procs", "pids.max"]);
    let found = Hierarchies {
        unified: Some(hierarchy(&unified, &["hugetlb"])),
        legacy: vec![hierarchy(&cpu, &["cpu"]), hierarchy(&memory, &["memory"]), hierarchy(&pids, &["pids"])],
    };
    let group = WorkerGroup::create(&found, "t/w", LIMITS);
    assert_eq!(content(&cpu_leaf, "cpu.cfs_quota_us"), "50000");
    assert_eq!(content(&cpu_leaf, "cpu.shares"), "512");
    fs::write(cpu_leaf.join("cpu.cfs_quota_us"), "").expect("file");
    drop(WorkerGroup::create(&found, "t/w", Limits { cpu_elastic: true, ..LIMITS }));
    assert_eq!(content(&cpu_leaf, "cpu.cfs_quota_us"), "-1");
    assert_eq!(content(&memory_leaf, "memory.limit_in_bytes"), (64 << 20).to_string());
    assert_eq!(content(&pids_leaf, "pids.max"), "9");
    assert_eq!(group.join_files(true).expect("openable").len(), 3);
    fs::write(memory_leaf.join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n").expect("file");
    assert_eq!(group.memory_kills(), 1);
    group.kill().expect("killable");
    assert_eq!(content(&unified.join("t/w"), "cgroup.kill"), "1");
    let again = WorkerGroup::from_record(group.record().clone());
    assert_eq!(again, group, "found again after a restart");
}

#[test]
fn what_cannot_be_had_is_said() {
    let group = WorkerGroup::create(&Hierarchies::default(), "t/w", LIMITS);
    assert!(!group.is_tracked());
    assert_eq!(group.record().missing.len(), 4, "{:?}", group.record().missing);
    let root = tempfile::tempdir().expect("a temporary folder");
    let found = Hierarchies { unified: None, legacy: vec![hierarchy(root.path(), &["freezer"])] };
    let frozen = WorkerGroup::create(&found, "t/w", LIMITS);
    assert!(frozen.is_tracked());
    assert_eq!(frozen.record().missing.len(), 3);
}

#[test]
fn a_version_1_group_is_frozen_while_it_is_killed() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let leaf = group_with(root.path(), "t/w", &["cgroup.procs", "freezer.state"]);
    let found = Hierarchies { unified: None, legacy: vec![hierarchy(root.path(), &["freezer"])] };
    let group = WorkerGroup::create(&found, "t/w", Limits::default());
    group.kill().expect("killable");
    assert_eq!(content(&leaf, "freezer.state"), "THAWED", "left thawed, or SIGKILL would never arrive");
}

#[test]
fn dead_pids_do_not_keep_a_group_from_being_empty() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let leaf = group_with(root.path(), "t/w", &["cgroup.procs"]);
    let below = group_with(root.path(), "t/w/below", &["cgroup.procs"]);
    let found = Hierarchies { unified: Some(hierarchy(root.path(), &[])), legacy: Vec::new() };
    let group = WorkerGroup::create(&found, "t/w", Limits::default());
    assert!(group.is_empty());
    let mut child = std::process::Command::new("true").spawn().expect("`true` exists");
    let status = std::fs::read_to_string(format!("/proc/{}/stat", child.id()));
    assert!(status.is_ok(), "not waited for, so it still has an entry");
    while has_live_thread(i32::try_from(child.id()).expect("pid")) {
        std::thread::yield_now();
    }
    fs::write(leaf.join("cgroup.procs"), format!("{}\n", child.id())).expect("file");
    assert!(group.is_empty(), "a zombie computes nothing");
    child.wait().expect("waited");
    fs::write(below.join("cgroup.procs"), format!("{}\n", std::process::id())).expect("file");
    assert!(!group.is_empty(), "something lives in a group below");
    fs::write(below.join("cgroup.procs"), "0\n").expect("file");
    assert!(!group.is_empty(), "a process of another pid namespace counts as alive");
}

#[test]
fn version_1_stops_processes_and_kills_those_that_stand_still() {
    let found = Hierarchies::detect(Path::new("/")).expect("readable");
    let legacy = Hierarchies { unified: None, ..found };
    let run = std::env::var("TESSERA_SUITE").unwrap_or_else(|_| "alone".to_owned());
    let name = format!("tessera-test/{run}/frozen-{}", std::process::id());
    let group = WorkerGroup::create(&legacy, &name, Limits::default());
    if !group.is_tracked() {
        eprintln!("not run: no version 1 freezer can be written here");
        return;
    }
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("`sleep` exists");
    let pid = i32::try_from(child.id()).expect("a pid");
    for mut file in group.join_files(false).expect("openable") {
        io::Write::write_all(&mut file, pid.to_string().as_bytes()).expect("writable");
    }
    group.freeze(true).expect("it can be");
    while !group.is_frozen() {
        std::thread::yield_now();
    }
    assert!(!group.is_empty(), "it stands still and is there");
    group.kill().expect("it can be");
    child.wait().expect("a child");
    assert!(group.is_empty());
    group.remove();
}
