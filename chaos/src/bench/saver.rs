//! The program that is interrupted while it is measured ([`super::motion`]): it has a state of some size, in its
//! checkpoint folder or in its memory.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use nix::sys::signal::{SigSet, Signal};

use crate::witness::{Stand, Testimony, between, unix_nanos};

/// Ratio of the whole state to the part that changes between two saves, for a program that changes little.
const CHANGES: u64 = 16;
/// A program that did nothing for so long was interrupted.
const GAP: Duration = Duration::from_millis(5);

/// How the state of a program outlives an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Saves {
    /// It writes all of it when it is told to stop.
    Whole,
    /// It has written most of it before, and writes the rest when it is told to stop, and when it is asked to.
    Little,
    /// It keeps it in its memory and knows of nothing.
    Never,
}

impl fmt::Display for Saves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// The file in which the ends of a job's runs are told.
pub fn ended(stand: &Path, job: u64) -> PathBuf {
    stand.join(format!("{job}.ended"))
}

/// The file in which a program that knows of nothing tells the times in which it did nothing: from and to, in
/// nanoseconds since 1970.
pub fn gaps(stand: &Path, job: u64) -> PathBuf {
    stand.join(format!("{job}.gaps"))
}

/// Runs a worker: it testifies that it runs and has its state, and then saves as `saves` demands.
///
/// # Errors
/// It has not what it wrote, or something cannot be written.
pub fn worker(stand: &Path, bytes: u64, saves: Saves) -> Result<()> {
    let job: u64 = variable("TESSERA_JOB_ID")?.parse().context("TESSERA_JOB_ID is no number")?;
    match saves {
        Saves::Whole => saving(stand, job, bytes, bytes),
        Saves::Little => saving(stand, job, bytes, bytes / CHANGES),
        Saves::Never => unaware(stand, job, bytes),
    }
}

/// Writes so much of its state anew each time, and has the rest from the beginning.
fn saving(stand: &Path, job: u64, bytes: u64, changes: u64) -> Result<()> {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTERM);
    stop.thread_block().context("cannot block a signal")?;
    let folder = PathBuf::from(variable("TESSERA_CHECKPOINT_DIR")?);
    let (base, state) = (folder.join("base"), folder.join("state"));
    if variable("TESSERA_ATTEMPT")? != "1" {
        let size = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
        let found = size(&base) + size(&state);
        ensure!(found == bytes, "{found} of {bytes} bytes are there");
    } else if changes < bytes {
        write_noise(&base, bytes - changes)?;
    }
    Testimony::of(unix_nanos())?.append_to(&Stand::file(stand, job, 0))?;
    let state = Arc::new(Mutex::new(state));
    let (control, asked) = (PathBuf::from(variable("TESSERA_CONTROL")?), Arc::clone(&state));
    std::thread::spawn(move || saves_when_asked(&control, &asked, changes));
    stop.wait().context("cannot wait for a signal")?;
    // Whatever it is asked for from now on, it is ending.
    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
    write_noise(&state, changes)?;
    append(&ended(stand, job), &unix_nanos().to_string())
}

/// Has its state in memory, and looks at it whenever it did nothing for a while.
fn unaware(stand: &Path, job: u64, bytes: u64) -> Result<()> {
    let state: Vec<u64> = Noise::new().take(usize::try_from(bytes / 8)?).collect();
    let sum = |state: &[u64]| state.iter().fold(0_u64, |sum, number| sum.wrapping_add(*number));
    let before = sum(&state);
    Testimony::of(unix_nanos())?.append_to(&Stand::file(stand, job, 0))?;
    let (interrupted, gone_on) = mpsc::channel();
    let told = gaps(stand, job);
    let watching = std::thread::spawn(move || watch(&told, &interrupted));
    while gone_on.recv().is_ok() {
        ensure!(sum(&state) == before, "its memory is not what it was");
    }
    watching.join().unwrap_or_else(|_| bail!("nobody watches the time any more"))
}

/// Tells of each time in which this process did nothing.
fn watch(told: &Path, interrupted: &mpsc::Sender<()>) -> Result<()> {
    let mut last = unix_nanos();
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let now = unix_nanos();
        if between(last, now) >= GAP {
            append(told, &format!("{last} {now}"))?;
            interrupted.send(()).context("nobody looks at the memory any more")?;
        }
        last = now;
    }
}

fn append(path: &Path, line: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes()).context("cannot append")
}

fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set: not run as a worker"))
}

fn saves_when_asked(control: &Path, state: &Mutex<PathBuf>, changes: u64) -> Result<()> {
    // Its agent listens once it knows that the program runs.
    let mut control = loop {
        match UnixStream::connect(control) {
            Ok(control) => break control,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    for line in BufReader::new(control.try_clone()?).lines() {
        if line? == "save" {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            write_noise(&state, changes)?;
            writeln!(control, "saved")?;
        }
    }
    Ok(())
}

/// Bytes that no compression makes fewer.
fn write_noise(path: &Path, bytes: u64) -> Result<()> {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
    for number in Noise::new().take(usize::try_from(bytes / 8)?) {
        file.write_all(&number.to_le_bytes())?;
    }
    Ok(file.flush()?)
}

/// Numbers that no compression makes fewer, without end.
struct Noise(u64);

impl Noise {
    fn new() -> Self {
        Self(unix_nanos() | 1)
    }
}

impl Iterator for Noise {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Some(self.0)
    }
}
