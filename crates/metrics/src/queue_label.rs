//! Queues as labels. A pool may have thousands of queues, and every metric by queue has a series for each that is
//! shown: so only the first that a process meets are shown by name, and all others together. A queue that is removed
//! gives its place to the next one, and its series end.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::series::Ending;

/// The largest number of queues that are shown by name.
pub const QUEUES_SHOWN: usize = 50;
/// The label of all others, and of those that are gone. No queue is called so: names have no blanks.
pub const OTHER_QUEUES: &str = "all others";
/// The label whose values are queues.
const QUEUE: &str = "queue";

/// The queues that are shown by name, and the series that end with them.
#[derive(Debug, Default)]
pub struct QueueLabels {
    shown: Mutex<BTreeSet<String>>,
    series: Vec<Box<dyn Ending>>,
}

impl QueueLabels {
    /// Returns the series of a metric by queue, which from now on end with their queue.
    pub fn ending<S: Ending + Clone + 'static>(&mut self, series: S) -> S {
        self.series.push(Box::new(series.clone()));
        series
    }

    /// Returns what a queue is called on the page.
    pub fn of<'a>(&self, queue: &'a str, is_there: impl Fn(&str) -> bool) -> &'a str {
        let mut shown = self.shown();
        if shown.contains(queue) {
            return queue;
        }
        if shown.len() >= QUEUES_SHOWN || !is_there(queue) {
            return OTHER_QUEUES;
        }
        shown.insert(queue.to_owned());
        queue
    }

    /// Takes the places of queues that are gone, and ends their series. No queue comes while they are asked for:
    /// `is_there` must know all that came before, or it ends the series of a queue that is newer than what it knows.
    pub fn keep(&self, is_there: impl Fn(&str) -> bool) {
        let mut shown = self.shown();
        shown.retain(|queue| is_there(queue));
        for series in &self.series {
            series.keep(QUEUE, &|queue| queue == OTHER_QUEUES || shown.contains(queue));
        }
    }

    fn shown(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_queues_are_shown_and_stay_shown() {
        let labels = QueueLabels::default();
        let names: Vec<String> = (0..=QUEUES_SHOWN).map(|number| format!("queue-{number}")).collect();
        for name in &names[..QUEUES_SHOWN] {
            assert_eq!(labels.of(name, |_| true), name);
        }
        assert_eq!(labels.of(&names[QUEUES_SHOWN], |_| true), OTHER_QUEUES);
        assert_eq!(labels.of(&names[0], |_| true), names[0]);
    }

    #[test]
    fn a_queue_that_is_gone_gives_its_place_to_the_next_one() {
        let labels = QueueLabels::default();
        let gone = |number: usize| format!("gone-{number}");
        for number in 0..QUEUES_SHOWN {
            labels.of(&gone(number), |_| true);
        }
        let is_there = |queue: &str| queue == "production";
        labels.keep(is_there);
        assert_eq!(labels.of("production", is_there), "production");
        assert_eq!(labels.of(&gone(0), is_there), OTHER_QUEUES, "its jobs may be known for longer than it");
    }
}
