//! The table of one card: the task that gives its workers their turns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tessera_actor::Address;
use tessera_devices::{NodeDevices, ShareControl};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::book::TurnBook;
use super::holders::OnCard;
use super::rounds::{Rounds, Terms, Turn};
use super::seat::Seat;
use crate::shell::Input;
use crate::worker::WorkerId;
use crate::worker::folder::WorkerFolders;

/// Divisor: a worker counts as idle if the processor time that it used is less than the time of its turn divided by
/// this.
const COMPUTES: u32 = 50;
/// The longest time that the node may take to report the workers on the card.
const PATIENCE: Duration = Duration::from_secs(2);
/// Whoever hears no more of the agent stands still for so many rounds, and this long.
const SILENCE: (u32, Duration) = (2, Duration::from_millis(500));

/// A card, and who is on it.
#[derive(Debug)]
pub struct Table {
    card: u32,
    /// True if a worker that uses next to no processor time in its turn leaves its time to others.
    lends: bool,
    sliced: Arc<BTreeSet<u32>>,
    terms: Terms,
    folders: WorkerFolders,
    book: TurnBook,
    node: Address<Input>,
    rounds: Rounds,
    seats: BTreeMap<WorkerId, Seat>,
    /// The worker whose turn it is.
    runs: Option<WorkerId>,
}

impl Table {
    /// One for each card of a node whose time nobody else divides.
    pub fn of(
        devices: &Mutex<NodeDevices>,
        folders: &WorkerFolders,
        book: &TurnBook,
        node: &Address<Input>,
    ) -> Vec<Self> {
        let devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
        let cards = devices.cards().iter().map(|card| card.index);
        let has_turns = |card: u32| match devices.caps(card)?.share {
            ShareControl::Freeze { lends } => Some((card, lends)),
            _ => None,
        };
        let with_turns: BTreeMap<u32, bool> = cards.filter_map(has_turns).collect();
        let sliced: Arc<BTreeSet<u32>> = Arc::new(with_turns.keys().copied().collect());
        let table = |(card, lends)| Self {
            card,
            lends,
            sliced: Arc::clone(&sliced),
            terms: book.terms(),
            folders: folders.clone(),
            book: book.clone(),
            node: node.clone(),
            rounds: Rounds::new(book.terms()),
            seats: BTreeMap::new(),
            runs: None,
        };
        with_turns.into_iter().map(table).collect()
    }

    /// Gives turns until `end`. Everybody goes on then.
    pub async fn run(mut self, end: CancellationToken) {
        tokio::select! {
            () = end.cancelled() => {}
            () = self.give_turns() => {}
        }
        self.let_all_go_on().await;
    }

    async fn give_turns(&mut self) {
        loop {
            // A node that does not answer in time is asked again; supervisors let their workers go on meanwhile.
            let Ok(holders) = self.node.ask(Input::Holders, Instant::now() + PATIENCE).await else {
                sleep(self.terms.round).await;
                continue;
            };
            match holders.on_card(self.card, &self.sliced) {
                Ok(on_card) => self.round(on_card).await,
                Err(why) => {
                    self.let_all_go_on().await;
                    self.seats.clear();
                    self.book.competes(self.card, why);
                    sleep(self.terms.round).await;
                }
            }
        }
    }

    async fn round(&mut self, OnCard { blocks, tenants }: OnCard) {
        let book = &self.book;
        self.seats.retain(|worker, _| {
            let stays = tenants.iter().any(|(tenant, _)| tenant.worker == *worker);
            if !stays {
                book.forget(*worker);
            }
            stays
        });
        let mut seated = Vec::new();
        for (tenant, group) in tenants {
            if !self.seats.contains_key(&tenant.worker) {
                match Seat::take(&self.folders.of(tenant.worker), group).await {
                    Ok(seat) => drop(self.seats.insert(tenant.worker, seat)),
                    // It ends just now: it is tried again.
                    Err(error) => {
                        tracing::debug!(worker = %tenant.worker, %error, "a worker cannot be given turns");
                        continue;
                    }
                }
            }
            seated.push(tenant);
        }
        self.runs = self.runs.filter(|worker| self.seats.contains_key(worker));
        let workers = seated.len();
        self.rounds.begin(blocks, seated);
        if workers == 0 || self.rounds.only().is_some() {
            self.put(self.rounds.only()).await;
            self.book.alone(self.card, self.seats.keys().next().copied(), self.terms.round);
            return self.wait(self.terms.round).await;
        }
        self.rest_others().await;
        let mut switches = 0;
        while let Some(turn) = self.rounds.next_turn() {
            switches += u64::from(self.turn(turn).await);
        }
        self.book.round(self.card, workers, switches);
    }

    /// Gives a turn; answers whether somebody else was put on the card for it.
    async fn turn(&mut self, turn: Turn) -> bool {
        let switched = self.put(turn.whose).await;
        let used = |table: &Self| turn.whose.and_then(|worker| table.seats.get(&worker)).map(Seat::used);
        let (began, before) = (Instant::now(), used(self));
        self.wait(Duration::from_secs_f64(turn.seconds)).await;
        let took = began.elapsed();
        let worked = used(self).unwrap_or_default().saturating_sub(before.unwrap_or_default());
        self.rounds.over(turn, took, !self.lends || worked * COMPUTES >= took);
        self.book.turn(self.card, turn.whose, self.seats.keys().copied(), took);
        switched
    }

    /// Waits, unless the worker whose turn it is ends before.
    async fn wait(&mut self, time: Duration) {
        let ended = match self.runs.and_then(|worker| self.seats.get(&worker)) {
            Some(seat) => tokio::select! {
                () = sleep(time) => false,
                () = seat.ended() => true,
            },
            None => {
                sleep(time).await;
                false
            }
        };
        if ended && let Some(worker) = self.runs {
            self.gone(worker);
        }
    }

    /// Has this worker go on, and the one before stand still. Answers whether somebody else is put on the card.
    async fn put(&mut self, whose: Option<WorkerId>) -> bool {
        if self.runs == whose {
            return false;
        }
        let at_most = self.longest_rest();
        if let Some(before) = self.runs.take()
            && let Some(seat) = self.seats.get_mut(&before)
            && seat.rest(at_most).await.is_err()
        {
            self.gone(before);
        }
        let Some(seat) = whose.and_then(|worker| self.seats.get_mut(&worker)) else { return false };
        let told = seat.go_on().await;
        self.runs = whose;
        if let (Err(_), Some(worker)) = (&told, whose) {
            self.gone(worker);
        }
        told.is_ok()
    }

    /// Everybody whose turn it is not stands still, those that came just now and those that have stood still.
    async fn rest_others(&mut self) {
        let (at_most, runs) = (self.longest_rest(), self.runs);
        let mut gone = Vec::new();
        for (worker, seat) in self.seats.iter_mut().filter(|(worker, _)| Some(**worker) != runs) {
            if seat.rest(at_most).await.is_err() {
                gone.push(*worker);
            }
        }
        gone.into_iter().for_each(|worker| self.gone(worker));
    }

    async fn let_all_go_on(&mut self) {
        for seat in self.seats.values_mut() {
            // One that does not hear it goes on by itself.
            let _ = seat.go_on().await;
        }
        self.runs = None;
    }

    fn gone(&mut self, worker: WorkerId) {
        self.seats.remove(&worker);
        self.rounds.leave(worker);
        self.runs = self.runs.filter(|runs| *runs != worker);
    }

    fn longest_rest(&self) -> Duration {
        self.terms.round * SILENCE.0 + SILENCE.1
    }
}
