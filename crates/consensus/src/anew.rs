//! A cluster that begins anew from a machine's state: the data folder of its one member is written before any process
//! runs on it.
//!
//! The state stands where a log of the old cluster would end: it becomes the newest snapshot, at an index and in a term
//! that lie ahead of all that the old cluster can have reached. The cluster has a new id, so members of the old one and
//! this one refuse each other's messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

use bytes::Bytes;
use tessera_store::{EntryId, Store, StoreError};

use crate::codec::{self, Description};
use crate::ids::{ClusterId, Identity, Member};
use crate::log::entry_id;
use crate::machine::{LogIndex, LogTime, Term};
use crate::types::{Membership, Place, StoredMembership, Vote, log_id};

/// By how much terms jump ahead: at one election a second the old cluster takes four months to get there.
pub const TERMS_AHEAD: u64 = 10_000_000;

/// The initial data of a cluster that begins anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Its id, which no cluster had before.
    pub cluster: ClusterId,
    /// Its only member.
    pub member: Member,
    /// Highest term known of the old cluster.
    pub old_term: Term,
    /// The index at which the state stands.
    pub index: LogIndex,
    pub log_time: LogTime,
}

/// A cluster that cannot begin anew in a data folder.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The store has a log already.
    #[error("the data folder is in use already; give a folder that does not exist")]
    InUse,
    #[error("the data folder cannot be written")]
    Store(#[from] StoreError),
    #[error("member {member} cannot be the only member: {why}")]
    Membership { member: Member, why: String },
}

/// Waits until the store has done what it was asked for.
fn durable<T: Send + 'static>(
    request: impl FnOnce(Box<dyn FnOnce(Result<T, StoreError>) + Send>),
) -> Result<T, StoreError> {
    let (done, durable) = mpsc::channel();
    request(Box::new(move |result| {
        // Whoever asked waits below.
        let _ = done.send(result);
    }));
    durable.recv().unwrap_or(Err(StoreError::Closed))
}

/// Writes the data folder of the one member of a cluster that begins anew, into a new store. `chunks` are those of the
/// machine's state. The folder belongs to a member only when all of it is there.
///
/// # Errors
/// [`BeginError`]. What was written before an error is of no use: remove the folder.
pub fn begin_anew(
    store: &dyn Store,
    beginning: &Beginning,
    chunks: impl IntoIterator<Item = Bytes>,
) -> Result<(), BeginError> {
    let Beginning { cluster, member, old_term, index, log_time } = beginning;
    if store.log_state()?.last.is_some() || store.identity()?.is_some() {
        return Err(BeginError::InUse);
    }
    let term = Term(old_term.0.saturating_add(TERMS_AHEAD));
    let last = log_id(term, *index);
    let description = Description {
        last: Some(last),
        membership: sole(member, last)?,
        highest_member: member.id,
        log_time: *log_time,
    };
    let mut writer = store.begin_snapshot()?;
    for chunk in chunks {
        writer.write_chunk(chunk)?;
    }
    let end: EntryId = entry_id(&last);
    durable(|done| writer.finish(Some(end), description.encode(), done))?;
    durable(|done| store.purge_to(end, done))?;
    let vote = Vote::new_committed(term.0, member.id.0);
    durable(|done| store.save_vote(codec::encode_vote(&vote), done))?;
    // Last of all: a folder without identity is nobody's.
    let identity = Identity { cluster: cluster.clone(), member: member.id };
    durable(|done| store.save_identity(codec::encode_identity(&identity), done))?;
    Ok(())
}

/// The membership of a cluster with one voter.
fn sole(member: &Member, at: crate::types::LogId) -> Result<StoredMembership, BeginError> {
    let places = BTreeMap::from([(member.id.0, Place::of(member))]);
    let membership = Membership::new(vec![BTreeSet::from([member.id.0])], places)
        .map_err(|error| BeginError::Membership { member: member.clone(), why: error.to_string() })?;
    Ok(StoredMembership::new(Some(at), membership))
}
