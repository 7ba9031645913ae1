//! Output is kept as long as was said, and nothing of ended work longer than somebody needs it.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tessera_ledger::{AllocationId, Epoch, Rank};

use super::*;
use crate::supervisor::output::Stream;
use crate::supervisor::status::Status;
use crate::supervisor::{LOG_FILE, SOCKET_FILE};
use crate::worker::folder::WorkerFolder;
use crate::worker::{Fence, Gone, Term};

const HOUR: Duration = Duration::from_secs(3600);

const MINUTE: Duration = Duration::from_secs(60);
/// Room for three workers of these tests and no more.
const FOR_THREE: Budget = Budget { bytes: 390_000, least_free: 5 };

/// A node with work that has ended.
struct Place {
    _data: TempDir,
    folders: WorkerFolders,
    /// Percent of its file system.
    free: Arc<AtomicU64>,
    /// The boot time in milliseconds.
    clock: Arc<AtomicU64>,
    ended: Ended,
}

impl Place {
    fn new() -> Self {
        Self::with(Budget { bytes: 1 << 30, least_free: 5 })
    }

    fn with(budget: Budget) -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let folders = WorkerFolders::open(data.path()).expect("writable");
        let (free, clock) = (Arc::new(AtomicU64::new(50)), Arc::new(AtomicU64::new(1_000_000)));
        let ended = Self::agent(&folders, budget, &free, &clock);
        Self { _data: data, folders, free, clock, ended }
    }

    fn agent(folders: &WorkerFolders, budget: Budget, free: &Arc<AtomicU64>, clock: &Arc<AtomicU64>) -> Ended {
        let (free, clock) = (Arc::clone(free), Arc::clone(clock));
        let space = move || Ok(Space { all: 100_000, free: 1000 * free.load(Ordering::Relaxed) });
        let clock = move || BootTime(clock.load(Ordering::Relaxed));
        let ended = Ended::with(folders.clone(), budget, Box::new(space), Box::new(clock));
        ended.look().expect("readable");
        ended
    }

    fn pass(&self, time: Duration) {
        self.clock.fetch_add(u64::try_from(time.as_millis()).expect("short"), Ordering::Relaxed);
    }

    /// Workers that were settled one after the other, some minutes ago.
    fn long_settled<const N: usize>(&self, first: u64) -> [WorkerId; N] {
        let numbers: [u64; N] = std::array::from_fn(|number| first + number as u64);
        numbers.map(|number| {
            let worker = self.settled(number, None);
            self.pass(2 * MINUTE);
            worker
        })
    }

    fn gone(&self, worker: WorkerId) -> Option<Gone> {
        self.folders.of(worker).gone()
    }

    /// A worker that was supervised to its end, and said something.
    fn ended(&self, number: u64) -> WorkerId {
        let worker = WorkerId { allocation: AllocationId(number), epoch: Epoch(9), rank: Rank(0) };
        let folder = self.folders.create(worker).expect("new");
        for name in [LOG_FILE, SOCKET_FILE, "control.sock", "saved.json", "progress"] {
            fs::write(folder.file(name), "").expect("writable");
        }
        fs::create_dir(folder.checkpoint()).expect("writable");
        fs::write(said(&folder), vec![b'x'; 100_000]).expect("writable");
        let fence = Fence { term: Term(1), epoch: Epoch(9) };
        Status::new(worker, 77, fence, "boot".to_owned()).store(folder.path()).expect("writable");
        worker
    }

    fn settled(&self, number: u64, retention: Option<Duration>) -> WorkerId {
        let worker = self.ended(number);
        self.ended.settle(worker, retention).expect("writable");
        worker
    }

    /// The same node with its next agent.
    fn started_anew(self) -> Self {
        let budget = Budget { bytes: 1 << 30, least_free: 0 };
        Self { ended: Self::agent(&self.folders, budget, &self.free, &self.clock), ..self }
    }

    fn is_expired(&self, worker: WorkerId) -> bool {
        self.gone(worker) == Some(Gone::InTime)
    }

    fn removed(&self, usual: Option<Duration>) -> usize {
        self.ended.remove_expired(usual).expect("removable")
    }
}

fn said(folder: &WorkerFolder) -> PathBuf {
    Stream::Stdout.file(folder.path(), 0)
}

fn names(folder: &WorkerFolder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).expect("readable").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn of_a_job_that_has_ended_only_what_somebody_reads_stays() {
    let place = Place::new();
    let output = "stdout.00000000000000000000";
    let folder = place.folders.of(place.settled(1, None));
    assert_eq!(names(&folder), ["settled.json", "status.json", output]);
    let worker = place.ended(2);
    let folder = place.folders.of(worker);
    fs::write(folder.work().join("script"), "true").expect("writable");
    fs::write(folder.file(LOG_FILE), "the card is hot").expect("writable");
    place.ended.settle(worker, None).expect("writable");
    assert_eq!(names(&folder), ["settled.json", "status.json", output, LOG_FILE, "work"]);
    let found = place.folders.search().expect("readable");
    assert!(found.is_empty(), "settled workers are not found again: {found:?}");
}

#[test]
fn output_outlives_the_worker_for_as_long_as_was_said() {
    let place = Place::new();
    let (long, short) = (place.settled(1, Some(HOUR)), place.settled(2, Some(Duration::ZERO)));
    assert_eq!(place.removed(None), 1);
    assert!(said(&place.folders.of(long)).exists() && !place.is_expired(long));
    assert!(!said(&place.folders.of(short)).exists() && place.is_expired(short));
    assert_eq!(place.removed(None), 0, "removed once");
}

#[test]
fn output_of_a_job_that_does_not_say_goes_by_what_the_pool_says_now() {
    let place = Place::new();
    let (silent, says) = (place.settled(1, None), place.settled(2, Some(HOUR)));
    assert_eq!(place.removed(None), 0, "nobody has said how long");
    assert_eq!(place.removed(Some(HOUR)), 0);
    assert_eq!(place.removed(Some(Duration::ZERO)), 1, "it was settled before the change");
    assert!(place.is_expired(silent) && !place.is_expired(says), "the other's job has said how long");
    assert_eq!(place.removed(Some(HOUR)), 0, "removed once");
}

/// The next agent goes by what lies on the disk.
#[test]
fn an_agent_that_starts_anew_removes_what_the_one_before_has_settled() {
    let place = Place::new();
    let (short, long) = (place.settled(1, Some(Duration::ZERO)), place.settled(2, Some(HOUR)));
    let place = place.started_anew();
    assert_eq!(place.removed(None), 1);
    assert!(place.is_expired(short) && !place.is_expired(long));
}

/// A leader that does not know of it has workers forgotten once more, and so does an order that was long on its way.
#[test]
fn what_is_settled_again_stays_as_it_was_noted_first() {
    let place = Place::new();
    let (gone, kept) = (place.settled(1, Some(Duration::ZERO)), place.settled(2, Some(HOUR)));
    assert_eq!(place.removed(None), 1);
    let noted = |worker| place.folders.of(worker).settled().map(|settled| Settled { bytes: 0, ..settled });
    let before = [gone, kept].map(noted);
    for worker in [gone, kept] {
        place.ended.settle(worker, Some(2 * HOUR)).expect("writable");
    }
    assert_eq!([gone, kept].map(noted), before);
    assert!(place.is_expired(gone) && said(&place.folders.of(kept)).exists());
    let early = place.settled(3, None);
    place.ended.remove_early(early, place.folders.of(early).settled().expect("noted")).expect("removable");
    place.ended.settle(early, None).expect("writable");
    assert_eq!(place.gone(early), Some(Gone::ForRoom), "who asks for its output hears why");
}

/// A late order for a worker finds for a while that it was here. Then nothing is left.
#[test]
fn a_worker_is_remembered_for_an_hour_and_its_folder_goes() {
    let place = Place::new();
    let (worker, kept) = (place.settled(1, Some(Duration::ZERO)), place.settled(2, Some(2 * HOUR)));
    assert_eq!(place.removed(None), 1);
    place.pass(HOUR / 2);
    assert_eq!(place.removed(None), 0);
    let again = place.folders.create(worker).expect_err("it was here");
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    place.pass(HOUR);
    assert_eq!(place.removed(None), 0, "its output is gone");
    assert!(!place.folders.of(worker).path().exists());
    assert!(said(&place.folders.of(kept)).exists());
    let left = fs::read_dir(place.folders.path()).expect("readable").count();
    assert_eq!((left, place.ended.known().len()), (1, 1), "nothing is left of it anywhere");
}

/// The time of day may be set meanwhile, and an agent that starts finds notes of any time.
#[test]
fn a_step_of_the_clock_neither_forgets_a_worker_nor_keeps_it_for_ever() {
    let (before, after) = (unix_millis() - 90_000_000, unix_millis() + 90_000_000);
    for (noted_at, by_the_next) in [(before, false), (after, false), (before, true), (after, true)] {
        let place = Place::new();
        let worker = place.settled(1, Some(Duration::ZERO));
        let folder = place.folders.of(worker);
        let noted = folder.settled().expect("it is settled");
        let noted = Settled { settled_unix_ms: noted_at, expires_unix_ms: Some(noted_at), ..noted };
        folder.note_settled(noted).expect("writable");
        place.ended.known().change(worker, noted);
        let place = if by_the_next { place.started_anew() } else { place };
        assert_eq!(place.removed(None), 1);
        assert!(folder.path().exists() && place.is_expired(worker), "a late order may come");
        place.pass(HOUR);
        assert_eq!(place.removed(None), 0, "its output is gone");
        assert!(!folder.path().exists());
    }
}

/// Not what has just ended, whose output is still read.
#[test]
fn the_oldest_goes_before_its_time_when_ended_work_takes_more_than_its_budget() {
    let place = Place::with(FOR_THREE);
    let [oldest, second, third] = place.long_settled(1);
    assert_eq!(place.ended.removed_early(), 0, "there is room for them");
    let [fourth, fifth] = [4, 5].map(|number| place.settled(number, None));
    assert_eq!(
        [oldest, second, third].map(|worker| place.gone(worker)),
        [Some(Gone::ForRoom), Some(Gone::ForRoom), None]
    );
    assert!(place.ended.bytes() <= FOR_THREE.bytes && place.ended.known().is_short);
    let young = [6, 7].map(|number| place.settled(number, None));
    assert_eq!(place.gone(third), Some(Gone::ForRoom));
    for worker in [fourth, fifth].into_iter().chain(young) {
        assert_eq!(place.gone(worker), None, "somebody may follow it");
    }
    assert_eq!(place.ended.removed_early(), 3);
}

#[test]
fn ended_work_goes_while_its_file_system_is_nearly_full() {
    let place = Place::with(Budget { bytes: FOR_THREE.bytes, least_free: 5 });
    let [older, newer] = place.long_settled(1);
    place.free.store(5, Ordering::Relaxed);
    place.ended.make_room();
    assert_eq!(place.ended.removed_early(), 0, "so much may be taken");
    place.free.store(4, Ordering::Relaxed);
    place.ended.make_room();
    assert_eq!([older, newer].map(|worker| place.gone(worker)), [Some(Gone::ForRoom); 2]);
    place.free.store(5, Ordering::Relaxed);
    place.ended.make_room();
    assert!(place.ended.known().is_short, "what is told is not told again with each worker");
    place.free.store(50, Ordering::Relaxed);
    place.ended.make_room();
    assert!(!place.ended.known().is_short);
}

/// Notes of output that went are small, but may be many.
#[test]
fn notes_of_what_went_early_take_a_small_part_of_the_budget() {
    let place = Place::with(FOR_THREE);
    let workers: [WorkerId; 12] = place.long_settled(1);
    place.settled(13, None);
    let known = || workers.iter().filter(|worker| place.folders.of(**worker).path().exists()).count();
    assert_eq!(known(), 12, "a late order may come for each of them");
    place.pass(HOUR);
    place.ended.make_room();
    let notes = workers.iter().filter(|worker| place.gone(**worker).is_some()).count();
    assert!((1..=4).contains(&notes) && known() < 8, "{notes} of {}", known());
}
