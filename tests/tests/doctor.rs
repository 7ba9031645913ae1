//! `tessera operator doctor` on a pool that is well, and with faults planted into it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::Value;
use tessera_tests::pool::{Options, Pool, binary};
use tokio::process::Command;

/// The answer of the doctor: how it ended, and the findings by check, the worst of each.
struct Said {
    code: i32,
    findings: BTreeMap<String, Value>,
    text: String,
}

impl Said {
    fn verdict(&self, check: &str) -> &str {
        self.findings.get(check).and_then(|finding| finding["verdict"].as_str()).unwrap_or("not looked at")
    }

    fn assert(&self, check: &str, verdict: &str) {
        assert_eq!(self.verdict(check), verdict, "{check}: {}", self.text);
        if verdict != "ok" && verdict != "not_applicable" {
            let next = self.findings[check]["next"].as_str().unwrap_or_default();
            assert!(!next.is_empty(), "{check} says what to do: {}", self.text);
        }
    }
}

/// Runs the doctor, by way of `before` if that is not empty.
async fn doctor(before: &[&str], arguments: &[&str]) -> Result<Said> {
    let binary = binary();
    let mut words: Vec<&str> = before.to_vec();
    words.push(binary.to_str().context("a path of text")?);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["operator", "doctor", "-o", "json"]).args(arguments);
    command.env_remove("TESSERA_SERVER").env("TESSERA_CONFIG", "/nonexistent/config.toml").stdin(Stdio::null());
    let output = command.output().await.context("running the doctor")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: Value =
        serde_json::from_str(&text).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let rank = |finding: &Value| {
        let verdict = finding["verdict"].as_str().unwrap_or_default().to_owned();
        ["not_applicable", "ok", "warning", "failure"].iter().position(|known| *known == verdict)
    };
    let mut findings: BTreeMap<String, Value> = BTreeMap::new();
    for finding in said["findings"].as_array().context("findings")? {
        let worst = findings.entry(finding["check"].as_str().unwrap_or_default().to_owned()).or_default();
        if rank(finding) >= rank(worst) {
            *worst = finding.clone();
        }
    }
    Ok(Said { code: output.status.code().unwrap_or(-1), findings, text })
}

/// The file of an agent that is not running, whose data lies in `data`.
fn agent_file(pool: &Pool, data: &Path) -> Result<String> {
    let path = pool.folder().join("doctored-agent.toml");
    let member = &pool.members[0].address;
    let text = format!("name = 'doctored'\nserver = ['{member}']\ndata_dir = {data:?}\ncards = 'none'\n");
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_what_was_broken() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let member = pool.folder().join("member-0.toml").display().to_string();
    let agent = agent_file(&pool, &pool.folder().join("doctored"))?;
    let both = ["--member-config", member.as_str(), "--agent-config", agent.as_str()];

    let said = doctor(&[], &both).await?;
    for check in ["network.port", "members.answer", "members.quorum", "members.voters", "members.versions"] {
        said.assert(check, "ok");
    }
    for check in ["members.lag", "kernel.pidfd", "devices.cards", "clock.namespace"] {
        said.assert(check, "ok");
    }
    said.assert("certificates", "not_applicable");
    // How quick disks and networks are is not for a test to say, only that they were looked at.
    for check in ["disk.fsync", "network.name", "network.round_trip", "kernel.cgroups", "clock.synchronised"] {
        assert_ne!(said.verdict(check), "not looked at", "{check}: {}", said.text);
    }
    let broken: Vec<&String> = said.findings.keys().filter(|check| said.verdict(check) == "failure").collect();
    let slow = |check: &&&String| check.starts_with("disk.fsync") || check.starts_with("network.round");
    assert_eq!(broken.iter().filter(|check| !slow(check)).count(), 0, "{broken:?}: {}", said.text);

    // A member is gone: the doctor says which, and its port is free.
    pool.member(2).kill();
    let said = doctor(&[], &both).await?;
    said.assert("members.answer", "failure");
    assert_eq!(said.findings["members.answer"]["of"], pool.members[2].address.as_str());
    said.assert("members.quorum", "ok");
    assert_eq!(said.code, 2, "{}", said.text);

    // Too few open files, seen by a process that is started with as few.
    let said = doctor(&["prlimit", "--nofile=512:512"], &["--agent-config", agent.as_str()]).await?;
    said.assert("limits.open_files", "failure");

    // Nobody answers: whatever concerns this host is said all the same.
    for place in 0..2 {
        pool.member(place).kill();
    }
    let said = doctor(&[], &both).await?;
    said.assert("members.quorum", "failure");
    assert_ne!(said.verdict("disk.fsync"), "not looked at", "{}", said.text);
    said.assert("network.port", "ok");
    assert_eq!(said.code, 2, "{}", said.text);

    // A file that cannot be used is said with its place.
    std::fs::write(&member, "data_dir = '/d'\nlitsen = 1\n")?;
    let said = doctor(&[], &["--member-config", member.as_str(), "--server", "127.0.0.1:1"]).await?;
    said.assert("configuration", "failure");
    assert!(said.findings["configuration"]["seen"].as_str().unwrap_or_default().contains(":2:1:"), "{}", said.text);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_a_small_disk() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let tiny = folder.path().join("tiny");
    std::fs::create_dir(&tiny)?;
    if let Err(error) = mount(Some("tmpfs"), &tiny, Some("tmpfs"), MsFlags::empty(), Some("size=8m")) {
        eprintln!("NOT TESTED: mounting a small disk is not permitted here ({error})");
        return Ok(());
    }
    let config = folder.path().join("member.toml");
    std::fs::write(&config, format!("data_dir = {tiny:?}\nlisten = '127.0.0.1:1'\n"))?;
    let said = doctor(&[], &["--member-config", &config.display().to_string()]).await;
    umount2(&tiny, MntFlags::MNT_DETACH)?;
    let said = said?;
    said.assert("disk.room", "failure");
    said.assert("disk.kind", "warning");
    assert_eq!(said.code, 2, "{}", said.text);
    Ok(())
}
