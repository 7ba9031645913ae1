//! A program that was dumped goes on in a folder of its own in which somebody has put links meanwhile: none is
//! followed, whatever the program has there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tessera_agent::supervisor::status::Phase;

use super::counting::{Counting, Held, USER, maps_in, secret};
use super::support::wait_for;

/// The part of a message that says that a link has taken the place of what CRIU opens.
const PUT_SINCE: &str = "a symbolic link has been put there since";
const LISTENS: &str = "exec perl -MIO::Socket::UNIX -e '$| = 1; mkdir \"$ARGV[0]/place\";
    my $socket = IO::Socket::UNIX->new(Local => \"$ARGV[0]/place/socket\", Listen => 1) or die $!;
    while (1) { print ++$i, \"\\n\"; select undef, undef, undef, 0.05; }' $W";

/// The thing of root to which a link leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    File,
    Fifo,
    Folder,
}

impl Target {
    fn make(self, program: &Counting) -> std::path::PathBuf {
        let path = program.in_secret("target");
        match self {
            Self::File => drop(secret(&path)),
            Self::Fifo => mkfifo(&path, Mode::S_IRWXU).expect("made"),
            Self::Folder => fs::create_dir(&path).expect("made"),
        }
        path
    }

    fn is_untouched(self, path: &Path) {
        match self {
            Self::File => assert_eq!(fs::read(path).expect("there"), b"secret\n"),
            Self::Fifo => {}
            Self::Folder => assert_eq!(fs::read_dir(path).expect("there").count(), 0, "nothing was made there"),
        }
    }
}

#[test]
fn a_link_in_the_workers_own_folder_is_not_followed() {
    for (opens, uses, name, target, why) in [
        ("echo words >$W/log; exec 5<$W/log", "true", "log", Target::File, PUT_SINCE),
        ("exec 5<>$W/log", "echo step >&5", "log", Target::File, PUT_SINCE),
        ("exec 5>>$W/log", "echo step >&5", "log", Target::File, PUT_SINCE),
        (&maps_in("$W"), "true", "data", Target::File, PUT_SINCE),
        ("mkfifo $W/fifo; exec 5<>$W/fifo", "true", "fifo", Target::Fifo, PUT_SINCE),
        ("mkdir $W/place; cd $W/place", "true", "place", Target::Folder, PUT_SINCE),
        (
            "mkdir $W/place; exec 5>$W/place/file; rm $W/place/file",
            "echo >&5",
            "place",
            Target::Folder,
            "place/file is reached through a symbolic link",
        ),
        (LISTENS, "true", "place", Target::Folder, "place/socket is reached through a symbolic link"),
    ] {
        let program = Counting::dumped_with(&Held { opens, uses });
        let hidden = target.make(&program);
        let (worker, _) = program.restored_with(|work| symlink(&hidden, work.join(name)).expect("made"));
        Counting::is_refused_in(worker, why);
        target.is_untouched(&hidden);
    }
}

#[test]
fn the_file_that_lies_in_the_workers_own_folder_is_open_again() {
    let program = Counting::dumped_with(&Held { opens: "exec 5>>$W/log", uses: "echo step $i >&5" });
    let written = fs::read(program.dumped.folder.path().join("work/log")).expect("it has written");
    let (worker, status) = program.restored_with(|work| {
        fs::write(work.join("log"), &written).expect("writable");
        fs::set_permissions(work.join("log"), fs::Permissions::from_mode(0o600)).expect("mine");
        chown(work.join("log"), Some(USER), Some(USER)).expect("this takes root");
    });
    assert_eq!(status.phase, Phase::Running, "{}", status.message);
    let log = worker.folder.path().join("work/log");
    wait_for("its log to grow", || (fs::read(&log).ok()?.len() > written.len()).then_some(()));
}

/// A removed file has its name again for a moment while it is opened.
#[test]
fn a_link_in_the_place_of_a_removed_file_is_neither_followed_nor_given_away() {
    let program = Counting::dumped_with(&Held { opens: "exec 5>$W/file; rm $W/file", uses: "echo step >&5" });
    let hidden = Target::File.make(&program);
    let (_worker, _) = program.restored_with(|work| symlink(&hidden, work.join("file")).expect("made"));
    Target::File.is_untouched(&hidden);
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(&hidden).expect("there")), 0);
}
