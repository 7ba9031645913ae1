//! `tessera cluster snapshot` and `tessera cluster recover`.

use std::path::{Path, PathBuf};

use tessera_client::{Address, ClientError};
use tessera_controller::backup::{self, Backup, BackupError, FoundError, Founder, Partial, RecoverError, Survivor};

use super::Desk;
use crate::args::{FounderArgs, RecoverArgs, SnapshotVerb};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::{confirm, remark};
use crate::view::{BackupView, BegunView, SurvivorView};

/// What an operator must know before a pool begins anew.
const RESTORE_QUESTION: &str = "The pool begins anew as it was at the backup: what was submitted, granted or ended since is \
     forgotten. Is every member of the old cluster stopped, never to be started again?";

/// Does a verb of `tessera cluster snapshot`.
pub(super) async fn run(desk: Desk, verb: SnapshotVerb) -> Result<Exit, Failure> {
    match verb {
        SnapshotVerb::Save { file } => save(desk, &file).await,
        SnapshotVerb::Inspect { file } => inspect(desk, &file),
        SnapshotVerb::Restore { file, founder, data_dir, yes } => restore(desk, &file, founder, data_dir, yes),
    }
}

async fn save(mut desk: Desk, file: &Path) -> Result<Exit, Failure> {
    let what = || format!("{} was not saved", file.display());
    let unwritten = |error: std::io::Error| {
        Failure::from_error(Exit::Failed, what(), &error)
            .next("nothing was left of it; make room, or name another place")
    };
    let failed = |error: &ClientError| Failure::call(what(), error);
    let mut partial = Partial::create(file).map_err(unwritten)?;
    let mut saving = desk.client.save_snapshot().await.map_err(|error| failed(&error))?;
    while let Some(bytes) = saving.next().await.map_err(|error| failed(&error))? {
        partial.write(&bytes).map_err(unwritten)?;
    }
    let verified = Backup::open(partial.written()).and_then(Backup::verify);
    let verified =
        verified.map_err(|error| Failure::from_error(Exit::Unavailable, what(), &error).next("try again"))?;
    partial.publish().map_err(unwritten)?;
    desk.printer.one(&BackupView::of(file, verified))?;
    Ok(Exit::Done)
}

fn unusable(error: &BackupError) -> Failure {
    Failure::from_error(Exit::Failed, "the backup cannot be used", error)
}

fn inspect(mut desk: Desk, file: &Path) -> Result<Exit, Failure> {
    let verified = Backup::open(file).and_then(Backup::verify).map_err(|error| unusable(&error))?;
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

fn restore(mut desk: Desk, file: &Path, args: FounderArgs, data_dir: PathBuf, yes: bool) -> Result<Exit, Failure> {
    let founder = founder(args, data_dir)?;
    confirm(yes, RESTORE_QUESTION)?;
    let begun = backup::restore(file, &founder).map_err(|error| not_begun(&error))?;
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
    desk.printer.one(&BegunView::of(&most.data_dir, &founder.data_dir, begun))?;
    Ok(Exit::Done)
}
