//! Tells the slice server that the host of its program is still there, and at the end how the program ended.

use std::time::Duration;

use tessera_slice::{Attendance, Error};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use super::place::{SliceServer, Whereabouts};

/// Words in each lease.
const WORDS: u32 = 4;
/// A word comes at least so often, so that no connection is given up as silent.
const RAREST: Duration = Duration::from_secs(20);
/// Between attempts to reach a server.
const PAUSE: Duration = Duration::from_millis(500);

/// Speaks for this host, as long as it is kept.
#[derive(Debug)]
pub(super) struct Presence {
    over: oneshot::Sender<u8>,
    speaking: JoinHandle<bool>,
}

impl Presence {
    pub(super) fn begin(whereabouts: watch::Receiver<Whereabouts>) -> Self {
        let (over, ended) = oneshot::channel();
        Self { over, speaking: tokio::spawn(speak(whereabouts, ended)) }
    }

    /// Tells the server that the program has ended with `code`. Answers whether the job ends by that.
    pub(super) async fn over(self, code: u8) -> bool {
        self.over.send(code).is_ok() && self.speaking.await.unwrap_or(false)
    }
}

async fn speak(mut whereabouts: watch::Receiver<Whereabouts>, mut ended: oneshot::Receiver<u8>) -> bool {
    // A server that is being stopped still saves what it has, and listens for this host until it is over: as long as no
    // other is known it is spoken to.
    let mut last = None;
    loop {
        match whereabouts.borrow_and_update().clone() {
            Whereabouts::At(place) => last = Some(place),
            Whereabouts::Waiting(_) => {}
            Whereabouts::Over(_) => last = None,
        }
        let Some(place) = last.clone() else {
            tokio::select! {
                Ok(()) = whereabouts.changed() => continue,
                _ = &mut ended => return false,
            }
        };
        // What has come to an end meanwhile is seen after that: the server may be the one that is to be told.
        match begin(place.clone()).await {
            Ok(attendance) => {
                if let Some(heard) = attend(attendance, &place, &mut whereabouts, &mut ended).await {
                    return heard;
                }
            }
            Err(error) => tracing::warn!(%error, "the slice server is not told that this host is there"),
        }
        tokio::select! {
            Ok(()) = whereabouts.changed() => {}
            () = tokio::time::sleep(PAUSE.min(place.lease / WORDS)) => {}
            _ = &mut ended => return false,
        }
    }
}

/// Speaks to one server. Answers whether its job ends because it has heard the end, or nothing when there is another
/// server, or it is not reached any more.
async fn attend(
    mut attendance: Attendance,
    place: &SliceServer,
    whereabouts: &mut watch::Receiver<Whereabouts>,
    ended: &mut oneshot::Receiver<u8>,
) -> Option<bool> {
    loop {
        let code = tokio::select! {
            biased;
            code = &mut *ended => Some(code.ok()?),
            Ok(()) = whereabouts.changed() => match &*whereabouts.borrow_and_update() {
                Whereabouts::Waiting(_) => None,
                Whereabouts::At(_) | Whereabouts::Over(_) => return None,
            },
            () = tokio::time::sleep(RAREST.min(place.lease / WORDS)) => None,
        };
        let said = match code {
            Some(code) => say(attendance, move |attendance| attendance.is_over(code)).await,
            None => say(attendance, Attendance::is_here).await,
        };
        match (said, code) {
            // One that is being stopped has saved itself, and its job goes on without it.
            (said, Some(_)) => return Some(said.is_ok() && matches!(&*whereabouts.borrow(), Whereabouts::At(_))),
            (Ok(kept), None) => attendance = kept,
            (Err(error), None) => {
                tracing::warn!(%error, "the slice server was not told that this host is there");
                return None;
            }
        }
    }
}

async fn begin(place: SliceServer) -> Result<Attendance, Error> {
    beside(move || Attendance::begin(&place.address, &place.credentials)).await
}

async fn say(
    mut attendance: Attendance,
    word: impl FnOnce(&mut Attendance) -> Result<(), Error> + Send + 'static,
) -> Result<Attendance, Error> {
    beside(move || word(&mut attendance).map(|()| attendance)).await
}

/// Each of these waits for the network, though never for long.
async fn beside<T: Send + 'static>(act: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let lost = |cause: String| Error::Lost { peer: "the slice server".to_owned(), cause };
    spawn_blocking(act).await.unwrap_or_else(|error| Err(lost(error.to_string())))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tessera_slice::handshake::{Credentials, Slice};
    use tessera_slice::{Admits, Listener};

    use super::*;

    #[tokio::test]
    async fn a_server_is_spoken_to_until_there_is_another() {
        let credentials = Credentials { token: "0123456789abcdef".to_owned(), epoch: 7 };
        let server = || {
            let slice = Slice { device: "cpu".to_owned(), memory_bytes: 1, share: 1.0, sequence: 0 };
            let any = "tcp:127.0.0.1:0".parse().expect("an address");
            Listener::bind(&any, "", credentials.clone(), slice, Admits::Program, None).expect("a free port")
        };
        let at = |server: &Listener| {
            let lease = Duration::from_millis(80);
            Whereabouts::At(SliceServer { address: server.address().clone(), credentials: credentials.clone(), lease })
        };
        // Whether a word comes that was said well after now.
        let is_heard = async |server: &Listener| {
            let (attended, began) = (server.attended(), Instant::now());
            while began.elapsed().saturating_sub(attended.silent_for()) < Duration::from_millis(200) {
                if began.elapsed() > Duration::from_secs(20) {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            true
        };
        let (first, second) = (server(), server());
        let (say, whereabouts) = watch::channel(at(&first));
        let presence = Presence::begin(whereabouts);
        assert!(is_heard(&first).await);
        say.send_replace(Whereabouts::Waiting("it is being suspended".to_owned()));
        assert!(is_heard(&first).await, "it saves what it has, and counts the time in which it hears nothing");
        say.send_replace(at(&second));
        assert!(is_heard(&second).await);
        assert!(presence.over(3).await);
        assert_eq!((first.attended().over(), second.attended().over()), (None, Some(3)));
    }
}
