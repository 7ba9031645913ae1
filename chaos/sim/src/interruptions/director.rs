//! The director: one scene after the other, until every pair of the run has been.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use tessera_ledger::State;

use super::scene::{Scene, Standing, delay, is_at_rest, tidying};
use super::{Pair, SHARES};
use crate::fault::Fault;
use crate::journal::Reader;
use crate::machine::now;
use crate::operator::Order;
use crate::oracle::Violation;
use crate::scenario::Scenario;
use crate::simulation::Simulation;

/// Time after which an order that had no effect is given again.
const PATIENCE: Duration = Duration::from_secs(3);
/// Within so long a pool in which nothing is wrong any more comes to rest.
const RESTS_WITHIN: Duration = Duration::from_secs(120);
/// Number of tries of one pair.
const TRIES: u32 = 6;

/// Somebody is hit.
pub struct Hit {
    /// The moment, and the victim.
    pub pair: Pair,
    pub fault: Fault,
    pub lasts: Duration,
}

pub struct Director {
    reader: Reader,
    random: SmallRng,
    /// True if victims are hit in the very step; otherwise some time after it now and then.
    at_once: bool,
    /// The next one last.
    to_come: Vec<Pair>,
    scene: Option<Scene>,
    /// Scenes so far, and how often the present pair was tried.
    scenes: u32,
    tries: u32,
    /// The last order, and the time at which it was given.
    asked: Option<(Order, Duration)>,
    /// Since when no scene is played.
    idle_since: Duration,
}

impl Director {
    /// Makes the scenes of a scenario's seed.
    pub fn new(scenario: &Scenario, reader: Reader) -> Self {
        let mut random = SmallRng::seed_from_u64(scenario.seed_for("director"));
        let mut to_come: Vec<Pair> = Pair::shared_out(scenario.seed).collect();
        to_come.shuffle(&mut random);
        let (at_once, idle_since) = (scenario.seed < SHARES, now());
        Self { reader, random, at_once, to_come, scene: None, scenes: 0, tries: 0, asked: None, idle_since }
    }

    /// Returns whether every scene is over.
    pub fn is_done(&self) -> bool {
        self.scene.is_none() && self.to_come.is_empty()
    }

    /// Goes on by one step of the run. `quiet`: nothing is wrong at present.
    ///
    /// # Errors
    /// A job did not come to a good end, or a moment does not come.
    pub fn step(&mut self, pool: &Simulation, quiet: bool) -> Result<Option<Hit>, Violation> {
        // What is wrong with the journal is said by whoever judges.
        let entries = self.reader.take().unwrap_or_default();
        let Some(state) = pool.journal.newest() else { return Ok(None) };
        let Some(mut scene) = self.scene.take() else {
            return self.between_scenes(pool, &state, quiet).map(|()| None);
        };
        for entry in &entries {
            scene.learn(entry, delay(self.at_once, &mut self.random));
        }
        let pair = scene.pair;
        let hit = scene.hit(pool, &mut self.random).map(|(fault, lasts)| Hit { pair, fault, lasts });
        match scene.standing(&state, &pool.world) {
            Standing::GoesOn => {
                self.ask(pool, scene.wish(&state));
                self.scene = Some(scene);
            }
            Standing::Over => self.close(pool, pair, None)?,
            Standing::Missed => self.close(pool, pair, Some("it never came"))?,
            Standing::Broken(what) => return Err(broken(pair, &what)),
        }
        Ok(hit)
    }

    fn between_scenes(&mut self, pool: &Simulation, state: &State, quiet: bool) -> Result<(), Violation> {
        let leads = pool.members.iter().any(|member| member.leads().is_some());
        if quiet && leads && is_at_rest(state) {
            if let Some(pair) = self.to_come.pop() {
                self.scenes += 1;
                pool.story.tell("--", pair.name());
                self.scene = Some(Scene::new(pair, format!("scene {}", self.scenes)));
            }
            return Ok(());
        }
        if now() > self.idle_since + RESTS_WITHIN {
            let what = format!("nothing is wrong any more, and the pool is not at rest {RESTS_WITHIN:?} later");
            return Err(Violation { oracle: ORACLE, what });
        }
        self.ask(pool, tidying(state));
        Ok(())
    }

    fn close(&mut self, pool: &Simulation, pair: Pair, missed: Option<&'static str>) -> Result<(), Violation> {
        (self.idle_since, self.asked) = (now(), None);
        let Some(why) = missed else {
            self.tries = 0;
            return Ok(());
        };
        self.tries += 1;
        pool.story.tell("--", format!("{}: {why}", pair.name()));
        if self.tries >= TRIES {
            return Err(broken(pair, why));
        }
        self.to_come.push(pair);
        Ok(())
    }

    fn ask(&mut self, pool: &Simulation, order: Option<Order>) {
        let Some(order) = order else { return };
        let again = |(asked, at): &(Order, Duration)| *asked == order && now() < *at + PATIENCE;
        if !self.asked.as_ref().is_some_and(again) {
            pool.order(order.clone());
            self.asked = Some((order, now()));
        }
    }
}

const ORACLE: &str = "work that is interrupted on purpose goes on";

fn broken(pair: Pair, what: &str) -> Violation {
    Violation { oracle: ORACLE, what: format!("{}: {what}", pair.name()) }
}
