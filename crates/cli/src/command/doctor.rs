//! `tessera operator doctor`.

use std::path::{Path, PathBuf};

use super::Desk;
use crate::args::{ClientArgs, DoctorArgs, HostArgs};
use crate::daemon::{agent_config, member_config};
use crate::doctor::facts::Facts;
use crate::doctor::gather::{Host, gather};
use crate::doctor::judge::judge;
use crate::doctor::{Finding, Report};
use crate::exit::Exit;
use crate::failure::Failure;

/// The paths of the files as the packages install them.
const MEMBER_FILE: &str = "/etc/tessera/controller.toml";
const AGENT_FILE: &str = "/etc/tessera/agent.toml";

/// Looks, judges and prints.
pub(super) async fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let host = host(&args.host);
    let mut desk = Desk::open(&towards(&host, &args.client))?;
    let (report, _) = report(&host, &desk).await;
    desk.printer.one(&report)?;
    Ok(report.exit())
}

/// The findings about this host, and the facts that they were derived from.
pub(super) async fn report(host: &Host, desk: &Desk) -> (Report, Facts) {
    let facts = gather(host, &desk.client).await;
    let findings: Vec<Finding> = judge(&facts);
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    (Report::new(name, host.roles(), findings), facts)
}

/// Reads what runs on this host. A file that cannot be used is a finding, and no reason to look at nothing.
pub(super) fn host(args: &HostArgs) -> Host {
    let mut host = Host::default();
    if let Some(path) = file(args.member_config.as_ref(), MEMBER_FILE) {
        match member_config(&path) {
            Ok(config) => host.member = Some(config),
            Err(failure) => host.unusable.push(unusable(&path, &failure)),
        }
    }
    if let Some(path) = file(args.agent_config.as_ref(), AGENT_FILE) {
        match agent_config(&path) {
            Ok(config) => host.agent = Some(config),
            Err(failure) => host.unusable.push(unusable(&path, &failure)),
        }
    }
    host
}

/// The files of this host that are there: whose, and where.
pub(super) fn files(args: &HostArgs) -> Vec<(&'static str, PathBuf)> {
    let member = file(args.member_config.as_ref(), MEMBER_FILE).map(|path| ("member-config", path));
    member.into_iter().chain(file(args.agent_config.as_ref(), AGENT_FILE).map(|path| ("agent-config", path))).collect()
}

fn file(named: Option<&PathBuf>, usual: &str) -> Option<PathBuf> {
    named.cloned().or_else(|| Some(PathBuf::from(usual)).filter(|path| path.exists()))
}

fn unusable(path: &Path, failure: &Failure) -> (String, String) {
    (path.display().to_string(), failure.to_string())
}

/// The members of this host's own files, unless others are named.
pub(super) fn towards(host: &Host, client: &ClientArgs) -> ClientArgs {
    let mut client = client.clone();
    if client.server.is_empty() && client.context.is_none() && std::env::var_os("TESSERA_SERVER").is_none() {
        let agents = host.agent.iter().flat_map(|agent| agent.members.clone());
        client.server = host.member.iter().map(|member| member.advertise.clone()).chain(agents).collect();
    }
    client
}
