//! The consequences of windows for a pool: until when each queue and job with windows is closed, and when to look at
//! them again. The leader brings them into the log, and a rehearsal of the pool into its copy.

use std::collections::BTreeMap;

use tessera_ledger::{Command, LogTime, State, UNKNOWN, WindowOf};

use crate::{Calendar, Now, millis, moment};

/// Most calendars that are judged at one look, and most that is told after it: whoever looks has other things to do
/// too, and looks again soon.
const AT_ONCE: usize = 256;

/// The verdict of a calendar.
#[derive(Clone, Copy, Debug)]
struct Judged {
    /// Until when it is closed; `None`: it is open.
    closed_until: Option<LogTime>,
    holds_until: LogTime,
}

/// Remembers of each calendar until when what it says holds, so that looking again costs next to nothing, however many
/// queues and jobs have the same windows.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    known: BTreeMap<Vec<String>, Judged>,
}

impl Judge {
    /// Returns the commands that are due for the ledger at `now`: a bounded number of them; further calls return more.
    pub fn due(&mut self, state: &State, now: LogTime) -> Vec<Command> {
        self.known.retain(|_, judged| now < judged.holds_until);
        let queues = state.windowed_queues().map(|queue| {
            let whose = WindowOf::Queue(queue.settings.name.clone());
            (whose, &queue.settings.windows, queue.closed_until)
        });
        let jobs = state.windowed_jobs().map(|job| (WindowOf::Job(job.id), &job.spec.windows, job.closed_until));
        let (mut due, mut judged_now) = (Vec::new(), 0);
        for (whose, windows, told) in queues.chain(jobs) {
            let judged = match self.known.get(windows) {
                Some(known) => *known,
                None if judged_now >= AT_ONCE => continue,
                None => {
                    judged_now += 1;
                    let judged = judge(windows, now);
                    self.known.insert(windows.clone(), judged);
                    judged
                }
            };
            let time = judged.closed_until.unwrap_or_default();
            // Of windows that nobody knows when they open it is enough that nothing starts.
            let is_known = match judged.closed_until {
                Some(UNKNOWN) => told > now,
                Some(until) => told == until,
                None => told <= now,
            };
            if !is_known && due.len() < AT_ONCE {
                due.push(Command::CloseUntil { whose, windows: windows.clone(), time });
            }
        }
        due
    }

    /// The earliest time at which the verdict of a known calendar expires; `None`: never.
    #[must_use]
    pub fn next(&self) -> Option<LogTime> {
        self.known.values().map(|judged| judged.holds_until).filter(|time| *time != UNKNOWN).min()
    }
}

fn judge(windows: &[String], now: LogTime) -> Judged {
    let time = |moment: Option<jiff::Timestamp>| moment.map_or(UNKNOWN, |moment| LogTime(millis(moment)));
    // What cannot be read was written by a release with other words: nothing of it starts until somebody changes it.
    let said = Calendar::read(windows).map_or(Now::Closed { until: None }, |calendar| calendar.at(moment(now.0)));
    match said {
        Now::Open { until } => Judged { closed_until: None, holds_until: time(until) },
        Now::Closed { until } => Judged { closed_until: Some(time(until)), holds_until: time(until) },
    }
}
