//! What members and agents publish: well-formed, named by the rules, and bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use tessera_api::v1::JobState;
use tessera_tests::jobs::{shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};

fn get(address: &str, path: &str, accept: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    // Bodies may come in chunks; their sizes stand on lines of their own.
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return Ok(body.to_owned());
    }
    let (mut text, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16)?;
        if size == 0 {
            break;
        }
        text.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    Ok(text)
}

/// Runs Prometheus' own check over a page.
fn promtool(page: &str) -> Result<String> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("promtool is not there: run deploy/setup.sh test")?;
    child.stdin.take().context("no standard input")?.write_all(page.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok(format!("{}{}", if output.status.success() { "" } else { "failed: " }, String::from_utf8_lossy(&said)))
}

/// The rows of one table of docs/metrics.md: name, type and labels of each metric.
fn documented(of: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("docs/metrics.md is there");
    let section = text.split("\n## ").find(|section| section.starts_with(of)).expect("a section of its own").to_owned();
    let unquoted = |text: &str| text.trim().trim_matches('`').to_owned();
    let rows = section.lines().filter(|line| line.starts_with("| `")).map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let labels = cells[4].split(',').map(unquoted).filter(|label| !label.is_empty());
        (unquoted(cells[1]), (cells[2].to_owned(), labels.collect()))
    });
    rows.collect()
}

/// Everything on a page in the text format is in the document, with its type and its labels.
fn assert_documented(page: &str, of: &str) {
    let documented = documented(of);
    let mut last = None;
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let row = documented.get(name).unwrap_or_else(|| panic!("{name} is not in docs/metrics.md"));
            assert_eq!(row.0, kind, "the type of {name}");
            last = Some(row);
        } else if let (Some((_, labels)), Some((_, known))) = (line.split_once('{'), last)
            && !line.starts_with('#')
        {
            let mut names = labels.split("=\"").filter_map(|part| part.rsplit(['"', ',']).next());
            let strange = names.find(|name| !name.starts_with('}') && *name != "le" && !known.contains(*name));
            assert_eq!(strange, None, "a label of {line}");
        }
    }
    assert!(last.is_some(), "the page has no types:\n{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_keep_the_rules_of_the_field() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let job = submit(&client, shell("true")).await?;
    wait_for(&client, job, JobState::Completed).await?;
    let leader = pool.leader().await?;
    for address in [&pool.members[leader].http, &pool.nodes[0].http] {
        let page = get(address, "/metrics", "text/plain")?;
        assert_eq!(promtool(&page)?, "", "of {address}:\n{page}");
        assert!(page.contains("tessera_build_info"), "{page}");
        let open = get(address, "/metrics", "application/openmetrics-text; version=1.0.0")?;
        assert!(open.ends_with("# EOF\n"), "OpenMetrics ends with its mark");
        assert!(page.lines().count() < 5_000);
    }
    assert_documented(&get(&pool.nodes[0].http, "/metrics", "text/plain")?, "Of agents");
    let page = get(&pool.members[leader].http, "/metrics", "text/plain")?;
    assert_documented(&page, "Of members");
    for name in ["tessera_raft_is_leader 1", "tessera_raft_term", "tessera_blocks{", "tessera_jobs{", "tessera_nodes{"]
    {
        assert!(page.contains(name), "{name} is missing:\n{page}");
    }
    assert!(get(&pool.members[leader].http, "/livez", "*/*").is_ok());
    assert!(get(&pool.members[leader].http, "/readyz", "*/*").is_ok());
    Ok(())
}
