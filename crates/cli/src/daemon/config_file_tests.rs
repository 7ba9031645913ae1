use tessera_agent::AgentConfig;

use super::*;
use std::time::Duration;

fn server(text: &str) -> Result<ServerFile, Failure> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.toml");
    fs::write(&path, text).expect("written");
    load(Some(&path))
}

#[test]
fn a_file_sets_what_it_says_and_leaves_the_rest() {
    let file = server(
        "disk_reserve = '1GiB'\n[consensus]\nheartbeat = '100ms'\n[timings]\npropose = '30s'\n\
                       [limits]\nwatches = 9\nrequest_bytes = '9MiB'\n",
    )
    .expect("good");
    let plain = ServerConfig::new("/data", SocketAddr::from(([127, 0, 0, 1], 1)));
    let mut config = plain.clone();
    file.apply(&mut config);
    assert_eq!(config.disk_reserve_bytes, 1 << 30);
    assert_eq!(config.consensus.heartbeat, Duration::from_millis(100));
    assert_eq!(config.timings.propose, Duration::from_secs(30));
    assert_eq!(config.timings.check, plain.timings.check);
    assert_eq!((config.limits.watches, config.limits.request_bytes), (9, 9 << 20));
    assert_eq!(config.limits.log_streams, plain.limits.log_streams);
    assert_eq!(config.consensus.mailbox, plain.consensus.mailbox);
}

#[test]
fn errors_name_line_and_column() {
    let error = |text: &str| server(text).expect_err("refused").to_string();
    assert!(error("data_dir = 'x'\nlitsen = 1\n").contains("server.toml:2:1: unknown field `litsen`"));
    assert!(error("[timings]\ncheck = '2 sheep'\n").contains("server.toml:2:9: must be a time such as "));
    assert!(error("disk_reserve = -1\n").contains("server.toml:1:16: must not be negative, is -1"));
    assert!(error("listen = 'nowhere'\n").contains("server.toml:1:10"));
    assert!(error("data_dir = \n").contains("server.toml:1:"));
}

#[test]
fn backups_go_to_a_folder_or_to_a_url() {
    let place = |text: &str| {
        let file = server(text).expect("good");
        let mut config = ServerConfig::new("/data", SocketAddr::from(([127, 0, 0, 1], 1)));
        file.apply(&mut config);
        config.backup.expect("a plan").place.to_string()
    };
    assert_eq!(place("[backup]\ndir = '/srv/backups'\n"), "/srv/backups");
    assert_eq!(place("[backup]\nurl = 'file:///srv/backups'\n"), "/srv/backups");
    assert_eq!(place("[backup]\nurl = 's3://bucket/pool/'\nkeep = 3\n"), "s3://bucket/pool");
    let error = |text: &str| server(text).expect_err("refused").to_string();
    for both in ["[backup]\nkeep = 3\n", "[backup]\ndir = '/a'\nurl = 's3://b'\n"] {
        assert!(error(both).contains("one of `dir`"), "{}", error(both));
    }
    assert!(error("[backup]\nurl = 'ftp://b'\n").contains("s3://bucket/prefix"));
    assert!(error("[backup]\nurl = '/srv/backups'\n").contains("no URL"));
}

#[test]
fn an_agent_has_its_own_fields() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("agent.toml");
    fs::write(
        &path,
        "name = 'node-a'\ncards = 'none'\ndata_dirs = ['/srv/data']\ndata_scan = '5s'\n\
                [host]\ncpus = 30\nreserved_memory = '2GiB'\n[labels]\nrack = '7'\n[limits]\noutput_file = '4MiB'\n\
                processes_per_worker = 500\nlog_streams = 3\nsilence = '4s'\n",
    )
    .expect("written");
    let file: AgentFile = load(Some(&path)).expect("good");
    let mut config = AgentConfig::new("x", "/data", Vec::new());
    file.apply(&mut config);
    assert_eq!((config.limits.output_file_bytes, config.limits.processes_per_worker), (4 << 20, 500));
    assert_eq!((config.limits.log_streams, config.limits.seats.silence), (3, Duration::from_secs(4)));
    assert_eq!(config.data_dirs, [PathBuf::from("/srv/data")]);
    assert_eq!(config.data_scan, Duration::from_secs(5));
    assert_eq!((config.host.cpu.map(|cpu| cpu.0), config.host.memory), (Some(30_000), None));
    assert_eq!(config.host.reserved_memory.0, 2048);
    assert_eq!(file.cards, Some(CardsWord::None));
    assert_eq!(file.labels.get("rack").map(String::as_str), Some("7"));
}
