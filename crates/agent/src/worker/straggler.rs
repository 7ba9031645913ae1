//! Supervisors whose workers are over, until they are gone.

use std::time::Duration;

use tokio::process::Child;
use tokio::time::{sleep, timeout};

use super::id::WorkerId;
use crate::boot::boot_id;
use crate::process::ProcessId;
use crate::supervisor::status::Status;

/// Wait before it is looked again for a process that is nobody's child here.
const AGAIN: Duration = Duration::from_millis(50);

/// A supervisor that has nothing left to do.
#[derive(Debug)]
pub enum Straggler {
    /// A child of this agent, which collects it.
    Own(Child),
    /// One that an earlier agent started.
    Earlier(ProcessId),
}

impl Straggler {
    /// The supervisor of a worker that is over, started by an earlier agent; `None`: it is not known, or gone with its
    /// boot.
    pub fn of(over: &Status) -> Option<Self> {
        let is_of_this_boot = boot_id().is_ok_and(|here| here == over.boot_id);
        over.supervisor.filter(|_| is_of_this_boot).map(Self::Earlier)
    }

    /// Stays with it until it is gone. One that does not end by itself within `patience` is killed.
    pub async fn see_off(mut self, worker: WorkerId, patience: Duration) {
        if timeout(patience, self.gone(worker)).await.is_ok() {
            return;
        }
        tracing::warn!(%worker, "a supervisor does not end, though its worker is over; it is killed");
        if let Err(error) = self.kill() {
            tracing::error!(%worker, %error, "a supervisor whose worker is over cannot be killed");
        }
        if timeout(patience, self.gone(worker)).await.is_err() {
            // The runtime collects its own, should the kernel let it go one day.
            tracing::error!(%worker, "a supervisor was killed and is still there");
        }
    }

    async fn gone(&mut self, worker: WorkerId) {
        match self {
            Self::Own(child) => {
                if let Err(error) = child.wait().await {
                    tracing::warn!(%worker, %error, "the supervisor cannot be waited for");
                }
            }
            Self::Earlier(process) => {
                while process.is_alive() {
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// It may have ended just now, which is as good.
    fn kill(&mut self) -> std::io::Result<()> {
        match self {
            Self::Own(child) => child.start_kill(),
            Self::Earlier(process) => Ok(process.kill()?),
        }
    }
}
