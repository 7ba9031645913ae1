//! The member's gRPC server: the services, put together with what every call passes on its way to them.
//!
//! From the outside in: limits and keepalive of connections; `programs`, which lets no browser call; [`observe`], a
//! span and meters per call; [`ReasonLayer`], which leaves no refusal of the API without a reason; `admit`, which keeps
//! clients within limits; [`deadline`] and [`LeaderLayer`], which brings calls to the leader; then the router with the
//! API's services, the health service, reflection, the sessions of agents and what the other members call.
//!
//! The same port answers the API as JSON, at `/v1/...` (`tessera-gateway`).

pub(crate) mod admit;
pub mod deadline;
pub mod meter;
pub mod methods;
pub mod observe;
mod programs;

use std::time::Duration;

use admit::AdmitLayer;
use axum::extract::Request;
use axum::routing::any;
use meter::CallMeters;
use methods::Methods;
use observe::ObserveLayer;
use programs::ProgramsLayer;
use tessera_api::reasons::ReasonLayer;
use tessera_api::v1::agent_service_server::{AgentService, AgentServiceServer};
use tessera_api::v1::cluster_service_server::ClusterServiceServer;
use tessera_api::v1::job_service_server::JobServiceServer;
use tessera_api::v1::pool_service_server::PoolServiceServer;
use tessera_api::v1::queue_service_server::QueueServiceServer;
use tessera_api::v1::usage_service_server::UsageServiceServer;
use tessera_api::{FILE_DESCRIPTOR_SET, limits};
use tessera_connection::Inbound;
use tessera_connection::seats::Seats;
use tessera_consensus::raft_service;
use tessera_gateway::{Gateway, GatewayError, Rights, Stack};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tower::Layer;

use crate::connections::incoming_beside_lines;
use crate::json_face::JsonFace;
use crate::limits::{LimitMeters, Limited, MemberLimits};
use crate::services::forward::{Channels, LeaderLayer};
use crate::services::readiness::Readiness;
use crate::services::watch::{WatchMeters, WatchSettings};
use crate::services::{ClusterApi, Desk, JobApi, PoolApi, QueueApi, UsageApi};
use tessera_controller::pool::PoolHandle;

/// Largest answer in bytes: a page of the largest jobs.
const LARGEST_ANSWER: usize = 64 << 20;

/// Calls that one connection may have open at once; further ones wait.
const CALLS_PER_CONNECTION: usize = 4096;

/// Streams that one connection may open at once.
const STREAMS_PER_CONNECTION: u32 = 8192;

/// A connection over which nothing comes for so long is asked whether it lives, and closed when it does not answer.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Limits on the resources that clients may have open or under way at once.
    pub limits: MemberLimits,
    pub watch: WatchSettings,
    /// True if callers may ask for the descriptors of the services.
    pub reflection: bool,
    /// The time that open calls are given to end when the server is shut down.
    pub drain: Duration,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        let (limits, watch) = (MemberLimits::default(), WatchSettings::default());
        Self { limits, watch, reflection: true, drain: Duration::from_secs(2) }
    }
}

/// The reason for which the server could not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The API's descriptors are damaged.
    #[error("the descriptors of the API cannot be read; this build of Tessera is damaged, install it anew")]
    Descriptors(#[from] prost::DecodeError),
    /// The descriptors cannot be served.
    #[error("reflection cannot be served; switch it off, and report this")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The API cannot be answered as JSON.
    #[error(transparent)]
    Json(#[from] GatewayError),
    /// The listener failed.
    #[error("the gRPC server failed")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves the member of `pool` on what comes in by `inbound` until `shutdown`, then lets open calls end for a bounded
/// time. `json` answers for as long.
///
/// # Errors
/// [`ServeError`].
pub async fn serve<A: AgentService>(
    inbound: Inbound,
    pool: PoolHandle,
    agents: AgentServiceServer<A>,
    settings: GrpcSettings,
    json: JsonFace,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let methods = Methods::load()?;
    let calls = CallMeters::new(&methods);
    let watches = WatchMeters::default();
    let limits = LimitMeters::new(settings.limits);
    {
        let mut registry = pool.metrics().registry();
        calls.register(&mut registry);
        watches.register(&mut registry);
        limits.register(&mut registry);
    }
    let (reporter, health) = tonic_health::server::health_reporter();
    let reporting = tokio::spawn(Readiness::of(pool.clone()).report(reporter, shutdown.clone()));
    let seats = Seats::new(settings.limits.seats(), limits.used(Limited::Connections));
    let admit = AdmitLayer::new(methods.clone(), &settings.limits, limits.clone());
    let desk = Desk::new(pool.clone(), &settings, watches, limits, shutdown.clone());
    let mut routes = api(&desk).add_service(raft_service(pool.consensus())).add_service(health).add_service(agents);
    if settings.reflection {
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        routes = routes.add_service(reflection.build_v1()?);
    }
    let channels = Channels::new(pool.outbound().clone());
    let (observe, leader) =
        (ObserveLayer::new(methods.clone(), calls), LeaderLayer::new(methods, pool.clone(), channels));
    // What asks in JSON passes the same layers on its way to the services as what asks in gRPC.
    let inner = leader.layer(api(&desk).prepare());
    let gateway = Gateway::new(Stack::new(observe.layer(ReasonLayer.layer(admit.layer(inner)))))?;
    let _answering = json.answer_by(gateway.clone());
    let answer = move |request: Request| async move {
        match json.check(&request) {
            Ok(()) => gateway.answer(request, Rights::Change).await,
            Err(refusal) => tessera_gateway::refuse(refusal.into()),
        }
    };
    *routes.axum_router_mut() = std::mem::take(routes.axum_router_mut()).route("/v1/{*path}", any(answer));
    let incoming = incoming_beside_lines(inbound, seats, pool.consensus().clone());
    let server = Server::builder()
        .concurrency_limit_per_connection(CALLS_PER_CONNECTION)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .accept_http1(true)
        .layer(ProgramsLayer)
        .layer(observe)
        .layer(ReasonLayer)
        .layer(admit)
        .layer(leader)
        .serve_with_incoming_shutdown(routes.prepare(), incoming, shutdown.clone().cancelled_owned());
    let drained = async {
        shutdown.cancelled().await;
        tokio::time::sleep(settings.drain).await;
    };
    let served = tokio::select! {
        served = server => served.map_err(ServeError::from),
        () = drained => {
            tracing::debug!("calls that were still open at the end of the drain were dropped");
            Ok(())
        }
    };
    shutdown.cancel();
    // It ends by itself when shut down; its only failure would be a panic, which is logged by the runtime.
    let _ = timeout(settings.drain, reporting).await;
    served
}

/// The services of the API.
fn api(desk: &Desk) -> Routes {
    Routes::new(
        JobServiceServer::new(JobApi::new(desk.clone()))
            .max_decoding_message_size(limits::REQUEST)
            .max_encoding_message_size(LARGEST_ANSWER),
    )
    .add_service(
        PoolServiceServer::new(PoolApi::new(desk.clone()))
            .max_decoding_message_size(limits::REQUEST)
            .max_encoding_message_size(LARGEST_ANSWER),
    )
    .add_service(
        QueueServiceServer::new(QueueApi::new(desk.clone()))
            .max_decoding_message_size(limits::REQUEST)
            .max_encoding_message_size(LARGEST_ANSWER),
    )
    .add_service(
        UsageServiceServer::new(UsageApi::new(desk.clone()))
            .max_decoding_message_size(limits::REQUEST)
            .max_encoding_message_size(LARGEST_ANSWER),
    )
    .add_service(ClusterServiceServer::new(ClusterApi::new(desk.clone())).max_decoding_message_size(limits::REQUEST))
}
