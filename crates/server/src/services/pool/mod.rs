//! The service of the pool: nodes, cards, blocks and settings.

mod compaction;
mod lists;
mod live;
mod operate;
mod verify;
mod what_if;

pub(super) use verify::Verifier;

use tessera_api::pool_view::{self, node_of_ref};
use tessera_api::time::timestamp;
use tessera_api::v1::pool_service_server::PoolService;
use tessera_api::{Refusal, v1};
use tessera_ledger::wire::{FieldError, duration_to_wire};
use tessera_ledger::{CardId, Command, Eligibility, LogTime, PoolConfig, Rejection, State};
use tonic::{Request, Response, Status};

use super::Desk;
use super::caller::deadline_of;
use super::watch::{PoolTopic, WatchStream};

/// Answers `tessera.v1.PoolService`.
#[derive(Clone, Debug)]
pub struct PoolApi {
    desk: Desk,
}

impl PoolApi {
    #[must_use]
    pub const fn new(desk: Desk) -> Self {
        Self { desk }
    }
}

/// Refuses other blocks once cards are counted in those that there are. The ledger refuses that too, in fewer words.
fn same_blocks(state: &State, config: &PoolConfig) -> Result<(), Refusal> {
    let present = state.config();
    let (size, reference) = (present.block_size, present.reference_precision);
    if (config.block_size, config.reference_precision) == (size, reference) || state.cards().next().is_none() {
        return Ok(());
    }
    let problem = format!(
        "and the reference precision cannot be changed once cards are registered: this pool counts in blocks of {size} {}; they are \
         chosen when a cluster is created, with `tessera cluster init --block-size SIZE --reference-precision PRECISION`",
        reference.name()
    );
    Err(FieldError::invalid("config.block_milli_tflops", problem).into())
}

#[tonic::async_trait]
impl PoolService for PoolApi {
    type WatchPoolStream = WatchStream<v1::WatchPoolResponse>;

    async fn get_pool(&self, request: Request<v1::GetPoolRequest>) -> Result<Response<v1::GetPoolResponse>, Status> {
        let deadline = deadline_of(&request);
        let reading = self.desk.read(request.get_ref().consistency, deadline).await?;
        let cluster = self.desk.pool.consensus().identity().cluster.as_str();
        let pool = Some(pool_view::pool(&reading.state, cluster));
        Ok(Response::new(v1::GetPoolResponse { pool, read: reading.read_state() }))
    }

    async fn get_node(&self, request: Request<v1::GetNodeRequest>) -> Result<Response<v1::GetNodeResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let reading = self.desk.read(request.consistency, deadline).await?;
        let state = &reading.state;
        let id = node_of_ref("node", state, request.node.as_ref()).map_err(|refusal| reading.refuse(refusal))?;
        let node = state.node(id).map(|node| self.desk.live_node(state, node));
        let cards = state.cards_of(id).map(|(id, card)| self.desk.live_card(state, id, card)).collect();
        Ok(Response::new(v1::GetNodeResponse { node, cards, read: reading.read_state() }))
    }

    async fn list_nodes(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        lists::nodes(&self.desk, deadline_of(&request), request.get_ref()).await.map(Response::new)
    }

    async fn get_card(&self, request: Request<v1::GetCardRequest>) -> Result<Response<v1::GetCardResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let reading = self.desk.read(request.consistency, deadline).await?;
        let state = &reading.state;
        let node = node_of_ref("node", state, request.node.as_ref()).map_err(|refusal| reading.refuse(refusal))?;
        let id = CardId { node, index: request.index };
        let card = state.card(id).ok_or_else(|| reading.refuse(Rejection::UnknownCard(id)))?;
        Ok(Response::new(v1::GetCardResponse {
            card: Some(self.desk.live_card(state, id, card)),
            blocks: Some(pool_view::card_blocks(state, id, card)),
            read: reading.read_state(),
        }))
    }

    async fn list_cards(
        &self,
        request: Request<v1::ListCardsRequest>,
    ) -> Result<Response<v1::ListCardsResponse>, Status> {
        lists::cards(&self.desk, deadline_of(&request), request.get_ref()).await.map(Response::new)
    }

    async fn get_block_map(
        &self,
        request: Request<v1::GetBlockMapRequest>,
    ) -> Result<Response<v1::GetBlockMapResponse>, Status> {
        lists::blocks(&self.desk, deadline_of(&request), request.get_ref()).await.map(Response::new)
    }

    async fn verify_pool(
        &self,
        request: Request<v1::VerifyPoolRequest>,
    ) -> Result<Response<v1::VerifyPoolResponse>, Status> {
        verify::answer(&self.desk, deadline_of(&request), request.get_ref()).await.map(Response::new)
    }

    async fn uncordon_node(
        &self,
        request: Request<v1::UncordonNodeRequest>,
    ) -> Result<Response<v1::UncordonNodeResponse>, Status> {
        let (eligibility, reason) = (Eligibility::Eligible, String::new());
        let command = |node| Command::SetEligibility { node, eligibility, reason };
        let revision = operate::on_node(&self.desk, request, |asked| asked.node.as_ref(), command).await?;
        Ok(Response::new(v1::UncordonNodeResponse { revision }))
    }

    async fn cordon_node(
        &self,
        request: Request<v1::CordonNodeRequest>,
    ) -> Result<Response<v1::CordonNodeResponse>, Status> {
        let reason = operate::reason(&request.get_ref().reason)?;
        let command = |node| Command::SetEligibility { node, eligibility: Eligibility::Cordoned, reason };
        let revision = operate::on_node(&self.desk, request, |asked| asked.node.as_ref(), command).await?;
        Ok(Response::new(v1::CordonNodeResponse { revision }))
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        let reason = operate::reason(&request.get_ref().reason)?;
        let within = operate::deadline(request.get_ref().deadline)?;
        let command = |node| match within {
            Some(within) => Command::DrainNode { node, reason, within },
            None => Command::SetEligibility { node, eligibility: Eligibility::Draining, reason },
        };
        let revision = operate::on_node(&self.desk, request, |asked| asked.node.as_ref(), command).await?;
        Ok(Response::new(v1::DrainNodeResponse { revision }))
    }

    async fn forget_node(
        &self,
        request: Request<v1::ForgetNodeRequest>,
    ) -> Result<Response<v1::ForgetNodeResponse>, Status> {
        let command = |node| Command::ForgetNode { node };
        let revision = operate::on_node(&self.desk, request, |asked| asked.node.as_ref(), command).await?;
        Ok(Response::new(v1::ForgetNodeResponse { revision }))
    }

    async fn confirm_stopped(
        &self,
        request: Request<v1::ConfirmStoppedRequest>,
    ) -> Result<Response<v1::ConfirmStoppedResponse>, Status> {
        let command = |node| Command::ConfirmStopped { node };
        let revision = operate::on_node(&self.desk, request, |asked| asked.node.as_ref(), command).await?;
        Ok(Response::new(v1::ConfirmStoppedResponse { revision }))
    }

    async fn get_pool_config(
        &self,
        request: Request<v1::GetPoolConfigRequest>,
    ) -> Result<Response<v1::GetPoolConfigResponse>, Status> {
        let deadline = deadline_of(&request);
        let reading = self.desk.read(request.get_ref().consistency, deadline).await?;
        let config = Some(pool_view::config(reading.state.config()));
        let floor = reading.state.request_floor();
        Ok(Response::new(v1::GetPoolConfigResponse {
            config,
            read: reading.read_state(),
            request_ids: reading.state.requests_remembered(),
            request_floor: (floor != LogTime(0)).then(|| timestamp(floor)),
            regrant_ceiling: Some(duration_to_wire(reading.state.lease_ceiling().regrant_after)),
        }))
    }

    async fn set_pool_config(
        &self,
        request: Request<v1::SetPoolConfigRequest>,
    ) -> Result<Response<v1::SetPoolConfigResponse>, Status> {
        let config = pool_view::config_of_request(request.get_ref().config.as_ref())?;
        let expected = pool_view::expected_config_of_request(request.get_ref().expected.as_ref())?;
        same_blocks(&self.desk.pool.view().current(), &config)?;
        if config.leases != self.desk.pool.view().current().config().leases {
            self.desk.pool.config().outlasts_failover(&config.leases).map_err(Refusal::from)?;
        }
        let made = self.desk.make(request, Command::SetConfig { config, expected }).await?;
        Ok(Response::new(v1::SetPoolConfigResponse { revision: made.revision.0 }))
    }

    async fn plan_compaction(
        &self,
        request: Request<v1::PlanCompactionRequest>,
    ) -> Result<Response<v1::PlanCompactionResponse>, Status> {
        compaction::plan(&self.desk, deadline_of(&request), request.into_inner()).await.map(Response::new)
    }

    async fn start_compaction(
        &self,
        request: Request<v1::StartCompactionRequest>,
    ) -> Result<Response<v1::StartCompactionResponse>, Status> {
        compaction::start(&self.desk, deadline_of(&request), request.into_inner()).await.map(Response::new)
    }

    async fn get_compaction(
        &self,
        request: Request<v1::GetCompactionRequest>,
    ) -> Result<Response<v1::GetCompactionResponse>, Status> {
        compaction::get(&self.desk, deadline_of(&request)).await.map(Response::new)
    }

    async fn stop_compaction(
        &self,
        request: Request<v1::StopCompactionRequest>,
    ) -> Result<Response<v1::StopCompactionResponse>, Status> {
        compaction::stop(&self.desk, deadline_of(&request)).await.map(Response::new)
    }

    async fn what_if(&self, request: Request<v1::WhatIfRequest>) -> Result<Response<v1::WhatIfResponse>, Status> {
        what_if::answer(&self.desk, deadline_of(&request), request.into_inner()).await.map(Response::new)
    }

    async fn watch_pool(
        &self,
        request: Request<v1::WatchPoolRequest>,
    ) -> Result<Response<Self::WatchPoolStream>, Status> {
        let deadline = deadline_of(&request);
        let (topic, start) = PoolTopic::of(request.get_ref())?;
        let permit = self.desk.watch_permit()?;
        let begin = start.begin(&self.desk.pool, deadline).await?;
        Ok(Response::new(self.desk.watch.start(topic, begin, permit)))
    }
}
