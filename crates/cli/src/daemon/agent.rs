//! `tessera agent`: the agent of a node.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use tessera_actor::Pulse;
use tessera_agent::reach::{Reach, Wishes};
use tessera_agent::worker::{LEAST_UID, RunAs};
use tessera_agent::{AgentConfig, AgentError, CardSource, name_kept_in};
use tessera_client::reach::source_towards;
use tessera_client::{Address, BadAddress};

use super::config_file::{AgentFile, CardsWord, load, tell_configuration};
use super::notify::ServiceManager;
use super::{logging, shutdown};
use crate::args::{AgentArgs, RunAsWord};
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs an agent until it is told to end. Its workers go on.
///
/// # Errors
/// The [`Failure`] to be shown.
pub async fn agent(args: AgentArgs) -> Result<Exit, Failure> {
    let file: AgentFile = load(args.config.as_deref())?;
    let config = configured(&args, &file, source_towards)?;
    let told = logging::start("tessera-agent", &config.node_name, &args.logging, &file.log)?;
    tell_configuration(args.config.as_deref());
    let token = shutdown::on_signals()?;
    if args.stop_with_stdin {
        shutdown::with_stdin(&token);
    }
    tracing::info!(node = config.node_name, data_dir = %config.data_dir.display(), "an agent starts");
    if given_name(&args, &file).is_none() && host_name().is_ok_and(|host| host != config.node_name) {
        tracing::info!("its host is called otherwise; without a name given it is the node that its data folder is of");
    }
    let pulse = Pulse::default();
    let manager = ServiceManager::told(&pulse, &token);
    let ended = tessera_agent::run(config, pulse, token).await;
    manager.finish().await;
    told.finish().await;
    ended.map_err(|error| failure(&error))?;
    Ok(Exit::Done)
}

/// The configuration of the agent whose file this is.
///
/// # Errors
/// A [`Failure`] when such an agent does not start.
pub fn agent_config(path: &Path) -> Result<AgentConfig, Failure> {
    configured(&AgentArgs::default(), &load::<AgentFile>(Some(path))?, source_towards)
}

/// Flags before the file before the defaults.
fn configured(
    args: &AgentArgs,
    file: &AgentFile,
    source: impl Fn(&[Address]) -> io::Result<IpAddr>,
) -> Result<AgentConfig, Failure> {
    let missing = |why: &str, next: &str| Failure::new(Exit::Usage, "the agent was not started", why).next(next);
    let data_dir = args.data_dir.clone().or_else(|| file.data_dir.clone()).ok_or_else(|| {
        missing("no data folder is named", "give --data-dir DIR, or `data_dir` in the configuration file")
    })?;
    let name = match given_name(args, file) {
        Some(name) => name.clone(),
        // A container has a new host name at each start, and stays the node that its folder is of.
        None => name_kept_in(&data_dir).map_or_else(host_name, Ok)?,
    };
    let members = if args.members.is_empty() { file.server.clone() } else { args.members.clone() };
    if members.is_empty() {
        return Err(missing("no member is named", "give --server HOST:PORT, or `server` in the configuration file"));
    }
    let mut config = AgentConfig::new(name, data_dir, members);
    file.apply(&mut config);
    config.http_listen = args.http.or(file.http);
    config.labels = file.labels.clone();
    config.labels.extend(args.label.iter().cloned());
    config.cards = cards(args, file);
    config.data_dir_moved = args.moved_data_dir;
    config.accept_pool.clone_from(&args.accept_pool);
    config.run_as = run_as(args, file);
    config.worker_groups.clone_from(&file.worker_groups);
    config.validate().map_err(|error| unusable(&error))?;
    let members: Result<Vec<Address>, BadAddress> = config.members.iter().map(|member| member.parse()).collect();
    let source = source(&members.map_err(|error| unusable(&error))?).map_err(|error| {
        Failure::from_error(Exit::Unavailable, "the agent was not started: no way leads to a member", &error)
            .next("look at --server and at the network of this host; once a way leads there, start the agent again")
    })?;
    let wishes = Wishes {
        listen: args.listen.or(file.listen),
        advertise: args.advertise.as_deref().or(file.advertise.as_deref()),
        worker_host: args.worker_host.as_deref().or(file.worker_host.as_deref()),
    };
    let reach = Reach::decide(wishes, source).map_err(|error| unusable(&error))?;
    (config.listen, config.advertise, config.worker_host) = (reach.listen, reach.advertise, reach.worker_host);
    config.validate().map_err(|error| unusable(&error))?;
    Ok(config)
}

fn unusable(error: &dyn std::error::Error) -> Failure {
    Failure::from_error(Exit::Usage, "the agent was not started", error)
}

/// Flags before the file before the default, which is a range where the agent may give identities away.
fn run_as(args: &AgentArgs, file: &AgentFile) -> RunAs {
    let ids = file.user_ids.unwrap_or_default();
    match args.run_as.or(file.run_as) {
        None if RunAs::default() == RunAs::Agent => RunAs::Agent,
        None | Some(RunAsWord::Range) => RunAs::Range(ids),
        Some(RunAsWord::Submitter) => RunAs::Submitter { least_uid: file.least_uid.unwrap_or(LEAST_UID) },
        Some(RunAsWord::Agent) => RunAs::Agent,
    }
}

fn cards(args: &AgentArgs, file: &AgentFile) -> CardSource {
    match (&args.inventory, args.no_cards, &file.inventory, file.cards) {
        (Some(path), ..) => CardSource::Inventory(path.clone()),
        (None, true, ..) | (None, false, None, Some(CardsWord::None)) => CardSource::None,
        (None, false, Some(path), _) => CardSource::Inventory(path.clone()),
        (None, false, None, Some(CardsWord::Accelerators)) => CardSource::Accelerators,
        (None, false, None, Some(CardsWord::Local) | None) => CardSource::Local,
    }
}

fn given_name<'a>(args: &'a AgentArgs, file: &'a AgentFile) -> Option<&'a String> {
    args.name.as_ref().or(file.name.as_ref())
}

fn host_name() -> Result<String, Failure> {
    let unnamed =
        |why: String| Failure::new(Exit::Usage, "the agent was not started", why).next("name the node with --name");
    let name = nix::unistd::gethostname().map_err(|error| unnamed(format!("the host's name is not known: {error}")))?;
    name.into_string().map_err(|_| unnamed("the host's name is not text".to_owned()))
}

fn failure(error: &AgentError) -> Failure {
    let exit = match error {
        AgentError::Config(_) | AgentError::Member(_) => Exit::Usage,
        AgentError::Taken(_) => Exit::Conflict,
        _ => Exit::Failed,
    };
    Failure::from_error(exit, "the agent ended", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use tessera_agent::worker::UserIds;

    fn file(text: &str) -> AgentFile {
        toml::from_str(text).expect("a good file")
    }

    fn lan(_: &[Address]) -> io::Result<IpAddr> {
        Ok(IpAddr::from([10, 0, 1, 7]))
    }

    #[test]
    fn a_node_of_a_pool_on_many_hosts_is_told_as_others_reach_it() {
        let args = AgentArgs { name: Some("n".to_owned()), ..AgentArgs::default() };
        let text = "data_dir = '/d'\nserver = ['10.0.0.1:7400']\n";
        let config = configured(&args, &file(text), lan).expect("good");
        assert_eq!((config.listen.to_string().as_str(), config.worker_host.as_str()), ("10.0.1.7:0", "10.0.1.7"));
        let refused = |more: &str| configured(&args, &file(&format!("{text}{more}")), lan).expect_err("refused");
        assert!(refused("listen = '127.0.0.1:0'").to_string().contains("--listen"));
        assert!(refused("listen = '0.0.0.0:1'\nadvertise = '127.0.0.1:1'").to_string().contains("--advertise"));
        assert_eq!(refused("worker_host = 'localhost'").exit, Exit::Usage);
        let cut_off = |_: &[Address]| Err(io::Error::from(io::ErrorKind::NetworkUnreachable));
        let refused = configured(&args, &file(text), cut_off).expect_err("no way leads there");
        assert!(refused.exit == Exit::Unavailable && refused.to_string().contains("--server"), "{refused}");
    }

    #[test]
    fn flags_go_before_the_file() {
        let args = AgentArgs {
            name: Some("flag".to_owned()),
            label: vec![("rack".to_owned(), "8".to_owned())],
            ..AgentArgs::default()
        };
        let text = "name = 'file'\ndata_dir = '/d'\nserver = ['a:1']\n[labels]\nrack = '7'\nrow = '1'\n";
        let config = configured(&args, &file(text), lan).expect("good");
        assert_eq!(config.node_name, "flag");
        assert_eq!(config.members, ["a:1"]);
        assert_eq!(config.labels.get("rack").map(String::as_str), Some("8"));
        assert_eq!(config.labels.get("row").map(String::as_str), Some("1"));
    }

    #[test]
    fn without_a_name_it_is_the_node_that_its_folder_is_of() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let args = AgentArgs { data_dir: Some(folder.path().to_owned()), ..AgentArgs::default() };
        let name = |text: &str| configured(&args, &file(text), lan).expect("good").node_name;
        let host = host_name().expect("it has one");
        assert_eq!(name("server = ['a:1']"), host);
        let kept = r#"{"uid":"u","node_name":"kept","incarnation":1,"highest_term":0,"cluster_id":""}"#;
        std::fs::write(folder.path().join("node.json"), kept).expect("writable");
        assert_eq!(name("server = ['a:1']"), "kept");
        assert_eq!(name("server = ['a:1']\nname = 'said'"), "said", "which the agent then refuses");
    }

    #[test]
    fn cards_come_from_one_source() {
        let inventory = AgentArgs { inventory: Some(PathBuf::from("i.toml")), ..AgentArgs::default() };
        let none = AgentArgs { no_cards: true, ..AgentArgs::default() };
        let nothing = AgentArgs::default();
        assert_eq!(cards(&inventory, &file("cards = 'none'")), CardSource::Inventory(PathBuf::from("i.toml")));
        assert_eq!(cards(&none, &file("inventory = 'i.toml'")), CardSource::None);
        assert_eq!(cards(&nothing, &file("cards = 'none'")), CardSource::None);
        assert_eq!(cards(&nothing, &file("inventory = 'i.toml'")), CardSource::Inventory(PathBuf::from("i.toml")));
        assert_eq!(cards(&nothing, &file("cards = 'accelerators'")), CardSource::Accelerators);
        assert_eq!(cards(&nothing, &file("")), CardSource::Local);
    }

    #[test]
    fn workers_run_as_whom_the_flag_says_and_else_the_file() {
        let agent = AgentArgs { run_as: Some(RunAsWord::Agent), ..AgentArgs::default() };
        assert_eq!(run_as(&agent, &file("run_as = 'range'")), RunAs::Agent);
        let ranged = run_as(&AgentArgs::default(), &file("run_as = 'range'\nuser_ids = '5000:100'"));
        assert_eq!(ranged, RunAs::Range(UserIds { first: 5000, count: 100 }));
        assert_eq!(run_as(&AgentArgs::default(), &file("run_as = 'submitter'")), RunAs::Submitter { least_uid: 1000 });
        assert_eq!(run_as(&AgentArgs::default(), &file("")), RunAs::default());
        assert!(toml::from_str::<AgentFile>("user_ids = '0:5'").is_err(), "root is no worker's");
    }

    #[test]
    fn what_is_missing_is_named() {
        let refused =
            |text: &str| configured(&AgentArgs::default(), &file(text), lan).expect_err("refused").to_string();
        assert!(refused("server = ['a:1']").contains("--data-dir"));
        assert!(refused("data_dir = '/d'").contains("--server"));
        assert!(refused("data_dir = '/d'\nserver = ['nowhere']\nname = 'n'").contains("nowhere"));
    }
}
