//! Jobs whose program has its virtual card as one device, through real processes: a slice server beside the program,
//! started before it, confined and ended with it. What a server computes is tested with PyTorch (`make device`); here a
//! small program stands for it.

use anyhow::{Context, Result};
use tessera_api::v1::{Access, CancelJobRequest, CardKind, Job, JobSpec, JobState, Span};
use tessera_tests::jobs::{get, on, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, PROGRAMS, Pool};
use tessera_tests::wait::until;

/// A pool of one node that serves devices.
async fn pool(start_within: &str) -> Result<Pool> {
    let agent_config =
        format!("[device]\npython = \"{PROGRAMS}/slice_server.py\"\nstart_within = \"{start_within}\"\n");
    Pool::start(Options { nodes: vec![vec![("gpu", 8), ("gpu", 8)]], agent_config, ..Options::default() }).await
}

/// A job whose program is a few lines of Python with `ask(text)`, which talks to the slice server.
fn program(lines: &str) -> JobSpec {
    let ask = "import os, socket, sys, time, signal\n\
               def ask(text, token=os.environ['TESSERA_TOKEN']):\n\
               \u{20}   server = socket.socket(socket.AF_UNIX)\n\
               \u{20}   server.connect(os.environ['TESSERA_SLICES'].removeprefix('unix:'))\n\
               \u{20}   server.sendall(f\"{token} {os.environ['TESSERA_EPOCH']} {text}\".encode())\n\
               \u{20}   return server.recv(4096).decode()\n";
    let mut spec = shell("");
    spec.command = ["python3", "-u", "-c", &format!("{ask}{lines}")].map(str::to_owned).to_vec();
    as_device(spec)
}

fn as_device(mut spec: JobSpec) -> JobSpec {
    let card = spec.virtual_card.get_or_insert_default();
    card.access = Access::Device.into();
    card.memory_mib = 512;
    spec
}

/// The program finds a server of its slice and nobody else's, with the slice's share and memory, and ends with what it
/// has to say.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_a_slice_server_with_the_share_and_memory_of_its_slice() -> Result<()> {
    let pool = pool("30s").await?;
    let client = pool.client();
    let lines = "print(ask('hello'))\nprint(ask('hello', token='0' * 32), os.environ['LD_LIBRARY_PATH'])\nsys.exit(3)";
    let mut spec = on(program(lines), 2, Span::Card);
    // What would keep a server, or what starts it, from loading; it is for the program alone.
    let folder = pool.shared_folder("job")?;
    std::fs::write(folder.join("socket.py"), "raise SystemExit('not this one')")?;
    spec.working_directory = folder.display().to_string();
    spec.environment.insert("PYTHONSAFEPATH".to_owned(), "1".to_owned());
    spec.environment.insert("LD_LIBRARY_PATH".to_owned(), "/of/the/job".to_owned());
    let job = submit(&client, spec).await?;
    let ended = wait_for(&client, job, JobState::Failed).await?;
    assert_eq!(exit_code(&ended), Some(3), "the program's own exit");
    let said = output(&client, job, 0).await?;
    assert_eq!(said, "device=cpu memory=512MiB share=0.250 threads=1 hello\nrefused /of/the/job\n");
    let spec = ended.spec.context("it has one")?;
    assert_eq!(spec.node_labels["tessera.device"], "pytorch", "it went to a node that serves devices");
    let kinds = spec.virtual_card.context("it has one")?.kinds;
    assert_eq!(kinds, [CardKind::Gpu as i32, CardKind::Npu as i32, CardKind::Cpu as i32]);
    Ok(())
}

/// Told to stop, the program hears it once, whatever process group it is in, and may finish with its server; nothing of
/// the server outlives the worker, also when the program ignores everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_the_programs_and_the_server_ends_with_it() -> Result<()> {
    let pool = pool("30s").await?;
    let client = pool.client();
    let polite = "heard = []\nsignal.signal(signal.SIGTERM, lambda *_: heard.append(1))\n\
                  print(ask('pid').split()[-1])\nwhile not heard: time.sleep(0.01)\n\
                  time.sleep(0.3)\nprint('heard', ask('word').split()[-1], len(heard))";
    let deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(ask('pid').split()[-1])\ntime.sleep(1000)";
    // `timeout` leads a group, or makes one of its own; it passes on what it hears, beside what its group hears.
    let cases =
        [(&[][..], polite, Some("heard word 1")), (&["timeout", "900"], polite, Some("heard word")), (&[], deaf, None)];
    for (before, lines, expected) in cases {
        let mut spec = program(lines);
        spec.command.splice(..0, before.iter().map(|word| (*word).to_owned()));
        spec.checkpoint.get_or_insert_default().grace = Some(prost_types::Duration { seconds: 2, nanos: 0 });
        let job = submit(&client, spec).await?;
        until("the server to have answered", async || {
            output(&client, job, 0).await.is_ok_and(|said| said.contains('\n')).then_some(())
        })
        .await?;
        let servers = servers_of(&pool);
        assert_eq!(servers.len(), 1, "{servers:?}");
        client.cancel_job(CancelJobRequest { job_id: job, ..Default::default() }).await?;
        wait_for(&client, job, JobState::Cancelled).await?;
        let said = output(&client, job, 0).await?;
        let heard = said.lines().nth(1);
        assert!(
            heard.is_some() == expected.is_some() && heard.unwrap_or("").starts_with(expected.unwrap_or("")),
            "{said}"
        );
        assert_eq!(servers_of(&pool), Vec::<i32>::new(), "blocks are free only when nothing of the worker is left");
    }
    Ok(())
}

/// A server that dies does not take its program along, which is told by its connection; the job's output says why. One
/// that talks on and on stops nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_is_spoken_of_and_the_program_decides() -> Result<()> {
    let pool = pool("30s").await?;
    let client = pool.client();
    // A connection breaks a moment before its process has ended: the program goes on once that was noticed.
    let lines = "server = int(ask('pid').split()[-1])\nos.kill(server, signal.SIGKILL)\n\
                 while True:\n    try:\n        ask('x')\n    except OSError:\n        break\n\
                 while True:\n    try:\n        os.kill(server, 0)\n    except ProcessLookupError:\n        break\n\
                 print('the card is gone')";
    let mut spec = program(lines);
    spec.environment.insert("LANG".to_owned(), "chatters".to_owned());
    let job = submit(&client, spec).await?;
    wait_for(&client, job, JobState::Completed).await?;
    assert_eq!(output(&client, job, 0).await?, "the card is gone\n");
    let errors = pool.cli_ok(&["job", "logs", "--stderr", &job.to_string()]).await?;
    let last = &errors[errors.len().saturating_sub(300)..];
    assert!(errors.contains("the slice server for cpu ended (signal: 9"), "{last}");
    Ok(())
}

/// However the program ends, its job ends so: by a code, or by a signal, named or not.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_program_is_the_end_of_the_job() -> Result<()> {
    let pool = pool("30s").await?;
    let client = pool.client();
    for signal in [11, 13, 40] {
        let lines = format!("signal.signal({signal}, signal.SIG_DFL)\nos.kill(os.getpid(), {signal})\ntime.sleep(9)");
        let job = submit(&client, program(&lines)).await?;
        let ended = wait_for(&client, job, JobState::Failed).await?;
        let attempt = ended.history.last().context("it was tried")?;
        assert_eq!((attempt.exit_code, attempt.signal), (None, Some(signal)));
    }
    Ok(())
}

/// A server that cannot start, or never listens, is its node's fault and not the job's, which is tried again and told
/// why; a program that is not there is the job's own fault, as without a device.
#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_program_from_its_device_is_said() -> Result<()> {
    let pool = pool("2s").await?;
    let client = pool.client();
    for (lang, slices, why) in [
        ("dies-at-start", 1, "ended before it listened"),
        ("never-listens", 1, "did not listen in time"),
        ("other-dies", 2, "ended before it listened"),
    ] {
        let mut spec = on(program("print('never')"), 8 * slices, Span::Node);
        spec.environment.insert("LANG".to_owned(), lang.to_owned());
        let job = submit(&client, spec).await?;
        let tried =
            until("the second attempt", async || get(&client, job).await.ok().filter(|job| job.history.len() > 1))
                .await?;
        let reason = tried.history[0].reason.clone().context("it ended")?;
        assert_eq!(reason.code, "NODE_FAULT", "{}", reason.sentence);
        assert!(reason.sentence.contains(why), "{}", reason.sentence);
        client.cancel_job(CancelJobRequest { job_id: job, ..Default::default() }).await?;
        wait_for(&client, job, JobState::Cancelled).await?;
        // A node of which that is said a few times gets no more work.
        pool.cli_ok(&["node", "uncordon", &pool.nodes[0].name]).await?;
    }
    let mut spec = shell("");
    spec.command = vec!["/no/such/program".to_owned()];
    let job = submit(&client, as_device(spec)).await?;
    let ended = wait_for(&client, job, JobState::Failed).await?;
    assert_eq!(exit_code(&ended), Some(127));
    let errors = pool.cli_ok(&["job", "logs", "--stderr", &job.to_string()]).await?;
    assert!(errors.contains("`/no/such/program` cannot be run"), "{errors}");
    Ok(())
}

/// Without a node that serves devices a job waits, and is told for what.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_a_node_that_serves_devices() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let job = submit(&client, program("print('never')")).await?;
    until("the reason to be known", async || {
        let why = pool.cli_ok(&["job", "why", &job.to_string()]).await.ok()?;
        why.contains("tessera.device").then_some(())
    })
    .await?;
    client.cancel_job(CancelJobRequest { job_id: job, ..Default::default() }).await?;
    Ok(())
}

/// With which code the last attempt of a job ended.
fn exit_code(job: &Job) -> Option<i32> {
    job.history.last()?.exit_code
}

/// Processes of slice servers of a pool that live on this machine.
fn servers_of(pool: &Pool) -> Vec<i32> {
    let wanted = format!("TESSERA_WORKER_DIR={}", pool.folder().display());
    let is_server = |pid: i32| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let words = read("cmdline");
        let starts = words.windows(15).any(|word| word == b"\0tessera.slice\0");
        starts && read("environ").windows(wanted.len()).any(|word| word == wanted.as_bytes())
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| is_server(*pid)).collect()
}
