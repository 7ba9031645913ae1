//! Recorded facts, and what is said of them.

use super::*;
use crate::doctor::facts::*;
use crate::doctor::finding::Verdict;

/// A host on which everything is as it should be.
fn healthy() -> Facts {
    let member = |place: u32, role: &str| MemberFacts {
        address: format!("10.0.0.{place}:7400"),
        role: role.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        highest_level: 3,
        committed_index: 900,
        applied_index: 900,
        clock_offset_seconds: Some(0.002),
        ..MemberFacts::default()
    };
    let way =
        |place: u32| WayFacts { address: format!("10.0.0.{place}:7400"), resolved_us: Ok(200), round_trip_us: Ok(400) };
    let room = RoomFacts {
        kind: "ext4".to_owned(),
        free_bytes: 200 << 30,
        total_bytes: 400 << 30,
        free_files: 9_000_000,
        total_files: 10_000_000,
    };
    let folder = |of: &str| FolderFacts {
        of: of.to_owned(),
        path: format!("/var/lib/tessera-{of}").into(),
        exists: true,
        room: Ok(room.clone()),
        fsync_us: Ok(vec![900; 48]),
    };
    Facts {
        unusable: Vec::new(),
        member: Some(MemberSettings {
            disk_reserve_bytes: 512 << 20,
            connections: 10_000,
            heartbeat_ms: 50,
            election_ms: 300,
        }),
        agent: Some(AgentSettings { node: "node-a".to_owned(), cards: Ok("4 cards".to_owned()) }),
        clock: Ok(ClockFacts { synchronised: true, max_error_us: 4_000, namespace_offsets: vec![0, 0] }),
        folders: vec![folder("member"), folder("agent")],
        ports: vec![PortFacts {
            of: "member".to_owned(),
            address: "10.0.0.1:7400".to_owned(),
            answers: true,
            bindable: Err("Address already in use".to_owned()),
        }],
        ways: vec![way(1), way(2), way(3)],
        cluster: ClusterFacts {
            writable: true,
            voters: 3,
            level: 3,
            members: vec![member(1, "leader"), member(2, "follower"), member(3, "follower")],
        },
        kernel: Ok(KernelFacts {
            release: "6.1.0-18-amd64".to_owned(),
            pidfd: Ok(()),
            user_namespaces: Some(30_000),
            seccomp_actions: "kill_process errno allow".to_owned(),
            no_new_privileges: false,
            entropy: Some(256),
            huge_pages: Some("madvise".to_owned()),
        }),
        containment: Some(Ok(ContainmentFacts {
            whole_trees_end: Ok(()),
            hierarchies: "version 2 with cpu memory".to_owned(),
            tracked: true,
            missing: Vec::new(),
            group_files: vec!["cgroup.kill".to_owned()],
        })),
        limits: Ok(LimitFacts {
            of: "of process 7, which runs".to_owned(),
            open_files: Some(1 << 20),
            processes: None,
            locked_bytes: None,
        }),
        memory: Ok(MemoryFacts { available_kib: 1 << 24, total_kib: 1 << 25, swap_kib: 0, swap_used_kib: 0 }),
        devices: Ok(DeviceFacts { accelerators: vec![accelerator(Some("nvidia"), Some("libcuda.so.1"))] }),
    }
}

fn accelerator(driver: Option<&str>, library: Option<&str>) -> Accelerator {
    Accelerator {
        address: "0000:01:00.0".to_owned(),
        vendor: "0x10de".to_owned(),
        driver: driver.map(str::to_owned),
        library: library.map(str::to_owned),
    }
}

/// The warnings and failures when `fault` is planted into a healthy host: check and verdict.
fn found(fault: impl FnOnce(&mut Facts)) -> Vec<(&'static str, Verdict)> {
    let mut facts = healthy();
    fault(&mut facts);
    let findings = judge(&facts).into_iter().filter(|finding| finding.verdict >= Verdict::Warning);
    let findings: Vec<Finding> = findings.collect();
    for finding in &findings {
        assert!(!finding.next.is_empty() && !finding.why.is_empty(), "{finding:?} does not say what to do");
    }
    findings.iter().map(|finding| (finding.check, finding.verdict)).collect()
}

fn kernel(facts: &mut Facts) -> &mut KernelFacts {
    facts.kernel.as_mut().expect("recorded")
}

fn room(facts: &mut Facts) -> &mut RoomFacts {
    facts.folders[0].room.as_mut().expect("recorded")
}

const WARNING: Verdict = Verdict::Warning;
const FAILURE: Verdict = Verdict::Failure;

#[test]
fn on_a_healthy_host_all_is_well() {
    assert_eq!(found(|_| {}), []);
}

#[test]
fn a_client_is_told_nothing_of_services_that_it_does_not_run() {
    let found = found(|facts| {
        (facts.member, facts.agent, facts.containment) = (None, None, None);
        (facts.folders, facts.ports) = (Vec::new(), Vec::new());
    });
    assert_eq!(found, []);
}

#[test]
fn facts_are_recorded_and_read_again() {
    let text = serde_json::to_string(&healthy()).expect("facts can be written");
    assert_eq!(serde_json::from_str::<Facts>(&text).expect("and read"), healthy());
}

#[test]
fn clocks() {
    assert_eq!(found(|f| f.clock.as_mut().expect("recorded").synchronised = false), [("clock.synchronised", WARNING)]);
    assert_eq!(
        found(|f| f.clock.as_mut().expect("recorded").max_error_us = 9_000_000),
        [("clock.synchronised", WARNING)]
    );
    let shifted = |f: &mut Facts| f.clock.as_mut().expect("recorded").namespace_offsets = vec![0, -60];
    assert_eq!(found(shifted), [("clock.namespace", WARNING)]);
    assert_eq!(found(|f| f.cluster.members[1].clock_off = true), [("members.clock", FAILURE)]);
}

#[test]
fn disks() {
    assert_eq!(found(|f| room(f).free_bytes = 400 << 20), [("disk.room", FAILURE)]);
    assert_eq!(found(|f| room(f).free_bytes = 900 << 20), [("disk.room", WARNING)]);
    assert_eq!(found(|f| room(f).free_files = 0), [("disk.files", FAILURE)]);
    assert_eq!(found(|f| room(f).kind = "tmpfs".to_owned()), [("disk.kind", WARNING)]);
    assert_eq!(found(|f| f.folders[0].fsync_us = Ok(vec![120_000; 20])), [("disk.fsync", WARNING)]);
    assert_eq!(found(|f| f.folders[0].fsync_us = Ok(vec![700_000; 7])), [("disk.fsync", FAILURE)]);
    assert_eq!(found(|f| f.folders[1].fsync_us = Ok(vec![700_000; 7])), [("disk.fsync", WARNING)], "an agent can wait");
    assert_eq!(found(|f| f.folders[0].fsync_us = Err("Read-only".to_owned())), [("disk.fsync", FAILURE)]);
}

#[test]
fn networks() {
    let free = |f: &mut Facts| (f.ports[0].answers, f.ports[0].bindable) = (false, Ok(()));
    assert_eq!(found(free), [], "the member is not started yet");
    let taken = |f: &mut Facts| f.ports[0].answers = false;
    assert_eq!(found(taken), [("network.port", FAILURE)]);
    assert_eq!(found(|f| f.ways[1].round_trip_us = Ok(60_000)), [("network.round_trip", WARNING)]);
    assert_eq!(found(|f| f.ways[1].round_trip_us = Ok(400_000)), [("network.round_trip", FAILURE)]);
    assert_eq!(found(|f| f.ways[1].resolved_us = Ok(900_000)), [("network.name", WARNING)]);
    let nameless = |f: &mut Facts| f.ways[1].resolved_us = Err("no such name".to_owned());
    assert_eq!(found(nameless), [("network.name", FAILURE)]);
}

#[test]
fn members() {
    let dead = |f: &mut Facts| {
        f.cluster.members[2] = MemberFacts { error: Some("refused".to_owned()), ..MemberFacts::default() };
    };
    assert_eq!(found(dead), [("members.answer", FAILURE)]);
    let none = |f: &mut Facts| f.cluster.members.clear();
    assert_eq!(found(none), [("members.quorum", FAILURE)]);
    assert_eq!(found(|f| f.cluster.writable = false), [("members.quorum", FAILURE)]);
    assert_eq!(found(|f| f.cluster.voters = 1), [("members.voters", WARNING)]);
    assert_eq!(found(|f| f.cluster.voters = 4), [("members.voters", WARNING)]);
    assert_eq!(found(|f| f.cluster.members[0].version = "0.0.9".to_owned()), [("members.versions", WARNING)]);
    assert_eq!(found(|f| f.cluster.level = 2), [("members.level", WARNING)]);
    let behind = |f: &mut Facts| {
        f.cluster.members[0].committed_index = 50_000;
        f.cluster.members[0].applied_index = 50_000;
        f.cluster.members[1].applied_index = 49_900;
    };
    assert_eq!(found(behind), [("members.lag", WARNING)], "only the third");
}

#[test]
fn kernels() {
    assert_eq!(found(|f| kernel(f).release = "5.4.0-100-generic".to_owned()), [("kernel.release", WARNING)]);
    assert_eq!(found(|f| kernel(f).release = "5.14.0".to_owned()), []);
    assert_eq!(found(|f| kernel(f).pidfd = Err("ENOSYS".to_owned())), [("kernel.pidfd", WARNING)]);
    assert_eq!(found(|f| kernel(f).seccomp_actions.clear()), [("kernel.seccomp", WARNING)]);
    assert_eq!(found(|f| kernel(f).entropy = Some(40)), [("kernel.entropy", WARNING)]);
    let contained = |fault: fn(&mut ContainmentFacts)| {
        found(|facts| {
            let Some(Ok(containment)) = &mut facts.containment else { panic!("it was recorded") };
            fault(containment);
        })
    };
    assert_eq!(contained(|c| c.tracked = false), [("kernel.cgroups", FAILURE)]);
    assert_eq!(contained(|c| c.missing.push("no limit of memory".to_owned())), [("kernel.cgroups", WARNING)]);
    assert_eq!(contained(|c| c.whole_trees_end = Err("EPERM".to_owned())), [("kernel.pid_namespaces", WARNING)]);
}

#[test]
fn resources() {
    let files = |most: u64| found(move |f| f.limits.as_mut().expect("recorded").open_files = Some(most));
    assert_eq!(files(512), [("limits.open_files", FAILURE)]);
    assert_eq!(files(4_096), [("limits.open_files", WARNING)]);
    let limit = |fault: fn(&mut LimitFacts)| found(|f| fault(f.limits.as_mut().expect("recorded")));
    assert_eq!(limit(|l| l.processes = Some(500)), [("limits.processes", WARNING)]);
    assert_eq!(limit(|l| l.locked_bytes = Some(65_536)), [("limits.locked_memory", WARNING)]);
    let swapping = |f: &mut Facts| {
        f.memory.as_mut().map(|m| (m.swap_kib, m.swap_used_kib) = (1 << 24, 1 << 23)).expect("recorded")
    };
    assert_eq!(found(swapping), [("memory.swap", WARNING)]);
}

#[test]
fn devices() {
    let with =
        |driver, library| found(|f| f.devices = Ok(DeviceFacts { accelerators: vec![accelerator(driver, library)] }));
    assert_eq!(with(None, None), [("devices.driver", WARNING)]);
    assert_eq!(with(Some("nvidia"), None), [("devices.driver", WARNING)]);
    let undeclared = |f: &mut Facts| f.agent.as_mut().expect("recorded").cards = Err("no section".to_owned());
    assert_eq!(found(undeclared), [("devices.cards", FAILURE)]);
}

#[test]
fn a_file_that_cannot_be_used_is_a_finding() {
    let broken = |f: &mut Facts| f.unusable.push(("/etc/tessera/agent.toml".to_owned(), "line 3".to_owned()));
    assert_eq!(found(broken), [("configuration", FAILURE)]);
}
