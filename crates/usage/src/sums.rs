//! Sums over the accounts.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use tessera_ledger::{LogTime, Revision};

use crate::database::{position, signed, unsigned};
use crate::query::{Answer, Gap, GroupBy, Query, Row, Sums};

pub(crate) fn sums(connection: &Connection, query: &Query) -> rusqlite::Result<Answer> {
    // One look at one moment, whatever is kept meanwhile.
    let transaction = connection.unchecked_transaction()?;
    let (_, now) = position(&transaction)?;
    let to = query.to.map_or(now, |to| to.min(now));
    // What has yet to come would count negatively, and without bound.
    let from = query.from.min(to);
    let (key, join, label) = match &query.by {
        GroupBy::Nothing => ("''", "", None),
        GroupBy::Job => ("CAST(job.id AS TEXT)", "", None),
        GroupBy::Submitter => ("job.submitter", "", None),
        GroupBy::Queue => ("job.queue", "", None),
        GroupBy::Kind => ("holding.kind", "", None),
        GroupBy::Label(label) => (
            "coalesce(label.value, '')",
            "LEFT JOIN label ON label.job = job.id AND label.key = :label",
            Some(label.as_str()),
        ),
    };
    let name = if query.by == GroupBy::Job { "job.name" } else { "''" };
    let overlap = "(min(coalesce(ended_ms, :to), :to) - max(began_ms, :from))";
    let unsaved = "max(min(coalesce(ended_ms, :to), :to) - max(began_ms, coalesce(saved_ms, 0), :from), 0)";
    // Summed per block size, so that no product leaves the range of SQLite's integers.
    let text = format!(
        "SELECT {key}, {name}, kind, block_milli_tflops, sum(blocks * {overlap}), sum(memory_mib * {overlap}), \
         sum(lost * blocks * {unsaved}) \
         FROM holding JOIN job ON job.id = holding.job {join} \
         WHERE began_ms < :to AND (ended_ms IS NULL OR ended_ms > :from) AND :label IS :label \
         AND (:queue IS NULL OR job.queue = :queue) AND (:submitter IS NULL OR job.submitter = :submitter) \
         GROUP BY 1, 2, 3, 4"
    );
    let (from_ms, to_ms) = (signed(from.0), signed(to.0));
    let parameters: &[(&str, &dyn rusqlite::ToSql)] = rusqlite::named_params! {
        ":from": from_ms, ":to": to_ms, ":label": label, ":queue": query.queue, ":submitter": query.submitter,
    };
    let mut groups: BTreeMap<String, Row> = BTreeMap::new();
    let mut total = Row::default();
    let mut statement = transaction.prepare(&text)?;
    let mut rows = statement.query(parameters)?;
    while let Some(row) = rows.next()? {
        let (key, name, kind): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let size: i64 = row.get(3)?;
        let block_ms = u128::from(unsigned(row.get(4)?));
        let sums = Sums {
            block_ms,
            milli_tflops_ms: block_ms * u128::from(unsigned(size)),
            memory_mib_ms: u128::from(unsigned(row.get(5)?)),
            lost_block_ms: u128::from(unsigned(row.get(6)?)),
        };
        add(groups.entry(key.clone()).or_insert_with(|| Row { key, name, ..Row::default() }), &kind, sums);
        add(&mut total, &kind, sums);
    }
    drop(rows);
    let text = format!(
        "SELECT {key}, count(DISTINCT job.id) FROM holding JOIN job ON job.id = holding.job {join} \
         WHERE began_ms < :to AND (ended_ms IS NULL OR ended_ms > :from) AND :label IS :label \
         AND (:queue IS NULL OR job.queue = :queue) AND (:submitter IS NULL OR job.submitter = :submitter) GROUP BY 1"
    );
    let mut statement = transaction.prepare(&text)?;
    let mut rows = statement.query(parameters)?;
    while let Some(row) = rows.next()? {
        let (key, jobs): (String, i64) = (row.get(0)?, row.get(1)?);
        if let Some(group) = groups.get_mut(&key) {
            group.jobs = unsigned(jobs);
        }
        total.jobs += unsigned(jobs);
    }
    if query.by == GroupBy::Kind {
        // A job may hold cards of several kinds.
        total.jobs = jobs_in_all(&transaction, query, from, to)?;
    }
    let mut rows: Vec<Row> = groups.into_values().collect();
    rows.sort_by(|a, b| b.sums.block_ms.cmp(&a.sums.block_ms).then_with(|| a.key.cmp(&b.key)));
    let left_out = rows.len().saturating_sub(query.rows) as u64;
    rows.truncate(query.rows);
    Ok(Answer { rows, left_out, total, to, gaps: gaps(&transaction, from, to)? })
}

fn jobs_in_all(connection: &Connection, query: &Query, from: LogTime, to: LogTime) -> rusqlite::Result<u64> {
    let text = "SELECT count(DISTINCT job.id) FROM holding JOIN job ON job.id = holding.job \
                WHERE began_ms < ?2 AND (ended_ms IS NULL OR ended_ms > ?1) \
                AND (?3 IS NULL OR job.queue = ?3) AND (?4 IS NULL OR job.submitter = ?4)";
    let parameters = params![signed(from.0), signed(to.0), query.queue, query.submitter];
    let jobs: Option<i64> = connection.query_row(text, parameters, |row| row.get(0)).optional()?;
    Ok(jobs.map_or(0, unsigned))
}

fn add(row: &mut Row, kind: &str, sums: Sums) {
    row.sums.add(sums);
    match row.kinds.iter_mut().find(|(known, _)| known == kind) {
        Some((_, known)) => known.add(sums),
        None => row.kinds.push((kind.to_owned(), sums)),
    }
}

fn gaps(connection: &Connection, from: LogTime, to: LogTime) -> rusqlite::Result<Vec<Gap>> {
    let mut statement = connection
        .prepare("SELECT after, before, from_ms, to_ms FROM gap WHERE to_ms > ?1 AND from_ms < ?2 ORDER BY 1")?;
    let rows = statement.query_map(params![signed(from.0), signed(to.0)], |row| {
        Ok(Gap {
            after: Revision(unsigned(row.get(0)?)),
            before: Revision(unsigned(row.get(1)?)),
            from: LogTime(unsigned(row.get(2)?)),
            to: LogTime(unsigned(row.get(3)?)),
        })
    })?;
    rows.collect()
}
