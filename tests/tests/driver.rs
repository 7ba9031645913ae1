//! The program that brings the memory of graphics cards into processes and back, as supervisors start it, with a
//! library in the place of NVIDIA's driver: each call is made as the driver wants it, and what the driver refuses is
//! said.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};

use anyhow::{Context, Result, ensure};
use tessera_chaos::process::start_ticks;
use tessera_tests::library::build;
use tessera_tests::pool::binary;

/// It writes down what it is asked, and refuses one process.
const LIKE_A_DRIVER: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    static int refused() {
        int pid = -1;
        FILE *file = fopen(getenv("REFUSED"), "r");
        if (file) { fscanf(file, "%d", &pid); fclose(file); }
        return pid;
    }
    static int note(const char *what, int pid, unsigned timeout) {
        FILE *file = fopen(getenv("NOTES"), "a");
        fprintf(file, "%s %d %u\n", what, pid, timeout);
        fclose(file);
        return pid == refused() ? 801 : 0;
    }
    int cuInit(unsigned flags) { return note("init", flags, 0); }
    int cuGetErrorString(int code, const char **text) { *text = "operation not supported"; return 0; }
    int cuCheckpointProcessLock(int pid, unsigned *arguments) { return note("lock", pid, arguments[0]); }
    int cuCheckpointProcessCheckpoint(int pid, void *arguments) { return note("checkpoint", pid, arguments != 0); }
    int cuCheckpointProcessRestore(int pid, void *arguments) { return note("restore", pid, arguments != 0); }
    int cuCheckpointProcessUnlock(int pid, void *arguments) { return note("unlock", pid, arguments != 0); }
"#;

/// A process that does nothing.
struct Asleep(Child);

impl Asleep {
    fn new() -> Result<Self> {
        Ok(Self(Command::new("sleep").arg("600").spawn()?))
    }

    /// Its number, and when it started.
    fn named(&self) -> Result<String> {
        let pid = self.0.id();
        Ok(format!("{pid}:{}", start_ticks(pid).context("it is there")?))
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it ends");
    }
}

fn with_driver(folder: &Path, action: &str, processes: &[String]) -> Result<Output> {
    let mut command = Command::new(binary());
    command.args(["with-driver", action]).args(processes).env("LD_LIBRARY_PATH", folder);
    Ok(command.env("NOTES", folder.join("notes")).env("REFUSED", folder.join("refused")).output()?)
}

#[test]
fn the_drivers_library_is_called_as_it_wants_to_be() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    build(LIKE_A_DRIVER, &at("libcuda.so.1"))?;
    let (one, two, refused) = (Asleep::new()?, Asleep::new()?, Asleep::new()?);
    let both = [one.named()?, two.named()?];
    for action in ["pause", "resume"] {
        let done = with_driver(folder.path(), action, &both)?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    fs::write(at("refused"), refused.0.id().to_string())?;
    let not_done = with_driver(folder.path(), "pause", &[refused.named()?])?;
    let [one, two, refused] = [&one, &two, &refused].map(|process| process.0.id());
    let said = String::from_utf8_lossy(&not_done.stderr);
    let expected = format!("Lock of process {refused} failed: operation not supported (801)");
    assert!(!not_done.status.success() && said.contains(&expected), "{said}");
    let expected = format!(
        "init 0 0\nlock {one} 10000\nlock {two} 10000\ncheckpoint {one} 0\ncheckpoint {two} 0\n\
         init 0 0\nrestore {one} 0\nrestore {two} 0\nunlock {one} 0\nunlock {two} 0\n\
         init 0 0\nlock {refused} 10000\n"
    );
    assert_eq!(fs::read_to_string(at("notes"))?, expected);
    Ok(())
}
