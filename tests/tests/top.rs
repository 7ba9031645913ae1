//! The live view: a job appears in it, its page opens, and the terminal is left as it was; the same printed once.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tessera_api::v1::{JobState, Span};
use tessera_tests::jobs::{on, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool, binary, program_here};
use tessera_tests::wait::{PATIENCE, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

/// Time after which the screen is drawn anew.
const AGAIN: Duration = Duration::from_millis(500);

/// The program in a terminal.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    drawn: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn run(pool: &Pool, arguments: &[&str]) -> Result<Self> {
        let servers: Vec<&str> = pool.members.iter().map(|member| member.address.as_str()).collect();
        let mut child = Command::new("python3")
            .arg(program_here("terminal.py"))
            .arg(binary())
            .args(arguments)
            .env("TESSERA_SERVER", servers.join(","))
            .env("TESSERA_CONFIG", pool.folder().join("no-config.toml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting a terminal")?;
        let keys = child.stdin.take().context("no way to type")?;
        let mut screen = child.stdout.take().context("no screen")?;
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&drawn);
        tokio::spawn(async move {
            let mut some = vec![0; 65_536];
            while let Ok(length @ 1..) = screen.read(&mut some).await {
                seen.lock().expect("nobody panics with it").extend_from_slice(&some[..length]);
            }
        });
        Ok(Self { child, keys, drawn })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.drawn.lock().expect("nobody panics with it")).into_owned()
    }

    /// Waits until `word` is on the screen, which is drawn anew for it: what did not change is not drawn again.
    async fn shows(&mut self, word: &str) -> Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            self.drawn.lock().expect("nobody panics with it").clear();
            self.press(b"\x0c").await?;
            let look = async {
                while !self.text().contains(word) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            if tokio::time::timeout(AGAIN, look).await.is_ok() {
                return Ok(());
            }
            ensure!(tokio::time::Instant::now() < deadline, "`{word}` is not shown:\n{}", self.text());
        }
    }

    async fn press(&mut self, keys: &[u8]) -> Result<()> {
        self.keys.write_all(keys).await?;
        Ok(self.keys.flush().await?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_appears_in_the_live_view() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let mut terminal = Terminal::run(&pool, &["top", "--interval", "200ms"])?;
    terminal.shows("0/8").await?;

    let mut spec = on(shell("sleep 600"), 5, Span::Card);
    spec.name = "watched".to_owned();
    let job = submit(&client, spec.clone()).await?;
    wait_for(&client, job, JobState::Running).await?;
    terminal.shows("watched").await?;
    terminal.shows("running").await?;
    terminal.shows("5/8").await?;

    // The page of the next one says why it waits.
    spec.name = "queued".to_owned();
    submit(&client, spec).await?;
    terminal.shows("queued").await?;
    terminal.press(b"g\r").await?;
    terminal.shows("waits").await?;
    terminal.press(b"\x1b").await?;

    // The nodes, with their blocks as a bar.
    terminal.press(b"2").await?;
    terminal.shows("#####").await?;

    for place in 0..3 {
        pool.member(place).kill();
    }
    terminal.shows("reconnecting:").await?;
    terminal.press(b"q").await?;
    let ended = tokio::time::timeout(PATIENCE, terminal.child.wait()).await??;
    assert!(ended.success(), "{ended}: {}", terminal.text());
    assert!(terminal.text().contains("\u{1b}[?1049l"), "the screen is as it was before");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_is_printed_once_for_programs() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let mut spec = on(shell("sleep 600"), 5, Span::Card);
    spec.name = "watched".to_owned();
    let job = submit(&client, spec).await?;
    wait_for(&client, job, JobState::Running).await?;

    let text = pool.cli_ok(&["top"]).await?;
    assert!(text.contains("leader") && text.contains("watched"), "{text}");
    let lists = [("jobs", "job_list"), ("nodes", "node_list"), ("cards", "card_list"), ("queues", "queue_list")];
    for (tab, field) in lists {
        // It fails while there is no leader with a quorum, as on a machine that is busy otherwise there may be.
        let looked =
            until("a view that is whole", async || pool.cli_ok(&["top", "-o", "json", "--tab", tab]).await.ok());
        let text = looked.await?;
        let json: serde_json::Value = serde_json::from_str(&text)?;
        assert_eq!(json["pool"]["blocks"]["running"], 5, "{text}");
        assert_eq!(json["cluster"]["writable"], true);
        assert_eq!(json[field].as_array().map(Vec::len), Some(1), "{text}");
    }

    // Its agent reads its cards every two seconds.
    until("how busy the card is", async || {
        let text = pool.cli_ok(&["job", "top", "-o", "json"]).await.ok()?;
        let json: serde_json::Value = serde_json::from_str(&text).ok()?;
        assert_eq!((json[0]["id"].as_u64(), json[0]["blocks"].as_u64()), (Some(job), Some(5)), "{text}");
        json[0]["cards_busy"].as_f64().map(|_| ())
    })
    .await?;
    let none = pool.cli_ok(&["top", "--filter", "nothing-has-this", "-o", "json"]).await?;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&none)?["job_list"].as_array().map(Vec::len), Some(0));
    Ok(())
}
