//! The control plane as it is shown.

use serde::Serialize;
use tessera_api::v1;

use super::time::{Clock, seconds};
use super::words;
use crate::print::{Column, Detail, Page, Tabular};

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberView {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Whether it has a vote.
    pub voter: bool,
    /// Whether it leads.
    pub leader: bool,
    /// Entries it lacks; unknown unless the leader answered.
    pub lag: Option<u64>,
}

impl From<v1::Member> for MemberView {
    fn from(member: v1::Member) -> Self {
        Self {
            id: member.id,
            name: member.name,
            address: member.address,
            voter: member.voter,
            leader: member.leader,
            lag: member.lag,
        }
    }
}

impl Tabular for MemberView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::right("MEMBER"),
            Column::left("NAME"),
            Column::left("ADDRESS"),
            Column::left("VOTE"),
            Column::left("LEADS"),
            Column::right("LAG"),
        ];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        let yes = |it: bool| if it { "yes" } else { "no" }.to_owned();
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.address.clone(),
            yes(self.voter),
            yes(self.leader),
            self.lag.map_or_else(|| "-".to_owned(), |lag| lag.to_string()),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

/// How one member sees itself and the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberStatusView {
    /// Its address.
    pub address: String,
    /// Why it could not be asked.
    pub error: Option<String>,
    /// Its id; 0 before it is admitted.
    pub id: u64,
    /// What it does.
    pub role: String,
    /// Its term.
    pub term: u64,
    /// Id of the leader it knows.
    pub leader: Option<u64>,
    /// Whether mutations are accepted through it.
    pub writable: bool,
    /// Last entry in its log.
    pub last_index: u64,
    /// Last entry it knows to be committed.
    pub committed_index: u64,
    /// Last entry it applied.
    pub applied_index: u64,
    /// Last entry in its newest snapshot.
    pub snapshot_index: u64,
    /// Seconds since it last knew that it was current.
    pub staleness_seconds: f64,
    /// Its release.
    pub version: String,
    /// Release level in force, as far as it has applied.
    pub level: u32,
    /// The highest release level that it can apply.
    pub highest_level: u32,
    /// Seconds it has been up.
    pub uptime_seconds: f64,
    /// Seconds by which its clock is ahead of what a quorum of the members' clocks agree on; negative: behind.
    pub clock_offset_seconds: Option<f64>,
    /// Whether that is too much, so that it hands leadership over.
    pub clock_off: bool,
}

impl MemberStatusView {
    /// What the member at `address` answered.
    #[must_use]
    pub fn answered(address: String, status: &v1::GetClusterStatusResponse) -> Self {
        Self {
            address,
            error: None,
            id: status.member_id,
            role: if status.admitted { words::member_role(status.role) } else { "not admitted".to_owned() },
            term: status.term,
            leader: status.leader.as_ref().map(|leader| leader.id),
            writable: status.writable,
            last_index: status.last_index,
            committed_index: status.committed_index,
            applied_index: status.applied_index,
            snapshot_index: status.snapshot_index,
            staleness_seconds: seconds(status.staleness.as_ref()).unwrap_or_default(),
            version: status.version.clone(),
            level: status.level,
            highest_level: status.highest_level,
            uptime_seconds: seconds(status.uptime.as_ref()).unwrap_or_default(),
            clock_offset_seconds: seconds(status.clock_offset.as_ref()),
            clock_off: status.clock_off,
        }
    }

    /// The member at `address` could not be asked.
    #[must_use]
    pub fn silent(address: String, error: String) -> Self {
        let silent = Self::answered(address, &v1::GetClusterStatusResponse::default());
        Self { error: Some(error), role: "unreachable".to_owned(), ..silent }
    }
}

impl Tabular for MemberStatusView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::right("MEMBER"),
            Column::left("ADDRESS"),
            Column::state("ROLE"),
            Column::right("TERM"),
            Column::right("LEADER"),
            Column::left("WRITABLE"),
            Column::right("COMMITTED"),
            Column::right("APPLIED"),
            Column::right("SNAPSHOT"),
            Column::wide("LAST"),
            Column::wide("UP"),
            Column::wide("CLOCK"),
            Column::wide("VERSION"),
            Column::right("HIGHEST LEVEL"),
            Column::wide("ERROR"),
        ];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        let known = |value: String| if self.error.is_some() { "-".to_owned() } else { value };
        vec![
            known(self.id.to_string()),
            self.address.clone(),
            self.role.clone(),
            known(self.term.to_string()),
            self.leader.map_or_else(|| "-".to_owned(), |leader| leader.to_string()),
            known(if self.writable { "yes" } else { "no" }.to_owned()),
            known(self.committed_index.to_string()),
            known(self.applied_index.to_string()),
            known(self.snapshot_index.to_string()),
            known(self.last_index.to_string()),
            known(super::time::short(std::time::Duration::try_from_secs_f64(self.uptime_seconds).unwrap_or_default())),
            self.clock_offset_seconds.map_or_else(|| "-".to_owned(), |offset| format!("{offset:+.3}s")),
            known(self.version.clone()),
            known(self.highest_level.to_string()),
            self.error.clone().unwrap_or_default(),
        ]
    }

    fn name(&self) -> String {
        self.address.clone()
    }
}

/// The cluster, as its members see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterView {
    /// Identity of the cluster; empty before it exists.
    pub cluster_id: String,
    /// Whether some member accepts mutations.
    pub writable: bool,
    /// The leader in the highest term that answered.
    pub leader: Option<MemberView>,
    /// That term.
    pub term: u64,
    /// Whether voters are being changed.
    pub changing_voters: bool,
    /// Voters of the cluster.
    pub voters: usize,
    /// Release level in force.
    pub level: u32,
    /// Whether the settings hold it there.
    pub level_held: bool,
    /// What each member says.
    pub members: Vec<MemberStatusView>,
}

impl ClusterView {
    /// The level in force, and what keeps it from being raised.
    fn levels(&self) -> String {
        let level = self.level;
        let announced =
            || self.members.iter().filter(|member| member.error.is_none()).map(|member| member.highest_level);
        let (lowest, highest) = (announced().min().unwrap_or(level), announced().max().unwrap_or(level));
        if highest <= level {
            return level.to_string();
        }
        let held = "let go of it with `tessera pool config set --hold-level false`";
        match (self.level_held, self.members.iter().any(|member| member.error.is_some())) {
            _ if lowest < highest => format!("{level}; not every member can apply {highest} yet"),
            (_, true) => format!("{level}; raised to {highest} when every member answers and can apply it"),
            (true, false) => format!("{level}, held; every member can apply {highest}: {held}"),
            (false, false) => format!("{level}; about to be raised to {highest}"),
        }
    }
}

impl Detail for ClusterView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        match self.cluster_id.as_str() {
            "" => out.title("no cluster yet".to_owned()),
            id => out.title(format!("cluster {id}")),
        }
        let leader = self.leader.as_ref();
        let leader = leader.map(|of| format!("member {} at {} in term {}", of.id, of.address, self.term));
        out.line("leader", leader.unwrap_or_else(|| "none".to_owned()));
        out.line("writable", if self.writable { "yes" } else { "no" });
        out.line("voters", self.voters);
        out.line("release level", self.levels());
        if self.changing_voters {
            out.line("membership", "being changed right now");
        }
        out.tabular("members", &self.members, clock);
        for member in &self.members {
            if let Some(error) = &member.error {
                out.line(&member.address, error);
            }
            if member.clock_off {
                let offset = member.clock_offset_seconds.unwrap_or_default();
                let apart =
                    super::time::short(std::time::Duration::try_from_secs_f64(offset.abs()).unwrap_or_default());
                let way = if offset < 0.0 { "behind" } else { "ahead" };
                out.line(
                    &member.address,
                    format!("its clock is {apart} {way}: set it right; it hands leadership over"),
                );
            }
        }
    }

    fn name(&self) -> String {
        self.cluster_id.clone()
    }
}

/// A cluster that was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InitializedView {
    /// Its identity.
    pub cluster_id: String,
    /// Its members.
    pub members: Vec<MemberView>,
}

impl Detail for InitializedView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(format!("cluster {} is created", self.cluster_id));
        out.tabular("members", &self.members, clock);
    }

    fn name(&self) -> String {
        self.cluster_id.clone()
    }
}

/// Leadership that was handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaderView {
    /// The new leader.
    pub leader: MemberView,
    /// Its term.
    pub term: u64,
}

impl Detail for LeaderView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        out.title(format!("member {} at {} leads in term {}", self.leader.id, self.leader.address, self.term));
    }

    fn name(&self) -> String {
        self.leader.id.to_string()
    }
}
