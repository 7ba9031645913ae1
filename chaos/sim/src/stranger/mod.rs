//! A stranger: somebody without any right who reaches the ports of members and agents.
//!
//! It sends forged messages, takes the place of a member towards an agent, and starts a copy of a member's data folder
//! beside it. All of it ends; what must hold meanwhile and afterwards is said in
//! [`oracle::strangers`](crate::oracle::strangers).

mod forgery;
mod pretender;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tessera_api::v1::pool_service_client::PoolServiceClient;
use tessera_api::v1::{Consistency, GetPoolRequest, Hello};
use tessera_connection::Terms;
use tessera_ledger::Level;
use tokio::time::{sleep, timeout};

pub use forgery::{Forgery, forge};

use crate::journal::Journal;
use crate::machine::now;
use crate::member::Member;
use crate::network::{PORT, Plug};
use crate::node::Node;
use crate::oracle::sights::{DOUBLED, READS_AGAIN};
use crate::process::{Drift, Process};
use crate::scenario::Scenario;
use crate::simulation::Simulation;
use crate::story::Story;

/// The machine of the stranger.
const OWN: &str = "x1";
/// The machine that copies run on.
const BESIDE: &str = "x2";
/// Wait of a reader for an answer, and before the next try.
const AGAIN: Duration = Duration::from_secs(1);

/// A number far beyond what any count can have reached.
const FAR: u64 = u64::MAX >> 1;

/// The knowledge of a stranger and what it has met with. Clones are the same.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    seen: BTreeSet<&'static str>,
    /// The hello of an agent that took the stranger for a member.
    hello: Option<Hello>,
    /// Members that have not read since their copies stopped.
    unread: BTreeSet<String>,
}

impl Notes {
    fn see(&self, sight: &'static str) {
        self.with(|noted| noted.seen.insert(sight));
    }

    fn with<T>(&self, look: impl FnOnce(&mut Noted) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The outcome of what strangers did, where nothing else goes wrong.
#[derive(Clone, Debug)]
pub struct Aftermath {
    /// Machines on which a process of a member ended by itself, or one of an agent at all.
    pub ended: Vec<String>,
    /// The time since anything forged was said or a copy ran; `None` while one does.
    pub silent_for: Option<Duration>,
    /// Each member of which a copy ran has read since that stopped.
    pub originals_read: bool,
}

pub struct Stranger {
    plug: Plug,
    seed: u64,
    story: Story,
    notes: Notes,
    /// The machine beside; a process runs on it while a member is doubled.
    beside: Member,
    /// Takes the place of members, while an agent is led to it.
    pretender: Option<Process>,
    spoke_at: Duration,
}

impl Stranger {
    /// Has spoken to nobody yet.
    pub fn new(scenario: &Scenario, story: &Story, journal: &Journal, connect: &mut impl FnMut(&str) -> Plug) -> Self {
        let (level, seat) = (Level::NEWEST, journal.seat(BESIDE));
        Self {
            plug: connect(OWN),
            seed: scenario.seed_for(OWN),
            story: story.clone(),
            notes: Notes::default(),
            beside: Member::new(BESIDE.to_owned(), level, connect(BESIDE), scenario, story.clone(), seat),
            pretender: None,
            spoke_at: now(),
        }
    }

    /// Sights that it has met with.
    pub fn seen(&self) -> BTreeSet<&'static str> {
        self.notes.with(|noted| noted.seen.clone())
    }

    /// Lets its processes run until the present.
    pub fn step(&mut self) {
        self.beside.step();
        let refused = self.beside.pool().and_then(|pool| pool.status().borrow().refused.clone());
        if refused.is_some_and(|refused| refused.to_string().contains("two processes speak for member")) {
            self.notes.see(DOUBLED);
        }
        if let Some(pretender) = &mut self.pretender {
            pretender.tick();
        }
    }

    /// Looks at what became of these.
    pub fn aftermath(&self, members: &[Member], nodes: &[Node]) -> Aftermath {
        let members = members.iter().filter(|member| member.has_ended()).map(|member| &member.name);
        let nodes = nodes.iter().filter(|node| node.starts() > 1).map(|node| &node.name);
        let ended = members.chain(nodes).cloned();
        let is_silent = !self.beside.is_there() && self.pretender.is_none();
        Aftermath {
            ended: ended.collect(),
            silent_for: is_silent.then(|| now().saturating_sub(self.spoke_at)),
            originals_read: self.notes.with(|noted| noted.unread.is_empty()),
        }
    }
}

/// An agent finds the stranger wherever it looks for a member, and looks anew.
pub fn mislead(pool: &mut Simulation, node: &str) {
    let (Some(stranger), Some(plug)) = (&mut pool.stranger, pool.plugs.get(node)) else { return };
    let pretender = pretender::run(stranger.plug.listen(PORT), stranger.notes.clone());
    stranger.pretender = Some(Process::start(stranger.seed, Drift::default(), pretender));
    plug.mislead(Some(format!("{OWN}:{PORT}")));
    plug.reset();
}

/// It finds members again.
pub fn mislead_no_more(pool: &mut Simulation, node: &str) {
    let (Some(stranger), Some(plug)) = (&mut pool.stranger, pool.plugs.get(node)) else { return };
    (stranger.pretender, stranger.spoke_at) = (None, now());
    plug.mislead(None);
    plug.reset();
}

/// A copy of a member's data folder is started beside it.
pub fn double(pool: &mut Simulation, place: usize) {
    let Some(stranger) = &mut pool.stranger else { return };
    stranger.beside.copy(&pool.members[place]);
    stranger.beside.start();
}

/// The copy stops for good, and from then on somebody tries to read at the member itself.
pub fn double_no_more(pool: &mut Simulation, place: usize) {
    let Some(stranger) = &mut pool.stranger else { return };
    stranger.beside.kill();
    stranger.spoke_at = now();
    let original = pool.members[place].name.clone();
    stranger.notes.with(|noted| noted.unread.insert(original.clone()));
    let reading = read_at(original, stranger.plug.clone(), stranger.notes.clone(), stranger.story.clone());
    pool.clients.push(Process::start(stranger.seed, Drift::default(), reading));
}

/// Reads at one member alone, until that has answered.
async fn read_at(member: String, plug: Plug, notes: Notes, story: Story) -> String {
    let channel = match plug.outbound().lazily(&format!("{member}:{PORT}"), &Terms::default()) {
        Ok(channel) => channel,
        Err(error) => return error.to_string(),
    };
    let mut pool = PoolServiceClient::new(channel);
    let asked = GetPoolRequest { consistency: Consistency::Linearizable.into() };
    while !matches!(timeout(AGAIN, pool.get_pool(asked)).await, Ok(Ok(_))) {
        sleep(AGAIN).await;
    }
    notes.see(READS_AGAIN);
    notes.with(|noted| noted.unread.remove(&member));
    story.tell(OWN, format!("{member} has read since its copy stopped"));
    "it has read".to_owned()
}
