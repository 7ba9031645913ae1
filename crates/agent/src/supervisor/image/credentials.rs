//! The identity that each process and thread of an image has in it: CRIU gives it to them as root, without a question.
//! Files of an image come from another host, and a host that lies would hand out every identity of this one. So the
//! image's own words are compared with the account that the worker has here before anything is restored.
//!
//! Fields are those of `core.proto` and `creds.proto` of CRIU
//! (<https://github.com/checkpoint-restore/criu>, `images`).

use std::io;
use std::path::Path;

use prost::Message;

use super::files::all;
use super::identity;
use crate::worker::Account;

/// A process that has ended and that nobody has waited for, as CRIU has it.
const DEAD: u32 = 2;

/// One thread of an image.
#[derive(Clone, PartialEq, Message)]
struct Core {
    #[prost(message, optional, tag = "3")]
    process: Option<Process>,
    #[prost(message, optional, tag = "5")]
    thread: Option<Thread>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(uint32, tag = "1")]
    state: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Thread {
    #[prost(message, optional, tag = "10")]
    credentials: Option<Credentials>,
}

/// The identity of a thread, and its rights.
#[derive(Clone, PartialEq, Message)]
struct Credentials {
    #[prost(uint32, tag = "1")]
    user: u32,
    #[prost(uint32, tag = "2")]
    group: u32,
    #[prost(uint32, tag = "3")]
    effective_user: u32,
    #[prost(uint32, tag = "4")]
    effective_group: u32,
    #[prost(uint32, tag = "5")]
    saved_user: u32,
    #[prost(uint32, tag = "6")]
    saved_group: u32,
    #[prost(uint32, tag = "7")]
    files_user: u32,
    #[prost(uint32, tag = "8")]
    files_group: u32,
    #[prost(uint32, repeated, tag = "9")]
    inheritable: Vec<u32>,
    #[prost(uint32, repeated, tag = "10")]
    permitted: Vec<u32>,
    #[prost(uint32, repeated, tag = "11")]
    effective: Vec<u32>,
    #[prost(uint32, repeated, tag = "14")]
    groups: Vec<u32>,
    #[prost(uint32, tag = "18")]
    no_new_privileges: u32,
    #[prost(uint32, repeated, tag = "19")]
    ambient: Vec<u32>,
}

/// Compares the identity of each thread of an image with that of the worker; `None`: the worker runs as this process
/// does, and may do what this process may.
///
/// # Errors
/// The image cannot be read, names no identity, or another one than the worker's.
pub(super) fn check(image: &Path, account: Option<&Account>) -> io::Result<()> {
    let threads: Vec<Core> = all(image, "core-")?;
    if threads.is_empty() {
        return Err(io::Error::other("there is no process in the image"));
    }
    threads.into_iter().try_for_each(|core| {
        let found = core.thread.and_then(|thread| thread.credentials);
        // What has ended executes nothing any more, and has no identity.
        if found.is_none() && core.process.is_some_and(|process| process.state == DEAD) {
            return Ok(());
        }
        found.ok_or_else(|| io::Error::other("a process of the image has no identity"))?.check(account)
    })
}

impl Credentials {
    fn check(&self, account: Option<&Account>) -> io::Result<()> {
        let (user, group) = identity(account);
        let users = [self.user, self.effective_user, self.saved_user, self.files_user];
        let groups = [self.group, self.effective_group, self.saved_group, self.files_group];
        if let Some(other) = users.into_iter().find(|other| *other != user) {
            return Err(io::Error::other(format!("a process of the image is user {other}, and would be {user} here")));
        }
        let Some(account) = account else { return Ok(()) };
        let further = groups.into_iter().chain(self.groups.iter().copied());
        if let Some(other) = further.into_iter().find(|other| *other != group && !account.groups.contains(other)) {
            return Err(io::Error::other(format!("a process of the image is of group {other}, and its worker is not")));
        }
        let rights = [&self.inheritable, &self.permitted, &self.effective, &self.ambient];
        let has_rights = user != 0 && rights.into_iter().flatten().any(|word| *word != 0);
        if has_rights || self.no_new_privileges != 1 {
            return Err(io::Error::other("a process of the image has rights that no worker is given"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::files::{append, head};
    use super::*;

    fn account() -> Account {
        Account { uid: 5000, gid: 5001, groups: vec![44], person: None }
    }

    fn honest() -> Credentials {
        let (user, group) = (5000, 5001);
        Credentials {
            user,
            group,
            effective_user: user,
            effective_group: group,
            saved_user: user,
            saved_group: group,
            files_user: user,
            files_group: group,
            inheritable: vec![0, 0],
            permitted: vec![0, 0],
            effective: vec![0, 0],
            groups: vec![44],
            no_new_privileges: 1,
            ambient: vec![],
        }
    }

    fn checked(images: &[(&str, Core)]) -> io::Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, core) in images {
            let mut image = head();
            append(&core.encode_to_vec(), &mut image).expect("a short message");
            fs::write(folder.path().join(name), image).expect("written");
        }
        check(folder.path(), Some(&account()))
    }

    fn core(credentials: Credentials) -> Core {
        Core { process: None, thread: Some(Thread { credentials: Some(credentials) }) }
    }

    fn without_identity(state: u32) -> Core {
        Core { process: Some(Process { state }), thread: None }
    }

    #[test]
    fn whoever_an_image_was_dumped_as_may_go_on() {
        checked(&[("core-2.img", core(honest())), ("core-3.img", core(honest()))]).expect("it is the worker's own");
        checked(&[("core-2.img", core(honest())), ("core-3.img", without_identity(DEAD))]).expect("one has ended");
    }

    #[test]
    fn no_image_makes_its_processes_somebody_else() {
        type Change = fn(&mut Credentials);
        let changes: [(Change, &str); 10] = [
            (|who| who.user = 0, "user 0"),
            (|who| who.effective_user = 0, "user 0"),
            (|who| who.saved_user = 1000, "user 1000"),
            (|who| who.files_user = 0, "user 0"),
            (|who| who.saved_group = 6, "group 6"),
            (|who| who.groups.push(0), "group 0"),
            (|who| who.permitted[0] = 1 << 21, "rights"),
            (|who| who.ambient = vec![1], "rights"),
            (|who| who.inheritable[1] = 1, "rights"),
            (|who| who.no_new_privileges = 0, "rights"),
        ];
        for (change, why) in changes {
            let mut other = honest();
            change(&mut other);
            let refused = checked(&[("core-2.img", core(honest())), ("core-3.img", core(other))]);
            let refused = refused.expect_err("another identity").to_string();
            assert!(refused.contains(why), "{refused}");
        }
        checked(&[("core-2.img", Core::default())]).expect_err("it names no identity");
        checked(&[("core-2.img", without_identity(1))]).expect_err("it lives, and names none");
        let mut root = core(Credentials { user: 0, ..honest() });
        root.process = Some(Process { state: DEAD });
        checked(&[("core-2.img", root)]).expect_err("who has an identity is asked for it");
        checked(&[]).expect_err("there is no process in it");
    }
}
