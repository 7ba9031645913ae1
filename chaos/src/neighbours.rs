//! Processes beside what is measured that compute without end: what others on the machine would be.

use std::path::Path;

use anyhow::Result;
use tokio::time::Duration;

use crate::process::{Process, Program};

#[derive(Debug)]
pub struct Neighbours {
    processes: Vec<Process>,
}

impl Neighbours {
    /// Starts so many, each of which takes all that it is given of one processor. What they say goes into `folder`.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start(count: usize, folder: &Path) -> Result<Self> {
        let busy = Program {
            binary: "/bin/sh".into(),
            arguments: vec!["-c".into(), "while :; do :; done".into()],
            environment: Vec::new(),
            log: folder.join("neighbours.log"),
            network: None,
        };
        Ok(Self { processes: (0..count).map(|_| busy.start()).collect::<Result<_>>()? })
    }

    /// Ends them.
    ///
    /// # Errors
    /// One has ended by itself, or is not gone.
    pub async fn stop(mut self) -> Result<()> {
        for process in &mut self.processes {
            process.check_alive()?;
            process.stop(Duration::from_secs(1)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;
    use crate::process::processor_time;

    #[tokio::test]
    async fn they_compute_until_they_are_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let neighbours = Neighbours::start(1, folder.path()).expect("starts");
        let pid = neighbours.processes[0].pid().expect("runs");
        poll::until("it to compute", Duration::from_secs(20), Duration::from_millis(5), || async {
            anyhow::ensure!(processor_time(pid)? > Duration::from_millis(30), "not yet");
            Ok(())
        })
        .await
        .expect("it does");
        neighbours.stop().await.expect("gone");
        assert!(processor_time(pid).is_err(), "it is still there");
    }
}
