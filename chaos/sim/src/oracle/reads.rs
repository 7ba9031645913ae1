//! Linearizable reads: who asks after somebody was answered sees at least what that answer showed, and a job that was
//! acknowledged before the question is found.
//!
//! The ledger is one register with a revision, and every answer names the revision that it was read at. Then a
//! history is linearizable exactly when no answer goes back behind one that was given before it was asked for; that
//! is checked in one pass over the answers. That the content at a revision is the same everywhere is another oracle's
//! matter (`laws`).

use std::time::Duration;

use super::{Oracle, View};
use crate::history::Answer;

#[derive(Default)]
pub struct Reads {
    /// Times of answers, and the highest revision that any answer up to then had shown.
    answered: Vec<(Duration, u64)>,
    submissions: usize,
    reads: usize,
    open: Vec<usize>,
}

impl Reads {
    /// The highest revision shown by an answer that came before `asked`.
    fn shown_before(&self, asked: Duration) -> u64 {
        let later = self.answered.partition_point(|(at, _)| *at < asked);
        later.checked_sub(1).map_or(0, |last| self.answered[last].1)
    }
}

impl Oracle for Reads {
    fn name(&self) -> &'static str {
        "linearizable reads"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let submissions = view.history.submissions();
        let news = view.history.reads_after(self.reads);
        // Everything that was answered since the last look was answered after everything before.
        let mut answers: Vec<(Duration, u64)> = news.iter().map(|read| (read.answered, read.found.0)).collect();
        self.open.extend(self.submissions..submissions.len());
        self.open.retain(|place| match (&submissions[*place].answer, submissions[*place].answered) {
            (Answer::Accepted { revision, .. }, Some(at)) => {
                answers.push((at, *revision));
                false
            }
            (Answer::Open, _) => true,
            _ => false,
        });
        answers.sort_unstable();
        for (at, revision) in answers {
            let highest = self.answered.last().map_or(0, |last| last.1).max(revision);
            self.answered.push((at, highest));
        }
        for read in &news {
            let (revision, there) = read.found;
            if !there {
                return Err(format!(
                    "job {} was acknowledged and then not found (asked at {:?})",
                    read.job, read.asked
                ));
            }
            let known = self.shown_before(read.asked);
            if revision < known {
                return Err(format!(
                    "a read of job {} asked at {:?} was answered at revision {revision}, after revision {known} had been shown",
                    read.job, read.asked
                ));
            }
        }
        (self.submissions, self.reads) = (submissions.len(), self.reads + news.len());
        Ok(())
    }
}
