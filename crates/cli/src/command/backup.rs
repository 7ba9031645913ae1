//! `tessera cluster snapshot` and `tessera cluster recover`.

use std::path::PathBuf;

use tempfile::TempDir;
use tessera_client::{Address, ClientError};
use tessera_controller::backup::{self, Backup, BackupError, FoundError, Founder, Partial, RecoverError, Survivor};
use tessera_objects::{Location, Place, PlaceError};

use super::Desk;
use crate::args::{FounderArgs, RecoverArgs, SnapshotVerb};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::{confirm, remark};
use crate::view::{BackupView, BegunView, KeptView, SurvivorView};

/// The confirmation that an operator must give before a pool begins anew.
const RESTORE_QUESTION: &str = "The pool begins anew as it was at the backup: what was submitted, granted or ended since is \
     forgotten. Is every member of the old cluster stopped, never to be started again?";

/// Does a verb of `tessera cluster snapshot`.
pub(super) async fn run(desk: Desk, verb: SnapshotVerb) -> Result<Exit, Failure> {
    match verb {
        SnapshotVerb::Save { file } => save(desk, &file).await,
        SnapshotVerb::List { place } => list(desk, &place).await,
        SnapshotVerb::Inspect { file } => inspect(desk, &file).await,
        SnapshotVerb::Restore { file, founder, data_dir, yes } => restore(desk, &file, founder, data_dir, yes).await,
    }
}

async fn save(mut desk: Desk, file: &str) -> Result<Exit, Failure> {
    let what = || format!("{file} was not saved");
    let unwritten = |error: &dyn std::error::Error| {
        Failure::from_error(Exit::Failed, what(), error)
            .next("nothing was left of it; make room, or name another place")
    };
    let failed = |error: &ClientError| Failure::call(what(), error);
    let target = target(file).map_err(|error| Failure::from_error(Exit::Usage, what(), &error))?;
    let mut partial = Partial::create(&target.path()).map_err(|error| unwritten(&error))?;
    let mut saving = desk.client.save_snapshot().await.map_err(|error| failed(&error))?;
    while let Some(bytes) = saving.next().await.map_err(|error| failed(&error))? {
        partial.write(&bytes).map_err(|error| unwritten(&error))?;
    }
    let verified = Backup::open(partial.written()).and_then(Backup::verify);
    let verified =
        verified.map_err(|error| Failure::from_error(Exit::Unavailable, what(), &error).next("try again"))?;
    match target {
        Target::Local(_) => partial.publish().map_err(|error| unwritten(&error))?,
        Target::Bucket(bucket, name) => {
            bucket.upload(&name, partial.written()).await.map_err(|error| unwritten(&error))?;
        }
    }
    desk.printer.one(&BackupView::of(file, verified))?;
    Ok(Exit::Done)
}

/// The place of one file, to which a backup is saved or from which one is read.
enum Target {
    Local(PathBuf),
    Bucket(Place, String),
}

impl Target {
    /// The local path that the file is written to before it is complete.
    fn path(&self) -> PathBuf {
        match self {
            Self::Local(path) => path.clone(),
            Self::Bucket(_, name) => std::env::temp_dir().join(name),
        }
    }
}

fn target(file: &str) -> Result<Target, PlaceError> {
    match Location::parse(file)? {
        Location::Local(path) => Ok(Target::Local(path)),
        Location::Bucket(bucket) => bucket.split().map(|(bucket, name)| Target::Bucket(bucket, name)),
    }
}

/// A backup that can be read on this machine.
struct Held {
    path: PathBuf,
    /// Goes when the backup was read.
    _copy: Option<TempDir>,
}

/// Brings a backup to this machine, when it is not there.
async fn hold(file: &str) -> Result<Held, Failure> {
    const WHAT: &str = "the backup cannot be used";
    let not_held = |error: &PlaceError| {
        let exit = if let PlaceError::BadUrl { .. } = error { Exit::Usage } else { Exit::Failed };
        Failure::from_error(exit, WHAT, error)
    };
    match target(file).map_err(|error| not_held(&error))? {
        Target::Local(path) => Ok(Held { path, _copy: None }),
        Target::Bucket(bucket, name) => {
            let copy = tempfile::tempdir().map_err(|error| Failure::from_error(Exit::Failed, WHAT, &error))?;
            let path = copy.path().join(&name);
            bucket.download(&name, &path).await.map_err(|error| not_held(&error))?;
            Ok(Held { path, _copy: Some(copy) })
        }
    }
}

fn unusable(error: &BackupError) -> Failure {
    Failure::from_error(Exit::Failed, "the backup cannot be used", error)
}

async fn list(mut desk: Desk, place: &str) -> Result<Exit, Failure> {
    let what = || format!("the backups in {place} cannot be listed");
    let location = Location::parse(place).map_err(|error| Failure::from_error(Exit::Usage, what(), &error))?;
    let kept = backup::kept(&location).await.map_err(|error| Failure::from_error(Exit::Failed, what(), &error))?;
    desk.printer.list(&KeptView::list(&kept))?;
    Ok(Exit::Done)
}

async fn inspect(mut desk: Desk, file: &str) -> Result<Exit, Failure> {
    let held = hold(file).await?;
    let verified = Backup::open(&held.path).and_then(Backup::verify).map_err(|error| unusable(&error))?;
    desk.printer.one(&BackupView::of(file, verified))?;
    Ok(Exit::Done)
}

/// The first member of a cluster that begins anew, as it was asked for.
fn founder(args: FounderArgs, data_dir: PathBuf) -> Result<Founder, Failure> {
    const WHAT: &str = "the pool did not begin anew";
    if args.address.is_empty() {
        return Err(Failure::new(Exit::Usage, WHAT, "nobody knows where the new member will be reached")
            .next("give --address HOST:PORT"));
    }
    let address: Address = args.address.parse().map_err(|error| Failure::from_error(Exit::Usage, WHAT, &error))?;
    Ok(Founder { data_dir, address: address.to_string(), name: args.name, cluster_id: args.cluster_id })
}

async fn restore(mut desk: Desk, file: &str, args: FounderArgs, data_dir: PathBuf, yes: bool) -> Result<Exit, Failure> {
    let founder = founder(args, data_dir)?;
    confirm(yes, RESTORE_QUESTION)?;
    let held = hold(file).await?;
    let begun = backup::restore(&held.path, &founder).map_err(|error| not_begun(&error))?;
    desk.printer.one(&BegunView::of(file, &founder.data_dir, begun))?;
    Ok(Exit::Done)
}

fn not_begun(error: &FoundError) -> Failure {
    let exit = match error {
        FoundError::SameCluster { .. } | FoundError::ClusterId(_) | FoundError::NotEmpty { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::from_error(exit, "the pool did not begin anew", error)
}

/// Shows what stopped members have, and lets the pool begin anew from the one that has most.
pub(super) fn recover(mut desk: Desk, args: RecoverArgs) -> Result<Exit, Failure> {
    let failed = |error: &RecoverError| match error {
        RecoverError::Found(error) => not_begun(error),
        _ => Failure::from_error(Exit::Failed, "the pool did not begin anew", error),
    };
    let survivors: Result<Vec<Survivor>, RecoverError> =
        args.from.iter().map(|folder| Survivor::look(folder)).collect();
    let survivors = survivors.map_err(|error| failed(&error))?;
    let Some(into) = args.into else {
        desk.printer.list(&SurvivorView::list(&survivors))?;
        return Ok(Exit::Done);
    };
    let founder = founder(args.founder, into)?;
    if !args.accept_loss {
        return Err(Failure::new(
            Exit::Usage,
            "the pool did not begin anew",
            "what the lost majority acknowledged and these folders do not have would be lost, and nobody can tell what \
             that is; and members of the old cluster that were started later would go on without this one",
        )
        .next("bring a majority of the members back if that is possible in any way; if not, add --accept-loss"));
    }
    let (most, begun) = backup::recover(&survivors, &founder).map_err(|error| failed(&error))?;
    remark(&format!(
        "warning: what the lost majority acknowledged after entry {} of term {} is lost; the last {} entries of member {} \
         were not known to be committed, and are kept",
        most.last.1.0,
        most.last.0.0,
        most.uncommitted(),
        most.member
    ));
    desk.printer.one(&BegunView::of(&most.data_dir.display().to_string(), &founder.data_dir, begun))?;
    Ok(Exit::Done)
}
