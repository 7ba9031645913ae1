//! Usage as it is shown.

use tessera_api::v1;

use super::shown::Shown;
use super::time::Clock;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::{Column, Tabular};

/// An answer.
pub type UsageView = Shown<v1::QueryUsageResponse>;

/// One group.
pub type UsageRowView = Shown<v1::UsageRow>;

/// The line that is written for a kind of card of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsageLine<'a> {
    pub key: &'a str,
    pub name: &'a str,
    pub kind: &'a str,
    pub sums: v1::UsageSums,
}

impl UsageView {
    /// The groups.
    #[must_use]
    pub fn groups(&self) -> Vec<UsageRowView> {
        self.rows.iter().cloned().map(Into::into).collect()
    }

    /// The groups, and everything together at the end.
    #[must_use]
    pub fn rows_and_total(&self) -> Vec<UsageRowView> {
        let total = v1::UsageRow { key: "total".to_owned(), ..self.total.clone().unwrap_or_default() };
        let grouped = self.rows.iter().filter(|row| !row.key.is_empty() || self.rows.len() > 1).cloned();
        grouped.chain([total]).map(Into::into).collect()
    }

    /// One line for each kind of card of each group.
    pub(super) fn lines(&self) -> impl Iterator<Item = UsageLine<'_>> {
        self.rows.iter().flat_map(|row| {
            let (key, name) = (row.key.as_str(), row.name.as_str());
            row.kinds.iter().map(move |of| UsageLine { key, name, kind: &of.kind, sums: of.sums.unwrap_or_default() })
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
        let sums = self.sums.unwrap_or_default();
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
