//! Opening: every record there is one of, and the whole log, is read and checked before anything is served (L7).
//!
//! Reading the whole log costs a little time at start (the log is kept short by compaction) and buys two things: damage
//! and holes are found before the member votes, and the newest entries are in memory when the first follower asks.

use std::path::Path;

use bytes::Bytes;

use crate::body::{self, STORE_FORMAT, Start};
use crate::codec::{Family, Fault};
use crate::engine::{Source, hole};
use crate::error::StoreError;
use crate::keys;
use crate::shelf::Shelf;
use crate::view::View;

/// Refuses a store of a newer format; says whether there is any format yet.
pub(crate) fn check_format(source: &dyn Source, path: &Path) -> Result<bool, StoreError> {
    match read(source, path, keys::FORMAT, body::unseal_format)? {
        None => Ok(false),
        Some(found) if found > STORE_FORMAT => Err(StoreError::UnknownFormat {
            path: path.to_owned(),
            what: "the store".to_owned(),
            found,
            known: STORE_FORMAT,
        }),
        Some(_) => Ok(true),
    }
}

/// The error of a store that holds records but no format.
pub(crate) fn no_format(path: &Path) -> StoreError {
    Fault::Missing.at(path, Family::Meta, keys::FORMAT)
}

/// Reads and checks everything but snapshot chunks.
pub(crate) fn recover(source: &dyn Source, path: &Path, tail_bytes: usize) -> Result<(View, Shelf), StoreError> {
    let start = read(source, path, keys::START, body::unseal_start)?.unwrap_or_default();
    let mut view = View::new(start, tail_bytes);
    view.vote = read(source, path, keys::VOTE, |frame| body::unseal_opaque(keys::VOTE, frame))?;
    view.identity = read(source, path, keys::IDENTITY, |frame| body::unseal_opaque(keys::IDENTITY, frame))?;
    view.committed = read(source, path, keys::COMMITTED, body::unseal_committed)?.flatten();
    recover_log(source, path, start, &mut view)?;
    let whole = read(source, path, keys::SNAPSHOTS, body::unseal_snapshots)?.unwrap_or_default();
    let partial = read(source, path, keys::PARTIAL, body::unseal_partial)?;
    Ok((view, Shelf::new(whole, partial)))
}

fn recover_log(source: &dyn Source, path: &Path, start: Start, view: &mut View) -> Result<(), StoreError> {
    let mut expected = start.first;
    source.scan_log(start.first.unwrap_or(0)..u64::MAX, &mut |index, frame| {
        // The first entry ever is written together with its index: entries without it mean that record is lost.
        let next = expected.ok_or_else(|| Fault::Missing.at(path, Family::Meta, keys::START))?;
        if index != next {
            return Err(hole(path, next, index));
        }
        let record =
            body::unseal_entry(index, &frame).map_err(|fault| fault.at(path, Family::Log, &keys::entry(index)))?;
        view.recovered(record);
        expected = Some(index.saturating_add(1));
        Ok(true)
    })
}

fn read<T>(
    source: &dyn Source,
    path: &Path,
    key: &'static [u8],
    unseal: impl FnOnce(&Bytes) -> Result<T, Fault>,
) -> Result<Option<T>, StoreError> {
    source
        .get(Family::Meta, key)?
        .map(|frame| unseal(&frame).map_err(|fault| fault.at(path, Family::Meta, key)))
        .transpose()
}
