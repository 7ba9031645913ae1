//! An agent apart from what it stands on: its node, its workers, its search for the leader, run together.

use rand::rngs::StdRng;
use tessera_actor::{ActorMeters, Address, Mailbox, Supervisor, WhenFull, mailbox};
use tessera_client::SessionConnector;
use tokio_util::sync::CancellationToken;

use crate::host::Host;
use crate::node::{Node, WorkerRecord};
use crate::session::keep_session;
use crate::shell::{Input, Shell};

/// Events that may wait for the node.
const MAILBOX: usize = 1024;

/// The address to which events for a node are sent, and the mailbox from which they are taken.
pub(crate) type Post = (Address<Input>, Mailbox<Input>);

pub(crate) fn post(meters: &ActorMeters) -> Post {
    mailbox("node", MAILBOX, WhenFull::Wait, meters)
}

/// An agent without its [`Host`]: the parts that run alike on a real and on a simulated one.
#[derive(Debug)]
pub struct Conduct {
    /// The node, with the workers that were found.
    pub node: Node,
    /// The records of those workers, which are to be followed again.
    pub workers: Vec<WorkerRecord>,
    /// The connector that finds the leader.
    pub connector: SessionConnector,
    /// For pauses between searches.
    pub random: StdRng,
}

impl Conduct {
    /// Runs an agent on `host` until `end`. Its tasks are watched by `tasks`.
    pub async fn run_on<H: Host>(self, host: H, tasks: Supervisor, end: CancellationToken) {
        self.run(host, post(&ActorMeters::default()), tasks, end).await;
    }

    /// As [`run_on`](Self::run_on), where others post events too.
    pub(crate) async fn run<H: Host>(self, host: H, post: Post, tasks: Supervisor, end: CancellationToken) {
        let (address, inbox) = post;
        let mut shell = Shell::new(self.node, host, address.clone(), tasks.clone(), end.clone());
        for record in self.workers {
            shell.adopt(record);
        }
        tasks.critical("session", keep_session(self.connector, address, self.random, end.clone()));
        shell.run(inbox).await;
        end.cancel();
        tasks.ended().await;
    }
}
