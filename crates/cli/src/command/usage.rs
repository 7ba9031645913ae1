//! `tessera usage`.

use jiff::Timestamp;
use tessera_api::v1::{QueryUsageRequest, UsageGroup};

use super::Desk;
use crate::args::{By, Format, UsageArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::remark;
use crate::view::UsageView;

/// Sums up.
pub(super) async fn run(mut desk: Desk, what: UsageArgs) -> Result<Exit, Failure> {
    let (by, label) = match &what.by {
        None => (UsageGroup::Unspecified, String::new()),
        Some(By::Job) => (UsageGroup::Job, String::new()),
        Some(By::User) => (UsageGroup::Submitter, String::new()),
        Some(By::Queue) => (UsageGroup::Queue, String::new()),
        Some(By::Kind) => (UsageGroup::Kind, String::new()),
        Some(By::Label(key)) => (UsageGroup::Label, key.clone()),
    };
    let request = QueryUsageRequest {
        from: what.from.map(stamp),
        to: what.to.map(stamp),
        by: by.into(),
        label,
        queue: what.queue.unwrap_or_default(),
        submitter: what.user.unwrap_or_default(),
        rows: what.rows,
        consistency: desk.consistency,
    };
    let answer = desk.client.query_usage(request).await;
    let answer = answer.map_err(|error| Failure::call("usage cannot be told", &error))?;
    let view = UsageView::from(answer);
    if what.csv {
        desk.printer.write(&view.csv()?)?;
    } else {
        match desk.printer.format() {
            Format::Json | Format::Yaml => desk.printer.data(&view)?,
            Format::Table | Format::Wide => desk.printer.list(&view.rows_and_total())?,
            Format::Jsonl | Format::Name => desk.printer.list(&view.rows)?,
        }
    }
    if view.left_out > 0 {
        remark(&format!("{} more rows are left out; the total has them; --rows shows more", view.left_out));
    }
    for gap in &view.gaps {
        let from = gap.from.as_deref().unwrap_or("the beginning");
        let to = gap.to.as_deref().unwrap_or_default();
        remark(&format!(
            "incomplete: the member that answered knows nothing of the time from {from} to {to}; ask another one with \
             --server"
        ));
    }
    Ok(Exit::Done)
}

fn stamp(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: time.as_second(), nanos: time.subsec_nanosecond() }
}
