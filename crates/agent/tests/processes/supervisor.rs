//! The supervisor on real processes: what it starts, stops, kills and reports.

use std::time::Duration;

use super::support::{Supervised, contained, control_groups, fence, is_alive, launch, lease_in, pid_in, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_agent::boot::BootTime;
use tessera_agent::cgroup::{Hierarchies, Limits};
use tessera_agent::supervisor::message::Request;
use tessera_agent::supervisor::output::Stream;
use tessera_agent::supervisor::status::{Cause, Exit, Phase, Status};
use tessera_agent::worker::{Lease, StopPolicy, StopSignal};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn exit_code_and_output_are_reported() {
    let mut worker = Supervised::start(launch("echo to stdout; echo to stderr >&2; exit 7"));
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::Exited), Some(Exit::Code(7))));
    assert_eq!(status.message, "exited with code 7");
    assert!(status.started_unix_ms <= status.stopped_unix_ms && status.started_unix_ms.is_some());
    assert_eq!(worker.output(Stream::Stdout), "to stdout\n");
    assert_eq!(worker.output(Stream::Stderr), "to stderr\n");
}

#[test]
fn a_signal_is_reported() {
    let mut worker = Supervised::start(launch("kill -SEGV $$"));
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::Exited), Some(Exit::Signal(11))));
}

#[test]
fn a_program_that_cannot_run_is_a_failed_start_with_its_reason() {
    let mut absent = launch("");
    absent.command = vec!["no-such-program-anywhere".to_owned()];
    let mut worker = Supervised::start(absent);
    let status = worker.stopped();
    assert_eq!(status.cause, Some(Cause::StartFailed));
    let why = "`no-such-program-anywhere` cannot be run: it is in no folder of its PATH (`/";
    assert!(status.message.starts_with(why), "{}", status.message);
    let mut nowhere = launch("true");
    nowhere.working_directory = "/no/such/folder".into();
    let mut worker = Supervised::start(nowhere);
    let status = worker.stopped();
    assert_eq!((status.cause, status.process), (Some(Cause::StartFailed), None));
    assert!(status.message.contains("/no/such/folder"), "{}", status.message);
}

#[test]
fn a_script_without_an_interpreter_line_runs_in_the_shell() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = folder.path().join("script");
    std::fs::write(&script, "echo $1 and $0").expect("writable");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("mine");
    let mut started = launch("");
    started.command = vec![script.display().to_string(), "argument".to_owned()];
    let mut worker = Supervised::start(started);
    assert_eq!(worker.stopped().exit, Some(Exit::Code(0)));
    assert_eq!(worker.output(Stream::Stdout), format!("argument and {}\n", script.display()));
}

#[test]
fn the_worker_gets_a_clean_start() {
    let script = "ls -l /proc/self/fd | grep -c socket; ls /proc/self/fd | tr '\\n' ' '; readlink /proc/self/fd/0; \
                  grep SigBlk /proc/self/status; grep SigIgn /proc/self/status; \
                  cut -d' ' -f5,6 /proc/$$/stat; echo $$; env | grep -c SECRET_OF_THE_AGENT";
    let mut worker = Supervised::start(launch(script));
    let status = worker.stopped();
    let output = worker.output(Stream::Stdout);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "0", "no socket of the supervisor: {output}");
    assert_eq!(lines[1], "0 1 2 3 /dev/null", "3 is the folder that `ls` reads: {output}");
    assert!(lines[2].ends_with("0000000000000000"), "no signal is blocked: {output}");
    let ignored = lines[3].rsplit('\t').next().and_then(|mask| u64::from_str_radix(mask, 16).ok()).expect("a mask");
    assert_eq!(ignored & 0x7fff_ffff, 0, "no signal from 1 to 31 is ignored: {output}");
    assert_eq!(lines[4], format!("{pid} {pid}", pid = lines[5]), "its own process group and session: {output}");
    if !contained() {
        assert_eq!(lines[5], status.process.expect("it ran").pid.to_string());
    }
}

#[test]
fn output_is_rotated_and_offsets_go_on() {
    let mut rotated = launch("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done");
    (rotated.output_file_bytes, rotated.output_files) = (4096, 3);
    let mut worker = Supervised::start(rotated);
    worker.stopped();
    let offsets = Stream::Stdout.offsets(worker.folder.path()).expect("readable");
    assert_eq!(offsets.len(), 3);
    assert!(offsets.iter().all(|offset| offset % 4096 == 0) && offsets[0] > 0, "{offsets:?}");
    let whole: String = (0..3000).map(|i| format!("line {i}\n")).collect();
    let kept = worker.output(Stream::Stdout);
    assert_eq!(
        whole[usize::try_from(offsets[0]).expect("small")..],
        kept,
        "the newest bytes, at the offset of their name"
    );
}

#[test]
fn a_time_limit_ends_it() {
    let mut limited = launch("exec sleep 1000");
    limited.time_limit = Some(Duration::from_millis(100));
    let mut worker = Supervised::start(limited);
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::TimeLimit), Some(Exit::Signal(15))));
    assert!(status.within_grace, "it obeyed");
}

#[test]
fn stop_asks_first_and_sees_a_checkpoint_written() {
    let mut worker =
        Supervised::start(launch("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done"));
    worker.output_with("ready");
    worker.stop(LONG);
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit, status.within_grace), (Some(Cause::Ordered), Some(Exit::Code(0)), true));
    assert_eq!(worker.output(Stream::Stdout), "ready\nsaved\n");
}

#[test]
fn who_ignores_the_signal_is_killed_after_the_grace() {
    let mut worker = Supervised::start(launch("trap '' TERM; echo ready; while :; do sleep 0.01; done"));
    worker.output_with("ready");
    worker.stop(Duration::from_millis(50));
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit, status.within_grace), (Some(Cause::Ordered), Some(Exit::Signal(9)), false));
}

#[test]
fn a_silent_agent_costs_the_worker_its_life_at_the_deadline() {
    let mut leased = launch("trap '' TERM; echo self=$$; while :; do sleep 0.01; done");
    leased.lease = Some(lease_in(Duration::from_millis(800), Duration::from_millis(1000)));
    // The socket stays open and nothing is said on it: an agent that is stopped (SIGSTOP) looks just so.
    let mut worker = Supervised::start(leased);
    let pid = pid_in(&worker.output_with("self="), "self", &worker.running());
    assert!(is_alive(pid));
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::LeaseExpired), Some(Exit::Signal(9))));
    assert!(!is_alive(pid));
}

#[test]
fn renewal_keeps_it_alive_past_the_first_deadline() {
    let first = lease_in(Duration::from_millis(700), Duration::from_millis(900));
    let mut leased = launch("exec sleep 1000");
    leased.lease = Some(first);
    let mut worker = Supervised::start(leased);
    let second = lease_in(LONG, LONG);
    worker.send(&Request::Renew { fence: fence(1, 10), lease: second });
    worker.until(|status| status.lease == Some(second));
    wait_for("the first deadline", || (tessera_agent::boot::BootTime::now() > first.kill_at).then_some(()));
    assert_eq!(worker.until_answered().phase, Phase::Running);
}

/// Waits for a file before it ends well.
const ENDS_WHEN_TOLD: &str = "while [ ! -e $FOLDER/go ]; do sleep 0.02; done";

/// A worker that ends when told, with a lease that is over soon.
fn leased_shortly() -> (Supervised, Lease) {
    let mut short = launch(ENDS_WHEN_TOLD);
    let lease = lease_in(Duration::from_millis(1500), LONG);
    short.lease = Some(lease);
    (Supervised::start(short), lease)
}

fn tell_to_end(worker: &Supervised) {
    std::fs::write(worker.folder.path().join("go"), "").expect("writable");
}

fn expect_ended_by_itself(worker: &mut Supervised) {
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::Exited), Some(Exit::Code(0))), "{}", status.message);
}

/// Holds the supervisor still, as a machine with too much to do does, until a deadline has passed.
fn starved_until(worker: &mut Supervised, deadline: BootTime, meanwhile: impl FnOnce(&mut Supervised)) {
    let supervisor = Pid::from_raw(i32::try_from(worker.child.id()).expect("a pid"));
    kill(supervisor, Signal::SIGSTOP).expect("mine");
    meanwhile(worker);
    wait_for("the deadline", || (BootTime::now() > deadline).then_some(()));
    kill(supervisor, Signal::SIGCONT).expect("mine");
}

#[test]
fn a_worker_that_ended_before_its_lease_was_over_has_ended_by_itself() {
    let (mut worker, lease) = leased_shortly();
    worker.send(&Request::Status);
    let process = worker.until(|status| status.process.is_some()).process.expect("it runs");
    starved_until(&mut worker, lease.stop_at, |worker| {
        tell_to_end(worker);
        let stat = format!("/proc/{}/stat", process.pid);
        wait_for("its end", || std::fs::read_to_string(&stat).ok()?.contains(") Z ").then_some(()));
    });
    expect_ended_by_itself(&mut worker);
}

#[test]
fn a_renewal_that_waits_to_be_read_counts() {
    let (mut worker, lease) = leased_shortly();
    starved_until(&mut worker, lease.stop_at, |worker| {
        worker.send(&Request::Renew { fence: fence(1, 10), lease: lease_in(LONG, LONG) });
    });
    worker.until(|status| status.lease.is_some_and(|renewed| renewed.stop_at > lease.stop_at));
    tell_to_end(&worker);
    expect_ended_by_itself(&mut worker);
}

#[test]
fn an_older_term_or_epoch_is_refused() {
    let mut leased = launch("exec sleep 1000");
    leased.fence = fence(5, 10);
    leased.lease = Some(lease_in(LONG, LONG));
    let mut worker = Supervised::start(leased);
    for older in [fence(4, 10), fence(5, 9)] {
        worker.send(&Request::Stop { fence: older, policy: StopPolicy::default(), cause: Cause::Ordered, save: false });
        assert!(worker.refusal().contains("older"));
        assert_eq!(worker.until_answered().phase, Phase::Running);
    }
    worker.send(&Request::Renew { fence: fence(6, 10), lease: lease_in(LONG, LONG) });
    worker.until(|status| status.fence == fence(6, 10));
    let kept = wait_for("the fence on disk", || {
        Status::load(worker.folder.path()).expect("readable").filter(|status| status.fence == fence(6, 10))
    });
    assert_eq!(kept.phase, Phase::Running);
}

#[test]
fn a_daemon_that_left_its_parents_is_killed_too() {
    let script =
        "setsid sh -c 'setsid sleep 1000 & echo daemon=$!' & wait; until [ -e \"$FOLDER/seen\" ]; do sleep 0.01; done";
    let mut worker = Supervised::start(launch(script));
    let daemon = pid_in(&worker.output_with("daemon="), "daemon", &worker.running());
    assert!(is_alive(daemon));
    std::fs::write(worker.folder.path().join("seen"), "").expect("writable");
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::Exited), Some(Exit::Code(0))));
    assert!(!is_alive(daemon), "the worker was over only when its daemon was");
}

#[test]
fn killing_the_supervisor_kills_the_worker_and_all_it_started() {
    // Forked, forked twice, in a session of its own, deaf to signals, and become another program.
    let script = "sleep 1000 & echo child=$!; \
                  setsid sh -c 'setsid sh -c \"trap \\\"\\\" TERM HUP INT; echo daemon=\\$\\$; while :; do sleep 0.1; done\" &' ; \
                  sh -c 'echo another=$$; exec sleep 1000' & \
                  echo self=$$; wait";
    let mut worker = Supervised::start(launch(script));
    let status = worker.running();
    let named = ["child", "daemon", "another", "self"];
    let pids = named.map(|name| pid_in(&worker.output_with(&format!("{name}=")), name, &status));
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    worker.child.kill().expect("alive");
    worker.child.wait().expect("a child");
    if contained() {
        let alive = || named.into_iter().zip(pids).filter(|(_, pid)| is_alive(*pid)).map(|(name, _)| name).collect();
        wait_for("the death of everything", || Some(alive()).filter(Vec::<&str>::is_empty));
    } else {
        wait_for("the worker's death", || (!is_alive(pids[3])).then_some(()));
    }
}

#[test]
fn the_worker_sees_its_own_processes_only() {
    let script = "echo self=$$; ls /proc | grep -c '^[0-9][0-9]*$'; kill -9 1; echo still here";
    let mut worker = Supervised::start(launch(script));
    let status = worker.stopped();
    assert_eq!(status.exit, Some(Exit::Code(0)), "no signal of it counts for its init");
    let output = worker.output(Stream::Stdout);
    assert!(output.ends_with("still here\n"), "{output}");
    if contained() {
        let seen: usize = output.lines().nth(1).and_then(|line| line.parse().ok()).expect("a count");
        assert!(seen <= 5, "its init, itself, and what it has just started: {output}");
    }
}

#[test]
fn a_later_agent_finds_the_worker_unharmed() {
    let mut leased = launch("echo self=$$; exec sleep 1000");
    leased.lease = Some(lease_in(LONG, LONG));
    let mut worker = Supervised::start(leased);
    let before = worker.until_answered();
    worker.hang_up();
    worker.connect();
    let after = worker.until_answered();
    assert_eq!((after.phase, after.process), (Phase::Running, before.process));
    worker.stop(Duration::ZERO);
    assert_eq!(worker.stopped().cause, Some(Cause::Ordered));
}

#[test]
fn an_agent_that_is_cut_off_knows_it_and_can_come_again() {
    let mut worker = Supervised::start(launch("exec sleep 1000"));
    worker.send_bytes(&[0xff; 8]);
    while worker.notice().is_some() {}
    worker.connect();
    assert_eq!(worker.until_answered().phase, Phase::Running);
    worker.stop(Duration::ZERO);
    assert_eq!(worker.stopped().cause, Some(Cause::Ordered));
}

#[test]
fn without_the_word_to_begin_nothing_starts() {
    let mut worker = Supervised::prepare(launch("touch \"$FOLDER/ran\""));
    worker.hang_up();
    worker.child.wait().expect("a child");
    let status = Status::load(worker.folder.path()).expect("readable").expect("kept");
    assert_eq!((status.phase, status.cause, status.process), (Phase::Stopped, Some(Cause::Vanished), None));
    assert!(!worker.folder.path().join("ran").exists());
}

#[test]
fn a_folder_whose_worker_is_over_is_never_started_again() {
    let mut worker = Supervised::start(launch("echo run >> \"$FOLDER/runs\""));
    worker.stopped();
    let (mut again, mut stream) = super::support::spawn(worker.folder.path());
    // It may be gone before it can be told; either way nothing runs.
    let frame = tessera_agent::supervisor::message::encode(&Request::Begin).expect("short");
    let _ = std::io::Write::write_all(&mut stream, &frame);
    assert!(again.wait().expect("a child").success());
    assert_eq!(std::fs::read_to_string(worker.folder.path().join("runs")).expect("it ran"), "run\n");
}

#[test]
fn two_supervisors_never_share_a_folder() {
    let worker = Supervised::start(launch("exec sleep 1000"));
    let (mut second, _stream) = super::support::spawn(worker.folder.path());
    assert!(!second.wait().expect("a child").success());
}

#[test]
fn a_shutdown_of_the_host_stops_the_worker_in_good_order() {
    let mut worker = Supervised::start(launch("trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done"));
    worker.output_with("ready");
    kill(Pid::from_raw(i32::try_from(worker.child.id()).expect("a pid")), Signal::SIGTERM).expect("alive");
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::Ordered), Some(Exit::Code(4))));
    assert!(status.message.contains("shuts down"));
}

#[test]
fn another_signal_can_be_asked_for() {
    let mut worker = Supervised::start(launch("trap 'exit 3' USR1; echo ready; while :; do sleep 0.01; done"));
    worker.output_with("ready");
    let policy = StopPolicy { signal: StopSignal(Signal::SIGUSR1), grace: LONG };
    worker.send(&Request::Stop { fence: fence(1, 10), policy, cause: Cause::NotGranted, save: false });
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::NotGranted), Some(Exit::Code(3))));
}

#[test]
fn without_a_control_group_descendants_are_tracked_and_it_is_said() {
    // A name that no control group can have stands for a machine that offers none.
    let mut bare = launch("setsid sh -c 'setsid sleep 1000 & echo daemon=$!'; echo ready; exec sleep 1000");
    bare.cgroup_root = control_groups() + "/no\nname";
    bare.contained = false;
    let mut worker = Supervised::start(bare);
    let daemon = pid_in(&worker.output_with("ready"), "daemon", &worker.running());
    assert!(is_alive(daemon));
    worker.stop(Duration::ZERO);
    let status = worker.stopped();
    assert_eq!(status.group.tracking, None);
    assert!(status.group.missing.iter().any(|line| line.contains("by descent")), "{:?}", status.group.missing);
    assert!(!is_alive(daemon), "found as a descendant of the subreaper");
}

/// Returns whether this machine lets the tests have a controller; where it does not, the status must say so.
pub fn machine_has(controller: &str) -> bool {
    let found = Hierarchies::detect(std::path::Path::new("/")).expect("/proc is mounted");
    let hierarchy = found.unified_with(controller).or(found.legacy_with(controller));
    hierarchy.is_some_and(|hierarchy| {
        let probe = hierarchy.mount.join(format!("tessera-probe-{}-{controller}", std::process::id()));
        std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)).is_ok()
    })
}

#[test]
fn more_memory_than_granted_is_an_out_of_memory_kill() {
    let mut limited = launch("");
    limited.command = ["python3", "-c", "a = bytearray(200 << 20); print(len(a))"].map(str::to_owned).to_vec();
    limited.limits = Limits { memory_bytes: Some(64 << 20), ..Limits::default() };
    let mut worker = Supervised::start(limited);
    let status = worker.stopped();
    if machine_has("memory") {
        assert_eq!((status.cause, status.exit), (Some(Cause::OutOfMemory), Some(Exit::Signal(9))), "{status:?}");
    } else {
        assert!(status.group.missing.iter().any(|line| line.contains("memory is not limited")), "{status:?}");
    }
}

#[test]
fn a_share_of_the_processors_is_enforced() {
    let script = "python3 - <<'E'\nimport time\nt=time.time(); c=time.process_time()\nwhile time.time()-t < 1.5: pass\n\
                  print('share', (time.process_time()-c)/(time.time()-t))\nE";
    let mut limited = launch(script);
    limited.limits = Limits { cpu_millicores: Some(200), ..Limits::default() };
    let mut worker = Supervised::start(limited);
    let status = worker.stopped();
    if machine_has("cpu") {
        let output = worker.output(Stream::Stdout);
        let share: f64 = output.trim().strip_prefix("share ").and_then(|share| share.parse().ok()).expect("a number");
        assert!(share < 0.35, "asked for a fifth of a core, got {share}");
    } else {
        assert!(status.group.missing.iter().any(|line| line.contains("CPU time is not limited")), "{status:?}");
    }
}

#[test]
fn the_control_group_is_gone_afterwards() {
    let mut worker = Supervised::start(launch("exit 0"));
    let status = worker.stopped();
    for (folder, _) in status.group.tracking.iter().chain(&status.group.cpu).chain(&status.group.memory) {
        assert!(!folder.exists(), "{}", folder.display());
    }
    assert!(status.group.tracking.is_some() || !status.group.missing.is_empty(), "tracked, or said why not");
}

#[test]
fn a_lease_that_ran_out_before_the_start_prevents_it() {
    let mut late = launch("touch \"$FOLDER/ran\"");
    let now = tessera_agent::boot::BootTime::now();
    late.lease = Some(Lease { stop_at: now, kill_at: now.after(LONG) });
    let mut worker = Supervised::prepare(late);
    worker.send(&Request::Begin);
    assert_eq!(worker.stopped().cause, Some(Cause::LeaseExpired));
    assert!(!worker.folder.path().join("ran").exists());
}

impl Supervised {
    fn until_answered(&mut self) -> Status {
        self.send(&Request::Status);
        self.notice().expect("answered").status
    }
}
