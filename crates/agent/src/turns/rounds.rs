//! The order and length of the turns on one card: a pure plan, without clocks and processes.
//!
//! A round goes over the blocks of the card in the order of their numbers. Whoever holds a run of blocks has a turn as
//! long as those blocks are of the round; blocks that nobody holds are a turn of nobody. So a worker whose blocks lie
//! together is put on the card once in a round, and one whose blocks are scattered several times.
//!
//! Turns are paid for: each worker has a balance of time, into which its blocks pay when they come round, and from
//! which it is charged what its turns really took. A turn shorter than a quantum is not worth its switch: it is left
//! out until enough has come together. A turn that took too long is made up for by the next ones.
//!
//! A worker that does nothing in its turn loses the rest of it: nothing is saved up. It is given a quantum in every
//! later round, to see whether it has work again. What it leaves, and what nobody holds, is lent to the workers that
//! are *elastic*, evenly for what they hold. A *strict* worker never gets more than its own. So what is lent is back
//! with its owner within a round.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::config::ConfigError;
use crate::worker::WorkerId;

const LONGEST_ROUND: Duration = Duration::from_secs(10);

/// The parameters by which time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Length of a round in which everybody has a turn.
    pub round: Duration,
    /// Shortest turn.
    pub quantum: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self { round: Duration::from_millis(500), quantum: Duration::from_millis(10) }
    }
}

impl Terms {
    /// # Errors
    /// The field that cannot work, with what to write instead.
    pub(crate) fn validate(self) -> Result<(), ConfigError> {
        let refused = |field, problem, remedy| Err(ConfigError::new(field, problem, remedy));
        if self.quantum < Duration::from_millis(2) {
            return refused("time_slicing.quantum", "it is below 2ms", "a switch takes a part of a millisecond");
        }
        if self.round < self.quantum * 2 {
            return refused("time_slicing.round", "it is below two quanta", "give every worker room for its turn");
        }
        if self.round > LONGEST_ROUND {
            return refused("time_slicing.round", "it is above 10s", "workers stand still for most of a round");
        }
        Ok(())
    }
}

/// A worker on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub worker: WorkerId,
    /// Its blocks on the card: the first of each run, from 0, and how many.
    pub blocks: Vec<(u32, u32)>,
    /// True if the worker takes time that others do not use.
    pub elastic: bool,
}

/// A part of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// The worker that computes; `None`: nobody.
    pub whose: Option<WorkerId>,
    pub seconds: f64,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Time of the blocks that the worker holds.
    Own,
    /// The same, of a worker that did nothing the last time.
    Trial,
    /// Time that others leave, or that nobody holds.
    Lent,
}

/// The account of a worker, carried over from round to round, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Account {
    /// The part of a round that belongs to its blocks.
    share: f64,
    /// The time for which it may compute; below zero after its turns took longer than it had.
    balance: f64,
    /// The time that it was lent, divided by the number of its blocks; a worker that is new begins with the least of
    /// the others.
    lent: f64,
    /// True if it did nothing in its last turn.
    idle: bool,
    /// True if it has had a trial in this round, to see whether it has work again.
    tried: bool,
}

/// A run of blocks that comes up in this round.
#[derive(Clone, Copy, Debug)]
struct Due {
    whose: Option<WorkerId>,
    seconds: f64,
}

#[derive(Clone, Debug)]
pub struct Rounds {
    round: f64,
    quantum: f64,
    tenants: BTreeMap<WorkerId, Tenant>,
    accounts: BTreeMap<WorkerId, Account>,
    due: VecDeque<Due>,
    /// The remainder of the turn of a worker that has a trial.
    rest: Option<Due>,
    /// Time of nobody that was too short for a turn.
    unused: f64,
}

impl Rounds {
    /// A card on which nobody is yet.
    #[must_use]
    pub const fn new(terms: Terms) -> Self {
        Self {
            round: terms.round.as_secs_f64(),
            quantum: terms.quantum.as_secs_f64(),
            tenants: BTreeMap::new(),
            accounts: BTreeMap::new(),
            due: VecDeque::new(),
            rest: None,
            unused: 0.0,
        }
    }

    /// Begins a round on a card of so many blocks with the workers that are there now. Those that came begin with
    /// nothing, and with as much lent as those that were lent least.
    pub fn begin(&mut self, blocks: u32, tenants: Vec<Tenant>) {
        let known = std::mem::take(&mut self.accounts);
        let lent = known.values().map(|account| account.lent).reduce(f64::min).unwrap_or_default();
        self.tenants = tenants.into_iter().map(|tenant| (tenant.worker, tenant)).collect();
        self.due = runs(blocks, self.round, self.tenants.values());
        self.rest = None;
        for worker in self.tenants.keys() {
            let share = self.due.iter().filter(|due| due.whose == Some(*worker)).map(|due| due.seconds).sum();
            let before = known.get(worker).copied().unwrap_or(Account { lent, ..Account::default() });
            self.accounts.insert(*worker, Account { share, tried: false, ..before });
        }
    }

    /// The worker that computes all the time, because nobody has to stand still for it or because of it: it is alone,
    /// and holds the whole card or takes what is left.
    #[must_use]
    pub fn only(&self) -> Option<WorkerId> {
        let whole = self.due.iter().all(|due| due.whose.is_some());
        let only = self.tenants.values().next().filter(|_| self.tenants.len() == 1);
        only.filter(|tenant| tenant.elastic || whole).map(|tenant| tenant.worker)
    }

    /// A worker is over: what was its own is nobody's for the rest of the round.
    pub fn leave(&mut self, worker: WorkerId) {
        self.tenants.remove(&worker);
        self.accounts.remove(&worker);
        for due in self.due.iter_mut().chain(&mut self.rest).filter(|due| due.whose == Some(worker)) {
            due.whose = None;
        }
    }

    /// The next turn of this round; `None`: it is over.
    pub fn next_turn(&mut self) -> Option<Turn> {
        if let Some(turn) = self.rest.take().and_then(|rest| self.after_trial(rest)) {
            return Some(turn);
        }
        while let Some(due) = self.due.pop_front() {
            let turn = match due.whose {
                Some(worker) => self.own(worker, due.seconds),
                None => self.unheld(due.seconds),
            };
            if turn.is_some() {
                return turn;
            }
        }
        None
    }

    /// A turn is over: it took so long, and its worker computed or did not.
    pub fn over(&mut self, turn: Turn, took: Duration, computed: bool) {
        let Some((worker, tenant)) = turn.whose.and_then(|worker| Some((worker, self.tenants.get(&worker)?))) else {
            return;
        };
        let (blocks, took, quantum) = (held(tenant), took.as_secs_f64(), self.quantum);
        let Some(account) = self.accounts.get_mut(&worker) else { return };
        account.idle = !computed;
        if turn.kind == Kind::Lent {
            account.lent += took / blocks;
        } else {
            // Of an agent that was itself stopped meanwhile, nobody is made to pay for ever.
            let balance = if computed { account.balance - took } else { 0.0 };
            account.balance = balance.max(-account.share - quantum);
        }
    }

    /// The blocks of a worker come round.
    fn own(&mut self, worker: WorkerId, seconds: f64) -> Option<Turn> {
        let quantum = self.quantum;
        let account = self.accounts.get_mut(&worker)?;
        account.balance = (account.balance + seconds).min(account.share + quantum);
        let Account { balance, idle, tried, .. } = *account;
        if balance < quantum {
            return None;
        }
        if !idle {
            return Some(Turn { whose: Some(worker), seconds: balance, kind: Kind::Own });
        }
        if tried {
            account.balance = 0.0;
            return Some(self.left(Due { whose: Some(worker), seconds: balance }));
        }
        account.tried = true;
        self.rest = (balance > quantum).then_some(Due { whose: Some(worker), seconds: balance - quantum });
        Some(Turn { whose: Some(worker), seconds: quantum, kind: Kind::Trial })
    }

    /// The turn that follows a trial: the worker's own if it has work again (`None` if it has no time left), else one
    /// of the time that it leaves.
    fn after_trial(&mut self, rest: Due) -> Option<Turn> {
        let account = rest.whose.and_then(|worker| self.accounts.get(&worker));
        match account.filter(|account| !account.idle) {
            Some(Account { balance, .. }) if *balance <= 0.0 => None,
            Some(Account { balance, .. }) => Some(Turn { whose: rest.whose, seconds: *balance, kind: Kind::Own }),
            None => Some(self.left(rest)),
        }
    }

    /// Blocks that nobody holds come round.
    fn unheld(&mut self, seconds: f64) -> Option<Turn> {
        self.unused += seconds;
        if self.unused < self.quantum {
            return None;
        }
        let seconds = std::mem::take(&mut self.unused);
        Some(self.left(Due { whose: None, seconds }))
    }

    /// Time that its owner leaves, or that has none. Where nobody else wants it, its owner may as well have it.
    fn left(&mut self, Due { whose, seconds }: Due) -> Turn {
        let wants = |(worker, account): (&WorkerId, &Account)| {
            let elastic = self.tenants.get(worker).is_some_and(|tenant| tenant.elastic);
            (elastic && !account.idle && Some(*worker) != whose).then_some((account.lent, *worker))
        };
        let borrower = self.accounts.iter().filter_map(wants).min_by(|left, right| left.0.total_cmp(&right.0));
        if let Some((_, worker)) = borrower {
            return Turn { whose: Some(worker), seconds, kind: Kind::Lent };
        }
        if let Some(account) = whose.and_then(|worker| self.accounts.get_mut(&worker)) {
            account.balance += seconds;
        }
        Turn { whose, seconds, kind: Kind::Own }
    }
}

/// Blocks that a worker holds.
fn held(tenant: &Tenant) -> f64 {
    tenant.blocks.iter().map(|(_, blocks)| f64::from(*blocks)).sum::<f64>().max(1.0)
}

/// The runs of blocks of a card in their order, with what each of them is of a round. A card that is promised more
/// often than it is there divides the round among what is promised.
fn runs<'a>(blocks: u32, round: f64, tenants: impl Iterator<Item = &'a Tenant>) -> VecDeque<Due> {
    let mut held: Vec<(u32, u32, WorkerId)> =
        tenants.flat_map(|tenant| tenant.blocks.iter().map(|(start, count)| (*start, *count, tenant.worker))).collect();
    held.sort_unstable();
    let end = held.iter().map(|(start, count, _)| start.saturating_add(*count)).max().unwrap_or(0).max(blocks).max(1);
    let seconds = |count: u32| f64::from(count) * round / f64::from(end);
    let mut runs: VecDeque<Due> = VecDeque::new();
    let mut add = |whose: Option<WorkerId>, count: u32| match runs.back_mut() {
        _ if count == 0 => {}
        Some(last) if last.whose == whose => last.seconds += seconds(count),
        _ => runs.push_back(Due { whose, seconds: seconds(count) }),
    };
    let mut next = 0;
    for (start, count, worker) in held {
        add(None, start.saturating_sub(next));
        add(Some(worker), count);
        next = start.saturating_add(count);
    }
    add(None, end.saturating_sub(next));
    runs
}

#[cfg(test)]
#[path = "rounds_tests.rs"]
mod tests;
