//! The findings of checks.

use serde::Serialize;

use crate::exit::Exit;
use crate::print::{Detail, Page};
use crate::view::Clock;

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    NotApplicable,
    Ok,
    /// It works, and may not for long, or not as well as it could.
    Warning,
    /// It does not work.
    Failure,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::NotApplicable => "not applicable",
            Self::Ok => "ok",
            Self::Warning => "WARNING",
            Self::Failure => "FAILURE",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check, such as `disk.fsync`.
    pub check: &'static str,
    /// The object of the check, where there are several: a folder, a member.
    pub of: String,
    pub verdict: Verdict,
    pub seen: String,
    /// The reason for which the check matters.
    pub why: &'static str,
    /// The next step; empty when nothing is to be done.
    pub next: String,
}

/// A check: its name, and why it matters.
#[derive(Clone, Copy, Debug)]
pub struct Check(pub &'static str, pub &'static str);

impl Check {
    pub fn ok(self, seen: impl Into<String>) -> Finding {
        self.finding(Verdict::Ok, seen.into(), String::new())
    }

    pub fn not_applicable(self, seen: impl Into<String>) -> Finding {
        self.finding(Verdict::NotApplicable, seen.into(), String::new())
    }

    /// It may not work for long.
    pub fn warning(self, seen: impl Into<String>, next: impl Into<String>) -> Finding {
        self.finding(Verdict::Warning, seen.into(), next.into())
    }

    /// It does not work.
    pub fn failure(self, seen: impl Into<String>, next: impl Into<String>) -> Finding {
        self.finding(Verdict::Failure, seen.into(), next.into())
    }

    const fn finding(self, verdict: Verdict, seen: String, next: String) -> Finding {
        Finding { check: self.0, of: String::new(), verdict, seen, why: self.1, next }
    }
}

impl Finding {
    /// Says what it concerns.
    #[must_use]
    pub fn of(mut self, of: impl Into<String>) -> Self {
        self.of = of.into();
        self
    }
}

/// All findings of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub host: String,
    /// The roles of the host, as its configuration says: `member`, `agent`; empty: clients only.
    pub roles: Vec<String>,
    /// Release of this program.
    pub version: String,
    /// The worst of the findings.
    pub verdict: Verdict,
    /// The findings, check by check.
    pub findings: Vec<Finding>,
}

impl Report {
    #[must_use]
    pub fn new(host: String, roles: Vec<String>, findings: Vec<Finding>) -> Self {
        let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::NotApplicable);
        // Nothing that applies is nothing that is wrong.
        let verdict = worst.max(Verdict::Ok);
        Self { host, roles, version: env!("CARGO_PKG_VERSION").to_owned(), verdict, findings }
    }

    /// The exit of the command: 0 when all is well, 1 with a warning, 2 with a failure.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self.verdict {
            Verdict::NotApplicable | Verdict::Ok => Exit::Done,
            Verdict::Warning => Exit::Failed,
            Verdict::Failure => Exit::Usage,
        }
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

impl Detail for Report {
    fn detail(&self, _: &Clock, out: &mut Page) {
        let roles = if self.roles.is_empty() { "client".to_owned() } else { self.roles.join(" and ") };
        out.title(format!("{} as {roles}, tessera {}", self.host, self.version));
        let cells = |finding: &Finding| {
            let of = if finding.of.is_empty() { String::new() } else { format!("{}: ", finding.of) };
            vec![finding.verdict.word().to_owned(), finding.check.to_owned(), format!("{of}{}", finding.seen)]
        };
        out.table(&["VERDICT", "CHECK", "SEEN"], self.findings.iter().map(cells));
        for finding in self.findings.iter().filter(|finding| finding.verdict >= Verdict::Warning) {
            let of = if finding.of.is_empty() { String::new() } else { format!(", {}", finding.of) };
            out.title(format!("{}: {}{of}", finding.verdict.word(), finding.check));
            out.line("seen", &finding.seen);
            out.line("why", finding.why);
            out.line("next", &finding.next);
        }
        let (failures, warnings) = (self.count(Verdict::Failure), self.count(Verdict::Warning));
        out.title(format!("{failures} failures, {warnings} warnings, {} ok", self.count(Verdict::Ok)));
    }

    fn name(&self) -> String {
        let bad = self.findings.iter().filter(|finding| finding.verdict >= Verdict::Warning);
        bad.map(|finding| finding.check).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_how_the_command_ends() {
        let check = Check("a.b", "because");
        let report = |findings| Report::new("h".to_owned(), Vec::new(), findings);
        assert_eq!(report(Vec::new()).exit(), Exit::Done);
        assert_eq!(report(vec![check.ok("x"), check.not_applicable("y")]).exit(), Exit::Done);
        assert_eq!(report(vec![check.ok("x"), check.warning("y", "z")]).exit().code(), 1);
        assert_eq!(report(vec![check.warning("y", "z"), check.failure("y", "z"), check.ok("x")]).exit().code(), 2);
    }
}
