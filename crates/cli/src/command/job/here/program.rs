//! The program beside this process: started as a shell would start it, in the same process group and at the same
//! terminal.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use tessera_agent::supervisor::unrunnable::Unrunnable;
use tokio::process::{Child, Command};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::remark;
use crate::signals::Signals;

/// Variables that name the card of another job.
const OF_ANOTHER: [&str; 3] = ["TESSERA_TOKEN", "TESSERA_TOKEN_FILE", "TESSERA_EPOCH"];

/// The longest time between two interrupts of which the second kills the program. Later interrupts are the program's
/// too: in a program that continues after an interrupt, such as a notebook, each counts on its own.
const AGAIN: Duration = Duration::from_secs(2);

/// The time in which a program may not have heard what is typed at its terminal: the keys may have been pressed before
/// there was a program. They are passed on then; hearing them twice does less harm than never.
const NEWBORN: Duration = Duration::from_millis(200);

/// The end of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// As shells say it: 128 + N for signal N.
    pub code: u8,
    /// It was interrupted twice, and killed.
    pub by_force: bool,
}

/// The program, and the interrupts that were meant for it.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    began: Instant,
    interrupts: Interrupts,
}

/// The record of the interrupts, from which the second one that kills is recognised.
#[derive(Debug, Default)]
struct Interrupts {
    last: Option<Instant>,
    killed: bool,
}

impl Interrupts {
    /// Records an interrupt. Returns whether it follows the previous one closely enough to kill the program, or an
    /// earlier one already did.
    fn kills(&mut self, now: Instant) -> bool {
        let before = self.last.replace(now);
        self.killed |= before.is_some_and(|before| now.duration_since(before) <= AGAIN);
        self.killed
    }
}

impl Program {
    pub(super) fn start(command: &[String], environment: Vec<(String, String)>, door: &Path) -> Result<Self, Failure> {
        let child = spawn(command, environment, door)?;
        Ok(Self { child, began: Instant::now(), interrupts: Interrupts::default() })
    }

    /// Waits until the program ends, and passes on the signals that it is to hear. A second interrupt soon after the
    /// first kills it.
    pub(super) async fn ended(&mut self, signals: &mut Signals) -> Result<Ended, Failure> {
        loop {
            let heard = tokio::select! {
                ended = self.child.wait() => {
                    let ended = ended.map_err(|error| {
                        Failure::from_error(Exit::Failed, "the program cannot be waited for", &error)
                    })?;
                    return Ok(Ended { code: code(ended), by_force: self.interrupts.killed });
                }
                heard = signals.next() => heard,
            };
            self.pass_on(heard);
        }
    }

    fn pass_on(&mut self, heard: Signal) {
        let typed = matches!(heard, Signal::SIGINT | Signal::SIGQUIT) && at_terminal();
        let interrupt = heard == Signal::SIGINT;
        if interrupt && self.interrupts.kills(Instant::now()) {
            return self.send(Signal::SIGKILL);
        }
        // What is typed at a terminal the program has heard itself.
        if !typed || self.began.elapsed() < NEWBORN {
            self.send(heard);
        }
        if interrupt {
            remark("[interrupt again within 2 s to kill the program]");
        }
    }

    fn send(&self, signal: Signal) {
        // It has no number any more when it was waited for.
        if let Some(pid) = self.child.id() {
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }
}

fn spawn(command: &[String], environment: Vec<(String, String)>, door: &Path) -> Result<Child, Failure> {
    let Some((name, arguments)) = command.split_first() else {
        return Err(Failure::new(Exit::Usage, "nothing was run", "there is no command"));
    };
    let own = std::env::var("PATH").ok();
    let path = environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone()).or(own);
    let mut command = Command::new(name);
    for variable in OF_ANOTHER {
        command.env_remove(variable);
    }
    command.args(arguments).envs(environment).env("TESSERA_SLICES", format!("ask:{}", door.display()));
    command.spawn().map_err(|error| {
        let unrunnable = Unrunnable::new(name.as_ref(), path.as_deref(), &error);
        Failure::new(Exit::Job(unrunnable.exit_code()), format!("`{name}` cannot be run"), unrunnable.cause())
    })
}

/// Tells whether this process group is the foreground group of its terminal, which sends it the keys that signal.
fn at_terminal() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

fn code(ended: ExitStatus) -> u8 {
    let number = ended.signal().map_or_else(|| ended.code().unwrap_or(0), |signal| 128 + signal);
    u8::try_from(number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_program_that_cannot_be_run_is_explained_as_on_a_node() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("script");
        fs::write(&script, "#!/no/such/interpreter\n").expect("writable");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
        let failed = |command: String| {
            spawn(&[command], Vec::new(), Path::new("/nowhere")).map(drop).expect_err("it cannot be run")
        };
        let of_script = failed(script.display().to_string());
        assert!(matches!(of_script.exit, Exit::Job(126)), "it is there: {of_script}");
        assert!(of_script.to_string().contains("names the interpreter `/no/such/interpreter`: "), "{of_script}");
        let of_nothing = failed(folder.path().join("nothing").display().to_string());
        assert!(matches!(of_nothing.exit, Exit::Job(127)) && of_nothing.to_string().contains("is not on this node"));
    }

    #[test]
    fn only_an_interrupt_soon_after_another_one_kills() {
        let (mut interrupts, began) = (Interrupts::default(), Instant::now());
        let mut at = |seconds| interrupts.kills(began + Duration::from_secs(seconds));
        assert!(!at(0));
        assert!(!at(60));
        assert!(!at(120));
        assert!(at(121));
        assert!(at(300), "it is dead already");
    }
}
