//! Usage as it is shown.

use serde::Serialize;
use tessera_api::v1;

use super::shown::Shown;
use super::time::{Clock, text};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::{Column, Tabular};

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsageView {
    /// The groups.
    pub rows: Vec<UsageRowView>,
    /// Everything together.
    pub total: UsageRowView,
    /// How many groups there are beyond those.
    pub left_out: u64,
    /// Up to when it counts.
    pub to: Option<String>,
    /// Times of which the member that answered knows nothing.
    pub gaps: Vec<GapView>,
    /// In what `cost` is.
    pub currency: String,
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageRowView {
    /// What it has in common.
    pub key: String,
    /// Name of the job, in sums job by job.
    pub name: String,
    /// How many jobs held something.
    pub jobs: u64,
    /// Its sums.
    #[serde(flatten)]
    pub sums: SumsView,
    /// The same by kind of card.
    pub kinds: Vec<KindView>,
}

/// Sums over time.
pub type SumsView = Shown<v1::UsageSums>;

/// A part on cards of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindView {
    /// The kind.
    pub kind: String,
    /// Its sums.
    #[serde(flatten)]
    pub sums: SumsView,
}

/// What is written of a kind of card of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsageLine<'a> {
    pub key: &'a str,
    pub name: &'a str,
    pub kind: &'a str,
    pub sums: &'a SumsView,
}

/// A time of which nothing is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GapView {
    /// When it begins; absent: at the beginning.
    pub from: Option<String>,
    /// When it ends.
    pub to: Option<String>,
}

impl From<v1::QueryUsageResponse> for UsageView {
    fn from(answer: v1::QueryUsageResponse) -> Self {
        let gap = |gap: v1::UsageGap| GapView { from: text(gap.from.as_ref()), to: text(gap.to.as_ref()) };
        Self {
            rows: answer.rows.into_iter().map(Into::into).collect(),
            total: answer.total.map(Into::into).unwrap_or_default(),
            left_out: answer.left_out,
            to: text(answer.to.as_ref()),
            gaps: answer.gaps.into_iter().map(gap).collect(),
            currency: answer.currency,
        }
    }
}

impl From<v1::UsageRow> for UsageRowView {
    fn from(row: v1::UsageRow) -> Self {
        let kind = |of: v1::UsageOfKind| KindView { kind: of.kind, sums: of.sums.map(Into::into).unwrap_or_default() };
        Self {
            key: row.key,
            name: row.name,
            jobs: row.jobs,
            sums: row.sums.map(Into::into).unwrap_or_default(),
            kinds: row.kinds.into_iter().map(kind).collect(),
        }
    }
}

impl UsageView {
    /// The groups, and everything together at the end.
    #[must_use]
    pub fn rows_and_total(&self) -> Vec<UsageRowView> {
        let total = UsageRowView { key: "total".to_owned(), ..self.total.clone() };
        let grouped = self.rows.iter().filter(|row| !row.key.is_empty() || self.rows.len() > 1).cloned();
        grouped.chain([total]).collect()
    }

    /// One line for each kind of card of each group.
    pub(super) fn lines(&self) -> impl Iterator<Item = UsageLine<'_>> {
        self.rows.iter().flat_map(|row| {
            let (key, name) = (row.key.as_str(), row.name.as_str());
            row.kinds.iter().map(move |of| UsageLine { key, name, kind: &of.kind, sums: &of.sums })
        })
    }

    /// The lines for spreadsheets.
    ///
    /// # Errors
    /// A [`Failure`] when the lines cannot be written.
    pub fn csv(&self) -> Result<String, Failure> {
        let unwritten =
            |error: &dyn std::error::Error| Failure::from_error(Exit::Failed, "the answer cannot be shown", error);
        let mut lines = csv::Writer::from_writer(Vec::new());
        let header = [
            "key",
            "name",
            "kind",
            "block_hours",
            "tflops_hours",
            "memory_gib_hours",
            "lost_block_hours",
            "block_milliseconds",
            "cost",
            "currency",
        ];
        lines.write_record(header).map_err(|error| unwritten(&error))?;
        for UsageLine { key, name, kind, sums } in self.lines() {
            let cost = sums.cost.map(|cost| cost.to_string()).unwrap_or_default();
            let numbers = [sums.block_hours, sums.tflops_hours, sums.memory_gib_hours, sums.lost_block_hours];
            let numbers = numbers.map(|number| number.to_string());
            let cells = [key, name, kind].into_iter().map(str::to_owned).chain(numbers).chain([
                sums.block_milliseconds.to_string(),
                cost,
                self.currency.clone(),
            ]);
            lines.write_record(cells).map_err(|error| unwritten(&error))?;
        }
        let bytes = lines.into_inner().map_err(|error| unwritten(error.error()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Tabular for UsageRowView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::left("OF"),
            Column::left("NAME"),
            Column::right("JOBS"),
            Column::right("BLOCK-HOURS"),
            Column::right("TFLOPS-HOURS"),
            Column::right("GIB-HOURS"),
            Column::right("LOST"),
            Column::right("COST"),
        ];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        let sums = &self.sums;
        vec![
            if self.key.is_empty() { "-".to_owned() } else { self.key.clone() },
            if self.name.is_empty() { "-".to_owned() } else { self.name.clone() },
            self.jobs.to_string(),
            format!("{:.3}", sums.block_hours),
            format!("{:.3}", sums.tflops_hours),
            format!("{:.3}", sums.memory_gib_hours),
            format!("{:.3}", sums.lost_block_hours),
            sums.cost.map_or_else(|| "-".to_owned(), |cost| format!("{cost:.2}")),
        ]
    }

    fn name(&self) -> String {
        self.key.clone()
    }
}
