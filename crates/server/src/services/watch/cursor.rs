//! The advance of a watch's place over the history of events.

use planted::Bug;
use tessera_api::resume::WatchPlace;
use tessera_ledger::{EntryEvents, Event, Revision, State};

/// Events and entries looked at in one step, so that no step takes long: how much history one watch walks at once.
const LOOKED_AT: usize = 1024;

/// Events handed out by one step.
const HANDED_OUT: usize = 64;

/// The result of one step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<E> {
    /// Events that were picked, each with the place after it; there may be more.
    Events(Vec<(E, WatchPlace)>),
    /// The end of the state's history.
    Current,
    /// The place is not remembered any more.
    Lost {
        /// Watches may start after this revision.
        oldest: Revision,
    },
}

/// Moves `place` on over the history of `state`. What `pick` answers for an event is handed out.
pub(super) fn step<E>(
    place: &mut WatchPlace,
    state: &State,
    mut pick: impl FnMut(&EntryEvents, u32, &Event) -> Option<E>,
) -> Step<E> {
    let after = place.needs_after();
    if after < state.compacted() && !planted::is(Bug::WatchPastForgotten) {
        return Step::Lost { oldest: state.compacted() };
    }
    let mut picked = Vec::new();
    let mut looked_at = 0;
    // One by one: to find where a range begins, the map would go through all that is before it.
    for revision in (after.0.saturating_add(1)..=state.revision().0).map(Revision) {
        if looked_at >= LOOKED_AT || picked.len() == HANDED_OUT {
            return Step::Events(picked);
        }
        looked_at += 1;
        let Some(entry) = state.events_of(revision) else {
            *place = (*place).max(WatchPlace::after(revision));
            continue;
        };
        for (ordinal, event) in (0u32..).zip(entry.events.iter()) {
            if place.covers(entry.revision, ordinal) {
                continue;
            }
            if looked_at >= LOOKED_AT || picked.len() == HANDED_OUT {
                return Step::Events(picked);
            }
            looked_at += 1;
            *place = WatchPlace::after_event(entry.revision, ordinal);
            if let Some(event) = pick(entry, ordinal, event) {
                picked.push((event, *place));
            }
        }
        *place = (*place).max(WatchPlace::after(entry.revision));
    }
    *place = (*place).max(WatchPlace::after(state.revision()));
    if picked.is_empty() { Step::Current } else { Step::Events(picked) }
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{Command, EntryPosition, LogTime, QueueSettings, Request};

    use super::*;

    const BEGINNING: WatchPlace = WatchPlace::after(Revision(0));

    /// A state after entries that each made as many queues as said.
    fn history(entries: &[u32]) -> State {
        let mut state = State::new();
        for (revision, queues) in (1..).zip(entries) {
            let requests: Vec<Request> = (0..*queues).map(|number| make_queue(revision, number)).collect();
            state.apply(EntryPosition { revision: Revision(revision), time: LogTime(revision) }, &requests);
        }
        state
    }

    fn make_queue(revision: u64, number: u32) -> Request {
        let queue = QueueSettings::new(format!("q-{revision}-{number}"));
        tessera_testkit::request(Command::SetQueue { queue })
    }

    fn name_of(_: &EntryEvents, _: u32, event: &Event) -> Option<String> {
        match event {
            Event::Queue { name } => Some(name.clone()),
            _ => None,
        }
    }

    fn all_from(mut place: WatchPlace, state: &State) -> Vec<(String, WatchPlace)> {
        let mut all = Vec::new();
        loop {
            match step(&mut place, state, name_of) {
                Step::Events(events) => all.extend(events),
                Step::Current => return all,
                Step::Lost { .. } => panic!("nothing was dropped"),
            }
        }
    }

    #[test]
    fn every_event_comes_once_whatever_place_the_watch_goes_on_from() {
        let state = history(&[3, 0, 1, 200, 2]);
        let all = all_from(BEGINNING, &state);
        assert_eq!(all.len(), 206);
        for cut in 0..all.len() {
            assert_eq!(all_from(all[cut].1, &state), all[cut + 1..], "after event {cut}");
        }
    }

    #[test]
    fn entries_without_events_move_the_place_on() {
        let state = history(&[1, 0, 0, 0]);
        let mut place = WatchPlace::after(Revision(1));
        assert_eq!(step(&mut place, &state, name_of), Step::Current);
        assert_eq!(place, WatchPlace::after(Revision(4)));
    }

    #[test]
    fn a_long_way_without_events_is_gone_in_steps() {
        let mut state = history(&[1]);
        let end = 3 * LOOKED_AT as u64;
        state.observe(EntryPosition { revision: Revision(end), time: LogTime(2) });
        let (mut place, mut steps) = (WatchPlace::after(Revision(1)), 0);
        while step(&mut place, &state, name_of) != Step::Current {
            steps += 1;
            assert!(place.revision <= Revision(1 + steps * LOOKED_AT as u64), "no step goes further than it may");
        }
        assert_eq!((place, steps), (WatchPlace::after(Revision(end)), 2));
    }

    #[test]
    fn a_place_ahead_of_the_member_waits_for_it() {
        let behind = history(&[1]);
        for ahead in [WatchPlace::after(Revision(9)), WatchPlace::after_event(Revision(2), 1)] {
            let mut place = ahead;
            assert_eq!(step(&mut place, &behind, name_of), Step::Current);
            assert_eq!(place, ahead);
        }
        let caught_up = history(&[1, 3]);
        let rest = all_from(WatchPlace::after_event(Revision(2), 1), &caught_up);
        assert_eq!(rest.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["q-2-2"]);
    }

    #[test]
    fn a_place_that_is_forgotten_is_lost() {
        let mut state = State::new();
        let mut config = state.config().clone();
        config.event_limit = 2;
        tessera_testkit::apply(&mut state, LogTime(1), Command::SetConfig { config, expected: None });
        for revision in 2..=6 {
            let at = EntryPosition { revision: Revision(revision), time: LogTime(revision) };
            state.apply(at, &[make_queue(revision, 0)]);
        }
        let mut place = BEGINNING;
        assert_eq!(step(&mut place, &state, name_of), Step::Lost { oldest: Revision(4) });
        assert_eq!(all_from(WatchPlace::after(Revision(4)), &state).len(), 2);
    }
}
