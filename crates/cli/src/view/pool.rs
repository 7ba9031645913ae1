//! The pool in numbers, and the verdict on its laws.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::Serialize;
use tessera_api::v1;

use super::job::tflops;
use super::shown::Shown;
use super::time::{Clock, seconds};
use super::{BlocksView, words};
use crate::print::{Detail, Page};

/// The pool in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolView {
    /// Its identity, its blocks, and its cards by kind.
    #[serde(flatten)]
    pub pool: Shown<v1::Pool>,
    /// Size of a block in TFLOPS.
    pub block_tflops: f64,
    /// In this precision.
    pub reference_precision: String,
    /// Nodes by state.
    pub nodes: BTreeMap<String, u64>,
    /// Jobs by state.
    pub jobs: BTreeMap<String, u64>,
    /// Revision that the numbers reflect, and how old they may be.
    #[serde(flatten)]
    pub read: Shown<v1::ReadState>,
}

impl From<v1::GetPoolResponse> for PoolView {
    fn from(response: v1::GetPoolResponse) -> Self {
        let pool = response.pool.unwrap_or_default();
        let config = pool.config.clone().unwrap_or_default();
        Self {
            block_tflops: tflops(config.block_milli_tflops),
            reference_precision: words::precision(config.reference_precision),
            nodes: pool.nodes.iter().map(|count| (words::node_state(count.state), count.count)).collect(),
            jobs: pool.jobs.iter().map(|count| (words::job_state(count.state), count.count)).collect(),
            pool: pool.into(),
            read: response.read.unwrap_or_default().into(),
        }
    }
}

impl Deref for PoolView {
    type Target = v1::Pool;

    fn deref(&self) -> &v1::Pool {
        &self.pool
    }
}

impl PoolView {
    /// All blocks.
    #[must_use]
    pub fn blocks(&self) -> BlocksView {
        self.pool.blocks.unwrap_or_default().into()
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
        match seconds(self.read.age.as_ref()) {
            None => out.line("read", "stale, and nobody knows how old"),
            Some(age) if age > 0.0 => out.line("read", format!("stale, at most {age:.1} s old")),
            Some(_) => {}
        }
        let row = |kind: &str, cards: String, blocks: &BlocksView, memory: String| {
            [vec![kind.to_owned(), cards], blocks.cells(), vec![memory]].concat()
        };
        let kinds = self.kinds.iter().map(|kind| {
            let memory = format!("{}/{} MiB", kind.memory_used_mib, kind.memory_mib);
            row(&words::kind(kind.kind), kind.cards.to_string(), &kind.blocks.unwrap_or_default().into(), memory)
        });
        let cards: u64 = self.kinds.iter().map(|kind| kind.cards).sum();
        let all = row("all", cards.to_string(), &self.blocks(), String::new());
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
    /// True if all laws hold everywhere and no two members differ.
    pub ok: bool,
    /// The verdict of each member.
    pub members: Vec<MemberVerdictView>,
    /// Members whose states differ at the same revision (law L8).
    pub differing: Vec<String>,
}

/// The verdict of one member on the laws.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberVerdictView {
    /// Its address.
    pub member: String,
    /// The reason for which it could not be asked.
    pub error: Option<String>,
    /// Laws that do not hold, its blocks counted anew, digest of all outcomes up to the revision that it checked.
    #[serde(flatten)]
    pub answer: Shown<v1::VerifyPoolResponse>,
}

impl MemberVerdictView {
    /// The verdict that the member at `member` answered.
    #[must_use]
    pub fn answered(member: String, response: v1::VerifyPoolResponse) -> Self {
        Self { member, error: None, answer: response.into() }
    }

    /// The member at `member` could not be asked.
    #[must_use]
    pub fn silent(member: String, error: String) -> Self {
        Self { member, error: Some(error), answer: Shown::default() }
    }

    fn revision(&self) -> u64 {
        self.answer.read.unwrap_or_default().revision
    }
}

impl VerifyView {
    /// The verdict over all members; one that cannot be asked does not make it a bad one, unless it is all of them.
    #[must_use]
    pub fn over(members: Vec<MemberVerdictView>) -> Self {
        let mut seen: BTreeMap<u64, &MemberVerdictView> = BTreeMap::new();
        let mut differing = Vec::new();
        for member in members.iter().filter(|member| member.error.is_none()) {
            match seen.get(&member.revision()) {
                Some(first) if first.answer.digest != member.answer.digest => {
                    differing.push(format!("{} and {}", first.member, member.member));
                }
                Some(_) => {}
                None => {
                    seen.insert(member.revision(), member);
                }
            }
        }
        let holds = members.iter().all(|member| member.answer.violations.is_empty());
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
                    member.revision().to_string(),
                    BlocksView::from(member.answer.blocks.unwrap_or_default()).total().to_string(),
                    member.answer.digest.clone(),
                    member.error.clone().unwrap_or_else(|| member.answer.violations.len().to_string()),
                ]
            }),
        );
        for member in &self.members {
            for violation in &member.answer.violations {
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
