//! Programs that take all that a node has: processes, descriptors, memory, room and inodes of its disk. The agent and
//! the work of others go on.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tessera_api::v1::{CancelJobRequest, Eligibility, HostRequest, JobSpec, JobState, Node, NodeState};
use tessera_client::Client;
use tessera_tests::jobs::{get, is_end, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::small_disk::SmallDisk;
use tessera_tests::wait::until;

/// Forks as often as it may, and each of its processes does.
const FORKS: &str = "
import os, time
while True:
    try: os.fork()
    except OSError:
        full('forks')
        time.sleep(0.05)
";

/// Opens what may be opened, and as often again when that is closed.
const OPENS: &str = "
import os, time
while True:
    held = []
    try:
        while True: held.append(os.open('/dev/null', os.O_RDONLY))
    except OSError:
        for one in held: os.close(one)
        full('opens')
        time.sleep(0.05)
";

/// Takes more memory than it was given.
const TAKES: &str = "
held = bytearray(512 << 20)
";

/// Fills the disk that its folder is on with bytes and with files, until it is told to take them back.
const FILLS: &str = "
import os, time
def write(name):
    with open(name, 'wb', buffering=0) as file:
        while True: file.write(bytes(1 << 16))
def make():
    for number in range(1 << 20): open('file%d' % number, 'x').close()
for fill in (make, lambda: write('file0')):
    try: fill()
    except OSError: pass
full('fills')
while not os.path.exists(told('empty')): time.sleep(0.05)
for name in os.listdir('.'):
    if name.startswith('file'): os.remove(name)
";

/// A job that is one of these programs; it says in a folder when nothing more is to be had.
fn bomb(program: &str, marks: &Path) -> JobSpec {
    let told = format!(
        "def told(name): return '{0}/' + name\ndef full(name): open(told(name), 'w').close()\n",
        marks.display()
    );
    let command = vec!["python3".to_owned(), "-c".to_owned(), told + program];
    JobSpec { command, host: Some(HostRequest { memory_mib: 256, ..HostRequest::default() }), ..shell("") }
}

/// A job that counts until it is told to say how it went.
struct Neighbour {
    job: u64,
    beats: PathBuf,
}

impl Neighbour {
    async fn begin(client: &Client, marks: &Path) -> Result<Self> {
        let (beats, go) = (marks.join("beats"), marks.join("go"));
        let line = format!(
            "sum=0; n=0; while [ ! -e {} ]; do n=$((n+1)); sum=$((sum+n)); echo $n > {}; sleep 0.05; done; \
             [ $sum = $((n*(n+1)/2)) ] && echo right",
            go.display(),
            beats.display()
        );
        let neighbour = Self { job: submit(client, shell(&line)).await?, beats };
        neighbour.goes_on().await?;
        Ok(neighbour)
    }

    fn count(&self) -> Option<u64> {
        std::fs::read_to_string(&self.beats).ok()?.trim().parse().ok()
    }

    async fn goes_on(&self) -> Result<()> {
        let before = self.count().unwrap_or(0);
        until("the neighbour to go on", async || self.count().filter(|now| *now > before + 3).map(drop)).await
    }
}

/// The node, which is heard of.
async fn node(client: &Client) -> Result<Node> {
    let nodes = client.list_nodes(Default::default()).await?.nodes;
    let node = nodes.into_iter().next().context("there is a node")?;
    assert_eq!((node.state(), node.eligibility()), (NodeState::Ready, Eligibility::Eligible), "{node:?}");
    Ok(node)
}

async fn is_marked(marks: &Path, name: &str) -> Result<()> {
    until(&format!("nothing more to be had: {name}"), async || marks.join(name).exists().then_some(())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_take_all_of_a_node_harm_neither_its_agent_nor_the_work_of_others() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let disk = SmallDisk::mount_with(&folder.path().join("disk"), "size=64m,nr_inodes=4096")?;
    let Some(disk) = disk else { return Ok(()) };
    let options = Options {
        members: 1,
        nodes: vec![vec![("gpu", 8)]],
        agent_folders: vec![(0, disk.folder().join("node"))],
        agent_config: "[limits]\nprocesses_per_worker = 64\n".to_owned(),
        lease: [1_000, 9_000, 12_000, 20_000],
        ..Options::default()
    };
    let pool = Pool::start(options).await?;
    let (client, marks) = (pool.client(), pool.shared_folder("marks")?);
    let neighbour = Neighbour::begin(&client, &marks).await?;
    let before = node(&client).await?;

    let forks = submit(&client, bomb(FORKS, &marks)).await?;
    let opens = submit(&client, bomb(OPENS, &marks)).await?;
    let takes = submit(&client, bomb(TAKES, &marks)).await?;
    is_marked(&marks, "forks").await?;
    is_marked(&marks, "opens").await?;
    until("the one that takes memory to end", async || is_end(get(&client, takes).await.ok()?.state()).then_some(()))
        .await?;
    let next = submit(&client, shell("true")).await?;
    wait_for(&client, next, JobState::Completed).await?;
    neighbour.goes_on().await?;
    for job in [forks, opens] {
        client.cancel_job(CancelJobRequest { job_id: job, ..Default::default() }).await?;
        wait_for(&client, job, JobState::Cancelled).await?;
    }

    let fills = submit(&client, bomb(FILLS, &marks)).await?;
    is_marked(&marks, "fills").await?;
    neighbour.goes_on().await?;
    let full = node(&client).await?;
    let session = full.session.context("its agent is connected")?;
    assert!(session.connected, "{session:?}");
    std::fs::write(marks.join("empty"), "")?;
    wait_for(&client, fills, JobState::Completed).await?;
    let next = submit(&client, shell("true")).await?;
    wait_for(&client, next, JobState::Completed).await?;

    std::fs::write(marks.join("go"), "")?;
    let ended = wait_for(&client, neighbour.job, JobState::Completed).await?;
    assert_eq!((ended.attempts, output(&client, neighbour.job, 0).await?.as_str()), (1, "right\n"));
    let after = node(&client).await?;
    let unharmed = (before.epoch, before.incarnation, 0);
    assert_eq!((after.epoch, after.incarnation, after.faults), unharmed, "it was heard of all the time");
    pool.verify().await
}
