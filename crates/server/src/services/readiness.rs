//! The readiness of this member for calls: it is admitted, not refused by another member, knows a leader, and is not
//! behind; if it leads, a quorum confirms it.

use std::sync::Arc;
use std::time::Duration;

use tessera_consensus::{Identity, Leadership, Refused, TAKES_PART};
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::whereabouts::Elsewhere;
use tessera_controller::pool::PoolHandle;

/// Name under which the health service speaks of readiness; the empty name speaks of being alive.
pub const READY_SERVICE: &str = "tessera.ready";

/// The interval at which readiness is judged anew when nothing changes; a member falls behind silently.
const PERIOD: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// It reads its data folder.
    #[error("this process is starting and reads its data folder")]
    Starting,
    /// It hands leadership over, if it leads, and ends.
    #[error("this member is stopping")]
    Stopping,
    /// It does not belong to a cluster.
    #[error("this member has not been admitted to a cluster; initialize the cluster, or add this member to one")]
    NotAdmitted,
    /// It belongs to none, and others call it as a member.
    #[error(
        "this process has an empty data folder, and others take it for {taken_for}: if that member's disk was lost, \
         remove it with `tessera cluster member remove {}` and add this process with `tessera cluster member add`; \
         else this is a wrong folder or address", .taken_for.member
    )]
    FolderLost { taken_for: Identity },
    #[error("no leader is known; a quorum of members must be up and reach each other")]
    NoLeader,
    /// It leads, and has not caught up with what earlier leaders acknowledged, or no quorum confirms it.
    #[error("this member was elected and is not confirmed by a quorum yet")]
    NotConfirmed,
    /// It follows, and is behind.
    #[error("this member has not known for {:.1} s whether it is current", .0.as_secs_f64())]
    Lagging(Duration),
    /// It follows, and has not heard the leader since it started.
    #[error("this member has not known since it started whether it is current")]
    NeverCurrent,
    /// It takes no part, and another member says why.
    #[error("this member takes no part: {0}")]
    Refused(Refused),
    /// It takes no part, and may not be found where it is.
    #[error("this member takes no part: {0}")]
    Elsewhere(Elsewhere),
}

#[derive(Clone)]
pub struct Readiness {
    judge: Arc<dyn Fn() -> Result<(), NotReady> + Send + Sync>,
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Readiness").field(&self.check()).finish()
    }
}

impl Readiness {
    #[must_use]
    pub fn of(pool: PoolHandle) -> Self {
        Self::judged_by(move || judge(&pool))
    }

    /// Readiness as some other judge sees it, such as that of a process that is not a member yet.
    pub fn judged_by(judge: impl Fn() -> Result<(), NotReady> + Send + Sync + 'static) -> Self {
        Self { judge: Arc::new(judge) }
    }

    /// Judges now.
    ///
    /// # Errors
    /// [`NotReady`] says why.
    pub fn check(&self) -> Result<(), NotReady> {
        (self.judge)()
    }

    /// Keeps the health service's word on readiness true until `end`.
    pub async fn report(self, reporter: HealthReporter, end: CancellationToken) {
        let mut period = tokio::time::interval(PERIOD);
        let mut said: Option<bool> = None;
        loop {
            tokio::select! {
                _ = period.tick() => {}
                () = end.cancelled() => {
                    reporter.set_service_status(READY_SERVICE, ServingStatus::NotServing).await;
                    return;
                }
            }
            let judged = self.check();
            if said == Some(judged.is_ok()) {
                continue;
            }
            said = Some(judged.is_ok());
            match judged {
                Ok(()) => tracing::info!("this member is ready"),
                Err(ref why) => tracing::info!(%why, "this member is not ready"),
            }
            let status = if judged.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing };
            reporter.set_service_status(READY_SERVICE, status).await;
        }
    }
}

fn judge(pool: &PoolHandle) -> Result<(), NotReady> {
    if pool.is_stopping() {
        return Err(NotReady::Stopping);
    }
    let status = pool.status();
    let status = status.borrow();
    if !status.admitted {
        return Err(NotReady::NotAdmitted);
    }
    if let Some(refused) = &status.refused {
        return Err(NotReady::Refused(refused.clone()));
    }
    let elsewhere = || Elsewhere::of(&status, &pool.config().advertise).map(NotReady::Elsewhere);
    let follows = |not_ready: NotReady| Err(elsewhere().unwrap_or(not_ready));
    if status.leader.is_none() {
        return follows(NotReady::NoLeader);
    }
    match &*pool.leadership().borrow() {
        Leadership::Leading { ready, .. } if *ready && status.quorum_fresh => Ok(()),
        Leadership::Leading { .. } => Err(NotReady::NotConfirmed),
        Leadership::Following { .. } => match pool.consensus().staleness() {
            None => follows(NotReady::NeverCurrent),
            Some(age) if age > TAKES_PART => follows(NotReady::Lagging(age)),
            Some(_) => Ok(()),
        },
    }
}

/// The reason for which a member takes no part, where it is known; `None`: it takes part, or nobody knows.
pub(crate) fn why_it_takes_no_part(pool: &PoolHandle) -> Option<String> {
    match judge(pool) {
        Err(NotReady::Refused(why)) => Some(why.to_string()),
        Err(NotReady::Elsewhere(why)) => Some(why.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_health_service_follows_readiness() {
        let (reporter, _server) = tonic_health::server::health_reporter();
        let ready = Arc::new(AtomicBool::new(false));
        let judged = Arc::clone(&ready);
        let readiness =
            Readiness::judged_by(move || if judged.load(Ordering::Relaxed) { Ok(()) } else { Err(NotReady::NoLeader) });
        let end = CancellationToken::new();
        let service = tonic_health::server::HealthService::from_health_reporter(reporter.clone());
        let task = tokio::spawn(readiness.report(reporter, end.clone()));
        let ask = async |service: &tonic_health::server::HealthService| {
            use tonic_health::pb::health_server::Health;
            let request = tonic_health::pb::HealthCheckRequest { service: READY_SERVICE.to_owned() };
            service.check(tonic::Request::new(request)).await.map(|answer| answer.into_inner().status())
        };
        tokio::time::sleep(PERIOD * 2).await;
        let not_serving = tonic_health::pb::health_check_response::ServingStatus::NotServing;
        let serving = tonic_health::pb::health_check_response::ServingStatus::Serving;
        assert_eq!(ask(&service).await.expect("it is known"), not_serving);
        ready.store(true, Ordering::Relaxed);
        tokio::time::sleep(PERIOD * 2).await;
        assert_eq!(ask(&service).await.expect("it is known"), serving);
        end.cancel();
        task.await.expect("reporting does not panic");
        assert_eq!(ask(&service).await.expect("it is known"), not_serving);
    }
}
