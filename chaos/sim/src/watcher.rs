//! Watchers: they follow all jobs, over broken connections and changes of leader, and write down what they are shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tessera_api::v1;
use tessera_client::watch::{Start, Update};
use tessera_client::{Address, Client};
use tokio::time::sleep;

use crate::history::{History, Shown};
use crate::network::Plug;
use crate::story::Story;

/// Interval between two checks of whether the day is over.
const GLANCE: Duration = Duration::from_millis(250);

/// The settings, connections and records of a watcher, and the sign that the day is over.
pub struct Desk {
    pub name: String,
    /// Its number among the watchers.
    pub number: usize,
    /// Its door to the network.
    pub plug: Plug,
    pub members: Arc<[Address]>,
    /// Seed of everything that it does.
    pub seed: u64,
    /// Record of what it was shown.
    pub history: History,
    pub story: Story,
    /// The day is over: nothing new is begun.
    pub closing: Arc<AtomicBool>,
}

/// Watches until the day is over.
pub async fn run(desk: Desk) -> String {
    let client = match Client::new(&desk.members, desk.plug.client_settings(desk.seed)) {
        Ok(client) => client,
        Err(error) => return error.to_string(),
    };
    let mut random = SmallRng::seed_from_u64(desk.seed);
    let mut start = Start::List;
    while !desk.closing.load(Ordering::Relaxed) {
        // Now and then a watcher leaves, and goes on later from the token that it kept.
        let stays = Duration::from_millis(random.random_range(1_000..15_000));
        start = desk.watch(&client, start, stays).await;
        // Longer than ledgers remember, in some pools.
        let away = Duration::from_millis([0, 0, 500, 6_000][random.random_range(0..4)]);
        tokio::select! {
            () = sleep(away) => {}
            () = desk.closing() => {}
        }
    }
    "the day is over".to_owned()
}

impl Desk {
    /// Watches for a while; answers where to go on.
    async fn watch(&self, client: &Client, start: Start, stays: Duration) -> Start {
        let mut watch = client.watch_jobs(v1::JobFilter::default(), start.clone());
        let leave = sleep(stays);
        tokio::pin!(leave);
        loop {
            let update = tokio::select! {
                update = watch.next() => update,
                () = &mut leave => break,
                () = self.closing() => break,
            };
            let shown = match update {
                Ok(Update::Listed(_)) => continue,
                Ok(Update::Synced { revision }) => Shown::Synced(revision),
                Ok(Update::Event(event)) => {
                    Shown::Event { revision: event.revision, ordinal: event.ordinal, job: event.job_id }
                }
                Ok(Update::Progress { revision }) => Shown::Progress(revision),
                Ok(Update::Relisting { .. }) => Shown::Relisting,
                Err(error) => {
                    self.story.tell(&self.name, format!("watch: {error}"));
                    continue;
                }
            };
            self.history.show(self.number, shown);
        }
        watch.resume_token().map_or(start, |token| Start::After(token.to_owned()))
    }

    async fn closing(&self) {
        while !self.closing.load(Ordering::Relaxed) {
            sleep(GLANCE).await;
        }
    }
}
