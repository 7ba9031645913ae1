//! The control plane as it is shown.

use std::time::Duration;

use serde::Serialize;
use tessera_api::v1;

use super::shown::Shown;
use super::time::{Clock, seconds, short};
use super::words;
use crate::print::{Column, Detail, Page, Tabular};

/// A member.
pub type MemberView = Shown<v1::Member>;

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

/// The view that one member has of itself and the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberStatusView {
    /// Its address.
    pub address: String,
    /// The reason for which it could not be asked.
    pub error: Option<String>,
    /// The role of the member.
    pub role: String,
    /// The status that it reports.
    #[serde(flatten)]
    pub status: Shown<v1::GetClusterStatusResponse>,
}

impl MemberStatusView {
    /// The status that the member at `address` answered.
    #[must_use]
    pub fn answered(address: String, status: v1::GetClusterStatusResponse) -> Self {
        let role = if status.admitted { words::member_role(status.role) } else { "not admitted".to_owned() };
        Self { address, error: None, role, status: status.into() }
    }

    /// The member at `address` could not be asked.
    #[must_use]
    pub fn silent(address: String, error: String) -> Self {
        let silent = Self::answered(address, v1::GetClusterStatusResponse::default());
        Self { error: Some(error), role: "unreachable".to_owned(), ..silent }
    }

    /// Seconds by which its clock is ahead of what a quorum of the members' clocks agree on; negative: behind.
    #[must_use]
    pub fn clock_offset(&self) -> Option<f64> {
        seconds(self.status.clock_offset.as_ref())
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
        let (of, nothing) = (&self.status, || "-".to_owned());
        vec![
            known(of.member_id.to_string()),
            self.address.clone(),
            self.role.clone(),
            known(of.term.to_string()),
            of.leader.as_ref().map_or_else(nothing, |leader| leader.id.to_string()),
            known(if of.writable { "yes" } else { "no" }.to_owned()),
            known(of.committed_index.to_string()),
            known(of.applied_index.to_string()),
            known(of.snapshot_index.to_string()),
            known(of.last_index.to_string()),
            known(brief(seconds(of.uptime.as_ref()).unwrap_or_default())),
            self.clock_offset().map_or_else(nothing, |offset| format!("{offset:+.3}s")),
            known(of.version.clone()),
            known(of.highest_level.to_string()),
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
    /// True if some member accepts mutations.
    pub writable: bool,
    /// The leader in the highest term that answered.
    pub leader: Option<MemberView>,
    /// That term.
    pub term: u64,
    /// True while voters are being changed.
    pub changing_voters: bool,
    /// Voters of the cluster.
    pub voters: usize,
    /// Release level in force.
    pub level: u32,
    /// True if the settings hold it there.
    pub level_held: bool,
    /// The status of each member.
    pub members: Vec<MemberStatusView>,
}

impl ClusterView {
    /// The level in force, and what keeps it from being raised.
    fn levels(&self) -> String {
        let level = self.level;
        let announced =
            || self.members.iter().filter(|member| member.error.is_none()).map(|member| member.status.highest_level);
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
            if !member.status.refused.is_empty() {
                out.line(&member.address, format!("takes no part: {}", member.status.refused));
            }
            if member.status.clock_off {
                let offset = member.clock_offset().unwrap_or_default();
                let apart = brief(offset.abs());
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
pub type InitializedView = Shown<v1::InitializeClusterResponse>;

impl Detail for InitializedView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(format!("cluster {} is created", self.cluster_id));
        let members: Vec<MemberView> = self.members.iter().cloned().map(Into::into).collect();
        out.tabular("members", &members, clock);
    }

    fn name(&self) -> String {
        self.cluster_id.clone()
    }
}

/// Leadership that was handed over.
pub type LeaderView = Shown<v1::TransferLeadershipResponse>;

impl Detail for LeaderView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        let leader = self.leader.clone().unwrap_or_default();
        out.title(format!("member {} at {} leads in term {}", leader.id, leader.address, self.term));
    }

    fn name(&self) -> String {
        self.leader.as_ref().map_or(0, |leader| leader.id).to_string()
    }
}

fn brief(seconds: f64) -> String {
    short(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
