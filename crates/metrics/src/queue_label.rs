//! Queues as labels. A pool may have thousands of queues, and every metric by queue has a series for each that is
//! shown: so only the first that a process meets are shown by name, and all others together.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// How many queues are shown by name.
pub const QUEUES_SHOWN: usize = 50;
/// The label of all others. No queue is called so: names have no blanks.
pub const OTHER_QUEUES: &str = "all others";

/// Which queues are shown by name.
#[derive(Debug, Default)]
pub struct QueueLabels(Mutex<BTreeSet<String>>);

impl QueueLabels {
    /// What a queue is called on the page.
    pub fn of<'a>(&self, queue: &'a str) -> &'a str {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.contains(queue) {
            return queue;
        }
        if shown.len() >= QUEUES_SHOWN {
            return OTHER_QUEUES;
        }
        shown.insert(queue.to_owned());
        queue
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
            assert_eq!(labels.of(name), name);
        }
        assert_eq!(labels.of(&names[QUEUES_SHOWN]), OTHER_QUEUES);
        assert_eq!(labels.of(&names[0]), names[0]);
    }
}
