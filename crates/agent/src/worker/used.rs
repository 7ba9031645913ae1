//! Use that workers make of what they hold, measured again and again while they are here.
//!
//! Three sources tell: the control group of a worker, what its processes do on the host; the cards, what is done on
//! them for it, where they can tell workers apart; and the slice server of a worker with a device, which knows best and
//! goes before the card. Nothing of it is kept: it goes to the leader with the next heartbeat, and onto the agent's
//! page.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_api::v1 as wire;
use tessera_devices::{HostUse, NodeDevices, Share, ShareControl, SliceSample};
use tessera_ledger::Owner;

use super::WorkerId;
use super::folder::WorkerFolders;
use crate::boot::BootTime;
use crate::cgroup::{GroupRecord, WorkerGroup};
use crate::device::{Counts, per_second};
use crate::node::to_ref;
use crate::turns::TurnTimes;

/// A worker that can be measured.
#[derive(Clone, Debug)]
pub struct Measurable {
    pub worker: WorkerId,
    pub group: GroupRecord,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerUse {
    pub host: HostUse,
    /// Processor time since its start.
    pub processor_time: Duration,
    /// Use of its slices, by card.
    pub slices: BTreeMap<u32, SliceSample>,
    /// The counters of its slice server, if it has one, and the card on which that server computes.
    pub served: Option<(u32, Counts)>,
    /// The rates at which that server worked since the look before and its backlog now, and the card on which it
    /// computes.
    pub device: Option<(u32, wire::DeviceUse)>,
    /// The times of its turns, and the card, if workers take turns there.
    pub turns: Option<(u32, TurnTimes)>,
}

impl WorkerUse {
    /// As the leader is told.
    #[must_use]
    pub fn to_wire(&self, worker: WorkerId) -> wire::WorkerSample {
        let slice = |slice: &SliceSample| wire::SliceSample {
            card_index: slice.card_index,
            utilization_ratio: slice.utilization,
            memory_used_bytes: slice.memory_used_bytes,
            device: self.device.filter(|(card, _)| *card == slice.card_index).map(|(_, device)| device),
        };
        wire::WorkerSample {
            worker: Some(to_ref(worker)),
            processors: self.host.processors,
            host_memory_bytes: self.host.memory_bytes,
            slices: self.slices.values().map(slice).collect(),
        }
    }
}

/// The counters of a worker when it was looked at last.
#[derive(Debug)]
struct Counted {
    at: BootTime,
    processor_time: Duration,
    served: Option<Counts>,
}

/// Measures workers: shares of time are those since the look before.
#[derive(Debug)]
pub struct Meter {
    folders: WorkerFolders,
    last: BTreeMap<WorkerId, Counted>,
}

impl Meter {
    #[must_use]
    pub const fn new(folders: WorkerFolders) -> Self {
        Self { folders, last: BTreeMap::new() }
    }

    /// Looks at workers; those that are not named are forgotten.
    pub fn look(
        &mut self,
        workers: &[Measurable],
        devices: &mut NodeDevices,
        since_start: Duration,
        now: BootTime,
    ) -> BTreeMap<WorkerId, WorkerUse> {
        let here: BTreeSet<WorkerId> = workers.iter().map(|one| one.worker).collect();
        self.last.retain(|worker, _| here.contains(worker));
        workers.iter().map(|one| (one.worker, self.one(one, devices, since_start, now))).collect()
    }

    fn one(&mut self, one: &Measurable, devices: &mut NodeDevices, since_start: Duration, now: BootTime) -> WorkerUse {
        let Measurable { worker, group } = one;
        let used = WorkerGroup::from_record(group.clone()).measured();
        let served = Counts::told(&self.folders.of(*worker).work());
        let counted = Counted { at: now, processor_time: used.processor_time, served };
        let last = self.last.insert(*worker, counted);
        let since = last.as_ref().map(|last| last.at.until(now));
        let before = last.as_ref().map_or(used.processor_time, |last| last.processor_time);
        let host = HostUse {
            processors: per_second(used.processor_time.saturating_sub(before).as_secs_f64(), since),
            memory_bytes: used.memory_bytes,
        };
        let owner = super::launch::owner(*worker);
        let slices = devices.slices(owner, host, since_start);
        let mut slices: BTreeMap<u32, SliceSample> =
            slices.into_iter().map(|slice| (slice.card_index, slice)).collect();
        let only = only_card(devices, owner).zip(served);
        let mut device = None;
        if let Some(((card, part), served)) = only {
            let before = last.and_then(|last| last.served).unwrap_or(served);
            device = Some((card, served.since(&before, since)));
            let computed = per_second(served.computed.saturating_sub(before.computed).as_secs_f64(), since);
            let slice = slices.entry(card).or_default();
            // Where it measures time that passes, an operation takes as long as its worker stands still in it, too.
            let part = part.filter(|_| served.processor_time).unwrap_or(served.share());
            slice.utilization = computed / part;
            slice.memory_used_bytes = served.memory_used_bytes;
        }
        let served = only.map(|((card, _), served)| (card, served));
        WorkerUse { host, processor_time: used.processor_time, slices, served, device, turns: None }
    }
}

/// The card on which the server of a worker with a device computes, which has one; and the part of it that the worker
/// has, where its agent lets it compute in turns, in which its server has all of the card.
fn only_card(devices: &NodeDevices, owner: Owner) -> Option<(u32, Option<f64>)> {
    let held = devices.held(owner);
    let card = held.first()?.card_index;
    if held.iter().any(|slice| slice.card_index != card) {
        return None;
    }
    let thousandths: u32 = held.iter().map(|slice| slice.share.0).sum();
    let has_turns = devices.caps(card).is_some_and(|caps| matches!(caps.share, ShareControl::Freeze { .. }));
    let part = f64::from(thousandths) / f64::from(Share::WHOLE.0);
    Some((card, has_turns.then_some(part).filter(|part| *part > 0.0)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tessera_devices::{GrantedSlice, HostRoot, WorkerSlices};
    use tessera_ledger::{AllocationId, Epoch, Mebibytes, Rank};

    use super::*;
    use crate::cgroup::Version;

    const WORKER: WorkerId = WorkerId { allocation: AllocationId(4), epoch: Epoch(9), rank: Rank(1) };
    const NODE: &str = r#"
[[node]]
name = "n"
card = [{ kind = "gpu", vendor = "nvidia", model = "A30", count = 2, memory_gib = 24, tflops = { fp16 = 14 } }]
"#;

    struct Fixture {
        data: tempfile::TempDir,
        devices: NodeDevices,
        meter: Meter,
        measurable: Measurable,
    }

    fn fixture() -> Fixture {
        fixture_of(NODE)
    }

    fn fixture_of(inventory_text: &str) -> Fixture {
        let data = tempfile::tempdir().expect("a folder");
        let inventory = data.path().join("pool.toml");
        fs::write(&inventory, inventory_text).expect("writable");
        let devices = NodeDevices::declared(&inventory, &HostRoot::new("n", data.path())).expect("declared");
        let folders = WorkerFolders::open(data.path()).expect("writable");
        folders.create(WORKER).expect("writable");
        let group = data.path().join("group");
        fs::create_dir(&group).expect("writable");
        let group = GroupRecord { tracking: Some((group, Version::V2)), ..GroupRecord::default() };
        let measurable = Measurable { worker: WORKER, group };
        Fixture { data, devices, meter: Meter::new(folders), measurable }
    }

    impl Fixture {
        fn hold(&mut self, cards: &[u32]) {
            let slice =
                |card_index: &u32| GrantedSlice { card_index: *card_index, share: Share(250), memory: Mebibytes(100) };
            let slices = cards.iter().map(slice).collect();
            let held = WorkerSlices { owner: super::super::launch::owner(WORKER), slices, elastic: false };
            self.devices.prepare(&held).expect("the cards exist");
        }

        fn told(&self) -> std::path::PathBuf {
            self.meter.folders.of(WORKER).work().join(".use")
        }

        /// Writes the counters that its slice server would write.
        fn tell(&self, share: f64, computed: f64) {
            let said = serde_json::json!({
                "share": share, "device_seconds": computed, "operations": 7, "bytes": 9, "gate_seconds": 0.5,
                "memory_used": 4096, "queued_bytes": 12, "processor_time": true
            });
            fs::write(self.told(), said.to_string()).expect("writable");
        }

        fn look(&mut self, processor_ms: u64, at_ms: u64) -> WorkerUse {
            let stat = format!("usage_usec {}\n", processor_ms * 1000);
            fs::write(self.data.path().join("group/cpu.stat"), stat).expect("writable");
            let (now, only) = (BootTime(at_ms), [self.measurable.clone()]);
            self.meter.look(&only, &mut self.devices, Duration::ZERO, now).remove(&WORKER).expect("it was asked for")
        }
    }

    #[test]
    fn processors_are_those_that_were_busy_since_the_last_look() {
        let mut worker = fixture();
        assert_eq!(worker.look(5_000, 10_000).host.processors, 0.0, "nothing is known of the time before");
        let used = worker.look(8_000, 12_000);
        assert_eq!((used.host.processors, used.processor_time), (1.5, Duration::from_secs(8)));
        assert!(used.slices.is_empty(), "it holds no slice");
        let Fixture { devices, meter, .. } = &mut worker;
        assert!(meter.look(&[], devices, Duration::ZERO, BootTime(13_000)).is_empty());
        assert_eq!(worker.look(9_000, 14_000).host.processors, 0.0, "it was forgotten meanwhile");
    }

    #[test]
    fn a_server_that_has_turns_has_computed_a_part_of_those() {
        let mut worker = fixture_of(&NODE.replace("count = 2", "count = 2, time_slicing = 'freeze'"));
        worker.hold(&[0]);
        worker.tell(1.0, 1.0);
        worker.look(0, 1_000);
        worker.tell(1.0, 1.25);
        assert_eq!(worker.look(0, 3_000).slices[&0].utilization, 0.5, "a quarter of a second of the half that it had");
    }

    #[test]
    fn a_slice_server_knows_better_than_the_card() {
        let mut worker = fixture();
        worker.hold(&[1]);
        let by_card = worker.look(0, 1_000).slices[&1];
        assert!(by_card.utilization > 0.8 && by_card.memory_used_bytes == 100 << 20, "{by_card:?}");
        worker.tell(0.25, 1.0);
        assert_eq!(worker.look(0, 2_000).slices[&1].utilization, 0.0, "its first word is no share of time yet");
        worker.tell(0.25, 1.25);
        let used = worker.look(0, 4_000);
        // A quarter of a second in two, of a quarter of the card.
        assert_eq!(used.slices[&1], SliceSample { card_index: 1, utilization: 0.5, memory_used_bytes: 4096 });
        let (card, served) = used.served.expect("it told");
        assert_eq!((card, served.operations, served.bytes), (1, 7, 9));
        worker.tell(0.25, 1.5);
        let device = worker.look(0, 6_000).to_wire(WORKER).slices[0].device;
        let idle = wire::DeviceUse { queued_bytes: 12, ..Default::default() };
        assert_eq!(device, Some(idle), "it did nothing more");
        fs::write(worker.told(), "{\"share\": -1}").expect("writable");
        assert!(worker.look(0, 8_000).served.is_none(), "what makes no sense is not believed");
    }

    #[test]
    fn slices_on_two_cards_are_told_apart() {
        let mut worker = fixture();
        worker.hold(&[0, 1]);
        let told = worker.look(0, 1_000).to_wire(WORKER);
        let cards: Vec<u32> = told.slices.iter().map(|slice| slice.card_index).collect();
        assert_eq!(cards, [0, 1]);
        assert_eq!(told.worker.map(|worker| worker.allocation_id), Some(4));
    }
}
