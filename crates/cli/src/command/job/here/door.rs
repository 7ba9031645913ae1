//! The Unix socket for questions of the program, in a folder that only this user can enter.
//!
//! A question is a line of JSON on a connection of its own, and so is the answer (docs/device-reference.md).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tessera_api::v1::{Checkpoint, GetJobRequest};
use tessera_client::Client;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::place::Whereabouts;
use crate::args::JobNumber;
use crate::exit::Exit;
use crate::failure::Failure;

/// Most bytes of a question.
const LONGEST: u64 = 1024;
/// The longest time that a question may take to arrive, and the program to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that a member may take to answer which checkpoints there are.
const SOON: Duration = Duration::from_secs(2);
/// Copies on so many nodes outlive the loss of one.
const SAFE_COPIES: usize = 2;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Question {
    r#where: bool,
    safe: bool,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Answer {
    At { address: String, token: String, epoch: u64 },
    Waiting { wait: String },
    Over { over: String },
    Safe { safe: u64 },
}

/// The socket, which is gone with this.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    path: PathBuf,
    _folder: TempDir,
}

impl Door {
    /// Makes the socket, before anything is submitted.
    pub(super) fn open() -> Result<Self, Failure> {
        let failed = |error: &std::io::Error| {
            Failure::from_error(Exit::Failed, "no socket can be made at which the program asks for its card", error)
                .next("set TMPDIR to a folder that can be written and whose name is short")
        };
        let private = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("tessera-").permissions(private).tempdir();
        let folder = folder.map_err(|error| failed(&error))?;
        let path = folder.path().join("ask");
        let listener = UnixListener::bind(&path).map_err(|error| failed(&error))?;
        Ok(Self { listener, path, _folder: folder })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Answers until this process ends.
    pub(super) fn answer(self, whereabouts: watch::Receiver<Whereabouts>, client: Client, job: JobNumber) {
        tokio::spawn(async move {
            // All of it, the folder included.
            let door = self;
            loop {
                match door.listener.accept().await {
                    Ok((asked, _)) => {
                        let (whereabouts, client) = (whereabouts.clone(), client.clone());
                        tokio::spawn(async move {
                            if let Err(error) = converse(asked, &whereabouts, &client, job).await {
                                tracing::warn!(%error, "the program asked for its virtual card and was not answered");
                            }
                        });
                    }
                    // Too many files are open; some are closed soon.
                    Err(error) => {
                        tracing::warn!(%error, "the program's question was not heard");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
    }
}

async fn converse(
    mut asked: UnixStream,
    whereabouts: &watch::Receiver<Whereabouts>,
    client: &Client,
    job: JobNumber,
) -> std::io::Result<()> {
    let (heard, mut said) = asked.split();
    let mut line = String::new();
    tokio::time::timeout(PATIENCE, BufReader::new(heard.take(LONGEST)).read_line(&mut line)).await??;
    let answer = match serde_json::from_str(&line)? {
        Question { safe: true, .. } => Answer::Safe { safe: safe(client, job).await },
        Question { .. } => Answer::from(whereabouts.borrow().clone()),
    };
    let mut answer = serde_json::to_vec(&answer)?;
    answer.push(b'\n');
    tokio::time::timeout(PATIENCE, said.write_all(&answer)).await?
}

impl From<Whereabouts> for Answer {
    fn from(whereabouts: Whereabouts) -> Self {
        match whereabouts {
            Whereabouts::Waiting(wait) => Self::Waiting { wait },
            Whereabouts::At(place) => Self::At {
                address: place.address.to_string(),
                token: place.credentials.token,
                epoch: place.credentials.epoch,
            },
            Whereabouts::Over(over) => Self::Over { over },
        }
    }
}

/// The progress of the program at the newest checkpoint that survives the loss of one node; 0 when it is not known. A
/// member has only [`SOON`] to answer, because the program waits.
async fn safe(client: &Client, job: JobNumber) -> u64 {
    let asked = client.get_job(GetJobRequest { job_id: job.0, ..GetJobRequest::default() });
    let answer = tokio::time::timeout(SOON, asked).await;
    let job = answer.ok().and_then(Result::ok).and_then(|answer| answer.job).unwrap_or_default();
    newest_safe(&job.checkpoints)
}

fn newest_safe(checkpoints: &[Checkpoint]) -> u64 {
    checkpoints.iter().filter(|checkpoint| is_safe(checkpoint)).map(|checkpoint| checkpoint.progress).max().unwrap_or(0)
}

fn is_safe(checkpoint: &Checkpoint) -> bool {
    checkpoint.available && checkpoint.parts.iter().all(|part| part.shared || part.nodes.len() >= SAFE_COPIES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_api::v1::CheckpointPart;

    fn checkpoint(available: bool, shared: bool, nodes: &[&str]) -> Checkpoint {
        let nodes = nodes.iter().map(|name| (*name).to_owned()).collect();
        Checkpoint {
            available,
            parts: vec![CheckpointPart { shared, nodes, ..Default::default() }],
            ..Default::default()
        }
    }

    #[test]
    fn only_what_outlives_a_node_is_safe() {
        let kept = [(true, true, &[][..]), (true, false, &["a", "b"]), (true, false, &["a"]), (false, true, &[])];
        assert_eq!(
            kept.map(|(there, shared, nodes)| is_safe(&checkpoint(there, shared, nodes))),
            [true, true, false, false]
        );
    }

    #[test]
    fn the_newest_that_is_safe_counts_and_none_is_frame_0() {
        let at = |progress, nodes: &[&str]| Checkpoint { progress, ..checkpoint(true, false, nodes) };
        assert_eq!(newest_safe(&[at(3, &["a", "b"]), at(5, &["a", "b"]), at(9, &["a"])]), 5);
        assert_eq!(newest_safe(&[at(9, &["a"])]), 0);
    }

    #[test]
    fn answers_are_those_that_a_program_reads() {
        let json = |whereabouts| serde_json::to_string(&Answer::from(whereabouts)).expect("JSON");
        assert_eq!(json(Whereabouts::Waiting("no room".to_owned())), r#"{"wait":"no room"}"#);
        assert_eq!(json(Whereabouts::Over("cancelled".to_owned())), r#"{"over":"cancelled"}"#);
        assert!(serde_json::from_str::<Question>(r#"{"where": true}"#).is_ok_and(|asked| asked.r#where));
        assert!(serde_json::from_str::<Question>(r#"{"who": true}"#).is_err());
    }
}
