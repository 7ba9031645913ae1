//! What members measure. Counters and histograms are those of the leader, except where the help says otherwise; what is
//! looked up in the ledger every member tells.

use super::{CounterKind, Declaration, GaugeKind, HistogramKind, Metric, Process, metrics};

/// Bounds in seconds for what should take less than a tenth of a second.
const QUICK: [f64; 11] = [0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0];
/// Bounds in seconds for how long jobs wait.
const WAITS: [f64; 12] = [0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0, 86_400.0];
/// Bounds in seconds for how long a job is on its way to other cards.
const MOVES: [f64; 10] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0];
/// Bounds in seconds for calls.
const CALLS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Bounds in seconds for what should take a fraction of a millisecond to a second.
const LATENCY: [f64; 13] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
/// Bounds for how many there are of something.
const POWERS: [f64; 9] = [1.0, 2.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0];
/// Bounds in seconds for synced writes; a disk that takes longer than the last one is broken.
pub const SYNCS: [f64; 15] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0];

metrics! { Member;
    GRPC_HANDLED: CounterKind "grpc_server_handled_total" ["grpc_type", "grpc_service", "grpc_method", "grpc_code"]
        "Calls to this member that ended, successfully or not, by service, method and code";
    GRPC_HANDLING: HistogramKind "grpc_server_handling_seconds" ["grpc_type", "grpc_service", "grpc_method"] in CALLS
        "Time from the arrival of a call at this member to its end";

    BLOCKS: GaugeKind "tessera_blocks" ["kind", "vendor", "model", "state"] "Blocks by state";
    BLOCKS_CAPACITY: GaugeKind "tessera_blocks_capacity" ["kind", "vendor", "model"] "Blocks that cards offer";
    CONSERVATION_BROKEN: GaugeKind "tessera_ledger_conservation_broken" []
        "1 when blocks are counted wrongly (law L1); must stay 0";
    CARDS_OVERSUBSCRIBED: GaugeKind "tessera_cards_oversubscribed" ["kind"]
        "Cards that offer more blocks than they are rated for, with isolation `shared` only";
    OVERSUBSCRIPTION: GaugeKind "tessera_oversubscription_ratio" ["kind"]
        "Blocks that cards may offer, as a share of those that they are rated for";
    FRAGMENTATION: GaugeKind "tessera_fragmentation_ratio" ["resource"]
        "Part of what is free that the average request of those seen cannot use where it is; the leader tells";

    JOBS: GaugeKind "tessera_jobs" ["queue", "state"] "Jobs by queue and state";
    JOBS_PENDING: GaugeKind "tessera_jobs_pending" ["queue", "reason"]
        "Jobs that wait, by queue and by what they wait for (docs/reasons.md); the leader tells";
    JOBS_IDLE: GaugeKind "tessera_jobs_idle" ["queue", "step"]
        "Jobs that compute next to nothing with what they hold, or were suspended for that, by what followed from it";
    JOBS_SUBMITTED: CounterKind "tessera_jobs_submitted_total" ["queue"] "Jobs submitted";
    JOBS_FINISHED: CounterKind "tessera_jobs_finished_total" ["queue", "outcome"] "Jobs that came to an end";
    JOB_WAIT: HistogramKind "tessera_job_wait_seconds" ["queue"] in WAITS "From submission to the first allocation";
    PREEMPTIONS: CounterKind "tessera_preemptions_total" ["cause"] "Jobs suspended to make room";
    MIGRATIONS: CounterKind "tessera_migrations_total" ["outcome"] "Moves of jobs between cards that ended";
    MIGRATION_DURATION: HistogramKind "tessera_migration_duration_seconds" [] in MOVES
        "From the reservation of a move's target to the move's end";
    MOVES_IN_PROGRESS: GaugeKind "tessera_moves_in_progress" [] "Moves of jobs between cards in progress";
    REQUEST_IDS: GaugeKind "tessera_request_ids" [] "Answered request ids that are remembered";
    REQUEST_FLOOR: GaugeKind "tessera_request_floor_timestamp_seconds" []
        "Unix time until which request ids were made that are forgotten, and refused; 0 while none is";

    PLACEMENT_DURATION: HistogramKind "tessera_placement_duration_seconds" [] in QUICK "Time to make one plan";
    PLACEMENT_CANDIDATES: HistogramKind "tessera_placement_candidates" [] in POWERS
        "Requests that were tried on the pool for one plan";
    PLAN_PARTS: CounterKind "tessera_plan_parts_total" ["outcome"] "Parts of plans by what the ledger said";

    QUOTA_COMPUTE: GaugeKind "tessera_quota_tflops" ["queue", "kind"]
        "Compute of a queue at the reference precision: what it uses, has borrowed, is guaranteed, and may use at most";
    QUOTA_MEMORY: GaugeKind "tessera_quota_memory_bytes" ["queue", "kind"]
        "Card memory of a queue: what it uses, has borrowed, is guaranteed, and may use at most";
    QUOTA_CHECKPOINTS: GaugeKind "tessera_quota_checkpoint_bytes" ["queue", "kind"]
        "Checkpoints of a queue, each counted once: what they take, and may take at most";

    NODES: GaugeKind "tessera_nodes" ["state", "eligibility"] "Nodes by state";
    DRAIN_REMAINING: GaugeKind "tessera_drain_remaining_allocations" [] "Allocations still on nodes that are drained";
    NODES_SILENT: GaugeKind "tessera_nodes_silent" [] "Nodes that the leader has not heard in time";
    MASS_LOSS: GaugeKind "tessera_mass_loss_suspected" []
        "1 while so many nodes are silent that the leader suspects itself and declares none of them lost";
    HEARTBEAT_AGE: GaugeKind "tessera_node_heartbeat_age_seconds" [] "Age of the oldest last heartbeat of a session";
    SESSIONS: GaugeKind "tessera_sessions" [] "Agents with a session with this member";
    SESSIONS_OPENED: CounterKind "tessera_sessions_opened_total" [] "Sessions of agents that began";
    SESSIONS_ENDED: CounterKind "tessera_sessions_ended_total" ["cause"] "Sessions of agents that ended";
    LEASES_GRANTED: CounterKind "tessera_leases_granted_total" [] "Leases granted to nodes";
    LEASES_WITHHELD: CounterKind "tessera_leases_withheld_total" ["cause"] "Heartbeats not answered by a lease";
    LEASES_EXPIRED: CounterKind "tessera_leases_expired_total" [] "Nodes declared lost";
    QUARANTINES: CounterKind "tessera_quarantines_total" []
        "Workers whose stop could not be confirmed; an operator must decide";
    CHECKPOINTS_SKIPPED: CounterKind "tessera_checkpoints_skipped_total" []
        "Checkpoints that jobs could have gone on from and did not: damaged, gone, out of reach or not whole";
    FENCINGS: CounterKind "tessera_fencings_total" ["outcome"]
        "Workers whose blocks were in doubt, by how that ended: released by the end of the lease, confirmed to have \
         stopped, or found running";
    FENCES_PENDING: GaugeKind "tessera_fences_pending" []
        "Workers whose blocks are in doubt: unreachable, or not confirmed to have stopped";

    POOL_LIMIT_USED: GaugeKind "tessera_pool_limit_used" ["limit"]
        "What the ledger holds of each thing that is limited";
    POOL_LIMIT_MOST: GaugeKind "tessera_pool_limit_most" ["limit"] "The limits";
    LIMIT_USED: GaugeKind "tessera_limit_used" ["limit"] "What clients use of each limit of this member";
    LIMIT_MOST: GaugeKind "tessera_limit_most" ["limit"] "The limits of this member";
    LIMIT_REFUSED: CounterKind "tessera_limit_refused_total" ["limit"] "Refusals because a limit was met";
    WATCH_STREAMS: GaugeKind "tessera_watch_streams" ["watch"] "Watches that are open on this member";
    WATCHES_CUT: CounterKind "tessera_watches_cut_total" ["watch", "reason"]
        "Watches that this member ended, by reason";
    WATCH_LAG: HistogramKind "tessera_watch_lag_entries" ["watch"] in POWERS
        "Entries of the log that a watch had not been sent when it went on";

    USAGE_KEPT: GaugeKind "tessera_usage_kept" []
        "1 while this member keeps accounts of what jobs hold (docs/usage.md)";

    RAFT_IS_LEADER: GaugeKind "tessera_raft_is_leader" [] "1 on a leader that a quorum acknowledges";
    RAFT_TERM: GaugeKind "tessera_raft_term" [] "Current term";
    RAFT_VOTERS: GaugeKind "tessera_raft_voters" [] "Members with a vote";
    RAFT_LEARNERS: GaugeKind "tessera_raft_learners" [] "Members without a vote";
    RAFT_LEASES_GIVEN_UP: CounterKind "tessera_raft_leases_given_up_total" []
        "How often this member has taken its leader's process to have ended, and did not wait for the end of its lease";
    RAFT_TERMS_REFUSED: CounterKind "tessera_raft_terms_refused_total" []
        "Messages in the name of members that were refused because no elections can have reached their term";
    RAFT_LEADER_CHANGES: CounterKind "tessera_raft_leader_changes_total" []
        "Leaders this member has seen come to power since it started";
    RAFT_LOG_INDEX: GaugeKind "tessera_raft_log_index" ["kind"] "Index of the last entry of each kind";
    RAFT_LAG: GaugeKind "tessera_raft_replication_lag_entries" ["peer"] "Entries a follower lacks, on the leader";
    RAFT_ROUND_TRIP: HistogramKind "tessera_raft_peer_round_trip_seconds" ["peer"] in LATENCY
        "Time from this member's question to another member's answer, of questions that are answered at once";
    RAFT_PROPOSE: HistogramKind "tessera_raft_propose_duration_seconds" [] in LATENCY
        "Time from handing in a command to its being applied on the leader";
    RAFT_APPLY: HistogramKind "tessera_raft_apply_duration_seconds" [] in LATENCY
        "Time to apply and publish the entries that were applied together";
    RAFT_FSYNC: HistogramKind "tessera_raft_fsync_duration_seconds" [] in SYNCS
        "Duration of synced writes of the store";
    RAFT_FSYNC_REQUESTS: CounterKind "tessera_raft_fsync_requests_total" []
        "Requests made durable; divided by the count of synced writes, the average group";
    RAFT_SNAPSHOT_AGE: GaugeKind "tessera_raft_snapshot_age_seconds" [] "Age of the newest snapshot";
    RAFT_SNAPSHOT_SIZE: GaugeKind "tessera_raft_snapshot_size_bytes" [] "Size of the newest snapshot";
    STORE_SIZE: GaugeKind "tessera_store_size_bytes" [] "Bytes the store takes on disk";
    STATE_HASH_MISMATCH: CounterKind "tessera_state_hash_mismatch_total" []
        "Comparisons in which members' states differed; must stay 0";
    CLOCK_OFFSET: GaugeKind "tessera_clock_offset_seconds" []
        "How far this member's wall clock is ahead of what a quorum of the members' clocks agree on";
    DISK_FREE: GaugeKind "tessera_disk_free_bytes" [] "Bytes free on this member's disk";
    DISK_RESERVE: GaugeKind "tessera_disk_reserve_bytes" [] "Bytes that must stay free";

    BACKUPS: CounterKind "tessera_backups_total" ["outcome"] "Backups that this member tried to save as the leader";
    BACKUP_INTERVAL: GaugeKind "tessera_backup_interval_seconds" []
        "Time from one backup to the next as this member is configured; 0: it saves none";
    BACKUP_NEWEST: GaugeKind "tessera_backup_newest_timestamp_seconds" []
        "When the newest backup in the folder was taken; the leader tells";
    BACKUP_SIZE: GaugeKind "tessera_backup_size_bytes" [] "Size of the newest backup that this member saved";
    BACKUP_DURATION: GaugeKind "tessera_backup_duration_seconds" []
        "How long it took to save; it rests between pieces";
}
