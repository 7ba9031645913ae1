//! A worker has nothing of an agent that somebody started in an odd way but what is meant to be handed on.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::stat::{Mode, umask};
use tempfile::TempDir;
use tessera_agent::Limits;
use tessera_agent::supervisor::output::Stream;
use tessera_api::v1::{WorkerDesire, WorkerPhase};

use super::leader::{Leader, order};
use super::support::{contained, control_groups, example, running_status, supervisor_program};

/// Soft limits: without a right that root may lack, nobody raises a hard one again.
const ODD_LIMITS: [(Resource, u64); 3] =
    [(Resource::RLIMIT_NOFILE, 300), (Resource::RLIMIT_FSIZE, 1 << 30), (Resource::RLIMIT_CORE, 4096)];

/// An agent that ends with its test.
struct Odd {
    child: Child,
    data: TempDir,
    /// The folder that it is in, which only it may enter.
    closed: TempDir,
}

impl Odd {
    /// Starts it so that nothing of its process is as a worker expects it.
    fn start(leader: &Leader) -> Self {
        let [data, closed] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
        let secret = fs::File::create(closed.path().join("secret")).expect("writable");
        let node =
            format!("node{}", data.path().file_name().expect("a name").to_string_lossy().replace(['.', '_'], "-"));
        let mut command = Command::new(example("agent"));
        command.args([node, data.path().display().to_string(), leader.address()]);
        command.arg(supervisor_program()).arg(control_groups());
        command.current_dir(closed.path()).env("EXTRA", "1").env("LD_BIND_NOW", "1").env("TMPDIR", closed.path());
        let handed = secret.as_raw_fd();
        #[allow(unsafe_code)]
        // SAFETY: the child makes system calls that are async-signal-safe, and nothing else.
        unsafe {
            command.pre_exec(move || {
                umask(Mode::from_bits_truncate(0o007));
                for (resource, soft) in ODD_LIMITS {
                    setrlimit(resource, soft, getrlimit(resource)?.1)?;
                }
                for ignored in [Signal::SIGPIPE, Signal::SIGHUP, Signal::SIGCHLD, Signal::SIGUSR1] {
                    signal(ignored, SigHandler::SigIgn)?;
                }
                let blocked = SigSet::from_iter([Signal::SIGUSR2, Signal::SIGTERM, Signal::SIGHUP]);
                sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None)?;
                // Containers may refuse it, and then it is not inherited either.
                let _ = libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                let none = libc::sched_param { sched_priority: 0 };
                let done = [
                    libc::setpriority(libc::PRIO_PROCESS, 0, 7),
                    libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const none),
                    libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_000, 0, 0, 0),
                    // Without close-on-exec.
                    libc::dup2(handed, 77),
                ];
                if done.iter().any(|answer| *answer < 0) { Err(std::io::Error::last_os_error()) } else { Ok(()) }
            });
        }
        let child = command.spawn().expect("the example `agent` is built together with the tests");
        fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).expect("mine");
        Self { child, data, closed }
    }

    /// The folder of the worker of an order.
    fn folder_of(&self, allocation: u64) -> PathBuf {
        self.data.path().join("workers").join(format!("{allocation}-10-0"))
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says what a program finds.
const LOOK: &str = "echo umask $(umask); echo nice $(nice); echo files $(ls /proc/self/fd | tr '\\n' ' '); \
    echo folder $(test \"$PWD\" = \"$TESSERA_WORKER_DIR\" && echo own); echo extra \"[$EXTRA$LD_BIND_NOW$TMPDIR]\"; \
    score=$(cat /proc/self/oom_score_adj); echo score $score; \
    echo lower $( (echo $((score - 1)) > /proc/self/oom_score_adj) 2>&1 && echo done || echo refused); \
    echo personality $(cat /proc/self/personality); \
    echo slack $(cat /proc/self/timerslack_ns); cat /proc/self/limits; grep -E '^(Sig|Shd|Cap|NoNewPrivs)' /proc/self/status; \
    echo policy $(cut -d' ' -f41 /proc/self/stat) terminal $(cut -d' ' -f7 /proc/self/stat)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_finds_the_same_however_its_agent_was_started() {
    if !contained() {
        eprintln!("not tried: without root what was lowered stays so");
        return;
    }
    let mut leader = Leader::start().await;
    let agent = Odd::start(&leader);
    leader.welcome().await;
    leader.order(true, vec![order(1, WorkerDesire::Run, LOOK), order(2, WorkerDesire::Run, "exec sleep 1000")]).await;
    let over = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(over.exit_code, Some(0), "its end is heard of where it is ignored, too");
    let found = fs::read_to_string(Stream::Stdout.file(&agent.folder_of(1), 0)).expect("its output");
    let closed = agent.closed.path().display().to_string();
    assert!(!found.contains(&closed), "what only the agent may enter:\n{found}");
    let own = score_of(std::process::id().cast_signed());
    let mut lines = vec![
        "umask 0022".to_owned(),
        "files 0 1 2 3".to_owned(),
        "folder own".to_owned(),
        "extra []".to_owned(),
        format!("score {}", (own + 200).min(1000)),
        "slack 50000".to_owned(),
        "personality 00000000".to_owned(),
        "policy 0 terminal 0".to_owned(),
        "SigBlk:\t0000000000000000".to_owned(),
        "SigIgn:\t0000000000000000".to_owned(),
    ];
    if may(SYS_NICE) {
        lines.push("nice 0".to_owned());
    }
    for line in lines {
        assert!(found.lines().any(|said| said.trim() == line), "`{line}` is missing from\n{found}");
    }
    let lowered = found.lines().find(|said| said.starts_with("lower ")).expect("it is tried");
    assert!(!may(SYS_RESOURCE) || lowered.ends_with("refused"), "a program stays before its supervisor: {lowered}");
    let soft = |name: &str| {
        let line = found.lines().find_map(|line| line.strip_prefix(name)).expect("a limit");
        line.split_whitespace().next().expect("a soft one").to_owned()
    };
    let (_, files) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    assert_eq!(soft("Max open files"), files.min(65_536).to_string());
    assert_eq!((soft("Max file size"), soft("Max core file size")), ("unlimited".to_owned(), "0".to_owned()));

    leader.report_of(2, WorkerPhase::Running).await;
    let status = running_status(&agent.folder_of(2));
    let (group, _) = status.group.processes.clone().expect("processes are counted here");
    let most = Limits::default().processes_per_worker.to_string();
    assert_eq!(fs::read_to_string(group.join("pids.max")).expect("a limit").trim(), most);
    let looking_after = [agent.child.id().cast_signed(), status.supervisor.expect("at work").pid];
    assert_eq!(looking_after.map(score_of), [own, own], "as whoever started the agent wants it");
    leader.order(true, Vec::new()).await;
    leader.report_of(2, WorkerPhase::Stopped).await;
}

/// Right to lower a nice value.
const SYS_NICE: u64 = 1 << 23;
/// Right to bound what scores a process may give itself.
const SYS_RESOURCE: u64 = 1 << 24;

/// The score of a process when its host is out of memory.
fn score_of(pid: i32) -> i32 {
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it runs");
    score.trim().parse().expect("a number")
}

/// Tells whether root has a right on this host.
fn may(right: u64) -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("it is there");
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("its rights").trim();
    u64::from_str_radix(rights, 16).expect("a number") & right != 0
}
