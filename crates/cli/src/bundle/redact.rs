//! Configuration without secrets: only fields on a list keep their values.
//!
//! The list says what may be seen, not what may not: a field that a later release adds is withheld until somebody puts
//! it here, and what is no field at all, such as a label, is withheld always.

use toml::Value;

/// The placeholder for a value that is withheld.
pub const WITHHELD: &str = "<withheld>";

/// Fields whose values may be seen, with the sections that they are in.
const SHOWN: &[&str] = &[
    "advertise",
    "cards",
    "cgroup_root",
    "checkpoints.bytes_per_second",
    "checkpoints.store",
    "consensus.election_timeout_max",
    "consensus.election_timeout_min",
    "consensus.heartbeat",
    "consensus.keep_entries",
    "consensus.keep_size",
    "consensus.mailbox",
    "consensus.mailbox_size",
    "consensus.max_batch_commands",
    "consensus.max_clock_offset",
    "consensus.max_in_flight",
    "consensus.snapshot_entries",
    "consensus.snapshot_size",
    "consensus.stagger",
    "data_dir",
    "data_scan",
    "disk_reserve",
    "host.cpus",
    "host.memory",
    "host.reserved_cpus",
    "host.reserved_memory",
    "http",
    "http_names",
    "inventory",
    "least_uid",
    "limits.connections",
    "limits.kill_confirmation",
    "limits.log_streams",
    "limits.longest_lease",
    "limits.output_file",
    "limits.output_files",
    "limits.output_retention",
    "limits.processes_per_worker",
    "limits.request_bytes",
    "limits.requests",
    "limits.silence",
    "limits.submission_streams",
    "limits.verifications",
    "limits.watch_bytes",
    "limits.watches",
    "listen",
    "log.filter",
    "log.format",
    "mass_loss.share_percent",
    "mass_loss.window",
    "name",
    "run_as",
    "server",
    "session_outbox",
    "time_slicing.quantum",
    "time_slicing.round",
    "timings.check",
    "timings.propose",
    "user_ids",
    "worker_groups",
    "worker_host",
];

/// A configuration file with everything withheld that is not on the list; comments are gone as well.
///
/// # Errors
/// When it is no TOML; nothing of it is shown then.
pub fn redact(text: &str) -> Result<String, String> {
    let mut value: Value = toml::from_str(text).map_err(|error| format!("it is no TOML ({:?})", error.span()))?;
    withhold(&mut value, "");
    toml::to_string_pretty(&value).map_err(|error| error.to_string())
}

fn withhold(value: &mut Value, path: &str) {
    if SHOWN.contains(&path) {
        return;
    }
    match value {
        Value::Table(table) => {
            for (name, value) in table.iter_mut() {
                withhold(value, &if path.is_empty() { name.clone() } else { format!("{path}.{name}") });
            }
        }
        other => *other = Value::String(WITHHELD.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_the_list_is_seen() {
        let text = "# s3cret in a comment\ndata_dir = '/d'\nserver = ['a:1']\nnew_field = 's3cret'\n\
                    [log]\nfilter = 'info'\notlp_endpoint = 'http://user:s3cret@collector'\n\
                    [labels]\nname = 's3cret'\n[consensus]\nheartbeat = '50ms'\n[[more]]\ntoken = 's3cret'\n";
        let shown = redact(text).expect("TOML");
        assert!(!shown.contains("s3cret"), "{shown}");
        for kept in ["/d", "a:1", "info", "50ms", "new_field", "otlp_endpoint"] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        let error = redact("token = 's3cret\n").expect_err("refused");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
