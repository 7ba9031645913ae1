//! The pool in numbers, and the verdict on its laws.

use std::collections::BTreeMap;

use serde::Serialize;
use tessera_api::v1;

use super::job::tflops;
use super::shown::Shown;
use super::time::Clock;
use super::words;
use crate::print::{Detail, Page};

/// Blocks by state (law L1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlocksView {
    /// All of them.
    pub total: u64,
    /// Nobody holds them.
    pub free: u64,
    /// Granted, not confirmed.
    pub held: u64,
    /// Computed on.
    pub running: u64,
    /// Their owners were told to stop.
    pub draining: u64,
    /// Nobody knows.
    pub lost: u64,
    /// Not usable.
    pub offline: u64,
}

impl From<v1::BlockCounts> for BlocksView {
    fn from(counts: v1::BlockCounts) -> Self {
        let v1::BlockCounts { free, held, running, draining, lost, offline } = counts;
        let total = free + held + running + draining + lost + offline;
        Self { total, free, held, running, draining, lost, offline }
    }
}

impl BlocksView {
    pub(super) fn cells(&self) -> Vec<String> {
        [self.total, self.free, self.held, self.running, self.draining, self.lost, self.offline]
            .map(|count| count.to_string())
            .to_vec()
    }
}

/// The pool in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolView {
    /// Identity of the cluster.
    pub cluster_id: String,
    /// Size of a block in TFLOPS.
    pub block_tflops: f64,
    /// In this precision.
    pub reference_precision: String,
    /// All blocks.
    pub blocks: BlocksView,
    /// By kind of card.
    pub kinds: Vec<KindView>,
    /// Nodes by state.
    pub nodes: BTreeMap<String, u64>,
    /// Jobs by state.
    pub jobs: BTreeMap<String, u64>,
    /// Revision that the numbers reflect.
    pub revision: u64,
    /// How old they may be, in seconds.
    pub age_seconds: f64,
}

/// The cards of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindView {
    /// The kind.
    pub kind: String,
    /// Its cards.
    pub cards: u64,
    /// Their blocks.
    pub blocks: BlocksView,
    /// Their memory.
    pub memory_mib: u64,
    /// Memory in use.
    pub memory_used_mib: u64,
}

impl From<v1::GetPoolResponse> for PoolView {
    fn from(response: v1::GetPoolResponse) -> Self {
        let pool = response.pool.unwrap_or_default();
        let read = response.read.unwrap_or_default();
        let config = pool.config.unwrap_or_default();
        Self {
            cluster_id: pool.cluster_id,
            block_tflops: tflops(config.block_milli_tflops),
            reference_precision: words::precision(config.reference_precision),
            blocks: pool.blocks.unwrap_or_default().into(),
            kinds: pool.kinds.into_iter().map(Into::into).collect(),
            nodes: pool.nodes.iter().map(|count| (words::node_state(count.state), count.count)).collect(),
            jobs: pool.jobs.iter().map(|count| (words::job_state(count.state), count.count)).collect(),
            revision: read.revision,
            age_seconds: super::time::seconds(read.age.as_ref()).unwrap_or_default(),
        }
    }
}

impl From<v1::KindSummary> for KindView {
    fn from(kind: v1::KindSummary) -> Self {
        Self {
            kind: words::kind(kind.kind),
            cards: kind.cards,
            blocks: kind.blocks.unwrap_or_default().into(),
            memory_mib: kind.memory_mib,
            memory_used_mib: kind.memory_used_mib,
        }
    }
}

impl Detail for PoolView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        let counts = |of: &BTreeMap<String, u64>| {
            let parts: Vec<String> =
                of.iter().filter(|(_, count)| **count > 0).map(|(state, count)| format!("{count} {state}")).collect();
            if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
        };
        out.title(format!("pool {}", self.cluster_id));
        out.line("block", format!("{} TFLOPS {}", self.block_tflops, self.reference_precision));
        out.line("nodes", counts(&self.nodes));
        out.line("jobs", counts(&self.jobs));
        if self.age_seconds > 0.0 {
            out.line("read", format!("stale, at most {:.1} s old", self.age_seconds));
        }
        let row = |kind: &str, cards: String, blocks: &BlocksView, memory: String| {
            [vec![kind.to_owned(), cards], blocks.cells(), vec![memory]].concat()
        };
        let kinds = self.kinds.iter().map(|kind| {
            let memory = format!("{}/{} MiB", kind.memory_used_mib, kind.memory_mib);
            row(&kind.kind, kind.cards.to_string(), &kind.blocks, memory)
        });
        let cards: u64 = self.kinds.iter().map(|kind| kind.cards).sum();
        let all = row("all", cards.to_string(), &self.blocks, String::new());
        out.table(
            &["KIND", "CARDS", "BLOCKS", "FREE", "HELD", "RUNNING", "DRAINING", "LOST", "OFFLINE", "MEMORY"],
            kinds.chain([all]),
        );
    }

    fn name(&self) -> String {
        format!("pool/{}", self.cluster_id)
    }
}

/// The verdict on the laws, by every member.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifyView {
    /// Whether all laws hold everywhere and no two members differ.
    pub ok: bool,
    /// What each member says.
    pub members: Vec<MemberVerdictView>,
    /// Members whose states differ at the same revision (law L8).
    pub differing: Vec<String>,
}

/// What one member says of the laws.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberVerdictView {
    /// Its address.
    pub member: String,
    /// The revision it checked.
    pub revision: u64,
    /// Digest of all outcomes up to there.
    pub digest: String,
    /// Its blocks, counted anew.
    pub blocks: BlocksView,
    /// Laws that do not hold.
    pub violations: Vec<Shown<v1::LawViolation>>,
    /// Why it could not be asked.
    pub error: Option<String>,
}

impl MemberVerdictView {
    /// What the member at `member` answered.
    #[must_use]
    pub fn answered(member: String, response: v1::VerifyPoolResponse) -> Self {
        Self {
            member,
            revision: response.read.unwrap_or_default().revision,
            digest: response.digest,
            blocks: response.blocks.unwrap_or_default().into(),
            violations: response.violations.into_iter().map(Into::into).collect(),
            error: None,
        }
    }

    /// The member at `member` could not be asked.
    #[must_use]
    pub fn silent(member: String, error: String) -> Self {
        let blocks = BlocksView::default();
        Self { member, revision: 0, digest: String::new(), blocks, violations: Vec::new(), error: Some(error) }
    }
}

impl VerifyView {
    /// The verdict over all members; one that cannot be asked does not make it a bad one, unless it is all of them.
    #[must_use]
    pub fn over(members: Vec<MemberVerdictView>) -> Self {
        let mut seen: BTreeMap<u64, &MemberVerdictView> = BTreeMap::new();
        let mut differing = Vec::new();
        for member in members.iter().filter(|member| member.error.is_none()) {
            match seen.get(&member.revision) {
                Some(first) if first.digest != member.digest => {
                    differing.push(format!("{} and {}", first.member, member.member));
                }
                Some(_) => {}
                None => {
                    seen.insert(member.revision, member);
                }
            }
        }
        let holds = members.iter().all(|member| member.violations.is_empty());
        let ok = holds && differing.is_empty() && !seen.is_empty();
        Self { ok, members, differing }
    }
}

impl Detail for VerifyView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        out.title(if self.ok { "all laws hold".to_owned() } else { "A LAW DOES NOT HOLD".to_owned() });
        out.table(
            &["MEMBER", "REVISION", "BLOCKS", "DIGEST", "VIOLATIONS"],
            self.members.iter().map(|member| {
                vec![
                    member.member.clone(),
                    member.revision.to_string(),
                    member.blocks.total.to_string(),
                    member.digest.clone(),
                    member.error.clone().unwrap_or_else(|| member.violations.len().to_string()),
                ]
            }),
        );
        for member in &self.members {
            for violation in &member.violations {
                out.line(&violation.law, format!("{} (member {})", violation.sentence, member.member));
            }
        }
        for pair in &self.differing {
            out.line("L8", format!("{pair} have different states at the same revision"));
        }
    }

    fn name(&self) -> String {
        if self.ok { "ok" } else { "violated" }.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(member: &str, revision: u64, digest: &str) -> MemberVerdictView {
        let read = Some(v1::ReadState { revision, age: None });
        let response = v1::VerifyPoolResponse { digest: digest.to_owned(), read, ..Default::default() };
        MemberVerdictView::answered(member.to_owned(), response)
    }

    #[test]
    fn members_are_compared_at_equal_revisions_only() {
        assert!(VerifyView::over(vec![says("a", 7, "x"), says("b", 7, "x"), says("c", 8, "y")]).ok);
        let different = VerifyView::over(vec![says("a", 7, "x"), says("b", 7, "z")]);
        assert!(!different.ok);
        assert_eq!(different.differing, ["a and b"]);
        assert!(!VerifyView::over(vec![MemberVerdictView::silent("a".to_owned(), "gone".to_owned())]).ok);
    }
}
