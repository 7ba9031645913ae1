//! `tessera usage`.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jiff::Timestamp;
use tessera_api::v1::{QueryUsageRequest, UsageGroup};

use super::Desk;
use crate::args::{By, Format, MOST_ROWS, UsageArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::remark;
use crate::view::{UsageView, text, usage_parquet};

/// Rows unless somebody asks for another number.
const ROWS: u32 = 1_000;

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
    let silent_since = match what.inactive {
        Some(time) => Some(Timestamp::now().checked_sub(time).map_err(|error| {
            Failure::new(Exit::Usage, "usage cannot be told", format!("--inactive is too long: {error}"))
        })?),
        None => None,
    };
    let request = QueryUsageRequest {
        from: what.from.map(stamp),
        to: what.to.or(silent_since).map(stamp),
        by: by.into(),
        label,
        queue: what.queue.unwrap_or_default(),
        submitter: what.user.unwrap_or_default(),
        rows: what.rows.unwrap_or(if what.parquet.is_some() { MOST_ROWS } else { ROWS }),
        consistency: desk.consistency,
    };
    let since = silent_since.map(|since| QueryUsageRequest {
        from: Some(stamp(since)),
        to: None,
        rows: MOST_ROWS,
        ..request.clone()
    });
    let answer = desk.client.query_usage(request).await;
    let answer = answer.map_err(|error| Failure::call("usage cannot be told", &error))?;
    let mut view = UsageView::from(answer);
    if let Some(request) = since {
        let later = desk.client.query_usage(request).await;
        let later = later.map_err(|error| Failure::call("usage cannot be told", &error))?;
        if later.left_out > 0 {
            let why = format!("more than {MOST_ROWS} of them held something since then");
            return Err(Failure::new(Exit::Usage, "who is inactive cannot be told", why).next("give --queue"));
        }
        let active: BTreeSet<String> = later.rows.into_iter().map(|row| row.key).collect();
        view.rows.retain(|row| !active.contains(&row.key));
        desk.printer.list(&view.groups())?;
        return Ok(remarks(&view));
    }
    if let Some(path) = &what.parquet {
        if view.left_out > 0 && what.rows.is_none() {
            // Whoever reads the file later would take it for everything.
            let why = format!("there are {} rows more than {MOST_ROWS}", view.left_out);
            let failure = Failure::new(Exit::Refused, format!("{} is not written", path.display()), why);
            return Err(failure.next("ask for a shorter time or one queue, or say --rows to have the largest only"));
        }
        save(&view, path).map_err(|error| {
            Failure::from_error(Exit::Failed, format!("{} cannot be written", path.display()), &*error)
        })?;
    } else if what.csv {
        desk.printer.csv(&view.csv()?)?;
    } else {
        match desk.printer.format() {
            Format::Json | Format::Yaml => desk.printer.data(&view)?,
            Format::Table | Format::Wide => desk.printer.list(&view.rows_and_total())?,
            Format::Jsonl | Format::Name => desk.printer.list(&view.groups())?,
        }
    }
    Ok(remarks(&view))
}

/// Says what is not in an answer.
fn remarks(view: &UsageView) -> Exit {
    if view.left_out > 0 {
        remark(&format!("{} more rows are left out; the total has them; --rows shows more", view.left_out));
    }
    for gap in &view.gaps {
        let from = text(gap.from.as_ref()).unwrap_or_else(|| "the beginning".to_owned());
        let to = text(gap.to.as_ref()).unwrap_or_default();
        remark(&format!(
            "incomplete: the member that answered knows nothing of the time from {from} to {to}; ask another one with \
             --server"
        ));
    }
    Exit::Done
}

/// Writes the file, whole or not at all: one of the same name stays until then.
fn save(view: &UsageView, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(folder)?;
    usage_parquet::write(view, file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn stamp(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: time.as_second(), nanos: time.subsec_nanosecond() }
}
