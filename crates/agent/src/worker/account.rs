//! Under which identity workers run: never the agent's own, unless the operator says so.
//!
//! A worker that ran as the agent's user could renew its own lease, kill its supervisor, read other jobs' files and the
//! members' data. So workers get a user id that no other job of the node has at the time, from a range that no account
//! of the host uses; or, when the operator says so, the account of whoever submitted the job.
//!
//! The id follows from the job's number: the workers of a job share memory and files, and its next attempt, on whatever
//! node, may read and replace what the one before has written to a shared folder.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::{Gid, Group, Uid, User, geteuid, getgrouplist};
use serde::{Deserialize, Serialize};

use super::folder::WorkerFolders;
use super::id::WorkerId;

/// The first folder, from this one upwards, through which whoever is not its owner cannot pass.
///
/// # Errors
/// What the file system says, also of a folder that is not there.
pub fn closed_to_others(folder: &Path) -> io::Result<Option<PathBuf>> {
    for folder in folder.ancestors() {
        if fs::metadata(folder)?.permissions().mode() & 0o001 == 0 {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}

/// A user id, its group, and the further groups of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    /// Further groups, such as those that own device files.
    pub groups: Vec<u32>,
    /// Name and home of an account of the host; `None` for an id from the range, which has neither.
    pub person: Option<Person>,
}

/// The entry of an account in the host's user database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    pub name: String,
    pub home: String,
}

/// A range of user ids for workers. Group ids of the same numbers belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct UserIds {
    pub first: u32,
    pub count: u32,
}

impl Default for UserIds {
    /// Above the ids of accounts, and of the ranges that containers are usually given.
    fn default() -> Self {
        Self { first: 1_879_048_192, count: 65_536 }
    }
}

/// A text that names no range of user ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of user ids; write FIRST:COUNT, with FIRST at least 1000 and COUNT at least 1")]
pub struct NotARange(String);

impl FromStr for UserIds {
    type Err = NotARange;

    fn from_str(text: &str) -> Result<Self, NotARange> {
        let parse = || {
            let (first, count) = text.split_once(':')?;
            let ids = Self { first: first.trim().parse().ok()?, count: count.trim().parse().ok()? };
            // The two highest ids mean "none" to the kernel.
            (ids.first >= 1000 && ids.count > 0 && ids.first.checked_add(ids.count)? < u32::MAX - 1).then_some(ids)
        };
        parse().ok_or_else(|| NotARange(text.to_owned()))
    }
}

impl TryFrom<String> for UserIds {
    type Error = NotARange;

    fn try_from(text: String) -> Result<Self, NotARange> {
        text.parse()
    }
}

impl fmt::Display for UserIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.first, self.count)
    }
}

/// The identities under which workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// A user id of its own, from this range, for the workers of each job.
    Range(UserIds),
    /// As the account of the host that has the name of the job's submitter, if its user id is at least this: accounts
    /// below belong to services, and a submitter says of himself who he is.
    Submitter { least_uid: u32 },
    /// As the agent: for hosts of one person, where work may do what the person may.
    Agent,
}

impl Default for RunAs {
    /// The range where the agent may give identities away, which takes root; otherwise its own.
    fn default() -> Self {
        if geteuid().is_root() { Self::Range(UserIds::default()) } else { Self::Agent }
    }
}

/// No identity can be had for a worker.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The host has no such account.
    #[error(
        "this node runs work under the account of its submitter, and has none called `{0}`; make one, or submit as another"
    )]
    Unknown(String),
    /// An account that work may not run under.
    #[error("this node runs work under the account of its submitter, and `{name}` {why}; submit as somebody else")]
    Closed { name: String, why: String },
    /// The system does not say.
    #[error("the accounts of this node cannot be read: {0}")]
    Unreadable(#[source] nix::errno::Errno),
    /// Every id of the range is in use.
    #[error("all {0} user ids for workers are in use; give the agent a longer range")]
    Exhausted(u32),
    /// A group that does not exist.
    #[error("this node has no group called `{0}`, which its configuration gives to workers")]
    UnknownGroup(String),
}

/// The least user id of a person's account unless configured otherwise, as the tools of distributions have it.
pub const LEAST_UID: u32 = 1000;

/// Groups whose members become root, or who are the control plane: by what they may open, by whom they may ask.
const POWERFUL_GROUPS: [&str; 9] = ["root", "disk", "docker", "kvm", "lxd", "shadow", "sudo", "wheel", "tessera"];

/// Gives workers their identities.
#[derive(Clone, Debug)]
pub struct Accounts {
    run_as: RunAs,
    groups: Vec<u32>,
    taken: Arc<Mutex<BTreeMap<WorkerId, Taken>>>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    job: u64,
    uid: u32,
}

impl Accounts {
    /// Identities by this rule; `groups` are given to each worker.
    ///
    /// # Errors
    /// When a group does not exist.
    pub fn new(run_as: RunAs, groups: &[String]) -> Result<Self, AccountError> {
        let id = |name: &String| match Group::from_name(name).map_err(AccountError::Unreadable)? {
            Some(group) => Ok(group.gid.as_raw()),
            None => Err(AccountError::UnknownGroup(name.clone())),
        };
        Ok(Self { run_as, groups: groups.iter().map(id).collect::<Result<_, _>>()?, taken: Arc::default() })
    }

    /// The identity of a worker; `None`: the agent's own.
    ///
    /// # Errors
    /// When there is none for it.
    pub fn take(&self, worker: WorkerId, job: u64, submitter: &str) -> Result<Option<Account>, AccountError> {
        match self.run_as {
            RunAs::Agent => Ok(None),
            RunAs::Submitter { least_uid } => self.of_person(submitter, least_uid).map(Some),
            RunAs::Range(ids) => {
                let uid = self.free_id(worker, job, ids).ok_or(AccountError::Exhausted(ids.count))?;
                Ok(Some(Account { uid, gid: uid, groups: self.groups.clone(), person: None }))
            }
        }
    }

    /// Remembers whom an adopted worker runs as: the owner of its own folder.
    ///
    /// # Errors
    /// When the folder cannot be looked at.
    pub fn restore(&self, worker: WorkerId, job: u64, folders: &WorkerFolders) -> io::Result<()> {
        let uid = std::fs::metadata(folders.of(worker).work())?.uid();
        self.lock().insert(worker, Taken { job, uid });
        Ok(())
    }

    /// The worker is over: its id may be another's.
    pub fn release(&self, worker: WorkerId) {
        self.lock().remove(&worker);
    }

    /// The id that follows from the job's number, or the next one that no other job has here: two jobs of this node
    /// meet in an id only when as many were submitted between them as the range has ids.
    fn free_id(&self, worker: WorkerId, job: u64, ids: UserIds) -> Option<u32> {
        let mut taken = self.lock();
        let at = |step: u32| job.wrapping_add(u64::from(step)) % u64::from(ids.count);
        let mut candidates = (0..ids.count).filter_map(|step| Some(ids.first + u32::try_from(at(step)).ok()?));
        let uid = candidates.find(|uid| taken.values().all(|other| other.uid != *uid || other.job == job))?;
        taken.insert(worker, Taken { job, uid });
        Some(uid)
    }

    fn of_person(&self, name: &str, least_uid: u32) -> Result<Account, AccountError> {
        let user = User::from_name(name).map_err(AccountError::Unreadable)?;
        let user = user.ok_or_else(|| AccountError::Unknown(name.to_owned()))?;
        let text = CString::new(name).map_err(|_| AccountError::Unknown(name.to_owned()))?;
        let own = getgrouplist(&text, user.gid).map_err(AccountError::Unreadable)?;
        let named = |gid: &Gid| Group::from_gid(*gid).map(|group| group.map(|group| group.name));
        let names: Vec<Option<String>> =
            own.iter().map(named).collect::<Result<_, _>>().map_err(AccountError::Unreadable)?;
        if let Some(why) = why_closed(user.uid, least_uid, names.iter().flatten()) {
            return Err(AccountError::Closed { name: name.to_owned(), why });
        }
        let groups = own.into_iter().map(Gid::as_raw).chain(self.groups.iter().copied()).collect();
        let person = Person { name: user.name, home: user.dir.display().to_string() };
        Ok(Account { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups, person: Some(person) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<WorkerId, Taken>> {
        // Every change is one insertion or removal: a panic elsewhere leaves nothing half made.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says why no work runs under an account, if none does.
fn why_closed<'a>(uid: Uid, least_uid: u32, groups: impl IntoIterator<Item = &'a String>) -> Option<String> {
    if uid.as_raw() < least_uid || uid.is_root() || uid == geteuid() {
        return Some(format!("is no person's account: its user id is {uid}, and work runs from {least_uid} on"));
    }
    let powerful = groups.into_iter().find(|group| POWERFUL_GROUPS.contains(&group.as_str()))?;
    Some(format!("is in the group `{powerful}`, whose members may become root"))
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{AllocationId, Epoch, Rank};

    use super::*;

    fn worker(epoch: u64, rank: u32) -> WorkerId {
        WorkerId { allocation: AllocationId(epoch), epoch: Epoch(epoch), rank: Rank(rank) }
    }

    fn accounts() -> Accounts {
        Accounts::new(RunAs::Range(UserIds { first: 5000, count: 4 }), &[]).expect("no groups")
    }

    fn uid(accounts: &Accounts, of: WorkerId, job: u64) -> u32 {
        accounts.take(of, job, "anna").expect("free ids").expect("an id of its own").uid
    }

    #[test]
    fn no_two_jobs_have_one_id_at_once() {
        let accounts = accounts();
        // Numbers that fall on the same place of the range.
        let given: std::collections::BTreeSet<u32> =
            [4, 8, 12, 16].map(|job| uid(&accounts, worker(job, 0), job)).into();
        assert_eq!(given, (5000..5004).collect());
        let refused = accounts.take(worker(20, 0), 20, "anna").expect_err("all are taken");
        assert!(refused.to_string().contains("all 4 user ids"), "{refused}");
        accounts.release(worker(12, 0));
        assert!(accounts.take(worker(20, 0), 20, "anna").is_ok());
    }

    #[test]
    fn the_workers_and_attempts_of_a_job_have_one_id_on_every_node() {
        let (here, there) = (accounts(), accounts());
        let first = uid(&here, worker(10, 0), 7);
        assert_eq!([uid(&here, worker(10, 1), 7), uid(&there, worker(30, 0), 7)], [first; 2]);
        assert_ne!(uid(&here, worker(11, 0), 8), first);
    }

    #[test]
    fn a_submitter_without_an_account_and_accounts_of_services_are_refused() {
        let accounts = Accounts::new(RunAs::Submitter { least_uid: LEAST_UID }, &[]).expect("no groups");
        let refused = |name: &str| accounts.take(worker(1, 0), 1, name).expect_err("refused").to_string();
        assert!(refused("no-such-person-here").contains("no-such-person-here"));
        for of_service in ["root", "daemon"] {
            assert!(refused(of_service).contains("no person's account"), "{}", refused(of_service));
        }
        for (uid, groups, is_closed) in
            [(1000, "docker", true), (999, "users", true), (0, "users", true), (1000, "users", false)]
        {
            let why = why_closed(Uid::from_raw(uid), LEAST_UID, &[groups.to_owned()]);
            assert_eq!(why.is_some(), is_closed, "{uid} in {groups}: {why:?}");
        }
        assert!(why_closed(Uid::from_raw(0), 0, &[]).is_some(), "root is nobody's account, whatever was configured");
        let nobody = accounts.take(worker(1, 0), 1, "nobody").expect("every host has it").expect("an account");
        assert_eq!(nobody.person.expect("a person").name, "nobody");
        assert!(Accounts::new(RunAs::Agent, &["no-such-group".to_owned()]).is_err());
    }

    #[test]
    fn ranges_are_written_as_first_and_count() {
        assert_eq!("5000:100".parse(), Ok(UserIds { first: 5000, count: 100 }));
        for wrong in ["", "5000", "0:10", "5000:0", "4294967295:1", "a:b"] {
            assert!(wrong.parse::<UserIds>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_worker_has_the_groups_that_are_set() {
        let name = Group::from_gid(Gid::from_raw(1)).expect("readable").expect("every host has it").name;
        for (worker_groups, gids) in [(vec![], vec![]), (vec![name], vec![1])] {
            let accounts = Accounts::new(RunAs::Range(UserIds::default()), &worker_groups).expect("it exists");
            let account = accounts.take(worker(1, 0), 1, "anna").expect("free ids").expect("an id of its own");
            assert_eq!(account.groups, gids);
        }
    }
}
