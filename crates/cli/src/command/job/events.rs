//! `tessera job events`.

use std::collections::VecDeque;

use tessera_api::v1::JobFilter;
use tessera_client::watch::{Start, Update};

use crate::args::EventsArgs;
use crate::command::Desk;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;
use crate::print::end_without_reader;
use crate::view::{JobChangeView, JobUpdateView};

/// Events of the past that are shown to whoever follows a whole pool and does not say how many.
const LAST_OF_POOL: usize = 10;

pub(super) async fn events(mut desk: Desk, args: EventsArgs) -> Result<Exit, Failure> {
    desk.printer.streaming();
    if args.follow {
        end_without_reader();
    }
    let mut past = Past::new(&args);
    let job_ids = args.job.map(|job| job.0).into_iter().collect();
    let mut watch = desk.client.watch_jobs(JobFilter { job_ids, ..JobFilter::default() }, Start::Oldest);
    let mut outage = Outage::of_stay(&desk, args.follow);
    loop {
        let next = async |patience| watch.within(patience).next().await;
        let update = outage.through("the events cannot be shown", next).await?;
        let caught_up = matches!(update, Update::Synced { .. });
        match JobUpdateView::from(update) {
            JobUpdateView::Event(change) => past.pass(change).map_or(Ok(()), |change| print(&mut desk, &change))?,
            JobUpdateView::Relisting { compacted: true } => crate::print::remark("[some events are forgotten]"),
            _ => {}
        }
        if caught_up {
            past.end().iter().try_for_each(|change| print(&mut desk, change))?;
        }
        if caught_up && !args.follow {
            return Ok(Exit::Done);
        }
    }
}

fn print(desk: &mut Desk, change: &JobChangeView) -> Result<(), Failure> {
    match desk.printer.by_rows() {
        true => desk.printer.row(change),
        false => desk.printer.data(change),
    }
}

/// The events before the present, of which only the last may be wanted.
struct Past {
    /// The number that is wanted; `None`: all, or the past is over.
    last: Option<usize>,
    kept: VecDeque<Box<JobChangeView>>,
}

impl Past {
    fn new(args: &EventsArgs) -> Self {
        // Whoever follows a whole pool looks at what happens, not at all that has happened.
        let of_pool = (args.follow && args.job.is_none()).then_some(LAST_OF_POOL);
        Self { last: args.last.or(of_pool), kept: VecDeque::new() }
    }

    /// Returns an event that is to be shown now, and keeps one that may be among the last.
    fn pass(&mut self, change: Box<JobChangeView>) -> Option<Box<JobChangeView>> {
        let Some(last) = self.last else { return Some(change) };
        self.kept.push_back(change);
        if self.kept.len() > last {
            self.kept.pop_front();
        }
        None
    }

    /// Returns the last events of the past, which is over now.
    fn end(&mut self) -> VecDeque<Box<JobChangeView>> {
        self.last = None;
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::v1;

    use super::*;
    use crate::args::JobNumber;

    /// The revisions that are shown of twelve events of the past, and of one after it.
    fn shown(args: &EventsArgs) -> Vec<u64> {
        let event = |revision| Box::new(JobChangeView::from(v1::JobEvent { revision, ..v1::JobEvent::default() }));
        let mut past = Past::new(args);
        let mut shown: Vec<_> = (1..=12).filter_map(|revision| past.pass(event(revision))).collect();
        shown.extend(past.end());
        shown.extend(past.pass(event(13)));
        shown.iter().map(|change| change.revision).collect()
    }

    #[test]
    fn the_past_is_told_as_far_as_it_is_wanted() {
        let args = |job: Option<u64>, follow, last| EventsArgs { job: job.map(JobNumber), follow, last };
        assert_eq!(shown(&args(None, true, None)), (3..=13).collect::<Vec<_>>(), "all are followed");
        assert_eq!(shown(&args(Some(1), true, None)).len(), 13);
        assert_eq!(shown(&args(None, false, None)).len(), 13);
        assert_eq!(shown(&args(None, true, Some(0))), [13]);
        assert_eq!(shown(&args(Some(1), false, Some(2))), [11, 12, 13]);
    }
}
