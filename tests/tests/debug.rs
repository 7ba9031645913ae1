//! `tessera operator debug` on a pool of which a member is gone: the others are in the bundle, the missing one is
//! named, and nothing secret is there, neither of configuration nor of jobs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tessera_api::v1::JobState;
use tessera_tests::jobs::{shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

/// A secret that must never be seen.
const SECRET: &str = "s3cr3t-that-nobody-may-see";

/// Unpacks a bundle: name of each file, and content.
fn unpack(bundle: &Path, into: &Path) -> Result<BTreeMap<String, String>> {
    std::fs::create_dir(into)?;
    let done = Command::new("tar").arg("-xzf").arg(bundle).arg("-C").arg(into).status()?;
    ensure!(done.success(), "tar: {done}");
    let top = into.join("tessera-debug");
    let (mut files, mut folders) = (BTreeMap::new(), vec![top.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&top)?.display().to_string();
                files.insert(name, String::from_utf8_lossy(&std::fs::read(&path)?).into_owned());
            }
        }
    }
    Ok(files)
}

/// KiB of memory that a process has for itself.
fn own_memory(pid: i32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next());
    Ok(own.context("RssAnon")?.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_has_who_is_left_and_nothing_secret() -> Result<()> {
    let environment = vec![("TESSERA_TEST_TOKEN", SECRET.to_owned())];
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], environment, ..Options::default() }).await?;
    let client = pool.client();
    let mut spec = shell(&format!("test -n '{SECRET}'"));
    spec.environment.insert("TOKEN".to_owned(), SECRET.to_owned());
    spec.labels.insert("key".to_owned(), SECRET.to_owned());
    let job = submit(&client, spec).await?;
    wait_for(&client, job, JobState::Completed).await?;
    let agent = pool.folder().join("debugged-agent.toml");
    let member = &pool.members[0].address;
    let text = format!(
        "name = 'debugged'\nserver = ['{member}']\ndata_dir = '/nonexistent'\ncards = 'none'\n\
         [labels]\nkey = '{SECRET}'\n[log]\notlp_endpoint = 'http://user:{SECRET}@127.0.0.1:1'\n"
    );
    std::fs::write(&agent, text)?;

    let gone = pool.members[2].address.clone();
    pool.member(2).kill();
    let profiled = [pool.member(0).pid(), pool.agent(0).pid()];
    let before: Vec<u64> = profiled.into_iter().map(own_memory).collect::<Result<_>>()?;
    let pages = [&pool.members[0].http, &pool.members[1].http, &pool.members[2].http].map(String::as_str).join(",");
    let own = pool.folder().join("member-0.toml").display().to_string();
    let log = pool.folder().join("member-0.log").display().to_string();
    let agent = agent.display().to_string();
    let folder = |place: usize| format!("members/{}", pool.members[place].address.replace(':', "_"));
    let asked = [folder(0), folder(1), format!("agents/{}", pool.nodes[0].name)];
    let tries = Cell::new(0);
    // Who answers too late, as on a machine that is busy otherwise, is not in it.
    let (output, said, files) = until("a bundle with all who are left", async || {
        tries.update(|tries| tries + 1);
        let bundle = pool.folder().join(format!("bundle-{}.tar.gz", tries.get()));
        let output = bundle.display().to_string();
        let arguments = ["operator", "debug", "--output", &output, "--http", &pages, "--log", &log];
        let files = ["--member-config", &own, "--agent-config", &agent, "--profile", "500ms"];
        let said = pool.cli_ok(&[&arguments[..], &files[..]].concat()).await.ok()?;
        assert_eq!(bundle.metadata().ok()?.permissions().mode() & 0o777, 0o600);
        let files = unpack(&bundle, &pool.folder().join(format!("unpacked-{}", tries.get()))).ok()?;
        asked.iter().all(|folder| files.contains_key(&format!("{folder}/metrics.txt"))).then_some((output, said, files))
    })
    .await?;
    assert!(said.contains(&gone.replace(':', "_")), "the missing member is named: {said}");

    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let metrics = |place: usize| format!("metrics/{}.txt", pool.members[place].http.replace(':', "_"));
    for place in [0, 1] {
        let ledger: Value =
            serde_json::from_str(files.get(&format!("{}/ledger.json", folder(place))).context("ledger")?)?;
        assert_eq!(ledger["jobs"]["completed"], 1, "{ledger}");
        assert!(files.contains_key(&format!("{}/verify.json", folder(place))), "{names:?}");
        assert!(files[&metrics(place)].contains("tessera_raft_term"), "{names:?}");
    }
    // The processes of other hosts are asked through the members: nobody has to log in there.
    for folder in &asked {
        for (part, word) in [
            ("metrics.txt", "tessera_build_info"),
            ("log.txt", "starts"),
            ("process/status", "VmRSS"),
            ("process/threads", "tessera"),
        ] {
            let text = files.get(&format!("{folder}/{part}")).with_context(|| format!("{folder}/{part}: {names:?}"))?;
            assert!(text.contains(word), "{folder}/{part}: {text}");
        }
        // Who computed nothing meanwhile has an empty one.
        assert!(files.contains_key(&format!("{folder}/process/profile.folded")), "{names:?}");
    }
    // The names of what a profile has met are looked up by another process, which needs some 200 MiB for that.
    for (pid, before) in profiled.into_iter().zip(before) {
        let after = own_memory(pid)?;
        assert!(after < before + (64 << 10), "{pid} kept {before} KiB and keeps {after} KiB since it was profiled");
    }
    let configuration = &files[&format!("{}/configuration.toml", folder(0))];
    assert!(configuration.contains("data_dir"), "{configuration}");
    let cluster: Value = serde_json::from_str(&files["cluster.json"])?;
    assert_eq!(cluster["members"].as_array().map(Vec::len), Some(3), "{cluster}");
    assert!(files["pool/job-events.jsonl"].contains("\"completed\""), "{}", files["pool/job-events.jsonl"]);
    assert!(files["host/member-config.toml"].contains("data_dir"), "{names:?}");
    assert!(files["host/agent-config.toml"].contains("debugged"), "{names:?}");
    assert!(files["host/doctor.json"].contains("disk.fsync"), "{names:?}");
    assert!(files["host/logs/member-0.log"].contains("a member starts"), "{names:?}");
    assert!(
        names.iter().any(|name| name.starts_with("host/process-server-") && name.ends_with("/threads")),
        "{names:?}"
    );

    let manifest: Value = serde_json::from_str(&files["manifest.json"])?;
    assert_eq!(manifest["files"].as_array().map(Vec::len), Some(files.len() - 1));
    let missing: Vec<&str> =
        manifest["missing"].as_array().context("missing")?.iter().filter_map(|of| of["what"].as_str()).collect();
    assert!(missing.contains(&folder(2).as_str()) && missing.contains(&metrics(2).as_str()), "{missing:?}");
    for (name, text) in &files {
        assert!(!text.contains(SECRET), "{name} has what nobody may see");
    }
    let again = pool.cli(&["operator", "debug", "--output", &output]).await?;
    assert!(!again.status.success(), "a file that is there is not written over");
    Ok(())
}
