//! Requirements that must hold, checked while the run goes on and once more at its end.
//!
//! An [`Oracle`] is shown every entry of the log ([`Oracle::learn`]) and, after every few steps, the whole world
//! ([`View`]): what each member has applied, what really computes on the machines, what clients were told. It remembers
//! what it needs and says what is broken. Oracles know nothing of the faults; only [`liveness`] asks for how long there
//! have been none, and [`strangers`] for how long those have been silent.
//!
//! What has happened comes to oracles from the [`journal`](crate::journal) alone, and [`Panel`] brings it: none has a
//! place of its own in the log that it could lose, and none can take what a ledger has forgotten for nothing to check.
//! Reading a ledger's past is refused by clippy (`clippy.toml`).

pub mod acknowledged;
pub mod attempts;
pub mod checkpoints;
pub mod coverage;
mod false_alarms;
pub mod fences;
pub mod grants;
pub mod growth;
pub mod idle;
pub mod laws;
pub mod leader;
pub mod liveness;
pub mod moves;
pub mod newest_entry;
pub mod one_owner;
mod pauses;
pub mod preemption;
pub mod reads;
pub mod refusals;
pub mod resumption;
pub mod sights;
pub mod strangers;
pub mod watches;
pub mod windows;
pub mod wishes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::State;

use crate::history::History;
use crate::journal::{Applied, Reader};
use crate::script::Script;
use crate::story::Story;
use crate::stranger::Aftermath;
use crate::world::World;
use coverage::{Coverage, Follower};

/// The first of some things that is wrong.
fn first_of<const COUNT: usize>(wrong: [(bool, &'static str); COUNT]) -> Option<&'static str> {
    wrong.into_iter().find_map(|(wrong, why)| wrong.then_some(why))
}

/// One member as an oracle sees it.
#[derive(Clone, Debug)]
pub struct MemberView {
    /// Name of its machine.
    pub name: String,
    /// State that it has applied and published; `None` while it does not run.
    pub state: Option<Arc<State>>,
    /// The term in which it believes that it leads.
    pub leads: Option<u64>,
    /// A quorum has acknowledged it lately, as far as it said so last.
    pub fresh: bool,
    /// Its process is stopped at present.
    pub stopped: bool,
}

/// The world as an oracle sees it.
pub struct View<'a> {
    /// Simulated time.
    pub now: Duration,
    pub members: Vec<MemberView>,
    /// The newest state that was ever seen on a member.
    pub newest: Option<Arc<State>>,
    /// The computations on the machines as they really are.
    pub world: &'a World,
    /// Requests of clients and the answers to them.
    pub history: &'a History,
    /// For how long there have been no faults; `None` while there are.
    pub healed_for: Option<Duration>,
    /// Names of all nodes of the pool.
    pub nodes: &'a BTreeSet<String>,
    /// The outcome of what strangers did; `None` where there are none.
    pub aftermath: Option<Aftermath>,
    /// The script that is played at present.
    pub script: Option<Script>,
}

impl View<'_> {
    /// The newest state that any member has ever applied: after a restart members have yet to apply again what is
    /// committed.
    pub fn newest(&self) -> Option<&Arc<State>> {
        self.newest.as_ref()
    }

    /// The member that believes that it leads in the highest term, and that term.
    fn leader(&self) -> Option<(u64, &MemberView)> {
        self.members.iter().filter_map(|member| Some((member.leads?, member))).max_by_key(|(term, _)| *term)
    }
}

/// Something that must hold and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The oracle that saw it.
    pub oracle: &'static str,
    pub what: String,
}

/// Looks at the world.
pub trait Oracle {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// Takes in one entry of the log: each once, in order, before the world is looked at.
    ///
    /// # Errors
    /// What the entry broke.
    fn learn(&mut self, _entry: &Applied) -> Result<(), String> {
        Ok(())
    }

    /// Looks; answers what is broken.
    ///
    /// # Errors
    /// What does not hold.
    fn look(&mut self, _view: &View<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Looks once more, when the run is over.
    ///
    /// # Errors
    /// What does not hold.
    fn at_end(&mut self, view: &View<'_>) -> Result<(), String> {
        self.look(view)
    }
}

/// All oracles of a run, and their reader of the journal.
pub struct Panel {
    reader: Reader,
    follower: Follower,
    oracles: Vec<Box<dyn Oracle>>,
}

impl Panel {
    /// All of them; nothing has been seen yet.
    pub fn new(reader: Reader) -> Self {
        let oracles: Vec<Box<dyn Oracle>> = vec![
            Box::new(one_owner::OneOwner::default()),
            Box::new(fences::Fences),
            Box::new(grants::Grants::default()),
            Box::new(wishes::Wishes::default()),
            Box::new(attempts::Attempts::default()),
            Box::new(checkpoints::Checkpoints::default()),
            Box::new(resumption::Resumption::default()),
            Box::new(moves::Moves),
            Box::new(growth::Growth),
            Box::new(idle::Idle::default()),
            Box::new(windows::Windows::default()),
            Box::new(laws::Laws::default()),
            Box::new(preemption::Preemption),
            Box::new(refusals::Refusals::default()),
            Box::new(reads::Reads::default()),
            Box::new(watches::Watches::default()),
            Box::new(acknowledged::Acknowledged::default()),
            Box::new(liveness::Liveness::default()),
            Box::new(strangers::Strangers::default()),
            Box::new(false_alarms::FalseAlarms::default()),
            Box::new(pauses::Pauses::default()),
        ];
        Self { reader, follower: Follower::default(), oracles }
    }

    /// Shows everybody what was applied since, and then the world.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub fn look(&mut self, view: &View<'_>, story: &Story, last: bool) -> Result<(), Violation> {
        let told = |oracle| move |what| Violation { oracle, what };
        for entry in self.reader.take().map_err(told("every entry is seen, and is the same everywhere"))? {
            self.follower.learn(&entry, story).map_err(told("only what may follow does"))?;
            for oracle in &mut self.oracles {
                oracle.learn(&entry).map_err(told(oracle.name()))?;
            }
        }
        for oracle in &mut self.oracles {
            let looked = if last { oracle.at_end(view) } else { oracle.look(view) };
            looked.map_err(told(oracle.name()))?;
        }
        Ok(())
    }

    /// Takes the coverage of the run so far.
    pub fn coverage(&mut self) -> Coverage {
        std::mem::take(&mut self.follower.coverage)
    }
}
