//! The place of the job's slice server, as far as this process knows.

use std::fmt;
use std::time::Duration;

use tessera_api::v1::GetJobDeviceRequest;
use tessera_slice::Address;
use tessera_slice::handshake::Credentials;
use tokio::sync::watch;

use super::super::follow::{Standing, Until, follow};
use crate::args::JobNumber;
use crate::command::Desk;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;

/// Between questions for a server that is not reached yet.
const PAUSE: Duration = Duration::from_millis(100);
/// Between attempts to watch the job while no member answers.
const LONG_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct SliceServer {
    pub address: Address,
    pub credentials: Credentials,
    /// The longest time that this host may be silent.
    pub lease: Duration,
}

#[derive(Clone, Debug)]
pub(super) enum Whereabouts {
    /// There is none now, and there may be one.
    Waiting(String),
    /// It listens.
    At(SliceServer),
    /// There will be none any more.
    Over(String),
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(why) => write!(f, "the virtual card is waited for: {why}"),
            Self::At(place) => write!(f, "the virtual card is at {}", place.address),
            Self::Over(why) => write!(f, "there is no virtual card any more, and the program is told: {why}"),
        }
    }
}

/// Tells where the server of `job` is until that is over. Members that do not answer are waited for: program and server
/// need none to go on.
pub(super) async fn track(desk: &Desk, job: JobNumber, at: &watch::Sender<Whereabouts>) {
    let (states, mut changed) = watch::channel(None);
    let following = follow_on(desk, job, |standing| {
        states.send_replace(Some(standing.clone()));
    });
    tokio::pin!(following);
    // The allocation whose server is sought, and the one whose server is known.
    let (mut sought, mut known) = (None, None);
    loop {
        tokio::select! {
            biased;
            last = &mut following => {
                let why = last.map_or_else(|failure| failure.to_string(), |last| last.sentence);
                at.send_replace(Whereabouts::Over(why));
                return;
            }
            Ok(()) = changed.changed() => {
                let Some(standing) = changed.borrow_and_update().clone() else { continue };
                let runs = standing.state == "running";
                sought = standing.allocation.filter(|allocation| runs && known != Some(*allocation));
                if sought.is_some() {
                    at.send_replace(Whereabouts::Waiting("its node says where it listens".to_owned()));
                } else if !runs && !standing.is_over() {
                    known = None;
                    at.send_replace(Whereabouts::Waiting(standing.sentence));
                }
            }
            place = ask(desk, job), if sought.is_some() => {
                at.send_replace(Whereabouts::At(place));
                known = sought.take();
            }
        }
    }
}

async fn follow_on(desk: &Desk, job: JobNumber, mut seen: impl FnMut(&Standing)) -> Result<Standing, Failure> {
    loop {
        match follow(desk, job, Until::End, Outage::without_end(desk), &mut seen).await {
            Err(failure) if !matches!(failure.exit, Exit::NotFound | Exit::Refused | Exit::Usage) => {
                tracing::warn!(%failure, "it is tried again");
            }
            ended => return ended,
        }
        tokio::time::sleep(LONG_PAUSE).await;
    }
}

/// Asks until there is an answer. The agent may not know yet, its node may not be reached, a leader may be being
/// elected.
async fn ask(desk: &Desk, job: JobNumber) -> SliceServer {
    loop {
        match desk.client.get_job_device(GetJobDeviceRequest { job_id: job.0 }).await {
            Ok(answer) => match answer.address.parse() {
                Ok(address) => {
                    let lease = answer.lease.and_then(|lease| lease.try_into().ok()).unwrap_or(LONG_PAUSE);
                    let credentials = Credentials { token: answer.token, epoch: answer.epoch };
                    return SliceServer { address, credentials, lease };
                }
                Err(error) => tracing::warn!(%error, "an agent says that its slice server is where none can be"),
            },
            Err(error) => tracing::debug!(%error, "the slice server is not known yet"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
