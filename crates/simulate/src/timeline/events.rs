//! The course of a run, job by job, as lines that somebody else can check.

use std::io;

use crate::plain::Place;
use crate::trace::{TraceJob, TraceNode};

/// A kind of event in the life of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEventKind {
    Start,
    Suspend,
    Resume,
    Move,
    End,
}

impl JobEventKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Move => "move",
            Self::End => "end",
        }
    }
}

/// One event of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// Milliseconds since the first submission.
    pub at_ms: u64,
    /// The number of the job in its list, from 0.
    pub job: usize,
    pub kind: JobEventKind,
    /// The places of its workers from then on; none after a suspension or an end.
    pub places: Vec<Place>,
}

/// Writes events as CSV, in the order in which they happened: `time_s,job,event,places`, with places such as
/// `node-0:0-1|node-3:5` (a worker each, its node and cards).
///
/// # Errors
/// As the writer fails.
pub fn write_events(to: impl io::Write, nodes: &[TraceNode], jobs: &[TraceJob], events: &[JobEvent]) -> io::Result<()> {
    let mut lines = csv::Writer::from_writer(to);
    lines.write_record(["time_s", "job", "event", "places"])?;
    for JobEvent { at_ms, job, kind, places } in events {
        let time = format!("{}.{:03}", at_ms / 1000, at_ms % 1000);
        let places: Vec<String> = places.iter().map(|place| on(place, nodes)).collect();
        lines.write_record([&time, &jobs[*job].name, kind.name(), &places.join("|")])?;
    }
    lines.flush()
}

fn on(place: &Place, nodes: &[TraceNode]) -> String {
    let cards: Vec<String> = place.cards.iter().map(ToString::to_string).collect();
    format!("{}:{}", nodes[place.node].name, cards.join("-"))
}
