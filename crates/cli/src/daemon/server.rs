//! `tessera server`: a member of the control plane.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tessera_actor::Pulse;
use tessera_agent::place::{self, PlaceError};
use tessera_client::Address;
use tessera_client::reach::{Scope, source_towards_strangers};
use tessera_ledger::Level;
use tessera_server::{RunError, ServerConfig};

use super::config_file::{ServerFile, load, tell_configuration};
use super::notify::ServiceManager;
use super::{logging, shutdown};
use crate::args::ServerArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// The default address that a member listens at.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7400);

/// Runs a member until it is told to end or must end.
///
/// # Errors
/// The [`Failure`] to be shown.
pub async fn server(args: ServerArgs) -> Result<Exit, Failure> {
    let file: ServerFile = load(args.config.as_deref())?;
    let config = configured(&args, &file)?;
    let told = logging::start("tessera-server", &config.advertise, &args.logging, &file.log)?;
    tell_configuration(args.config.as_deref());
    let token = shutdown::on_signals()?;
    let config = with_files_for_connections(config);
    if args.stop_with_stdin {
        shutdown::with_stdin(&token);
    }
    tracing::info!(data_dir = %config.data_dir.display(), listen = %config.listen, advertise = config.advertise, "a member starts");
    let ended = match place::take(&config.data_dir, args.moved_data_dir) {
        Ok(()) => {
            let pulse = Pulse::default();
            let manager = ServiceManager::told(&pulse, &token);
            let ended = tessera_server::run(config, pulse, token).await;
            manager.finish().await;
            ended.map_err(|error| failure(&error))
        }
        Err(error) => Err(misplaced(&error)),
    };
    if let Err(failure) = &ended {
        tracing::error!(error = failure.why, "the member ended");
    }
    told.finish().await;
    ended.map(|()| Exit::Done)
}

/// Files that a member has open beside its connections of clients: those of its store, its logs, its connections to
/// others, and those that its pages are asked over.
const FILES_BESIDE: u64 = 1_280;

/// Raises the number of files that this process may have open as far as it may, and lowers the limit of connections
/// when even that is too little for it: a member that cannot open a file of its store stops.
fn with_files_for_connections(mut config: ServerConfig) -> ServerConfig {
    let files = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((now, most)) if now < most && setrlimit(Resource::RLIMIT_NOFILE, most, most).is_ok() => most,
        Ok((now, _)) => now,
        Err(error) => {
            tracing::warn!(%error, "the number of files that may be open is not known");
            return config;
        }
    };
    let fit = connections_for(files);
    if fit < config.limits.connections {
        tracing::warn!(
            files,
            wanted = config.limits.connections,
            connections = fit,
            "too few files may be open for so many connections of clients; raise LimitNOFILE of the unit, or `ulimit -n`"
        );
        config.limits.connections = fit;
    }
    config
}

/// The connections of clients that a process that may open so many files can keep, half of the files left to agents
/// and members.
pub(crate) fn connections_for(files: u64) -> usize {
    usize::try_from(files.saturating_sub(FILES_BESIDE.min(files / 2)) / 2).unwrap_or(usize::MAX).max(16)
}

/// The configuration of the member whose file this is.
///
/// # Errors
/// A [`Failure`] when such a member does not start.
pub fn member_config(path: &Path) -> Result<ServerConfig, Failure> {
    configured(&ServerArgs::default(), &load::<ServerFile>(Some(path))?)
}

/// Flags before the file before the defaults.
fn configured(args: &ServerArgs, file: &ServerFile) -> Result<ServerConfig, Failure> {
    let data_dir: Option<PathBuf> = args.data_dir.clone().or_else(|| file.data_dir.clone());
    let data_dir = data_dir.ok_or_else(|| {
        Failure::new(Exit::Usage, "the member was not started", "no data folder is named")
            .next("give --data-dir DIR, or `data_dir` in the configuration file")
    })?;
    let listen = args.listen.or(file.listen).unwrap_or(DEFAULT_LISTEN);
    let mut config = ServerConfig::new(data_dir, listen);
    file.apply(&mut config);
    config.http = args.http.or(file.http);
    config.clock_offset_ms = args.clock_offset.unwrap_or_default();
    if let Some(advertise) = args.advertise.clone().or_else(|| file.advertise.clone()) {
        config.advertise = advertise.parse::<Address>().map_or(advertise, |address| address.to_string());
    }
    if let Some(name) = args.name.clone().or_else(|| file.name.clone()) {
        config.name = name;
    }
    reachable(&config)?;
    if args.drill_next_level {
        config.highest_level = Level::Drill;
    }
    config.validate().map_err(|error| Failure::from_error(Exit::Usage, "the member was not started", &error))?;
    Ok(config)
}

/// Refuses an address under which others would not find this member.
fn reachable(config: &ServerConfig) -> Result<(), Failure> {
    let (listen, advertise) = (config.listen, &config.advertise);
    let scope = advertise.parse::<Address>().map(|address| Scope::of(address.host()));
    let why = match scope {
        Err(_) | Ok(Scope::Nobody) => format!("others cannot reach it at {advertise}"),
        Ok(Scope::SameHost) if listen.ip().is_unspecified() => {
            format!("it listens for other hosts at {listen}, and {advertise} would lead each of them to itself")
        }
        Ok(Scope::SameHost | Scope::Others) => return Ok(()),
    };
    let port = if listen.port() == 0 { DEFAULT_LISTEN.port() } else { listen.port() };
    let example = source_towards_strangers().map(|own| format!(", perhaps {}", SocketAddr::new(own, port)));
    let next = "give --advertise HOST:PORT, as members, agents and clients reach this machine";
    Err(Failure::new(Exit::Usage, "the member was not started", why)
        .next(format!("{next}{}", example.unwrap_or_default())))
}

fn failure(error: &RunError) -> Failure {
    let exit = match error {
        RunError::Config(_) => Exit::Usage,
        _ => Exit::Failed,
    };
    let failure = Failure::from_error(exit, "the member ended", error);
    match error {
        RunError::Store(_) | RunError::Stopped(_) => failure
            .next("docs/operations.md says how to replace a member; the others go on as long as most of them run"),
        RunError::Listen { .. } => failure.next("choose another address with --listen, or end the process that has it"),
        _ => failure,
    }
}

fn misplaced(error: &PlaceError) -> Failure {
    let failure = Failure::from_error(Exit::Failed, "the member was not started", error);
    match error {
        PlaceError::Copied(_) | PlaceError::Damaged { .. } => failure.next(
            "a member may still run as the same one elsewhere, and two of them lose what was acknowledged: empty this \
             folder to make it a member of its own, or, if the other folder is not used any more, start the member \
             once with --moved-data-dir",
        ),
        PlaceError::File { .. } => failure.next("see to it that the data folder can be written, and start it again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> ServerFile {
        toml::from_str(text).expect("a good file")
    }

    #[test]
    fn a_flag_goes_before_the_file_before_the_default() {
        let flags = ServerArgs { listen: Some("127.0.0.1:9".parse().expect("good")), ..ServerArgs::default() };
        let both = configured(&flags, &file("data_dir = '/d'\nlisten = '127.0.0.1:8'\nname = 'm'")).expect("good");
        assert_eq!((both.listen.port(), both.name.as_str(), both.advertise.as_str()), (9, "m", "127.0.0.1:9"));
        let neither = configured(&ServerArgs::default(), &file("data_dir = '/d'")).expect("good");
        assert_eq!(neither.listen, DEFAULT_LISTEN);
    }

    #[test]
    fn connections_leave_files_to_everything_else() {
        assert_eq!([1_024, 4_096, 1 << 20].map(connections_for), [256, 1_408, 523_648]);
        assert_eq!(connections_for(0), 16);
    }

    #[test]
    fn what_cannot_work_is_refused_before_anything_is_touched() {
        let refused = |text: &str| configured(&ServerArgs::default(), &file(text)).expect_err("refused");
        assert!(refused("").to_string().contains("--data-dir"));
        assert!(refused("data_dir = '/d'\nlisten = '0.0.0.0:7400'").to_string().contains("--advertise"));
        for advertise in ["127.0.0.1:7400", "localhost:7400", "0.0.0.0:7400", "10.0.0.1:0", "10.0.0.1"] {
            let text = format!("data_dir = '/d'\nlisten = '0.0.0.0:7400'\nadvertise = '{advertise}'");
            assert!(refused(&text).to_string().contains("--advertise"), "{advertise}");
        }
        let good = "data_dir = '/d'\nlisten = '0.0.0.0:7400'\nadvertise = ' m1.example:7400'";
        assert!(configured(&ServerArgs::default(), &file(good)).is_ok());
        let timings = refused("data_dir = '/d'\n[timings]\ncheck = '8s'");
        assert!(timings.to_string().contains("at most a second"), "{timings}");
        assert_eq!(timings.exit, Exit::Usage);
    }
}
