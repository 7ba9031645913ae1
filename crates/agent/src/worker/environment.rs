//! The environment of a worker: a few variables of the host, what the cards need, what the job wants, and what Tessera
//! and the launchers of the field set, each going before those named first.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tessera_api::v1 as wire;

use super::account::{Account, RunAs, closed_to_others};
use super::folder::WorkerFolder;
use super::written::written_by;
use crate::checkpoints::CONTROL_FILE;
use crate::device::runs_program;
use crate::trace::context_of_program;

/// Variables taken over from the agent's own environment. Everything else of the agent is none of the
/// worker's business.
pub(crate) const INHERITED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"];
/// The variable that names the worker's own folder; its processes are known by it.
pub const WORKER_DIR: &str = "TESSERA_WORKER_DIR";
/// Name of the virtual-card file.
pub const VCARD_FILE: &str = "vcard.json";

/// The variables that every worker inherits, from the agent's environment. Others than the agent's user have no folder
/// for temporary files that they could not use.
#[must_use]
pub fn inherited(run_as: RunAs) -> BTreeMap<String, String> {
    let own = INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    if run_as == RunAs::Agent {
        own.collect()
    } else {
        own.filter(|(name, value)| name != "TMPDIR" || is_shared(Path::new(value))).collect()
    }
}

/// Tells of a folder that everybody may write into it.
fn is_shared(folder: &Path) -> bool {
    let written = fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o002 != 0);
    written && folder.is_absolute() && matches!(closed_to_others(folder), Ok(None))
}

/// The whole environment of a worker.
#[must_use]
pub fn of(
    order: &wire::WorkerOrder,
    node: &str,
    folder: &WorkerFolder,
    inherited: BTreeMap<String, String>,
    account: Option<&Account>,
    cards: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let named = |(name, value): (&str, String)| (name.to_owned(), value);
    let mut environment = inherited;
    environment.extend(account.into_iter().flat_map(|account| person(account, folder)).map(named));
    environment.extend(cards);
    environment.extend(order.spec.iter().flat_map(|spec| spec.environment.clone()));
    environment.extend(own(order, node, folder).into_iter().map(named));
    environment
}

/// `HOME`, `USER` and `LOGNAME` for a worker that does not run as the agent's user. An id from the range has no home:
/// the worker's own folder serves as one.
fn person(account: &Account, folder: &WorkerFolder) -> [(&'static str, String); 3] {
    let (name, home) = match &account.person {
        Some(person) => (person.name.clone(), person.home.clone()),
        None => (format!("tessera-{}", account.uid), folder.work().display().to_string()),
    };
    [("HOME", home), ("USER", name.clone()), ("LOGNAME", name)]
}

/// Returns whether the worker runs a program of the job that saves itself.
pub(crate) fn is_cooperative(order: &wire::WorkerOrder) -> bool {
    mode(order) == Some(wire::CheckpointMode::Cooperative) && runs_program(order)
}

/// Returns whether the worker runs a program of the job that is dumped without knowing of it.
pub(crate) fn is_transparent(order: &wire::WorkerOrder) -> bool {
    mode(order) == Some(wire::CheckpointMode::Transparent) && runs_program(order)
}

fn mode(order: &wire::WorkerOrder) -> Option<wire::CheckpointMode> {
    policy(order).map(wire::CheckpointPolicy::mode)
}

fn policy(order: &wire::WorkerOrder) -> Option<&wire::CheckpointPolicy> {
    order.spec.as_ref()?.checkpoint.as_ref()
}

/// Returns whether a program that cannot be dumped saves itself.
pub(crate) fn falls_back(order: &wire::WorkerOrder) -> bool {
    let cooperative = |policy: &wire::CheckpointPolicy| policy.fallback() == wire::CheckpointMode::Cooperative;
    is_transparent(order) && policy(order).is_some_and(cooperative)
}

/// Returns whether the job takes time of its cards that nobody else uses.
pub(crate) fn is_elastic(order: &wire::WorkerOrder) -> bool {
    let card = order.spec.as_ref().and_then(|spec| spec.virtual_card.as_ref());
    card.is_some_and(|card| card.elastic)
}

/// Returns whether slice servers hold its cards for the worker.
pub(crate) fn has_servers(order: &wire::WorkerOrder) -> bool {
    matches!(access(order), wire::Access::Device | wire::Access::Remote)
}

/// The access of the job's program to its virtual card.
pub(super) fn access(order: &wire::WorkerOrder) -> wire::Access {
    let card = order.spec.as_ref().and_then(|spec| spec.virtual_card.as_ref());
    card.map_or(wire::Access::Worker, wire::VirtualCardRequest::access)
}

/// Rank and number of a program among those of its job, in all and on its node.
struct Standing {
    rank: u32,
    of: u32,
    local_rank: u32,
    local_of: u32,
}

impl Standing {
    fn of(order: &wire::WorkerOrder) -> Self {
        if let Some(standing) = &order.standing {
            let wire::ProgramStanding { rank, world_size: of, local_rank, local_world_size: local_of } = *standing;
            return Self { rank, of, local_rank, local_of };
        }
        Self {
            rank: order.worker.unwrap_or_default().rank,
            of: order.world_size.max(1),
            local_rank: order.local_rank,
            local_of: order.local_world_size.max(1),
        }
    }
}

fn own(order: &wire::WorkerOrder, node: &str, folder: &WorkerFolder) -> Vec<(&'static str, String)> {
    let worker = order.worker.unwrap_or_default();
    let place = Standing::of(order);
    let mut own = vec![
        ("TESSERA_JOB_ID", order.job_id.to_string()),
        ("TESSERA_JOB_NAME", order.spec.as_ref().map_or_else(String::new, |spec| spec.name.clone())),
        ("TESSERA_ATTEMPT", order.attempt.to_string()),
        ("TESSERA_ALLOCATION_ID", worker.allocation_id.to_string()),
        ("TESSERA_EPOCH", worker.epoch.to_string()),
        ("TESSERA_RANK", worker.rank.to_string()),
        ("TESSERA_MEMBER", order.member.to_string()),
        ("TESSERA_NODE_NAME", node.to_owned()),
        (WORKER_DIR, folder.work().display().to_string()),
        ("TESSERA_VCARD_FILE", folder.file(VCARD_FILE).display().to_string()),
        ("RANK", place.rank.to_string()),
        ("WORLD_SIZE", place.of.to_string()),
        ("LOCAL_RANK", place.local_rank.to_string()),
        ("LOCAL_WORLD_SIZE", place.local_of.to_string()),
    ];
    if let Some(written) = written_by(order, folder) {
        own.push(("TESSERA_CHECKPOINT_DIR", written.display().to_string()));
    }
    if is_cooperative(order) {
        own.push(("TESSERA_CONTROL", folder.file(CONTROL_FILE).display().to_string()));
    }
    if !order.master_address.is_empty() {
        own.push(("MASTER_ADDR", order.master_address.clone()));
    }
    if order.master_port > 0 {
        own.push(("MASTER_PORT", order.master_port.to_string()));
    }
    if !order.traceparent.is_empty() {
        own.push(("TRACEPARENT", context_of_program(order)));
    }
    own
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tessera_devices::{GrantedSlice, HostRoot, NodeDevices, Share, WorkerSlices};
    use tessera_ledger::{AllocationId, Epoch, Mebibytes, Owner, Rank};

    use super::*;
    use crate::worker::vcard::VirtualCardFile;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn folder() -> WorkerFolder {
        WorkerFolder::at("/w")
    }

    #[test]
    fn the_job_goes_before_the_cards_and_tessera_before_the_job() {
        let spec = wire::JobSpec {
            environment: map(&[("OMP_NUM_THREADS", "7"), ("RANK", "99"), ("MINE", "yes")]),
            name: "training".to_owned(),
            ..Default::default()
        };
        let order = wire::WorkerOrder {
            worker: Some(wire::WorkerRef { allocation_id: 4, epoch: 5, rank: 2 }),
            job_id: 9,
            attempt: 1,
            spec: Some(spec),
            world_size: 3,
            master_address: "host-a".to_owned(),
            master_port: 29500,
            traceparent: "00-1-2-01".to_owned(),
            ..Default::default()
        };
        let cards = map(&[("OMP_NUM_THREADS", "2"), ("CUDA_VISIBLE_DEVICES", "")]);
        let inherited = map(&[("PATH", "/bin"), ("MINE", "no"), ("HOME", "/root")]);
        let account = Account { uid: 5000, gid: 5000, groups: Vec::new(), person: None };
        let all = of(&order, "node-a", &folder(), inherited, Some(&account), cards);
        let expected = [
            ("PATH", "/bin"),
            ("OMP_NUM_THREADS", "7"),
            ("CUDA_VISIBLE_DEVICES", ""),
            ("MINE", "yes"),
            ("RANK", "2"),
            ("WORLD_SIZE", "3"),
            ("LOCAL_RANK", "0"),
            ("LOCAL_WORLD_SIZE", "1"),
            ("MASTER_ADDR", "host-a"),
            ("MASTER_PORT", "29500"),
            ("TRACEPARENT", "00-1-2-01"),
            ("TESSERA_JOB_ID", "9"),
            ("TESSERA_JOB_NAME", "training"),
            ("TESSERA_ATTEMPT", "1"),
            ("TESSERA_RANK", "2"),
            ("TESSERA_WORKER_DIR", "/w/work"),
            ("TESSERA_VCARD_FILE", "/w/vcard.json"),
            ("HOME", "/w/work"),
            ("USER", "tessera-5000"),
        ];
        for (name, value) in expected {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn a_folder_that_only_the_agent_may_write_into_is_not_shared() {
        let folder = tempfile::tempdir().expect("a folder");
        let named = |name: &str, mode| {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("made");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mine");
            path
        };
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).expect("mine");
        let (closed, open, shared) = (named("closed", 0o700), named("open", 0o755), named("shared", 0o1777));
        let below = closed.join("below");
        fs::create_dir(&below).expect("made");
        fs::set_permissions(&below, fs::Permissions::from_mode(0o1777)).expect("mine");
        let folders = [&closed, &open, &shared, &below];
        assert_eq!(folders.map(|folder| is_shared(folder)), [false, false, true, false]);
    }

    #[test]
    fn a_job_alone_gets_no_master() {
        let all = of(&wire::WorkerOrder::default(), "n", &folder(), BTreeMap::new(), None, BTreeMap::new());
        assert!(
            !all.contains_key("MASTER_ADDR") && !all.contains_key("MASTER_PORT") && !all.contains_key("TRACEPARENT")
        );
        assert_eq!(all["WORLD_SIZE"], "1");
    }

    #[test]
    fn a_program_whose_card_lies_on_several_nodes_stands_among_programs() {
        let standing = wire::ProgramStanding { rank: 1, world_size: 2, local_rank: 0, local_world_size: 1 };
        let order = wire::WorkerOrder {
            worker: Some(wire::WorkerRef { rank: 2, ..Default::default() }),
            world_size: 4,
            standing: Some(standing),
            master_port: 20_000,
            card_port: 20_001,
            ..Default::default()
        };
        let all = of(&order, "n", &folder(), BTreeMap::new(), None, BTreeMap::new());
        let names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TESSERA_RANK", "MASTER_PORT"];
        assert_eq!(names.map(|name| &*all[name]), ["1", "2", "0", "1", "2", "20000"]);
    }

    /// The names in the first cells of the table under a heading of docs/worker.md.
    fn described(heading: &str) -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/worker.md");
        let page = std::fs::read_to_string(path).expect("docs/worker.md is there");
        let section = page.split("\n## ").find(|section| section.starts_with(heading)).expect("a section of its own");
        let rows = section.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
        rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
    }

    #[test]
    fn every_variable_is_described_and_nothing_else_is() {
        let mode = wire::CheckpointMode::Cooperative.into();
        let checkpoint = Some(wire::CheckpointPolicy { mode, ..Default::default() });
        let order = wire::WorkerOrder {
            spec: Some(wire::JobSpec { checkpoint, ..Default::default() }),
            master_address: "a".to_owned(),
            master_port: 1,
            traceparent: "00".to_owned(),
            ..Default::default()
        };
        let data = tempfile::tempdir().expect("a folder");
        let owner = Owner { allocation: AllocationId(1), epoch: Epoch(1), rank: Rank(0) };
        let slice = GrantedSlice { card_index: 0, share: Share::WHOLE, memory: Mebibytes(1) };
        let held = WorkerSlices { owner, slices: vec![slice], elastic: false };
        let root = HostRoot::new("node-0", data.path());
        let inventory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/demo/reference-pool.toml");
        let simulated = NodeDevices::declared(&inventory, &root).and_then(|mut cards| cards.prepare(&held));
        let mut cards = simulated.expect("a simulated card can be given").environment;
        cards.insert("OMP_NUM_THREADS".to_owned(), "1".to_owned());
        let inherited = INHERITED.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        let all = of(&order, "n", &folder(), inherited, None, cards);
        assert_eq!(described("Environment variables"), all.into_keys().collect());
    }

    #[test]
    fn every_field_of_the_virtual_card_file_is_described_and_nothing_else_is() {
        let slices = vec![wire::PlacedSlice { slice: Some(wire::Slice::default()), ..Default::default() }];
        let order = wire::WorkerOrder { slices, ..Default::default() };
        let file = serde_json::to_value(VirtualCardFile::new(&order, "n")).expect("plain data");
        let keys = |value: &serde_json::Value, prefix: &str| -> BTreeSet<String> {
            value.as_object().into_iter().flat_map(|object| object.keys()).map(|key| format!("{prefix}{key}")).collect()
        };
        let mut fields = keys(&file, "");
        fields.extend(keys(&file["slices"][0], "slices[]."));
        // Beside the names of fields, first cells hold nothing.
        assert_eq!(described("vcard.json"), fields);
    }
}
