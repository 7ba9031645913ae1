//! Output that cannot be written: a full device, a pipe that nobody reads, one that nobody empties. Every command ends
//! with its own code all the same, or with that of output that cannot be written.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::fcntl::{FcntlArg, fcntl};

use super::program::{closed_port, command, text};

/// A device that is always full.
pub fn full() -> File {
    File::options().write(true).open("/dev/full").expect("every Linux has it")
}

/// A pipe that nobody reads any more.
pub fn unread() -> PipeWriter {
    pipe().expect("a pipe").1
}

/// A full pipe that its reader holds open and does not read.
pub fn stuffed() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    let size = fcntl(&writer, FcntlArg::F_GETPIPE_SZ).expect("pipes have a size");
    writer.write_all(&vec![b'x'; usize::try_from(size).expect("a size")]).expect("there is as much room");
    (reader, writer)
}

/// Every command, in a way in which it ends by itself, and its exit code where it has nothing to print: nobody answers
/// it, or it is refused. `None`: it has an answer, which cannot be written.
const TYPED: [(&str, Option<i32>); 76] = [
    ("--help", None),
    ("--version", None),
    ("agent", Some(2)),
    ("card list", Some(5)),
    ("card show n/0", Some(5)),
    ("cluster init", Some(5)),
    ("cluster member add 127.0.0.1:1", Some(5)),
    ("cluster member list", Some(5)),
    ("cluster member promote 1", Some(5)),
    ("cluster member remove 1 -y", Some(5)),
    ("cluster recover --from nothing", Some(1)),
    ("cluster snapshot inspect nothing", Some(1)),
    ("cluster snapshot list .", None),
    ("cluster snapshot restore nothing --data-dir made", Some(2)),
    ("cluster snapshot save saved", Some(5)),
    ("cluster status", Some(5)),
    ("cluster transfer-leader", Some(5)),
    ("completions bash", None),
    ("context list", None),
    ("context show", None),
    ("context use here --server 127.0.0.1:1", None),
    ("dev --members 2", Some(2)),
    ("job cancel 1 -y", Some(5)),
    ("job checkpoints 1", Some(5)),
    ("job events", Some(5)),
    ("job hold 1", Some(5)),
    ("job list -vv", Some(5)),
    ("job logs 1", Some(5)),
    ("job move 1 -y", Some(5)),
    ("job plan job.yaml", Some(5)),
    ("job release 1", Some(5)),
    ("job resume 1", Some(5)),
    ("job run --help", None),
    ("job run -- true", Some(5)),
    ("job show 1", Some(5)),
    ("job submit job.yaml", Some(5)),
    ("job suspend 1", Some(5)),
    ("job top", Some(5)),
    ("job wait 1", Some(5)),
    ("job why 1", Some(5)),
    ("man manual", Some(0)),
    ("node confirm-stopped n -y", Some(5)),
    ("node cordon n", Some(5)),
    ("node drain n -y", Some(5)),
    ("node forget n -y", Some(5)),
    ("node list", Some(5)),
    ("node show n", Some(5)),
    ("node uncordon n", Some(5)),
    ("operator debug --output made.tar.gz", None),
    ("operator doctor", None),
    ("operator replay --data-dir nothing", Some(1)),
    ("pool compact", Some(5)),
    ("pool config set --job-limit 5", Some(5)),
    ("pool config show", Some(5)),
    ("pool map", Some(5)),
    ("pool show", Some(5)),
    ("pool verify", Some(5)),
    ("pool what-if add gpu:8", Some(5)),
    ("pool what-if drain n", Some(5)),
    ("pool what-if queue q", Some(5)),
    ("queue list", Some(5)),
    ("queue remove q -y", Some(5)),
    ("queue set q", Some(5)),
    ("queue show q", Some(5)),
    ("run -- true", Some(5)),
    ("schema", None),
    ("server", Some(2)),
    ("simulate --cluster nodes.csv --jobs jobs.csv", None),
    ("simulate --cluster nodes.csv --jobs jobs.csv --policy best-fit --events /dev/full", Some(1)),
    ("simulate --cluster nodes.csv --jobs jobs.csv --report /dev/full", Some(1)),
    ("simulate cards --jobs jobs.csv", None),
    ("simulate saturate --cluster nodes.csv --jobs jobs.csv --seeds 1", None),
    ("supervise nothing", Some(1)),
    ("top", Some(5)),
    ("usage", Some(5)),
    ("version", None),
];

/// Words that are typed wrongly, or about what is not there.
const REFUSED: [(&str, Option<i32>); 2] = [("job sumbit", Some(2)), ("context use nowhere", Some(3))];

/// Something to write to, and what is wrong with it.
#[derive(Clone, Copy, Debug)]
enum Bad {
    Full,
    Unread,
}

impl Bad {
    fn end(self) -> Stdio {
        match self {
            Self::Full => full().into(),
            Self::Unread => unread().into(),
        }
    }
}

/// Everything that is typed here reads its files from this folder.
fn files(folder: &Path) {
    let files = [
        ("job.yaml", "command: [\"true\"]\nvirtual_card: {tflops: 1}\n"),
        ("nodes.csv", "node,cards,cpu_milli,memory_mib\nn,2,16000,65536\n"),
        ("jobs.csv", "job,cards,card_milli,cpu_milli,memory_mib,submitted_s,runtime_s\npart,1,500,1000,1024,0,10\n"),
    ];
    files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).expect("written"));
}

/// The code with which a command ends whose output is `out`; its errors go to `err`, or are returned.
fn ends(typed: &str, server: &str, out: Bad, err: Option<Bad>) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    files(folder.path());
    let words: Vec<&str> = typed.split(' ').collect();
    let mut command = command(folder.path(), &words);
    command.current_dir(folder.path()).env("TESSERA_SERVER", server).env("TESSERA_TIMEOUT", "300ms");
    command.stdin(Stdio::null()).stdout(out.end()).stderr(err.map_or_else(Stdio::piped, Bad::end));
    let ended = command.output().expect("the program starts");
    (ended.status.code(), text(&ended.stderr))
}

/// Does something with each of these, some at once.
fn side_by_side<T: Sync>(all: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            each(one);
        }
    };
    thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn a_command_whose_output_cannot_be_written_ends_with_its_own_code_and_says_why_where_it_can() {
    let server = format!("127.0.0.1:{}", closed_port());
    let fates =
        [(Bad::Full, Some(Bad::Unread)), (Bad::Unread, Some(Bad::Full)), (Bad::Full, None), (Bad::Unread, None)];
    let all = TYPED.iter().chain(&REFUSED).flat_map(|(typed, own)| fates.map(|fate| (*typed, *own, fate)));
    // One that has no answer is silent about its output.
    let all: Vec<_> = all.filter(|(_, own, (_, err))| own.is_none() || err.is_some()).collect();
    side_by_side(&all, |(typed, own, (out, err))| {
        let (code, said) = ends(typed, &server, *out, *err);
        let unwritten = match out {
            Bad::Full => 8,
            Bad::Unread => 141,
        };
        assert_eq!(code, Some(own.unwrap_or(unwritten)), "{typed}: {out:?} and {err:?}: {said}");
        match (err, out) {
            (None, Bad::Full) => {
                let why = "error: the output cannot be written\n  why: No space left";
                assert!(said.contains(why), "{typed}: {said}");
            }
            (None, Bad::Unread) => assert!(!said.contains("error:"), "{typed}: {said}"),
            (Some(_), _) => {}
        }
    });
}

/// The commands that do something, as they are typed.
fn leaves(of: &clap::Command, path: &str, leaves: &mut BTreeSet<String>) {
    for verb in of.get_subcommands() {
        let path = format!("{path} {}", verb.get_name()).trim_start().to_owned();
        if !verb.is_subcommand_required_set() {
            leaves.insert(path.clone());
        }
        self::leaves(verb, &path, leaves);
    }
}

#[test]
fn every_command_is_tried_with_output_that_cannot_be_written() {
    let mut all = BTreeSet::new();
    leaves(&tessera_cli::args::command(), "", &mut all);
    let typed = |leaf: &str| {
        let begins = |typed: &str| typed == leaf || typed.starts_with(&format!("{leaf} "));
        TYPED.iter().any(|(typed, _)| begins(typed))
    };
    let missing: Vec<&String> = all.iter().filter(|leaf| !typed(leaf)).collect();
    assert!(all.len() > 60 && missing.is_empty(), "say how these end: {missing:?}");
}

#[test]
fn who_holds_standard_error_and_does_not_read_it_holds_nothing_up() {
    let server = format!("127.0.0.1:{}", closed_port());
    let folder = tempfile::tempdir().expect("a folder");
    let (_reader, err) = stuffed();
    let arguments = ["job", "list", "-vv", "-s", &server, "--timeout", "1s"];
    let ended = command(folder.path(), &arguments).stderr(err).status();
    assert_eq!(ended.expect("the program starts").code(), Some(5));
}

#[test]
fn a_judge_that_cannot_be_answered_is_output_that_cannot_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let asked = folder.path().join("asked");
    std::fs::write(&asked, "N,alpha,16000,65536,2,T4\nS\nA,0,whole,4000,1024,2,1000,\n").expect("writable");
    let judged = |out: Stdio| {
        let mut simulate = command(folder.path(), &["simulate", "--online", "--policy", "best-fit"]);
        let ended = simulate.stdin(File::open(&asked).expect("written")).stdout(out).output();
        let ended = ended.expect("the program starts");
        (ended.status.code().expect("it was not killed"), text(&ended.stderr))
    };
    let (code, err) = judged(full().into());
    assert_eq!(code, 8, "{err}");
    assert!(err.starts_with("error: the output cannot be written"), "{err}");
    assert_eq!(judged(unread().into()), (141, String::new()));
}
