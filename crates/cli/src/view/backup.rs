//! Backups and clusters that begin anew, as they are shown.

use std::path::Path;

use serde::Serialize;
use tessera_controller::backup::{Begun, Counts, Kept, Survivor, Verified};

use super::time::Clock;
use crate::print::{Column, Detail, Page, Tabular};

/// A backup that is whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackupView {
    /// The file.
    pub file: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 of its content: of all bytes but the last 32, which are this hash.
    pub sha256: String,
    /// The cluster it was taken from.
    pub cluster_id: String,
    /// The release that wrote it.
    pub release: String,
    /// Release level in force.
    pub level: u32,
    /// Revision of the ledger.
    pub revision: u64,
    /// Raft term in which it was taken.
    pub term: u64,
    /// The time at which it was taken, in RFC 3339.
    pub taken_at: String,
    /// The number of objects in it, by kind.
    pub counts: Counts,
}

impl BackupView {
    /// The view of a file that was read.
    #[must_use]
    pub fn of(file: &str, verified: Verified) -> Self {
        let Verified { header, sha256, bytes } = verified;
        Self {
            file: file.to_owned(),
            bytes,
            sha256,
            cluster_id: header.cluster_id,
            release: header.release,
            level: header.level,
            revision: header.revision,
            term: header.term,
            taken_at: rfc3339(header.taken_at_ms),
            counts: header.counts,
        }
    }
}

/// A time as programs read it.
fn rfc3339(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// A backup that is kept. Whether it is whole is not known before it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptView {
    /// Its name in the folder or bucket.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The cluster it was taken from.
    pub cluster_id: String,
    /// Revision of the ledger.
    pub revision: u64,
    /// The time at which it was taken, in RFC 3339.
    pub taken_at: String,
}

impl KeptView {
    /// The views of the backups that were found, the oldest first.
    #[must_use]
    pub fn list(kept: &[Kept]) -> Vec<Self> {
        let shown = kept.iter().map(|Kept { name, header, bytes }| Self {
            name: name.clone(),
            bytes: *bytes,
            cluster_id: header.cluster_id.clone(),
            revision: header.revision,
            taken_at: rfc3339(header.taken_at_ms),
        });
        shown.collect()
    }
}

impl Tabular for KeptView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::left("BACKUP"),
            Column::left("CLUSTER"),
            Column::right("REVISION"),
            Column::right("BYTES"),
            Column::left("TAKEN"),
        ];
        COLUMNS
    }

    fn cells(&self, clock: &Clock) -> Vec<String> {
        vec![
            self.name.clone(),
            self.cluster_id.clone(),
            self.revision.to_string(),
            self.bytes.to_string(),
            format!("{} ago", clock.ago(Some(self.taken_at.as_str()))),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

fn show_counts(counts: &Counts, out: &mut Page) {
    let jobs: Vec<String> = counts.jobs.iter().map(|(state, count)| format!("{count} {state}")).collect();
    out.line("jobs", if jobs.is_empty() { "none".to_owned() } else { jobs.join(", ") });
    out.line("allocations", counts.allocations);
    out.line("nodes", counts.nodes);
    out.line("cards", counts.cards);
    out.line("queues", counts.queues);
}

impl Detail for BackupView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(format!("{} is whole", self.file));
        out.line("cluster", &self.cluster_id);
        out.line("revision", self.revision);
        out.line("term", self.term);
        out.line("taken", format!("{} ({} ago)", self.taken_at, clock.ago(Some(self.taken_at.as_str()))));
        out.line("release", format!("{}, level {}", self.release, self.level));
        show_counts(&self.counts, out);
        out.line("bytes", self.bytes);
        out.line("sha256", &self.sha256);
    }

    fn name(&self) -> String {
        self.file.clone()
    }
}

/// A cluster that began anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BegunView {
    /// Its id.
    pub cluster_id: String,
    /// The data folder of its first member.
    pub data_dir: String,
    /// The id of the cluster before.
    pub old_cluster_id: String,
    /// The folder or file that it was made of.
    pub from: String,
    /// The revision of the state that it was made of.
    pub old_revision: u64,
    /// The revision at which it begins.
    pub revision: u64,
    /// The number of objects in it, by kind.
    pub counts: Counts,
}

impl BegunView {
    /// The view of the pool that was made of `from` in `data_dir`.
    #[must_use]
    pub fn of(from: &str, data_dir: &Path, begun: Begun) -> Self {
        Self {
            cluster_id: begun.cluster_id,
            data_dir: data_dir.display().to_string(),
            old_cluster_id: begun.old_cluster_id,
            from: from.to_owned(),
            old_revision: begun.old_revision,
            revision: begun.revision,
            counts: begun.counts,
        }
    }
}

impl Detail for BegunView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        out.title(format!("cluster {} begins anew in {}", self.cluster_id, self.data_dir));
        out.line("made of", format!("{}, cluster {}", self.from, self.old_cluster_id));
        out.line("revision", format!("{}, after {}", self.revision, self.old_revision));
        show_counts(&self.counts, out);
        out.line(
            "next",
            format!(
                "start a server on {}; start every agent once with --accept-pool {}; when all",
                self.data_dir, self.cluster_id
            ),
        );
        out.line("", "nodes are back, uncordon them; add the other members, each with an empty data folder");
    }

    fn name(&self) -> String {
        self.cluster_id.clone()
    }
}

/// The log and the identity of a stopped member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SurvivorView {
    /// Its data folder.
    pub data_dir: String,
    /// Its cluster.
    pub cluster_id: String,
    /// Its id.
    pub member: u64,
    /// Term of the last entry in its log.
    pub last_term: u64,
    /// Index of the last entry in its log.
    pub last_index: u64,
    /// Last entry that it knew to be committed.
    pub committed_index: u64,
    /// True if its log goes furthest.
    pub most: bool,
}

impl SurvivorView {
    /// The survivors, and which of them has the most log.
    #[must_use]
    pub fn list(survivors: &[Survivor]) -> Vec<Self> {
        let most = survivors.iter().map(|survivor| survivor.last).max();
        let view = |survivor: &Survivor| Self {
            data_dir: survivor.data_dir.display().to_string(),
            cluster_id: survivor.cluster_id.clone(),
            member: survivor.member,
            last_term: survivor.last.0.0,
            last_index: survivor.last.1.0,
            committed_index: survivor.committed.0,
            most: Some(survivor.last) == most,
        };
        survivors.iter().map(view).collect()
    }
}

impl Tabular for SurvivorView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::left("DATA FOLDER"),
            Column::left("CLUSTER"),
            Column::right("MEMBER"),
            Column::right("LAST TERM"),
            Column::right("LAST INDEX"),
            Column::right("COMMITTED"),
            Column::left("MOST LOG"),
        ];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        vec![
            self.data_dir.clone(),
            self.cluster_id.clone(),
            self.member.to_string(),
            self.last_term.to_string(),
            self.last_index.to_string(),
            self.committed_index.to_string(),
            if self.most { "yes" } else { "no" }.to_owned(),
        ]
    }

    fn name(&self) -> String {
        self.data_dir.clone()
    }
}
