//! The table: which path stands for which method.
//!
//! Paths follow the resources: `GET` asks, `PUT` makes or changes, `DELETE` removes, `POST` does what its last word
//! says. `{job_id}` in a path is a field of the request; `{node.name}` one of a message in it.

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Asks.
    Get,
    /// Does something, or asks a question that is too large for a query.
    Post,
    /// Makes or changes.
    Put,
    Delete,
}

impl Verb {
    /// As HTTP writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// The way in which a stream is resumed by `Last-Event-ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// There is no stream.
    Never,
    /// With the token that each message carries.
    Token,
    /// With the byte after those that each message carries.
    Offset,
}

/// A path and the method it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub verb: Verb,
    /// The path, with the names of fields in braces.
    pub path: &'static str,
    /// `Service/Method` within `tessera.v1`.
    pub method: &'static str,
    pub changes: bool,
    /// The way in which its stream is resumed.
    pub resume: Resume,
}

impl Route {
    /// Returns whether the request is in the body; otherwise it is in the query.
    #[must_use]
    pub const fn takes_body(&self) -> bool {
        matches!(self.verb, Verb::Post | Verb::Put)
    }

    const fn asking(verb: Verb, path: &'static str, method: &'static str) -> Self {
        Self { verb, path, method, changes: false, resume: Resume::Never }
    }

    const fn changing(verb: Verb, path: &'static str, method: &'static str) -> Self {
        Self { verb, path, method, changes: true, resume: Resume::Never }
    }

    const fn stream(path: &'static str, method: &'static str, resume: Resume) -> Self {
        Self { verb: Verb::Get, path, method, changes: false, resume }
    }
}

/// All routes. Every method of the public services but a few that are not for JSON has one; a test says so.
pub const ROUTES: &[Route] = &[
    Route::asking(Verb::Get, "/v1/jobs", "JobService/ListJobs"),
    Route::changing(Verb::Post, "/v1/jobs", "JobService/SubmitJob"),
    Route::stream("/v1/jobs:watch", "JobService/WatchJobs", Resume::Token),
    Route::asking(Verb::Get, "/v1/jobs:waits", "JobService/ListWaits"),
    Route::asking(Verb::Get, "/v1/jobs:use", "JobService/ListUse"),
    Route::asking(Verb::Post, "/v1/jobs:plan", "JobService/PlanJob"),
    Route::asking(Verb::Get, "/v1/jobs/{job_id}", "JobService/GetJob"),
    Route::asking(Verb::Get, "/v1/jobs/{job_id}:why", "JobService/Why"),
    Route::stream("/v1/jobs/{job_id}/output", "JobService/StreamLogs", Resume::Offset),
    Route::changing(Verb::Post, "/v1/jobs/{job_id}:cancel", "JobService/CancelJob"),
    Route::changing(Verb::Post, "/v1/jobs/{job_id}:hold", "JobService/HoldJob"),
    Route::changing(Verb::Post, "/v1/jobs/{job_id}:release", "JobService/ReleaseJob"),
    Route::changing(Verb::Post, "/v1/jobs/{job_id}:suspend", "JobService/SuspendJob"),
    Route::changing(Verb::Post, "/v1/jobs/{job_id}:resume", "JobService/ResumeJob"),
    Route::changing(Verb::Post, "/v1/jobs/{job_id}:move", "JobService/MoveJob"),
    Route::asking(Verb::Get, "/v1/queues", "QueueService/ListQueues"),
    Route::asking(Verb::Get, "/v1/queues/{name}", "QueueService/GetQueue"),
    Route::changing(Verb::Put, "/v1/queues/{queue.name}", "QueueService/SetQueue"),
    Route::changing(Verb::Delete, "/v1/queues/{name}", "QueueService/RemoveQueue"),
    Route::asking(Verb::Get, "/v1/pool", "PoolService/GetPool"),
    Route::stream("/v1/pool:watch", "PoolService/WatchPool", Resume::Token),
    Route::asking(Verb::Get, "/v1/pool:verify", "PoolService/VerifyPool"),
    Route::asking(Verb::Post, "/v1/pool:whatIf", "PoolService/WhatIf"),
    Route::asking(Verb::Get, "/v1/pool/config", "PoolService/GetPoolConfig"),
    Route::changing(Verb::Put, "/v1/pool/config", "PoolService/SetPoolConfig"),
    Route::asking(Verb::Get, "/v1/nodes", "PoolService/ListNodes"),
    Route::asking(Verb::Get, "/v1/nodes/{node.name}", "PoolService/GetNode"),
    Route::asking(Verb::Get, "/v1/nodes/{node.name}/cards/{index}", "PoolService/GetCard"),
    Route::changing(Verb::Post, "/v1/nodes/{node.name}:cordon", "PoolService/CordonNode"),
    Route::changing(Verb::Post, "/v1/nodes/{node.name}:uncordon", "PoolService/UncordonNode"),
    Route::changing(Verb::Post, "/v1/nodes/{node.name}:drain", "PoolService/DrainNode"),
    Route::changing(Verb::Post, "/v1/nodes/{node.name}:forget", "PoolService/ForgetNode"),
    Route::changing(Verb::Post, "/v1/nodes/{node.name}:confirmStopped", "PoolService/ConfirmStopped"),
    Route::asking(Verb::Get, "/v1/cards", "PoolService/ListCards"),
    Route::asking(Verb::Get, "/v1/blocks", "PoolService/GetBlockMap"),
    Route::asking(Verb::Get, "/v1/compaction", "PoolService/GetCompaction"),
    Route::asking(Verb::Post, "/v1/compaction:plan", "PoolService/PlanCompaction"),
    Route::changing(Verb::Post, "/v1/compaction:start", "PoolService/StartCompaction"),
    Route::changing(Verb::Post, "/v1/compaction:stop", "PoolService/StopCompaction"),
    Route::asking(Verb::Get, "/v1/usage", "UsageService/QueryUsage"),
    Route::asking(Verb::Get, "/v1/cluster", "ClusterService/GetClusterStatus"),
    Route::changing(Verb::Post, "/v1/cluster:initialize", "ClusterService/InitializeCluster"),
    Route::changing(Verb::Post, "/v1/cluster:transferLeadership", "ClusterService/TransferLeadership"),
    Route::asking(Verb::Get, "/v1/members", "ClusterService/ListMembers"),
    Route::changing(Verb::Post, "/v1/members", "ClusterService/AddMember"),
    Route::changing(Verb::Post, "/v1/members/{member_id}:promote", "ClusterService/PromoteMember"),
    Route::changing(Verb::Delete, "/v1/members/{member_id}", "ClusterService/RemoveMember"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::describe;

    /// The stream of submissions, for JSON has no streams of requests; the backup, which is a file and no events; where
    /// a device is, and what processes say in their logs, for neither is for browsers and their caches.
    const WITHOUT_ROUTE: [&str; 4] =
        ["JobService/SubmitJobs", "JobService/GetJobDevice", "ClusterService/SaveSnapshot", "ClusterService/Diagnose"];

    #[test]
    fn every_method_of_the_public_services_has_exactly_one_route() {
        let described = describe().expect("the table names methods that there are");
        let routed: Vec<&str> = described.iter().map(|described| described.route.method).collect();
        let once: BTreeSet<&str> = routed.iter().copied().collect();
        assert_eq!(once.len(), routed.len(), "a method has two routes");
        let services = ["JobService", "QueueService", "PoolService", "UsageService", "ClusterService"];
        let pool = described[0].method.parent_pool().clone();
        for service in services.iter().filter_map(|name| pool.get_service_by_name(&format!("tessera.v1.{name}"))) {
            for method in service.methods() {
                let name = format!("{}/{}", service.name(), method.name());
                assert_ne!(once.contains(&*name), WITHOUT_ROUTE.contains(&&*name), "{name}");
            }
        }
    }

    #[test]
    fn what_carries_a_request_id_changes_something() {
        for described in describe().expect("the table names methods that there are") {
            let carries = described.method.input().get_field_by_name("request_id").is_some();
            let route = described.route;
            assert!(!carries || route.changes, "{} changes something", route.method);
        }
    }
}
