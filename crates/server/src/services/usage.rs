//! The service of usage: answered by whichever member is asked, from accounts of its own.

use std::collections::BTreeMap;

use tessera_api::error::Refusal;
use tessera_api::fields::{line, number};
use tessera_api::time::{log_time, timestamp};
use tessera_api::v1;
use tessera_api::v1::usage_service_server::UsageService;
use tessera_ledger::wire::FieldError;
use tessera_usage::{Answer, Gap, GroupBy, Query, Row, Sums, UsageError};
use tonic::{Request, Response, Status};

use super::caller::deadline_of;
use super::{Desk, refusal};
use tessera_controller::config::UsageSettings;

/// Rows of an answer when the request does not say.
const ROWS: u32 = 1_000;
const MOST_ROWS: u32 = 10_000;
const MS_PER_HOUR: f64 = 3_600_000.0;

/// Answers `tessera.v1.UsageService`.
#[derive(Clone, Debug)]
pub struct UsageApi {
    desk: Desk,
}

impl UsageApi {
    #[must_use]
    pub const fn new(desk: Desk) -> Self {
        Self { desk }
    }
}

#[tonic::async_trait]
impl UsageService for UsageApi {
    async fn query_usage(
        &self,
        request: Request<v1::QueryUsageRequest>,
    ) -> Result<Response<v1::QueryUsageResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let query = query_of(&request)?;
        let reading = self.desk.read(request.consistency, deadline).await?;
        let Some(keeper) = self.desk.pool.usage().cloned() else { return Err(not_kept(&UsageError::Stopped)) };
        keeper.flushed(reading.state.revision(), reading.state.time()).await.map_err(|error| not_kept(&error))?;
        // Sums over a year read a large file: a few at a time, like everything that takes a core for long.
        let summed = self.desk.rehearse(&reading, deadline, move |_, _| keeper.sums(&query)).await?;
        let answer = summed.map_err(|error| not_kept(&error))?;
        let settings = &self.desk.pool.config().usage;
        Ok(Response::new(v1::QueryUsageResponse { read: reading.read_state(), ..shown(answer, settings) }))
    }
}

fn not_kept(error: &UsageError) -> Status {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let sentence = format!("this member cannot tell usage: {error}{cause}; another member may know");
    refusal::because(v1::ErrorReason::UsageNotKept, sentence)
}

fn query_of(request: &v1::QueryUsageRequest) -> Result<Query, Refusal> {
    let from = request.from.as_ref().map(|from| log_time("from", from)).transpose()?.unwrap_or_default();
    let to = request.to.as_ref().map(|to| log_time("to", to)).transpose()?;
    if to.is_some_and(|to| to < from) {
        return Err(FieldError::invalid("to", "must not be before `from`").into());
    }
    for (field, text) in [("label", &request.label), ("queue", &request.queue), ("submitter", &request.submitter)] {
        line(field, text)?;
    }
    let by = match v1::UsageGroup::try_from(request.by) {
        Ok(v1::UsageGroup::Unspecified) => GroupBy::Nothing,
        Ok(v1::UsageGroup::Job) => GroupBy::Job,
        Ok(v1::UsageGroup::Submitter) => GroupBy::Submitter,
        Ok(v1::UsageGroup::Queue) => GroupBy::Queue,
        Ok(v1::UsageGroup::Kind) => GroupBy::Kind,
        Ok(v1::UsageGroup::Label) if request.label.is_empty() => {
            return Err(FieldError::invalid("label", "must name the label by which sums are to be made").into());
        }
        Ok(v1::UsageGroup::Label) => GroupBy::Label(request.label.clone()),
        Err(_) => return Err(FieldError::invalid("by", format!("{} is not known", request.by)).into()),
    };
    number("rows", request.rows, 0..=MOST_ROWS)?;
    let rows = if request.rows == 0 { ROWS } else { request.rows };
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (queue, submitter) = (given(&request.queue), given(&request.submitter));
    Ok(Query { from, to, by, queue, submitter, rows: rows as usize })
}

fn shown(answer: Answer, settings: &UsageSettings) -> v1::QueryUsageResponse {
    v1::QueryUsageResponse {
        rows: answer.rows.into_iter().map(|group| row(group, settings)).collect(),
        left_out: answer.left_out,
        total: Some(row(answer.total, settings)),
        to: Some(timestamp(answer.to)),
        gaps: answer.gaps.iter().map(gap).collect(),
        currency: settings.currency.clone(),
        read: None,
    }
}

fn row(row: Row, settings: &UsageSettings) -> v1::UsageRow {
    let prices: BTreeMap<&str, u64> = settings.prices.iter().map(|(kind, price)| (kind.name(), *price)).collect();
    let mut whole = (!prices.is_empty()).then_some(0.0);
    let kinds = row.kinds.into_iter().map(|(kind, of)| {
        let price = prices.get(kind.as_str()).map(|millionths| *millionths as f64 / 1e6);
        let cost = price.map(|price| price * of.block_ms as f64 / MS_PER_HOUR);
        whole = whole.zip(cost).map(|(whole, cost)| whole + cost);
        v1::UsageOfKind { sums: Some(sums(&of, cost)), kind }
    });
    let kinds = kinds.collect();
    v1::UsageRow { key: row.key, name: row.name, sums: Some(sums(&row.sums, whole)), kinds, jobs: row.jobs }
}

fn sums(sums: &Sums, cost: Option<f64>) -> v1::UsageSums {
    v1::UsageSums {
        block_hours: sums.block_ms as f64 / MS_PER_HOUR,
        tflops_hours: sums.milli_tflops_ms as f64 / 1000.0 / MS_PER_HOUR,
        memory_gib_hours: sums.memory_mib_ms as f64 / 1024.0 / MS_PER_HOUR,
        lost_block_hours: sums.lost_block_ms as f64 / MS_PER_HOUR,
        block_milliseconds: u64::try_from(sums.block_ms).unwrap_or(u64::MAX),
        cost,
    }
}

fn gap(gap: &Gap) -> v1::UsageGap {
    v1::UsageGap {
        after_revision: gap.after.0,
        before_revision: gap.before.0,
        from: (gap.from.0 > 0).then(|| timestamp(gap.from)),
        to: Some(timestamp(gap.to)),
    }
}

#[cfg(test)]
mod tests {
    use tessera_ledger::CardKind;

    use super::*;

    #[test]
    fn what_was_held_costs_what_is_set_in_the_currency_that_is_set() {
        let of = |hours: u128| Sums { block_ms: hours * 3_600_000, ..Sums::default() };
        let costs = |prices: &[(CardKind, u64)], currency: &str| {
            let kinds = vec![("gpu".to_owned(), of(2)), ("npu".to_owned(), of(3))];
            let answer = Answer { total: Row { sums: of(5), kinds, ..Row::default() }, ..Answer::default() };
            let prices = prices.iter().copied().collect();
            let settings = UsageSettings { prices, currency: currency.to_owned(), ..UsageSettings::default() };
            let shown = shown(answer, &settings);
            (shown.total.and_then(|total| total.sums?.cost), shown.currency)
        };
        let gpu = (CardKind::Gpu, 250_000);
        assert_eq!(costs(&[gpu, (CardKind::Npu, 1_500_000)], "EUR"), (Some(5.0), "EUR".to_owned()));
        assert_eq!(costs(&[gpu, (CardKind::Npu, 500_000)], "CHF"), (Some(2.0), "CHF".to_owned()));
        assert_eq!(costs(&[gpu], "EUR").0, None, "what one kind costs is not known");
        assert_eq!(costs(&[], ""), (None, String::new()));
    }
}
