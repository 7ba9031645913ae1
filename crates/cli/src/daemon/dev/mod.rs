//! `tessera dev`: a whole pool on this machine, out of real processes of this very program.
//!
//! Members and agents are children that end when this process does, however it ends: their standard input is a pipe
//! from it. Everything is kept in one folder, so that the same pool can be started again.

mod layout;
mod processes;

use std::path::PathBuf;
use std::time::Duration;

use tessera_agent::worker::folder::WorkerFolders;
use tessera_api::v1::{
    CancelJobRequest, GetClusterStatusRequest, GetPoolRequest, InitializeClusterRequest, JobFilter, JobState,
    ListJobsRequest, NewMember, NewPool,
};
use tessera_client::watch::{ListedPart, Start, Update};
use tessera_client::{Address, Client, ClientError, Settings};
use tokio::time::{Instant, sleep, timeout};

use self::layout::{Layout, Plan};
use self::processes::{Children, Ended};
use crate::args::{BlockArgs, DevArgs, PrecisionChoice};
use crate::daemon::shutdown;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::print;

/// The longest time that the control plane may take to come up.
const UP: Duration = Duration::from_secs(30);
/// The longest time that the agents may take to register.
const REGISTERED: Duration = Duration::from_secs(60);
/// The longest time that children may take to end before they are killed.
const END: Duration = Duration::from_secs(15);
/// The longest time that workers may take to end before they are killed.
const WORKERS: Duration = Duration::from_secs(3);

/// Size of a block in a pool of processors.
const CPU_BLOCK_MILLI_TFLOPS: u64 = 10;

/// Runs a pool until it is told to end.
///
/// # Errors
/// The [`Failure`] to be shown.
pub async fn dev(args: DevArgs) -> Result<Exit, Failure> {
    let token = shutdown::on_signals()?;
    let folder = Folder::open(args.data_dir.clone())?;
    let layout = Layout::make(&Plan::of(&args)?, folder.path())?;
    let mut children = Children::default();
    let result = tokio::select! {
        result = run(&args, &layout, &mut children) => result,
        () = token.cancelled() => Ok(()),
        () = stop_after(args.stop_after) => Ok(()),
    };
    print::remark("stopping what was started ...");
    stop(&layout, &mut children, folder.is_temporary()).await;
    result.map(|()| Exit::Done)
}

async fn stop_after(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Starts everything and stays.
async fn run(args: &DevArgs, layout: &Layout, children: &mut Children) -> Result<(), Failure> {
    for member in &layout.members {
        children.start(
            member.name.clone(),
            &layout.member_arguments(member, &args.log),
            &layout.log_of(&member.name),
        )?;
    }
    let client = client_of(layout)?;
    tokio::select! {
        result = control_plane(&client, args, layout) => result?,
        ended = children.first_end() => return Err(died(&ended)),
    }
    // One after the other: block numbers are handed out in the order of registration.
    for (index, agent) in layout.agents.iter().enumerate() {
        children.start(agent.name.clone(), &layout.agent_arguments(agent, &args.log), &layout.log_of(&agent.name))?;
        tokio::select! {
            result = registered(&client, index + 1) => result?,
            ended = children.first_end() => return Err(died(&ended)),
        }
    }
    greet(&client, layout).await?;
    loop {
        let ended = children.first_end().await;
        print::remark(&format!(
            "{} ended ({}); the rest goes on; its log: {}",
            ended.name,
            ended.how,
            ended.log.display()
        ));
    }
}

fn client_of(layout: &Layout) -> Result<Client, Failure> {
    let settings = Settings { unreachable_after: UP, deadline: UP, ..Settings::default() };
    Client::new(&layout.addresses(), settings).map_err(|error| Failure::call("the pool was not started", &error))
}

/// Waits for every member and creates the cluster, unless it was created by an earlier start.
async fn control_plane(client: &Client, args: &DevArgs, layout: &Layout) -> Result<(), Failure> {
    let failed = |error: &ClientError| Failure::call("the control plane did not come up", error);
    let mut created = false;
    for address in layout.addresses() {
        let member = client.only(&address).map_err(|error| failed(&error))?;
        let status = member.get_cluster_status(GetClusterStatusRequest {}).await.map_err(|error| failed(&error))?;
        created |= !status.cluster_id.is_empty();
    }
    if !created {
        let members = layout.members.iter();
        let members =
            members.map(|member| NewMember { name: member.name.clone(), address: member.grpc.to_string() }).collect();
        let first: Address = layout.addresses().swap_remove(0);
        let first = client.only(&first).map_err(|error| failed(&error))?;
        let pool = new_pool(args.blocks, layout.is_simulated());
        let request = InitializeClusterRequest { members, pool, ..InitializeClusterRequest::default() };
        first.initialize_cluster(request).await.map_err(|error| failed(&error))?;
    }
    client.get_pool(GetPoolRequest::default()).await.map_err(|error| failed(&error))?;
    Ok(())
}

/// The blocks of the pool. Processors have a fraction of a TFLOPS: a pool of processors alone is cut into smaller
/// blocks, at the precision they are rated in, unless the arguments set something else.
fn new_pool(blocks: BlockArgs, simulated: bool) -> Option<NewPool> {
    let small = (!simulated).then_some(BlockArgs {
        block_size: Some(CPU_BLOCK_MILLI_TFLOPS),
        reference_precision: Some(PrecisionChoice::Fp32),
    });
    let small = small.unwrap_or_default();
    BlockArgs {
        block_size: blocks.block_size.or(small.block_size),
        reference_precision: blocks.reference_precision.or(small.reference_precision),
    }
    .new_pool()
}

/// Waits until all nodes have registered.
async fn registered(client: &Client, wanted: usize) -> Result<(), Failure> {
    let mut ready = std::collections::BTreeSet::new();
    let mut watch = client.watch_pool(Start::List);
    let all = async {
        while ready.len() < wanted {
            let update = watch.next().await.map_err(|error| Failure::call("the nodes cannot be watched", &error))?;
            match update {
                Update::Listed(ListedPart::Node(node)) => {
                    ready.insert(node.name);
                }
                Update::Event(event) => {
                    if let Some(tessera_api::v1::pool_event::Change::Node(node)) = event.change {
                        ready.insert(node.node_name);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    };
    match timeout(REGISTERED, all).await {
        Ok(result) => result,
        Err(_elapsed) => {
            let why = format!("{} of {wanted} nodes registered within {} s", ready.len(), REGISTERED.as_secs());
            Err(Failure::new(Exit::Failed, "the agents did not come up", why)
                .next("read their logs in the data folder"))
        }
    }
}

/// Says what there is and what to try.
async fn greet(client: &Client, layout: &Layout) -> Result<(), Failure> {
    let pool = client.get_pool(GetPoolRequest::default()).await;
    let pool = pool.map_err(|error| Failure::call("the pool cannot be shown", &error))?;
    let pool = crate::view::PoolView::from(pool);
    let servers: Vec<String> = layout.addresses().iter().map(ToString::to_string).collect();
    let mut text = format!(
        "the pool is up: {} members, {} nodes, {} blocks; everything is in {}\n",
        layout.members.len(),
        layout.agents.len(),
        pool.blocks().total(),
        layout.folder.display()
    );
    let (first, rest) = (servers.first().cloned().unwrap_or_default(), servers.len() > 1);
    if rest || first != "127.0.0.1:7400" {
        text += &format!("\nin another terminal, first:\n  export TESSERA_SERVER={}\n", servers.join(","));
    }
    text += "\nthen try:\n  tessera pool map\n  tessera job run -- echo hello\n  tessera cluster status\n";
    if let Some(member) = layout.members.first() {
        text += &format!("\nor see it in a browser:\n  http://{}/\n", member.http);
    }
    text += "\nCtrl-C stops everything that was started here.\n";
    // The pool is up, whether or not somebody reads that.
    let _ = print::text(&text);
    Ok(())
}

/// Ends workers, agents and members, in this order, each by its own pid.
async fn stop(layout: &Layout, children: &mut Children, cancel: bool) {
    if cancel && let Ok(client) = client_of(layout) {
        // The folder goes away: let jobs end in order where that is quick, and do not insist.
        let _ = timeout(WORKERS, cancel_jobs(&client.with_deadline(WORKERS))).await;
    }
    children.end(|name| layout.agents.iter().any(|agent| agent.name == name), END).await;
    stop_workers(layout).await;
    children.end(|_| true, END).await;
}

async fn cancel_jobs(client: &Client) -> Result<(), ClientError> {
    let states = [JobState::Pending, JobState::Starting, JobState::Running, JobState::Suspended];
    let filter = JobFilter { states: states.map(i32::from).to_vec(), ..JobFilter::default() };
    let jobs =
        client.list_jobs(ListJobsRequest { filter: Some(filter), page_size: 1000, ..Default::default() }).await?;
    for job in jobs.jobs {
        client.cancel_job(CancelJobRequest { request_id: String::new(), job_id: job.id }).await?;
    }
    Ok(())
}

/// Workers outlive their agent by design; here they were started by us, and end with us.
async fn stop_workers(layout: &Layout) {
    use nix::sys::signal::Signal;
    let mut alive = Vec::new();
    for agent in &layout.agents {
        let Ok(found) = WorkerFolders::open(&agent.dir).and_then(|folders| folders.search()) else { continue };
        let statuses = found.into_iter().filter_map(|worker| worker.status);
        alive.extend(statuses.filter(|status| status.supervisor.is_some_and(|supervisor| supervisor.is_alive())));
    }
    for process in alive.iter().filter_map(|status| status.process) {
        process.signal_group(Signal::SIGTERM);
    }
    let until = Instant::now() + WORKERS;
    while Instant::now() < until {
        alive.retain(|status| status.supervisor.is_some_and(|supervisor| supervisor.is_alive()));
        if alive.is_empty() {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    for status in &alive {
        if let Some(process) = status.process {
            process.signal_group(Signal::SIGKILL);
        }
        if let Some(supervisor) = status.supervisor
            && let Err(error) = supervisor.kill()
        {
            print::remark(&format!("the supervisor {} cannot be ended: {}", supervisor.pid, chain(&error)));
        }
    }
}

fn died(ended: &Ended) -> Failure {
    let tail = processes::tail(&ended.log);
    Failure::new(Exit::Failed, format!("{} ended before the pool was up", ended.name), format!("{}\n{tail}", ended.how))
        .next(format!("its whole log is {}", ended.log.display()))
}

/// The folder of a pool: given and kept, or temporary and removed at the end.
enum Folder {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Folder {
    fn open(given: Option<PathBuf>) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::from_error(Exit::Failed, "the data folder cannot be made", &error);
        match given {
            Some(path) => {
                std::fs::create_dir_all(&path).map_err(failed)?;
                Ok(Self::Given(path.canonicalize().map_err(failed)?))
            }
            None => tempfile::Builder::new().prefix("tessera-dev-").tempdir().map(Self::Temporary).map_err(failed),
        }
    }

    fn path(&self) -> &std::path::Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }

    fn is_temporary(&self) -> bool {
        matches!(self, Self::Temporary(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_api::v1::Precision;

    #[test]
    fn a_pool_of_processors_has_small_blocks_unless_others_are_asked_for() {
        let small = NewPool { block_milli_tflops: 10, reference_precision: Precision::Fp32.into() };
        assert_eq!(new_pool(BlockArgs::default(), false), Some(small));
        assert_eq!(new_pool(BlockArgs::default(), true), None);
        let said = BlockArgs { block_size: Some(500), reference_precision: None };
        assert_eq!(new_pool(said, false), Some(NewPool { block_milli_tflops: 500, ..small }));
        let as_is = NewPool { block_milli_tflops: 500, reference_precision: 0 };
        assert_eq!(new_pool(said, true), Some(as_is));
    }
}
