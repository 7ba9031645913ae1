//! The command of a worker: its job's program, the same program started by the process that gives it a device, or a
//! slice server alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tessera_api::v1 as wire;
use tessera_devices::{Attach, HostLimits, TorchDevice};
use tessera_ledger::Mebibytes;

use super::environment::{access, has_servers, is_cooperative};
use super::launch::LaunchError;
use crate::config::SupervisorCommand;
use crate::device::run::TOKEN;
use crate::device::served::Served;
use crate::device::unaware::ASKED;
use crate::device::{
    Across, MOST_SLICES, Plan, ProgramPlace, between_nodes, has_first_server, has_slices, runs_program, until_served,
};
use crate::supervisor::message::CompanionPlan;

/// Name of the script in the worker's own folder.
pub(super) const SCRIPT_FILE: &str = "script";
/// Name of the slice server's socket in the worker's own folder.
const SOCKET_FILE: &str = ".slice.sock";
/// Longest path of a Unix socket, in bytes.
const SOCKET_PATH: usize = 107;
/// Memory that a program and its slice server have beside the card's, on a card of processors: PyTorch twice.
const ROOM_OF_SERVER: Mebibytes = Mebibytes(1024);

/// The most that a dumped program keeps of what it issued, in MiB, where its job does not say.
const JOURNAL_MIB: u32 = 64;

/// The processes that are started for a worker.
pub(super) struct Program {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The limits that its slices set.
    pub limits: HostLimits,
    /// True if it begins as a process of ours that gives it a device.
    pub has_device: bool,
    /// The process that runs beside it; `None`: there is none.
    pub companion: Option<CompanionPlan>,
}

/// The means by which this node starts a program.
pub(super) struct Means<'a> {
    /// The command that starts this program.
    pub own: &'a SupervisorCommand,
    /// The settings of slice servers; `None`: this node serves none.
    pub served: Option<&'a Served>,
    /// The worker's own folder.
    pub work: &'a Path,
    /// True if its program is dumped when it is to be saved.
    pub is_dumped: bool,
}

/// Returns what is started for the worker of `order`. `environment` is the worker's; what is the program's alone is
/// taken out of it.
///
/// # Errors
/// When there is nothing to run, or no device to be had here.
pub(super) fn of(
    order: &wire::WorkerOrder,
    attach: &Attach,
    means: &Means<'_>,
    environment: &mut BTreeMap<String, String>,
) -> Result<Program, LaunchError> {
    let served = || means.served.ok_or(LaunchError::NoDevice);
    if has_servers(order) {
        // The cards themselves are the servers', and not seen by a program that has a device made of them.
        environment.extend(attach.hidden.clone());
    }
    let (place, command) = match access(order) {
        wire::Access::Worker | wire::Access::Unspecified => {
            return Ok(Program {
                command: own_command(order, means)?,
                limits: attach.limits,
                has_device: false,
                companion: None,
            });
        }
        wire::Access::Device if !runs_program(order) => (of_program(served()?, order), Vec::new()),
        wire::Access::Device if means.is_dumped => return unaware(served()?, order, attach, means, environment),
        wire::Access::Device => (of_servers(served()?, order, means)?, own_command(order, means)?),
        wire::Access::Remote => (elsewhere(served()?, order), Vec::new()),
    };
    let served = served()?;
    let is_apart = matches!(place, ProgramPlace::Apart { .. });
    check_slices(order, attach, is_apart)?;
    let plan = Plan::new(served, &attach.torch, place, take_loaders(environment)).across(Across::of(order));
    if plan.is_shared() {
        environment.insert(TOKEN.to_owned(), order.device_token.clone());
    }
    let limits = limits_with_server(attach, order);
    Ok(Program { command: plan.wrap(means.own, command)?, limits, has_device: true, companion: None })
}

fn check_slices(order: &wire::WorkerOrder, attach: &Attach, is_apart: bool) -> Result<(), LaunchError> {
    if attach.torch.is_empty() && !is_apart {
        return Err(LaunchError::NoDevice);
    }
    if order.slices.len() > MOST_SLICES { Err(LaunchError::TooManySlices(order.slices.len())) } else { Ok(()) }
}

/// A program that is dumped, and the servers of its card beside it. Nothing that is told the program changes when it
/// goes on elsewhere: where its card is it asks, and with which token and epoch.
fn unaware(
    served: &Served,
    order: &wire::WorkerOrder,
    attach: &Attach,
    means: &Means<'_>,
    environment: &mut BTreeMap<String, String>,
) -> Result<Program, LaunchError> {
    check_slices(order, attach, false)?;
    let mut of_companion = environment.clone();
    take_loaders(&mut of_companion);
    let place = ProgramPlace::Unaware(means.work.to_owned());
    let plan = Plan::new(served, &attach.torch, place, BTreeMap::new()).across(Across::of(order));
    if plan.is_shared() {
        of_companion.insert(TOKEN.to_owned(), order.device_token.clone());
    }
    let card_mib = order.slices.iter().filter_map(|placed| Some(placed.slice.as_ref()?.memory_mib)).sum();
    let companion = CompanionPlan { command: plan.wrap(means.own, Vec::new())?, environment: of_companion, card_mib };
    environment.insert("TESSERA_SLICES".to_owned(), format!("ask:{}", means.work.join(ASKED).display()));
    environment.insert("TESSERA_BUILD".to_owned(), served.build.display().to_string());
    // It is in each image, and holds what no server has executed yet.
    environment.entry("TESSERA_JOURNAL_MIB".to_owned()).or_insert_with(|| JOURNAL_MIB.to_string());
    Ok(Program {
        command: own_command(order, means)?,
        limits: limits_with_server(attach, order),
        has_device: false,
        companion: Some(companion),
    })
}

fn own_command(order: &wire::WorkerOrder, means: &Means<'_>) -> Result<Vec<String>, LaunchError> {
    let spec = order.spec.clone().unwrap_or_default();
    match (spec.command.is_empty(), spec.script.is_empty()) {
        (false, _) => Ok(spec.command),
        (true, false) => Ok(vec![means.work.join(SCRIPT_FILE).display().to_string()]),
        (true, true) => Err(LaunchError::NothingToRun),
    }
}

/// The place of the program for a worker that only serves its slices.
fn of_program(served: &Served, order: &wire::WorkerOrder) -> ProgramPlace {
    match between_nodes(order).filter(|_| has_first_server(order)) {
        Some((listen, _)) => ProgramPlace::OnOtherNode { listen, lease: served.host_lease },
        None => ProgramPlace::WithFirst,
    }
}

/// The place of the program for the worker that runs it: beside its card, or apart from a card on other nodes.
fn of_servers(served: &Served, order: &wire::WorkerOrder, means: &Means<'_>) -> Result<ProgramPlace, LaunchError> {
    match between_nodes(order).filter(|_| !has_slices(order)) {
        Some((_, server)) => Ok(ProgramPlace::Apart { server, within: until_served(served.start_within) }),
        None => beside(means.work),
    }
}

fn beside(work: &Path) -> Result<ProgramPlace, LaunchError> {
    let socket: PathBuf = work.join(SOCKET_FILE);
    if socket.as_os_str().len() > SOCKET_PATH {
        Err(LaunchError::LongPath(socket))
    } else {
        Ok(ProgramPlace::Here(socket))
    }
}

fn elsewhere(served: &Served, order: &wire::WorkerOrder) -> ProgramPlace {
    ProgramPlace::Elsewhere {
        listen: served.listen,
        host: served.host.clone(),
        lease: served.host_lease,
        saves: is_cooperative(order),
    }
}

/// The limits of a worker with a slice server. Where its job does not say what it needs of the host, program and server
/// have some room of their own beside what the program keeps on the card.
fn limits_with_server(attach: &Attach, order: &wire::WorkerOrder) -> HostLimits {
    let asked = order.spec.as_ref().and_then(|spec| spec.host).is_some_and(|host| host.memory_mib > 0);
    // What is asked for is asked for the program.
    let room = if asked && runs_program(order) { Mebibytes::ZERO } else { ROOM_OF_SERVER };
    let own = attach.limits.memory.map(|memory| memory.saturating_add(room));
    let memory = own.or_else(|| (!runs_program(order)).then(|| room_of_servers(&attach.torch)));
    HostLimits { memory, ..attach.limits }
}

/// The memory of servers on cards that have memory of their own, where no program is beside them. What travels to and
/// from a card is on its host for that time, and at most all that the card holds.
fn room_of_servers(slices: &[TorchDevice]) -> Mebibytes {
    let of_each = slices.iter().map(|slice| ROOM_OF_SERVER.saturating_add(slice.memory));
    of_each.fold(Mebibytes::ZERO, Mebibytes::saturating_add)
}

/// Takes what the loader of programs listens to out of an environment: it is for the job's program, and not for ours.
fn take_loaders(environment: &mut BTreeMap<String, String>) -> BTreeMap<String, String> {
    environment.extract_if(.., |name, _| name.starts_with("LD_")).collect()
}

#[cfg(test)]
mod tests {
    use tessera_devices::Share;

    use super::*;

    fn attach(memory: Option<u64>) -> Attach {
        let slice = TorchDevice {
            name: "cuda".to_owned(),
            environment: BTreeMap::new(),
            share: Share(500),
            part: Share(500),
            threads: 0,
            memory: Mebibytes(4096),
        };
        let limits = HostLimits { memory: memory.map(Mebibytes), ..HostLimits::default() };
        Attach { torch: vec![slice.clone(), slice], limits, ..Attach::default() }
    }

    #[test]
    fn a_device_has_so_many_slices_and_no_more() {
        let checked = |slices: usize| {
            let order = wire::WorkerOrder { slices: vec![wire::PlacedSlice::default(); slices], ..Default::default() };
            check_slices(&order, &attach(None), false)
        };
        checked(MOST_SLICES).expect("so many it may have");
        let refused = checked(MOST_SLICES + 1).expect_err("one more");
        assert!(refused.to_string().contains("has 65 slices"), "{refused}");
    }

    #[test]
    fn a_worker_that_only_serves_has_a_limit_of_memory_on_every_kind_of_card() {
        let limit = |memory, only_serves| {
            let order = wire::WorkerOrder { only_serves, ..Default::default() };
            limits_with_server(&attach(memory), &order).memory.map(|memory| memory.0)
        };
        assert_eq!(limit(Some(4096), true), Some(4096 + ROOM_OF_SERVER.0));
        assert_eq!(limit(None, true), Some(2 * (4096 + ROOM_OF_SERVER.0)));
        assert_eq!(limit(None, false), None, "what a program needs of a host of cards only its job can say");
    }
}
