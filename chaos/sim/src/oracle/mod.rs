//! What must hold, looked at while the run goes on and once more at its end.
//!
//! An [`Oracle`] is shown the whole world after every few steps ([`View`]): what each member has applied, what really computes
//! on the machines, what clients were told. It remembers what it needs and says what is broken. Oracles know nothing of the
//! faults; only [`liveness`] asks for how long there have been none.

pub mod acknowledged;
pub mod attempts;
pub mod coverage;
pub mod fences;
pub mod grants;
pub mod laws;
pub mod liveness;
pub mod one_owner;
pub mod preemption;
pub mod reads;
pub mod watches;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::State;

use crate::hardware::World;
use crate::history::History;

/// One member as an oracle sees it.
#[derive(Clone, Debug)]
pub struct MemberView {
    /// Name of its machine.
    pub name: String,
    /// What it has applied and published; `None` while it does not run.
    pub state: Option<Arc<State>>,
    /// The term in which it believes that it leads.
    pub leads: Option<u64>,
    /// Its process is stopped at present.
    pub stopped: bool,
}

/// The world as an oracle sees it.
pub struct View<'a> {
    /// Simulated time.
    pub now: Duration,
    /// The members.
    pub members: Vec<MemberView>,
    /// The newest state that was ever seen on a member.
    pub newest: Option<Arc<State>>,
    /// What really computes.
    pub world: &'a World,
    /// What clients asked and were told.
    pub history: &'a History,
    /// For how long there have been no faults; `None` while there are.
    pub healed_for: Option<Duration>,
    /// Names of all nodes of the pool.
    pub nodes: &'a BTreeSet<String>,
}

impl View<'_> {
    /// The newest state that any member has ever applied: after a restart members have yet to apply again what is committed.
    pub fn newest(&self) -> Option<&Arc<State>> {
        self.newest.as_ref()
    }
}

/// Something that must hold and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The oracle that saw it.
    pub oracle: &'static str,
    /// What is wrong.
    pub what: String,
}

/// Looks at the world.
pub trait Oracle {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    /// Looks; answers what is broken.
    ///
    /// # Errors
    /// What does not hold.
    fn look(&mut self, view: &View<'_>) -> Result<(), String>;

    /// Looks once more, when the run is over.
    ///
    /// # Errors
    /// What does not hold.
    fn at_end(&mut self, view: &View<'_>) -> Result<(), String> {
        self.look(view)
    }
}

/// All oracles of a run.
pub fn all() -> Vec<Box<dyn Oracle>> {
    vec![
        Box::new(one_owner::OneOwner),
        Box::new(fences::Fences),
        Box::new(grants::Grants::default()),
        Box::new(attempts::Attempts::default()),
        Box::new(laws::Laws::default()),
        Box::new(preemption::Preemption::default()),
        Box::new(reads::Reads::default()),
        Box::new(watches::Watches::default()),
        Box::new(acknowledged::Acknowledged::default()),
        Box::new(liveness::Liveness::default()),
    ]
}
