//! Usage as a Parquet file, for whoever counts it together with other tables.
//!
//! One row for each kind of card of each group, with the columns of the CSV under the same names; a cost that is not
//! known is null. The key-value metadata say what the rows do not: up to when they count, how many rows are left out,
//! and the times of which the member that answered knows nothing.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use tessera_api::v1;

use super::shown::Shown;
use super::time::text;
use super::usage::{UsageLine, UsageView};

const SCHEMA: &str = "message usage {
    required binary key (UTF8);
    required binary name (UTF8);
    required binary kind (UTF8);
    required double block_hours;
    required double tflops_hours;
    required double memory_gib_hours;
    required double lost_block_hours;
    required int64 block_milliseconds;
    optional double cost;
    required binary currency (UTF8);
}";

/// Writes it.
///
/// # Errors
/// When it cannot be written.
pub fn write(view: &UsageView, out: impl Write + Send) -> Result<()> {
    let lines: Vec<UsageLine<'_>> = view.lines().collect();
    let said = |key: &str, value: String| KeyValue { key: key.to_owned(), value: Some(value) };
    let gaps: Vec<Shown<v1::UsageGap>> = view.gaps.iter().copied().map(Into::into).collect();
    let gaps = serde_json::to_string(&gaps).map_err(|error| ParquetError::External(Box::new(error)))?;
    let said = vec![
        said("to", text(view.to.as_ref()).unwrap_or_default()),
        said("left_out", view.left_out.to_string()),
        said("gaps", gaps),
    ];
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_key_value_metadata(Some(said))
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    let number = |pick: fn(&v1::UsageSums) -> f64| lines.iter().map(|line| pick(&line.sums)).collect::<Vec<f64>>();
    texts(&mut group, lines.iter().map(|line| line.key))?;
    texts(&mut group, lines.iter().map(|line| line.name))?;
    texts(&mut group, lines.iter().map(|line| line.kind))?;
    column::<_, DoubleType>(&mut group, &number(|sums| sums.block_hours), None)?;
    column::<_, DoubleType>(&mut group, &number(|sums| sums.tflops_hours), None)?;
    column::<_, DoubleType>(&mut group, &number(|sums| sums.memory_gib_hours), None)?;
    column::<_, DoubleType>(&mut group, &number(|sums| sums.lost_block_hours), None)?;
    let exact = lines.iter().map(|line| i64::try_from(line.sums.block_milliseconds).unwrap_or(i64::MAX));
    column::<_, Int64Type>(&mut group, &exact.collect::<Vec<_>>(), None)?;
    let costs: Vec<f64> = lines.iter().filter_map(|line| line.sums.cost).collect();
    let known: Vec<i16> = lines.iter().map(|line| i16::from(line.sums.cost.is_some())).collect();
    column::<_, DoubleType>(&mut group, &costs, Some(&known))?;
    texts(&mut group, lines.iter().map(|_| view.currency.as_str()))?;
    group.close()?;
    file.close()?;
    Ok(())
}

fn texts<'a, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = &'a str>,
) -> Result<()> {
    column::<W, ByteArrayType>(group, &values.map(ByteArray::from).collect::<Vec<_>>(), None)
}

/// Writes the next column; `known` says of which rows there is a value.
fn column<W: Write + Send, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    known: Option<&[i16]>,
) -> Result<()> {
    let missing = || ParquetError::General("the schema has fewer columns".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, known, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    fn row(key: &str, kinds: &[(&str, u64, Option<f64>)]) -> v1::UsageRow {
        let kind = |(kind, block_milliseconds, cost): &(&str, u64, Option<f64>)| v1::UsageOfKind {
            kind: (*kind).to_owned(),
            sums: Some(v1::UsageSums {
                block_hours: *block_milliseconds as f64 / 3_600_000.0,
                block_milliseconds: *block_milliseconds,
                cost: *cost,
                ..Default::default()
            }),
        };
        let kinds = kinds.iter().map(kind).collect();
        v1::UsageRow { key: key.to_owned(), kinds, ..Default::default() }
    }

    fn read(view: &UsageView) -> SerializedFileReader<std::fs::File> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        write(view, file.as_file()).expect("written");
        SerializedFileReader::new(file.reopen().expect("there")).expect("a Parquet file")
    }

    fn usage(rows: Vec<v1::UsageRow>) -> UsageView {
        v1::QueryUsageResponse { rows, currency: "EUR".to_owned(), ..Default::default() }.into()
    }

    #[test]
    fn what_is_read_back_is_what_the_csv_says() {
        let view = usage(vec![
            row("vision", &[("gpu", 7_200_000, Some(1.5)), ("cpu", 1, None)]),
            row("sprache, zwei", &[("gpu", 3_600_000, Some(0.25))]),
        ]);
        let found = read(&view);
        let rows: Vec<_> = found.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
        let told: Vec<(String, String, f64, i64, Option<f64>, String)> = rows
            .iter()
            .map(|row| {
                let text = |place| row.get_string(place).expect("text").clone();
                let (hours, exact) = (row.get_double(3).expect("a number"), row.get_long(7).expect("a number"));
                (text(0), text(2), hours, exact, row.get_double(8).ok(), text(9))
            })
            .collect();
        let line = |key: &str, kind: &str, hours, exact, cost| {
            (key.to_owned(), kind.to_owned(), hours, exact, cost, "EUR".to_owned())
        };
        let expected = [
            line("vision", "gpu", 2.0, 7_200_000, Some(1.5)),
            line("vision", "cpu", 1.0 / 3_600_000.0, 1, None),
            line("sprache, zwei", "gpu", 1.0, 3_600_000, Some(0.25)),
        ];
        assert_eq!(told, expected);
        let schema = found.metadata().file_metadata().schema_descr();
        let columns: Vec<&str> = schema.columns().iter().map(|column| column.name()).collect();
        let csv = view.csv().expect("written");
        assert_eq!(columns.join(","), csv.lines().next().expect("a header"));
    }

    #[test]
    fn what_is_missing_is_said_in_the_file() {
        let view = UsageView::from(v1::QueryUsageResponse {
            left_out: 7,
            to: Some(prost_types::Timestamp { seconds: 1_793_491_200, nanos: 0 }),
            ..Default::default()
        });
        let found = read(&view);
        let said = found.metadata().file_metadata().key_value_metadata().expect("it says something");
        let of = |key: &str| said.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.clone());
        assert_eq!(of("left_out").as_deref(), Some("7"));
        assert_eq!(of("to").as_deref(), Some("2026-11-01T00:00:00Z"));
        assert_eq!(of("gaps").as_deref(), Some("[]"));
    }

    #[test]
    fn nothing_held_is_a_file_without_rows() {
        assert_eq!(read(&usage(Vec::new())).metadata().file_metadata().num_rows(), 0);
    }
}
