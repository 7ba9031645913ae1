//! Consoles that look on: what browsers ask of a member while people look at its pages, without drawing it.
//!
//! A console is a view of the web console, in turn the overview, the list of jobs, and the map: it keeps the watches of
//! that view open, and asks again for what the view shows when something has happened, as seldom as the view does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Duration, interval, sleep};

/// A view: its watches, what it asks for, and the pause between two questions.
struct View {
    watches: &'static [&'static str],
    questions: &'static [&'static str],
    pace: Duration,
}

const VIEWS: [View; 3] = [
    View {
        watches: &["/v1/pool:watch?progress_only=true"],
        questions: &[
            "/v1/pool?consistency=stale",
            "/v1/cluster",
            "/v1/nodes?states=lost&page_size=20&consistency=stale",
            "/v1/nodes?states=ready&eligibilities=cordoned&eligibilities=draining&page_size=20&consistency=stale",
            "/v1/jobs?states=failed&states=timeout&page_size=5&consistency=stale",
        ],
        pace: Duration::from_secs(1),
    },
    View {
        watches: &["/v1/pool:watch?progress_only=true"],
        questions: &["/v1/jobs?page_size=50&consistency=stale"],
        pace: Duration::from_secs(2),
    },
    View { watches: &["/v1/map:watch"], questions: &[], pace: Duration::from_secs(1) },
];

/// Consoles, and what came to them.
#[derive(Debug)]
pub struct Consoles {
    tasks: JoinSet<Result<()>>,
    bytes: Arc<AtomicU64>,
}

impl Consoles {
    /// Opens so many on a member's pages, and scrapes its metrics every `scrape`.
    ///
    /// # Errors
    /// A watch is refused.
    pub async fn open(page: &str, count: usize, scrape: Duration) -> Result<Self> {
        let mut consoles = Self { tasks: JoinSet::new(), bytes: Arc::default() };
        let revision = revision(page).await?;
        for view in VIEWS.iter().cycle().take(count) {
            let happened = Arc::new(Notify::new());
            for path in view.watches {
                // As a view does that has just asked for what it shows.
                let from = if path.contains("map") { String::new() } else { format!("&after_revision={revision}") };
                let stream = begin(page, &format!("{path}{from}"), "text/event-stream").await?;
                consoles.tasks.spawn(listen(stream, Arc::clone(&happened), Arc::clone(&consoles.bytes)));
            }
            if !view.questions.is_empty() {
                consoles.tasks.spawn(ask_again(page.to_owned(), view, happened, Arc::clone(&consoles.bytes)));
            }
        }
        let (page, bytes) = (page.to_owned(), Arc::clone(&consoles.bytes));
        consoles.tasks.spawn(async move {
            let mut due = interval(scrape);
            loop {
                due.tick().await;
                bytes.fetch_add(get(&page, "/metrics").await?.len() as u64, Ordering::Relaxed);
            }
        });
        Ok(consoles)
    }

    /// Closes them; answers how many bytes came.
    ///
    /// # Errors
    /// One was cut before.
    pub fn close(mut self) -> Result<u64> {
        if let Some(ended) = self.tasks.try_join_next() {
            ended.context("a console broke")?.context("a console was cut")?;
        }
        Ok(self.bytes.load(Ordering::Relaxed))
    }
}

async fn listen(mut stream: TcpStream, happened: Arc<Notify>, bytes: Arc<AtomicU64>) -> Result<()> {
    let mut some = vec![0; 64 << 10];
    loop {
        let read = stream.read(&mut some).await?;
        ensure!(read > 0, "the member ended a watch");
        bytes.fetch_add(read as u64, Ordering::Relaxed);
        happened.notify_one();
    }
}

async fn ask_again(page: String, view: &View, happened: Arc<Notify>, bytes: Arc<AtomicU64>) -> Result<()> {
    loop {
        happened.notified().await;
        for path in view.questions {
            bytes.fetch_add(get(&page, path).await?.len() as u64, Ordering::Relaxed);
        }
        sleep(view.pace).await;
    }
}

/// The revision that a member's answers reflect now.
async fn revision(page: &str) -> Result<u64> {
    let answer = get(page, "/v1/pool?consistency=stale").await?;
    let answer: serde_json::Value = serde_json::from_str(&answer).context("an answer that is no JSON")?;
    answer["read"]["revision"].as_str().and_then(|text| text.parse().ok()).context("an answer without a revision")
}

/// Asks and leaves the connection to the caller once the member has begun to answer.
async fn begin(page: &str, path: &str, accept: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(page).await.with_context(|| format!("connecting to {page}"))?;
    let asked = format!("GET {path} HTTP/1.1\r\nHost: {page}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    ensure!(&head == b"HTTP/1.1 200", "{path}: {}", String::from_utf8_lossy(&head));
    Ok(stream)
}

/// Gets the body of the answer of a page.
///
/// # Errors
/// Nobody answers, or with another code than 200.
pub async fn get(page: &str, path: &str) -> Result<String> {
    let mut stream = begin(page, path, "*/*").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}
