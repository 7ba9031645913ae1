//! A program that is dumped by CRIU with something open, and what its restore comes to.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::support::{Supervised, criu, launch, plan, wait_for};
use tempfile::TempDir;
use tessera_agent::supervisor::image::{ImagePlan, PLACE, make_place};
use tessera_agent::supervisor::message::{Launch, Request};
use tessera_agent::supervisor::output::Stream;
use tessera_agent::supervisor::status::{Cause, Phase, Status};
use tessera_agent::worker::Account;

pub const USER: u32 = 61_234;

fn account() -> Account {
    Account { uid: USER, gid: USER, groups: Vec::new(), person: None }
}

/// The commands that open something of a program in the folder `$P`, and the line that each of its steps does with it.
/// The worker's own folder is `$W`.
pub struct Held<'a> {
    pub opens: &'a str,
    pub uses: &'a str,
}

/// A program that has a file `data` of a folder mapped and counts in it, in place of the loop.
pub fn maps_in(folder: &str) -> String {
    format!(
        "head -c 4096 /dev/zero >{folder}/data; exec /usr/bin/python3 -uc '
import mmap, sys, time
with open(sys.argv[1] + \"/data\", \"r+b\") as file:
    mapped = mmap.mmap(file.fileno(), 4096)
for i in range(1 << 30):
    mapped[0] = i & 127
    print(i)
    time.sleep(0.05)' {folder}"
    )
}

/// A program that counts, of an account of its own, with a folder beside its own one in which it has something open.
pub struct Counting {
    /// The folder that is shared, and which everybody may write.
    pub shared: TempDir,
    /// A folder that only root may read.
    pub secret: TempDir,
    /// Its images lie in its worker's folder.
    pub dumped: Supervised,
}

fn folder(mode: u32) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).expect("mine");
    folder
}

fn of_account(folder: &TempDir, from: Option<PathBuf>, script: &str) -> Launch {
    let mut launch = launch(script);
    launch.account = Some(account());
    launch.image = Some(ImagePlan { from, ..plan(folder, criu()) });
    chown(folder.path().join("work"), Some(USER), Some(USER)).expect("this takes root");
    make_place().expect("this takes root");
    launch
}

impl Counting {
    /// A program that has been dumped with this.
    pub fn dumped_with(held: &Held<'_>) -> Self {
        let (dumped, status) = Self::stopped_with(held);
        let image = status.image.unwrap_or_else(|| panic!("{}: {}", status.message, status.not_saved));
        let record = serde_json::to_vec(&image).expect("plain data");
        fs::write(dumped.dumped.folder.path().join("checkpoint/image.json"), record).expect("writable");
        dumped
    }

    /// The same, whether it could be dumped or not.
    pub fn stopped_with(held: &Held<'_>) -> (Self, Status) {
        let (own, shared, secret) = (folder(0o755), folder(0o1777), folder(0o700));
        let shown = shared.path().display();
        let script = format!(
            "umask 077; P={shown}; W={PLACE}/work; {}; i=0; while :; do i=$((i+1)); echo $i; {}; sleep 0.05; done",
            held.opens, held.uses
        );
        let launch = of_account(&own, None, &script);
        let mut dumped = Supervised::prepare_in(own, launch);
        dumped.send(&Request::Begin);
        dumped.output_with("2\n");
        dumped.stop_and(true, Duration::from_secs(20));
        let status = dumped.stopped();
        (Self { shared, secret, dumped }, status)
    }

    pub fn in_shared(&self, name: &str) -> PathBuf {
        self.shared.path().join(name)
    }

    pub fn in_secret(&self, name: &str) -> PathBuf {
        self.secret.path().join(name)
    }

    /// Restores it in a worker of its own, once that runs or is over.
    pub fn restored(&self) -> (Supervised, Status) {
        self.restored_with(|_| ())
    }

    /// The same, in a worker in whose own folder there is what somebody has put there.
    pub fn restored_with(&self, put: impl FnOnce(&Path)) -> (Supervised, Status) {
        let own = folder(0o755);
        fs::create_dir_all(own.path().join("work")).expect("writable");
        put(&own.path().join("work"));
        let launch = of_account(&own, Some(self.dumped.folder.path().join("checkpoint")), "");
        let mut restored = Supervised::prepare_in(own, launch);
        restored.send(&Request::Begin);
        let status = restored.until(|status| status.process.is_some() || status.phase == Phase::Stopped);
        (restored, status)
    }

    pub fn goes_on(&self) {
        let (worker, status) = self.restored();
        assert_eq!(status.phase, Phase::Running, "{}", status.message);
        wait_for("it to go on", || worker.output(Stream::Stdout).lines().nth(2).map(drop));
    }

    /// Nothing of it runs, for this reason.
    pub fn is_refused(&self, why: &str) {
        Self::is_refused_in(self.restored().0, why);
    }

    pub fn is_refused_in(mut worker: Supervised, why: &str) {
        let status = worker.stopped();
        assert_eq!(status.cause, Some(Cause::NotRestored), "{}", status.message);
        assert!(status.message.contains(why), "{why}: {}", status.message);
        assert_eq!(worker.output(Stream::Stdout), "", "nothing of it went on");
    }

    /// Nothing of it runs, because a link lies in the place of this path.
    pub fn is_refused_for_link(&self, path: &Path) {
        self.is_refused("a symbolic link has been put there since");
        // CRIU names paths from the root on, without it.
        self.is_refused(path.display().to_string().trim_start_matches('/'));
    }
}

/// A file that only root may read or write, with what it holds.
pub fn secret(path: &Path) -> &'static str {
    fs::write(path, "secret\n").expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("mine");
    "secret\n"
}

pub fn put_link(target: &Path, at: &Path) {
    fs::rename(at, at.with_extension("before")).expect("it is there");
    symlink(target, at).expect("made");
}
