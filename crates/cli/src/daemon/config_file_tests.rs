use tessera_agent::AgentConfig;

use super::*;
use crate::daemon::{agent_config, member_config};
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

/// A field of a member's file with a value that is not its default, and the lines that it needs beside it.
const OF_MEMBERS: &[(&str, &str, &str)] = &[
    ("member.data_dir", "'/other'", ""),
    ("member.listen", "'127.0.0.1:7999'", ""),
    ("member.advertise", "'localhost:7400'", ""),
    ("member.name", "'first'", ""),
    ("member.http", "'127.0.0.1:7401'", ""),
    ("member.http_names", "['pool.example']", ""),
    ("member.disk_reserve", "'1GiB'", ""),
    ("member.session_outbox", "99", ""),
    ("member.log.filter", "'off'", ""),
    ("member.log.format", "'text'", ""),
    ("member.log.otlp_endpoint", "'http://127.0.0.1:4317'", ""),
    ("member.consensus.heartbeat", "'41ms'", ""),
    ("member.consensus.election_timeout_min", "'110ms'", ""),
    ("member.consensus.election_timeout_max", "'230ms'", ""),
    ("member.consensus.stagger", "'21ms'", ""),
    ("member.consensus.snapshot_entries", "30000", ""),
    ("member.consensus.snapshot_size", "'65MiB'", ""),
    ("member.consensus.keep_entries", "6000", ""),
    ("member.consensus.keep_size", "'33MiB'", ""),
    ("member.consensus.max_batch_commands", "512", ""),
    ("member.consensus.max_in_flight", "5", ""),
    ("member.consensus.mailbox", "20000", ""),
    ("member.consensus.mailbox_size", "'65MiB'", ""),
    ("member.consensus.max_clock_offset", "'11s'", ""),
    ("member.timings.check", "'400ms'", ""),
    ("member.timings.propose", "'6s'", ""),
    ("member.mass_loss.share_percent", "34", ""),
    ("member.mass_loss.window", "'61s'", ""),
    ("member.limits.connections", "99", ""),
    ("member.limits.silence", "'11s'", ""),
    ("member.limits.requests", "99", ""),
    ("member.limits.request_bytes", "'65MiB'", ""),
    ("member.limits.watches", "99", ""),
    ("member.limits.watch_bytes", "'65MiB'", ""),
    ("member.limits.log_streams", "99", ""),
    ("member.limits.submission_streams", "99", ""),
    ("member.limits.verifications", "99", ""),
    ("member.backup.dir", "'/backups'", ""),
    ("member.backup.url", "'s3://bucket/pool'", ""),
    ("member.backup.interval", "'2h'", "backup.dir = '/backups'"),
    ("member.backup.keep", "7", "backup.dir = '/backups'"),
    ("member.backup.max_age", "'3d'", "backup.dir = '/backups'"),
    ("member.usage.retention", "'401d'", ""),
    ("member.usage.currency", "'EUR'", ""),
    ("member.usage.prices", "{ gpu = 0.5 }", ""),
];

/// The same of an agent's file.
const OF_AGENTS: &[(&str, &str, &str)] = &[
    ("agent.name", "'other'", ""),
    ("agent.data_dir", "'/other'", ""),
    ("agent.server", "['127.0.0.1:7401']", ""),
    ("agent.listen", "'127.0.0.1:7410'", ""),
    ("agent.advertise", "'localhost:7410'", ""),
    ("agent.http", "'127.0.0.1:7411'", ""),
    ("agent.http_names", "['node.example']", ""),
    ("agent.worker_host", "'localhost'", ""),
    ("agent.cards", "'none'", ""),
    ("agent.inventory", "'/cards.toml'", ""),
    ("agent.cgroup_root", "'other/group'", ""),
    ("agent.run_as", "'submitter'", ""),
    ("agent.user_ids", "'5000:100'", "run_as = 'range'"),
    ("agent.least_uid", "2000", "run_as = 'submitter'"),
    ("agent.worker_groups", "['video']", ""),
    ("agent.data_dirs", "['/sets']", ""),
    ("agent.data_scan", "'5s'", ""),
    ("agent.host.cpus", "3", ""),
    ("agent.host.memory", "'5GiB'", ""),
    ("agent.host.reserved_cpus", "2", ""),
    ("agent.host.reserved_memory", "'2GiB'", ""),
    ("agent.labels", "{ rack = '7' }", ""),
    ("agent.log.filter", "'off'", ""),
    ("agent.log.format", "'text'", ""),
    ("agent.log.otlp_endpoint", "'http://127.0.0.1:4317'", ""),
    ("agent.checkpoints.store", "'file:///srv/shared'", ""),
    ("agent.checkpoints.bytes_per_second", "'1MiB'", ""),
    ("agent.checkpoints.criu", "'/opt/criu'", ""),
    ("agent.device.python", "'/opt/python'", ""),
    ("agent.device.build", "'/opt/torch'", ""),
    ("agent.device.environment", "{ GLOO_SOCKET_IFNAME = 'eth1' }", ""),
    ("agent.device.start_within", "'5s'", ""),
    ("agent.device.host_lease", "'7s'", ""),
    ("agent.time_slicing.round", "'200ms'", ""),
    ("agent.time_slicing.quantum", "'5ms'", ""),
    ("agent.time_slicing.accelerators", "'freeze'", ""),
    ("agent.limits.output_file", "'4MiB'", ""),
    ("agent.limits.output_files", "7", ""),
    ("agent.limits.output_retention", "'3d'", ""),
    ("agent.limits.ended_disk", "'4GiB'", ""),
    ("agent.limits.ended_least_free", "9", ""),
    ("agent.limits.kill_confirmation", "'5s'", ""),
    ("agent.limits.longest_lease", "'5min'", ""),
    ("agent.limits.processes_per_worker", "500", ""),
    ("agent.limits.connections", "99", ""),
    ("agent.limits.silence", "'11s'", ""),
    ("agent.limits.log_streams", "99", ""),
];

/// Fails for a field that changes nothing of what `read` says of a file. `must` are the lines of every file.
fn each_changes_something(
    fields: &[(&str, &str, &str)],
    must: &[&str],
    read: impl Fn(&Path) -> Result<String, Failure>,
) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("process.toml");
    let said = |lines: &[&str]| {
        fs::write(&path, lines.join("\n")).expect("written");
        read(&path).unwrap_or_else(|failure| panic!("{lines:?}: {failure}"))
    };
    for (name, value, beside) in fields {
        let field = name.split_once('.').expect("whose it is").1;
        let line = format!("{field} = {value}");
        let others: Vec<&str> = must.iter().copied().filter(|other| !other.starts_with(&format!("{field} "))).collect();
        let without = said(&[must, &[*beside]].concat());
        assert_ne!(said(&[&others[..], &[*beside, line.as_str()]].concat()), without, "{name}");
    }
}

#[test]
fn every_field_of_a_member_changes_something() {
    each_changes_something(OF_MEMBERS, &["data_dir = '/data'"], |path| {
        let file: ServerFile = load(Some(path))?;
        Ok(format!("{:?} {:?}", member_config(path)?, file.log))
    });
}

#[test]
fn every_field_of_an_agent_changes_something() {
    let must = ["name = 'n'", "data_dir = '/data'", "server = ['127.0.0.1:7400']"];
    each_changes_something(OF_AGENTS, &must, |path| {
        let file: AgentFile = load(Some(path))?;
        Ok(format!("{:?} {:?}", agent_config(path)?, file.log))
    });
}
