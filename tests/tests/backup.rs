//! Backups: what they look like when the disk is full, a file is spoiled, or nobody thinks of them.

use std::path::PathBuf;

use anyhow::Result;
use tessera_testkit::BucketServer;
use tessera_tests::command::{field, refusal, text};
use tessera_tests::jobs::{revision, shell, submit};
use tessera_tests::page::get;
use tessera_tests::pool::{Options, Pool};
use tessera_tests::runbook::Runbook;
use tessera_tests::small_disk::SmallDisk;
use tessera_tests::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_not_whole_is_refused_by_name() -> Result<()> {
    let pool = Pool::start(Options { members: 1, nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let good = pool.folder().join("good.backup");
    pool.cli_ok(&["cluster", "snapshot", "save", text(&good)?]).await?;
    let bytes = std::fs::read(&good)?;
    let (middle, last) = (bytes.len() / 2, bytes.len() - 1);
    let flipped = |place: usize| {
        let mut bytes = bytes.clone();
        bytes[place] ^= 1;
        bytes
    };
    let newer = [b"tessera backup 2\n", &bytes["tessera backup 1\n".len()..]].concat();
    let spoiled = [
        ("truncated", bytes[..middle].to_vec(), "is truncated"),
        ("without-hash", bytes[..bytes.len() - 32].to_vec(), "is truncated"),
        ("flipped", flipped(middle), "is damaged"),
        ("flipped-hash", flipped(last), "is damaged"),
        ("longer", [&bytes[..], b"x"].concat(), "is damaged"),
        ("another", b"PK\x03\x04".to_vec(), "is no backup"),
        ("newer", newer, "is in format 2"),
    ];
    for (name, content, complaint) in spoiled {
        let file = pool.folder().join(name);
        std::fs::write(&file, content)?;
        let data = pool.folder().join(format!("{name}-data"));
        let restore = ["cluster", "snapshot", "restore", text(&file)?, "--data-dir", text(&data)?, "--yes"];
        for arguments in [
            vec!["cluster", "snapshot", "inspect", text(&file)?],
            [&restore[..], &["--address", "127.0.0.1:7001"]].concat(),
        ] {
            let said = refusal(&pool, &arguments).await?;
            assert!(said.contains(text(&file)?) && said.contains(complaint), "{name}: {said}");
        }
        assert!(!data.exists(), "{name}: nothing of it was taken");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_are_saved_by_themselves_whoever_leads_and_the_oldest_go() -> Result<()> {
    let backups = tempfile::tempdir()?;
    let folder = backups.path().to_owned();
    let member_config = format!("[backup]\ndir = {folder:?}\ninterval = \"1s\"\nkeep = 2\n");
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], member_config, ..Options::default() }).await?;
    let client = pool.client();
    let names = || -> Result<Vec<PathBuf>> {
        let entries: Vec<PathBuf> =
            std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let mut whole: Vec<PathBuf> = entries.into_iter().filter(|path| !hidden(path)).collect();
        whole.sort();
        Ok(whole)
    };
    let newest_has = async |pool: &Pool, revision: u64| {
        let newest = names().ok()?.pop()?;
        let inspect = ["cluster", "snapshot", "inspect", newest.to_str()?];
        let found: u64 = field(pool, &inspect, "revision").await.ok()?.parse().ok()?;
        (found >= revision).then_some(newest)
    };
    let first = until("a backup", async || newest_has(&pool, 1).await).await?;
    submit(&client, shell("true")).await?;
    let reached = revision(&client).await?;
    until("a newer one", async || newest_has(&pool, reached).await).await?;
    until("the first to be gone", async || (!first.exists()).then_some(())).await?;
    assert!(names()?.len() <= 3, "{:?}", names()?);
    let leader = pool.leader().await?;
    pool.kill_member(leader);
    submit(&client, shell("true")).await?;
    let reached = revision(&client).await?;
    until("the next leader to save one", async || newest_has(&pool, reached).await).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_go_to_a_bucket_and_come_back_from_it() -> Result<()> {
    let server = BucketServer::start()?;
    let url = server.url("pool/backups");
    let pool = Pool::start(Options {
        members: 1,
        nodes: vec![vec![("gpu", 8)]],
        member_config: format!("[backup]\nurl = {url:?}\ninterval = \"1s\"\nkeep = 2\n"),
        bucket: server.variables(),
        ..Options::default()
    })
    .await?;
    let client = pool.client();
    let kept = async || -> Option<Vec<(String, u64)>> {
        let printed = pool.cli_ok(&["cluster", "snapshot", "list", &url, "-o", "json"]).await.ok()?;
        let rows: Vec<serde_json::Value> = serde_json::from_str(&printed).ok()?;
        rows.iter().map(|row| Some((row["name"].as_str()?.to_owned(), row["revision"].as_u64()?))).collect()
    };
    let first = until("a backup", async || kept().await?.pop()).await?.0;
    submit(&client, shell("true")).await?;
    let reached = revision(&client).await?;
    let newer = async || kept().await?.pop().filter(|(_, found)| *found >= reached);
    let (newest, found) = until("a newer one", newer).await?;
    let gone = async || kept().await.is_some_and(|kept| kept.iter().all(|(name, _)| *name != first)).then_some(());
    until("the first to be gone", gone).await?;
    let inspected = field(&pool, &["cluster", "snapshot", "inspect", &format!("{url}/{newest}")], "revision").await;
    // It may be one of the oldest by now.
    assert!(inspected.is_err() || inspected? == found.to_string());

    let by_hand = server.url("by-hand/pool.backup");
    pool.cli_ok(&["cluster", "snapshot", "save", &by_hand]).await?;
    let saved_at = field(&pool, &["cluster", "snapshot", "inspect", &by_hand], "revision").await?;
    let data = pool.folder().join("restored");
    let restore = ["cluster", "snapshot", "restore", &by_hand, "--data-dir", text(&data)?, "--yes"];
    let address = ["--address", "127.0.0.1:7001"];
    assert_eq!(field(&pool, &[&restore[..], &address].concat(), "old_revision").await?, saved_at);
    assert!(data.exists(), "a member can be started on it");
    let missing = refusal(&pool, &["cluster", "snapshot", "inspect", &server.url("by-hand/other.backup")]).await?;
    assert!(missing.contains("other.backup"), "{missing}");
    let nowhere = refusal(&pool, &["cluster", "snapshot", "save", "s3://nobody/pool.backup"]).await?;
    assert!(nowhere.contains("s3://nobody"), "{nowhere}");

    drop(server);
    let failed = async || {
        let page = get(&pool.members[0].http, "/metrics", "text/plain").ok()?;
        page.lines()
            .any(|line| line.starts_with("tessera_backups_total{outcome=\"failed\"}") && !line.ends_with(" 0"))
            .then_some(())
    };
    until("the failure to be told", failed).await?;
    submit(&client, shell("true")).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_leaves_nothing_of_a_backup() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"))? else { return Ok(()) };
    let pool = Pool::start(Options { members: 1, nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let file = disk.folder().join("pool.backup");
    let mut runbook = Runbook::read("TesseraBackupsMissing")?;
    pool.follow(runbook.command("cluster status", &[])).await?;
    pool.follow(runbook.command("cluster snapshot save", &[("FILE", text(&file)?)])).await?;
    runbook.was_followed();
    let before = std::fs::read(&file)?;
    submit(&pool.client(), shell("true")).await?;
    disk.fill()?;
    let said = refusal(&pool, &["cluster", "snapshot", "save", text(&file)?]).await?;
    assert!(said.contains("No space left"), "{said}");
    let left: Vec<_> = std::fs::read_dir(disk.folder())?.map(|entry| entry.map(|entry| entry.file_name())).collect();
    assert_eq!(left.len(), 2, "the backup from before and what fills the disk: {left:?}");
    assert_eq!(std::fs::read(&file)?, before, "what was there before is whole");
    disk.make_room()?;
    pool.cli_ok(&["cluster", "snapshot", "save", text(&file)?]).await?;
    assert_ne!(std::fs::read(&file)?, before);
    Ok(())
}
