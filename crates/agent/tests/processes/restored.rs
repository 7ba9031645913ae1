//! Programs that were dumped by CRIU go on, and find what they had open as their own account could open it: whatever
//! somebody has put in its place meanwhile, root opens nothing for them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use super::counting::{Counting, Held, USER, maps_in, put_link, secret};
use super::support::wait_for;
use tessera_agent::supervisor::status::Phase;

pub const APPENDED: Held<'_> = Held { opens: "exec 5>>$P/log", uses: "echo step $i >&5" };
const READ: Held<'_> = Held { opens: "echo words >$P/log; exec 5<$P/log", uses: "true" };

#[test]
fn what_is_open_is_open_again() {
    let program = Counting::dumped_with(&APPENDED);
    let before = fs::read_to_string(program.in_shared("log")).expect("written").len();
    let (worker, status) = program.restored();
    assert_eq!(status.phase, Phase::Running, "{}", status.message);
    wait_for("its log to grow", || (fs::read_to_string(program.in_shared("log")).ok()?.len() > before).then_some(()));
    // Links lead where they led: they are refused only while files are opened.
    let links = fs::read(format!("/proc/{}/mountinfo", status.process.expect("it runs").pid)).expect("readable");
    assert!(!String::from_utf8_lossy(&links).contains("nosymfollow"));
    drop(worker);
    let terminal = "exec /usr/bin/python3 -uc '
import os, pty, time
near, far = pty.openpty()
for i in range(1 << 30):
    os.write(near, b\"word\\n\")
    assert os.read(far, 64) == b\"word\\n\"
    print(i)
    time.sleep(0.05)'";
    for held in [
        Held { opens: terminal, uses: "true" },
        Held { opens: "exec 5<>$P/file; rm $P/file", uses: "echo step >&5" },
        // One that has ended, and for which nobody has waited.
        Held {
            opens: "sh -c 'exit 3' & exec perl -e '$| = 1; while (1) { print ++$i, \"\\n\"; select undef, undef, undef, 0.05 }'",
            uses: "true",
        },
        Held { opens: "mkfifo $P/fifo; exec 5<>$P/fifo", uses: "echo step >&5; read word <&5" },
        Held {
            opens: "mkdir $P/place; cd $P/place; exec 5</proc/self/status 6</proc/meminfo 7>/dev/null",
            uses: "true",
        },
    ] {
        Counting::dumped_with(&held).goes_on();
    }
}

#[test]
fn a_link_in_the_place_of_what_is_open_is_not_followed() {
    for held in [APPENDED, READ] {
        let program = Counting::dumped_with(&held);
        let (log, hidden) = (program.in_shared("log"), program.in_secret("file"));
        let kept = secret(&hidden);
        put_link(&hidden, &log);
        program.is_refused_for_link(&log);
        assert_eq!(fs::read_to_string(&hidden).expect("there"), kept);
        // It goes on when the file is there again.
        fs::rename(log.with_extension("before"), &log).expect("it is there");
        program.goes_on();
    }
}

#[test]
fn a_link_in_the_place_of_a_folder_is_not_followed() {
    let program = Counting::dumped_with(&Held {
        opens: "mkdir $P/place; exec 5>$P/place/file; rm $P/place/file",
        uses: "echo >&5",
    });
    put_link(program.secret.path(), &program.in_shared("place"));
    program.is_refused("place/file is reached through a symbolic link");
    assert_eq!(fs::read_dir(program.secret.path()).expect("there").count(), 0, "nothing was made there");

    let program = Counting::dumped_with(&Held { opens: "mkdir $P/place; cd $P/place", uses: "true" });
    put_link(program.secret.path(), &program.in_shared("place"));
    program.is_refused_for_link(&program.in_shared("place"));
}

#[test]
fn a_link_in_the_place_of_a_fifo_or_a_socket_is_not_followed() {
    let program = Counting::dumped_with(&Held { opens: "mkfifo $P/fifo; exec 5<>$P/fifo", uses: "true" });
    let hidden = program.in_secret("fifo");
    nix::unistd::mkfifo(&hidden, nix::sys::stat::Mode::S_IRWXU).expect("made");
    put_link(&hidden, &program.in_shared("fifo"));
    program.is_refused_for_link(&program.in_shared("fifo"));

    let listens = "exec perl -MIO::Socket::UNIX -e '$| = 1; mkdir \"$ARGV[0]/place\";
        my $socket = IO::Socket::UNIX->new(Local => \"$ARGV[0]/place/socket\", Listen => 1) or die $!;
        while (1) { print ++$i, \"\\n\"; select undef, undef, undef, 0.05; }' $P";
    let program = Counting::dumped_with(&Held { opens: listens, uses: "true" });
    put_link(program.secret.path(), &program.in_shared("place"));
    program.is_refused("place/socket is reached through a symbolic link");
    assert_eq!(fs::read_dir(program.secret.path()).expect("there").count(), 0, "nothing was made there");
}

/// Files that would have to be made anew in such places could not be given back safely. That is found out before the
/// program is gone.
#[test]
fn what_lies_in_folders_that_others_change_or_behind_links_is_not_dumped() {
    let listens = "exec perl -MIO::Socket::UNIX -e '$| = 1;
        my $socket = IO::Socket::UNIX->new(Local => \"$ARGV[0]/socket\", Listen => 1) or die $!;
        while (1) { print ++$i, \"\\n\"; select undef, undef, undef, 0.05; }' ";
    let sends = "exec /usr/bin/python3 -uc '
import socket, time
near, far = socket.socketpair()
with open(\"/etc/hostname\") as file:
    socket.send_fds(near, [b\"x\"], [file.fileno()])
for i in range(1 << 30):
    print(i)
    time.sleep(0.05)'";
    let through_link = format!("mkdir $P/real; ln -s real $P/link; {listens} $P/link");
    let of_all = format!("mkdir -m 777 $P/open; {listens} $P/open");
    for (opens, why) in [
        (&*through_link, "link/socket is reached through a symbolic link"),
        (&of_all, "everybody may put something in its place"),
        ("mkdir -m 777 $P/open; exec 5<>$P/open/file; rm $P/open/file", "everybody may put something in its place"),
        ("mkdir $P/gone; cd $P/gone; rmdir $P/gone", "gone was removed"),
        (sends, "a file was sent through one of its sockets"),
    ] {
        let (_, status) = Counting::stopped_with(&Held { opens, uses: "true" });
        assert!(status.image.is_none() && status.not_saved.contains(why), "{why}: {}", status.not_saved);
    }
}

/// A mapping that is shared and written is a file that is open to be written, though no descriptor leads to it.
#[test]
fn what_is_mapped_to_be_written_is_asked_for_as_that() {
    let maps = maps_in("$P");
    let program = Counting::dumped_with(&Held { opens: &maps, uses: "true" });
    let data = program.in_shared("data");
    fs::rename(&data, data.with_extension("before")).expect("it is there");
    fs::write(&data, [b' '; 4096]).expect("writable");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o644)).expect("mine");
    fs::rename(data.with_extension("before"), data.with_extension("kept")).expect("it is there");
    let mode = fs::metadata(data.with_extension("kept")).expect("there").permissions();
    fs::set_permissions(&data, mode).expect("mine");
    program.is_refused(&format!("{} is open in it, and its account may not open that", data.display()));
    assert_eq!(fs::read(&data).expect("there"), [b' '; 4096], "nothing was written");
}

#[test]
fn a_program_is_run_and_mapped_from_where_it_was_and_nowhere_else() {
    // `dash` again, of the shared folder.
    let held = Held {
        opens: "[ \"$0\" = $P/own ] || { cp /bin/sh $P/own; exec $P/own -c 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done'; }",
        uses: "true",
    };
    let program = Counting::dumped_with(&held);
    let (own, hidden) = (program.in_shared("own"), program.in_secret("own"));
    fs::copy(&own, &hidden).expect("copied");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).expect("mine");
    put_link(&hidden, &own);
    program.is_refused_for_link(&own);
    // No link: the very file, which is root's.
    fs::rename(&hidden, &own).expect("on one file system");
    chown(&own, Some(0), Some(0)).expect("this takes root");
    program.is_refused(&format!("{} is open in it", own.display()));
    fs::rename(own.with_extension("before"), &own).expect("it is there");
    program.goes_on();
}

/// A folder that an account may write lets it put a file of root in the place of its own.
#[test]
fn a_file_of_root_in_the_place_of_what_is_open_is_not_for_the_account() {
    for held in [APPENDED, READ, Held { opens: "exec 5<>$P/log", uses: "true" }] {
        let program = Counting::dumped_with(&held);
        let log = program.in_shared("log");
        fs::rename(&log, log.with_extension("before")).expect("it is there");
        let kept = secret(&log);
        program.is_refused(&format!("{} is open in it, and its account may not open that", log.display()));
        assert_eq!(fs::read_to_string(&log).expect("there"), kept);
        // Its own is.
        chown(&log, Some(USER), Some(USER)).expect("this takes root");
        program.goes_on();
    }
}
