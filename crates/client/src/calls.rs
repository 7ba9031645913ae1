//! Every unary call of the API as a method of [`Client`].
//!
//! Mutations whose `request_id` is empty get a fresh one; it is the same in every try. Reads and mutations of the
//! ledger are also sent to a second member when the first one is silent; changes of the cluster's membership, which
//! take long, and questions meant for one member are not.

use tessera_api::v1::cluster_service_client::ClusterServiceClient;
use tessera_api::v1::job_service_client::JobServiceClient;
use tessera_api::v1::pool_service_client::PoolServiceClient;
use tessera_api::v1::queue_service_client::QueueServiceClient;
use tessera_api::v1::usage_service_client::UsageServiceClient;
use tessera_api::v1::*;

use crate::client::{Client, Hedging};
use crate::error::ClientError;

macro_rules! calls {
    ($stub:ident: $($doc:literal $kind:ident $name:ident($request:ident) -> $response:ident;)*) => {
        impl Client {
            $(
                #[doc = $doc]
                ///
                /// # Errors
                /// [`ClientError`].
                pub async fn $name(&self, request: $request) -> Result<$response, ClientError> {
                    let (request, request_id, hedging) = calls!(@$kind self, request);
                    let limit = self.settings().max_message_bytes;
                    let rpc = move |channel, request| -> crate::client::Try<$response> {
                        Box::pin(async move {
                            $stub::new(channel).max_decoding_message_size(limit).$name(request).await
                        })
                    };
                    self.unary(request, request_id, hedging, rpc).await
                }
            )*
        }
    };
    (@read $client:ident, $request:ident) => { ($request, None, Hedging::WhenSilent) };
    (@slow_read $client:ident, $request:ident) => { ($request, None, Hedging::Never) };
    (@mutation $client:ident, $request:ident) => { calls!(@stamped $client, $request, Hedging::WhenSilent) };
    (@slow_mutation $client:ident, $request:ident) => { calls!(@stamped $client, $request, Hedging::Never) };
    (@stamped $client:ident, $request:ident, $hedging:expr) => {{
        let mut request = $request;
        if request.request_id.is_empty() {
            request.request_id = $client.new_request_id();
        }
        let request_id = request.request_id.clone();
        (request, Some(request_id), $hedging)
    }};
}

calls! { JobServiceClient:
    "Submits a job; answered when it is durable (law L3)." mutation submit_job(SubmitJobRequest) -> SubmitJobResponse;
    "One job." read get_job(GetJobRequest) -> GetJobResponse;
    "One page of jobs, newest first." read list_jobs(ListJobsRequest) -> ListJobsResponse;
    "Ends a job, waiting or running." mutation cancel_job(CancelJobRequest) -> CancelJobResponse;
    "Keeps a waiting job from being considered." mutation hold_job(HoldJobRequest) -> HoldJobResponse;
    "Has a held job considered again." mutation release_job(ReleaseJobRequest) -> ReleaseJobResponse;
    "Takes a running job's blocks until it is resumed (law L5)."
        mutation suspend_job(SuspendJobRequest) -> SuspendJobResponse;
    "Has a suspended job considered again." mutation resume_job(ResumeJobRequest) -> ResumeJobResponse;
    "Where the device of a running job listens, for its program on another host."
        read get_job_device(GetJobDeviceRequest) -> GetJobDeviceResponse;
    "Why a job stands where it stands." slow_read why(WhyRequest) -> WhyResponse;
    "What jobs wait for, in a word each." read list_waits(ListWaitsRequest) -> ListWaitsResponse;
    "What jobs use of what they hold." read list_use(ListUseRequest) -> ListUseResponse;
    "What would happen if a job was submitted now." slow_read plan_job(PlanJobRequest) -> PlanJobResponse;
    "Moves a running job to other cards, or says where it would go." mutation move_job(MoveJobRequest) -> MoveJobResponse;
}

calls! { PoolServiceClient:
    "The pool in numbers." read get_pool(GetPoolRequest) -> GetPoolResponse;
    "One node with its cards." read get_node(GetNodeRequest) -> GetNodeResponse;
    "One page of nodes." read list_nodes(ListNodesRequest) -> ListNodesResponse;
    "One card with its blocks." read get_card(GetCardRequest) -> GetCardResponse;
    "One page of cards." read list_cards(ListCardsRequest) -> ListCardsResponse;
    "Who holds which blocks, one page of cards (patent statement P4)."
        read get_block_map(GetBlockMapRequest) -> GetBlockMapResponse;
    "Checks the laws on the whole state of one member (law L1)."
        slow_read verify_pool(VerifyPoolRequest) -> VerifyPoolResponse;
    "New work may go to a node again." mutation uncordon_node(UncordonNodeRequest) -> UncordonNodeResponse;
    "No new work for a node." mutation cordon_node(CordonNodeRequest) -> CordonNodeResponse;
    "No new work for a node, and what runs leaves it." mutation drain_node(DrainNodeRequest) -> DrainNodeResponse;
    "What compaction would do now (patent statement P7)."
        slow_read plan_compaction(PlanCompactionRequest) -> PlanCompactionResponse;
    "Begins to compact the pool." slow_read start_compaction(StartCompactionRequest) -> StartCompactionResponse;
    "How far compaction is." slow_read get_compaction(GetCompactionRequest) -> GetCompactionResponse;
    "Begins no further move." slow_read stop_compaction(StopCompactionRequest) -> StopCompactionResponse;
    "What would become of the pool after a change." slow_read what_if(WhatIfRequest) -> WhatIfResponse;
    "Declares a node dead (law L2)." mutation forget_node(ForgetNodeRequest) -> ForgetNodeResponse;
    "Declares that unconfirmed workers of a node are gone (law L2)."
        mutation confirm_stopped(ConfirmStoppedRequest) -> ConfirmStoppedResponse;
    "The pool's settings." read get_pool_config(GetPoolConfigRequest) -> GetPoolConfigResponse;
    "Changes the pool's settings (law L6)." mutation set_pool_config(SetPoolConfigRequest) -> SetPoolConfigResponse;
}

calls! { QueueServiceClient:
    "One queue." read get_queue(GetQueueRequest) -> GetQueueResponse;
    "One page of queues." read list_queues(ListQueuesRequest) -> ListQueuesResponse;
    "Makes or changes a queue." mutation set_queue(SetQueueRequest) -> SetQueueResponse;
    "Removes an empty queue." mutation remove_queue(RemoveQueueRequest) -> RemoveQueueResponse;
}

calls! { UsageServiceClient:
    "Sums over time of what jobs held." read query_usage(QueryUsageRequest) -> QueryUsageResponse;
}

calls! { ClusterServiceClient:
    "Creates the cluster; asked of one of its members, best through [`Client::only`]."
        slow_mutation initialize_cluster(InitializeClusterRequest) -> InitializeClusterResponse;
    "How the asked member sees the cluster; of a certain member through [`Client::only`]."
        slow_read get_cluster_status(GetClusterStatusRequest) -> GetClusterStatusResponse;
    "What a process tells of itself to whoever looks for a fault; a certain member through [`Client::only`]."
        slow_read diagnose(DiagnoseRequest) -> DiagnoseResponse;
    "The members." read list_members(ListMembersRequest) -> ListMembersResponse;
    "Adds a member without a vote." slow_mutation add_member(AddMemberRequest) -> AddMemberResponse;
    "Gives a member a vote." slow_mutation promote_member(PromoteMemberRequest) -> PromoteMemberResponse;
    "Removes a member." slow_mutation remove_member(RemoveMemberRequest) -> RemoveMemberResponse;
    "Hands leadership over."
        slow_mutation transfer_leadership(TransferLeadershipRequest) -> TransferLeadershipResponse;
}
