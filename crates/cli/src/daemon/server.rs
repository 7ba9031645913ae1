//! `tessera server`: a member of the control plane.

use std::net::SocketAddr;
use std::path::PathBuf;

use tessera_controller::{RunError, ServerConfig};
use tessera_ledger::Level;

use super::config_file::{ServerFile, load};
use super::{logging, shutdown};
use crate::args::ServerArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// Where a member listens when nothing is said.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7400);

/// Runs a member until it is told to end or must end.
///
/// # Errors
/// The [`Failure`] to be shown.
pub async fn server(args: ServerArgs) -> Result<Exit, Failure> {
    let file: ServerFile = load(args.config.as_deref())?;
    let traces = logging::start("tessera-server", &args.logging, &file.log)?;
    let config = configured(&args, &file)?;
    let token = shutdown::on_signals()?;
    without_huge_pages();
    if args.stop_with_stdin {
        shutdown::with_stdin(&token);
    }
    tracing::info!(data_dir = %config.data_dir.display(), listen = %config.listen, advertise = config.advertise, "a member starts");
    let ended = tessera_controller::run(config, token).await;
    if let Err(error) = &ended {
        tracing::error!(error = crate::failure::chain(error), "the member ended");
    }
    traces.finish().await;
    ended.map_err(|error| failure(&error))?;
    Ok(Exit::Done)
}

/// Tells the kernel not to back this process with huge pages. The ledger's memory grows by small pieces all over the address space;
/// with a huge page behind each of them, a fifth of a busy member's time goes into clearing what is never used.
fn without_huge_pages() {
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(%error, "the kernel may back this process with huge pages: writing will take a little longer");
    }
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
    if let Some(advertise) = args.advertise.clone().or_else(|| file.advertise.clone()) {
        config.advertise = advertise;
    }
    if let Some(name) = args.name.clone().or_else(|| file.name.clone()) {
        config.name = name;
    }
    if args.drill_next_level {
        config.highest_level = Level::Drill;
    }
    if config.advertise == listen.to_string() && (listen.ip().is_unspecified() || listen.port() == 0) {
        let why = format!("others cannot reach it at {listen}");
        return Err(Failure::new(Exit::Usage, "the member was not started", why)
            .next("give --advertise HOST:PORT, as members, agents and clients reach this machine"));
    }
    config.validate().map_err(|error| Failure::from_error(Exit::Usage, "the member was not started", &error))?;
    Ok(config)
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
    fn what_cannot_work_is_refused_before_anything_is_touched() {
        let refused = |text: &str| configured(&ServerArgs::default(), &file(text)).expect_err("refused");
        assert!(refused("").to_string().contains("--data-dir"));
        assert!(refused("data_dir = '/d'\nlisten = '0.0.0.0:7400'").to_string().contains("--advertise"));
        let timings = refused("data_dir = '/d'\n[timings]\nheartbeat = '8s'");
        assert!(timings.to_string().contains("three heartbeats"), "{timings}");
        assert_eq!(timings.exit, Exit::Usage);
    }
}
