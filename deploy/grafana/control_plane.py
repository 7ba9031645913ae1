"""Consensus, disks, calls and limits of the members: why is the control plane slow, and which member is it?"""

from panels import (
    BLUE,
    GREEN,
    IN,
    MEMBER,
    MEMBERS,
    RED,
    YELLOW,
    Panel,
    Query,
    Shape,
    board,
    per_second,
    quantile,
    quantiles,
)

TILE = {"shape": Shape.STAT, "width": 4, "height": 4}
BAD = 'grpc_code=~"Unknown|Internal|Unavailable|DataLoss|DeadlineExceeded"'


def of_member(metric):
    return f"{metric}{{{MEMBERS}}}"


def slow(histogram):
    """The slow end of a histogram, of each member."""
    return (Query(quantile(0.99, histogram, "member", where=MEMBERS), "{{member}}"),)


TILES = [
    Panel(
        "Leader",
        "The member that leads.",
        "short",
        (Query(f"tessera_raft_is_leader{{{IN}}} == 1", "{{member}}"),),
        runbook="TesseraNoLeader",
        **TILE,
        steps=((None, BLUE),),
        names=((1, "leads"),),
    ),
    Panel(
        "Term",
        "Grows with every election.",
        "none",
        (Query(f"max(tessera_raft_term{{{IN}}})", "term"),),
        **TILE,
        steps=((None, BLUE),),
    ),
    Panel(
        "Voters",
        "Members with a vote; a majority of them decides.",
        "short",
        (Query(f"max(tessera_raft_voters{{{IN}}})", "voters"),),
        **TILE,
        steps=((None, BLUE),),
    ),
    Panel(
        "Learners",
        "Members without a vote, which catch up.",
        "short",
        (Query(f"max(tessera_raft_learners{{{IN}}})", "learners"),),
        **TILE,
        steps=((None, BLUE),),
    ),
    Panel(
        "Changes of leader, 1 h",
        "Leaders that came to power within the last hour, how many of those before them were found dead by a member, and messages"
        " in a term that no elections can have reached: somebody else speaks to the members.",
        "short",
        (
            Query(f"max(increase(tessera_raft_leader_changes_total{{{IN}}}[1h]))", "changes"),
            Query(f"max(increase(tessera_raft_leases_given_up_total{{{IN}}}[1h]))", "found dead"),
            Query(f"sum(increase(tessera_raft_terms_refused_total{{{IN}}}[1h]))", "implausible terms"),
        ),
        runbook="TesseraLeaderChangesOften",
        **TILE,
        steps=((None, GREEN), (2, YELLOW), (8, RED)),
    ),
    Panel(
        "Releases",
        "Members and agents by the release that they run.",
        "short",
        (Query(f"count by (version) (tessera_build_info{{{IN}}})", "{{version}}"),),
        runbook="TesseraVersionsDiffer",
        **TILE,
        steps=((None, BLUE),),
    ),
]
RAFT = [
    Panel(
        "Time of changes",
        "From handing a change to the leader until it is applied. Everything that is written waits for this.",
        "s",
        quantiles("tessera_raft_propose_duration_seconds", where=MEMBERS),
        runbook="TesseraProposalsSlow",
        empty_while="no change was made in the interval",
    ),
    Panel(
        "Synced writes, p99",
        "One of a hundred synced writes takes longer. The disk decides the latency of everything.",
        "s",
        slow("tessera_raft_fsync_duration_seconds"),
        runbook="TesseraFsyncSlow",
    ),
    Panel(
        "Applying, p99",
        "Time to apply and publish the entries that were applied together.",
        "s",
        slow("tessera_raft_apply_duration_seconds"),
        empty_while="nothing was applied in the interval",
    ),
    Panel(
        "Entries applied",
        "Entries of the log that each member applied.",
        "ops",
        (
            Query(
                f'sum by (member) (rate(tessera_raft_log_index{{{MEMBERS}, kind="applied"}}[$__rate_interval]))',
                "{{member}}",
            ),
        ),
    ),
    Panel(
        "Requests in a synced write",
        "How many requests share one synced write.",
        "short",
        (
            Query(
                f"sum by (member) (rate({of_member('tessera_raft_fsync_requests_total')}[$__rate_interval])) / "
                f"sum by (member) (rate({of_member('tessera_raft_fsync_duration_seconds_count')}[$__rate_interval]))",
                "{{member}}",
            ),
        ),
    ),
    Panel(
        "Lag of followers",
        "Entries that a follower lacks, as the leader sees it.",
        "short",
        (Query(f"max by (peer) ({of_member('tessera_raft_replication_lag_entries')})", "member {{peer}}"),),
        runbook="TesseraReplicationLag",
    ),
    Panel(
        "Round trips between members, p99",
        "One of a hundred questions of one member to another takes longer to be answered.",
        "s",
        (Query(quantile(0.99, "tessera_raft_peer_round_trip_seconds", "member", "peer"), "{{member}} to {{peer}}"),),
    ),
    Panel(
        "Log since the snapshot",
        "Entries that a member that starts has to apply.",
        "short",
        (
            Query(
                f'tessera_raft_log_index{{{MEMBERS}, kind="applied"}} - ignoring (kind) '
                f'tessera_raft_log_index{{{MEMBERS}, kind="snapshot"}}',
                "{{member}}",
            ),
        ),
        runbook="TesseraSnapshotsMissing",
    ),
    Panel(
        "Age of the snapshot",
        "A pool in which little changes makes snapshots rarely.",
        "s",
        (Query(of_member("tessera_raft_snapshot_age_seconds"), "{{member}}"),),
        empty_while="a pool is so young that it needed none",
    ),
    Panel(
        "Clocks",
        "How far the clock of a member is ahead of what a quorum of the clocks agree on.",
        "s",
        (Query(of_member("tessera_clock_offset_seconds"), "{{member}}"),),
        runbook="TesseraClockOff",
    ),
]
DISKS = [
    Panel(
        "Accounts",
        "Whether members keep accounts of what jobs hold: 1 is well; at 0 the log of the member says why not.",
        "short",
        (Query("tessera_usage_kept{%s}" % MEMBERS, "{{member}}"),),
    ),
    Panel(
        "Free on disk",
        "Bytes free, and what must stay free for a leader to take jobs.",
        "bytes",
        (
            Query(of_member("tessera_disk_free_bytes"), "{{member}}"),
            Query(f"max({of_member('tessera_disk_reserve_bytes')})", "reserve"),
        ),
        runbook="TesseraDiskFull",
    ),
    Panel(
        "Store",
        "Bytes that the store takes on disk.",
        "bytes",
        (Query(of_member("tessera_store_size_bytes"), "{{member}}"),),
        runbook="TesseraDiskFilling",
    ),
    Panel(
        "Snapshot",
        "Size of the newest snapshot.",
        "bytes",
        (Query(of_member("tessera_raft_snapshot_size_bytes"), "{{member}}"),),
    ),
    Panel(
        "Age of the newest backup",
        "Since the newest backup in the folder was taken; the leader tells.",
        "s",
        (Query(f"time() - max({of_member('tessera_backup_newest_timestamp_seconds')} > 0)", "newest"),),
        runbook="TesseraBackupsMissing",
        empty_while="no backups are configured",
    ),
    Panel(
        "Backups",
        "Backups that were saved, and that failed, in the last hour.",
        "short",
        (Query(f"sum by (outcome) (increase(tessera_backups_total{{{MEMBERS}}}[1h]))", "{{outcome}}"),),
        runbook="TesseraBackupsMissing",
        empty_while="no backups are configured",
    ),
    Panel(
        "Size of backups",
        "Size of the newest backup that each member saved.",
        "bytes",
        (Query(f"{of_member('tessera_backup_size_bytes')} > 0", "{{member}}"),),
        empty_while="no backups are configured",
    ),
    Panel(
        "Time of backups",
        "How long the newest backup of each member took; it rests between pieces.",
        "s",
        (Query(f"{of_member('tessera_backup_duration_seconds')} > 0", "{{member}}"),),
        empty_while="no backups are configured",
    ),
]
CALLS = [
    Panel(
        "Calls",
        "Calls that ended, by method.",
        "reqps",
        (
            Query(
                f"topk(12, {per_second('grpc_server_handled_total', 'grpc_method', where=MEMBERS)} > 0)",
                "{{grpc_method}}",
            ),
        ),
        empty_while="nobody calls",
    ),
    Panel(
        "Calls that failed",
        "Share of the calls that ended with an error of the control plane.",
        "percentunit",
        (
            Query(
                f"({per_second('grpc_server_handled_total', where=f'{MEMBERS}, {BAD}')} or vector(0)) / "
                f"({per_second('grpc_server_handled_total', where=MEMBERS)} > 0)",
                "failed",
            ),
        ),
        runbook="TesseraCallsFailing",
        empty_while="nobody calls",
    ),
    Panel(
        "Slow calls, p99",
        "One of a hundred calls takes longer, without streams.",
        "s",
        (
            Query(
                quantile(0.99, "grpc_server_handling_seconds", "grpc_method", where=f'{MEMBERS}, grpc_type="unary"')
                + " >= 0",
                "{{grpc_method}}",
            ),
        ),
        runbook="TesseraCallsSlow",
        empty_while="nobody calls",
    ),
    Panel(
        "Time of plans",
        "How long placement takes for one plan.",
        "s",
        quantiles("tessera_placement_duration_seconds", where=MEMBERS, window="1h"),
        empty_while="nothing was placed within an hour",
    ),
    Panel(
        "Requests tried for a plan",
        "How many different requests placement tries on the pool until it has a plan.",
        "short",
        quantiles("tessera_placement_candidates", where=MEMBERS, window="1h"),
        empty_while="nothing was placed within an hour",
    ),
    Panel(
        "Watches",
        "Watches that are open.",
        "short",
        (Query(f"sum by (watch) ({of_member('tessera_watch_streams')})", "{{watch}}"),),
        empty_while="nobody ever watched",
    ),
    Panel(
        "Watches that lag, p99",
        "Entries of the log that a watch had not been sent yet when it went on.",
        "short",
        (Query(quantile(0.99, "tessera_watch_lag_entries", "watch"), "{{watch}}"),),
        empty_while="nobody watches",
    ),
    Panel(
        "Watches that were cut",
        "Watches that members ended because a client was too slow, or a limit was met.",
        "ops",
        (Query(per_second("tessera_watches_cut_total", "watch", "reason", where=MEMBERS), "{{watch}}: {{reason}}"),),
        empty_while="none was cut",
    ),
]
LIMITS = [
    Panel(
        "Limits of the pool",
        "What the ledger holds, as a share of the limit.",
        "percentunit",
        (
            Query(
                f"max by (limit) ({of_member('tessera_pool_limit_used')} / {of_member('tessera_pool_limit_most')})",
                "{{limit}}",
            ),
        ),
        shape=Shape.BARS,
        most=1,
        steps=((None, GREEN), (0.8, YELLOW), (0.95, RED)),
        runbook="TesseraLimitNear",
    ),
    Panel(
        "Limits of members",
        "What clients have open at the member where it is most, as a share of the limit.",
        "percentunit",
        (
            Query(
                f"max by (limit) ({of_member('tessera_limit_used')} / {of_member('tessera_limit_most')})", "{{limit}}"
            ),
        ),
        shape=Shape.BARS,
        most=1,
        steps=((None, GREEN), (0.8, YELLOW), (0.95, RED)),
        runbook="TesseraLimitNear",
    ),
    Panel(
        "Refused at a limit",
        "Requests that were turned away because a limit was met.",
        "ops",
        (Query(per_second("tessera_limit_refused_total", "limit", where=MEMBERS), "{{limit}}"),),
        empty_while="no limit was ever met",
        runbook="TesseraLimitNear",
    ),
    Panel(
        "Request ids",
        "Answered request ids that are remembered: a retry with one of them does nothing twice.",
        "short",
        (Query(of_member("tessera_request_ids"), "{{member}}"),),
    ),
    Panel(
        "Sessions of agents",
        "Agents with a session; all have one with the leader.",
        "short",
        (Query(of_member("tessera_sessions"), "{{member}}"),),
        shape=Shape.STACK,
    ),
    Panel(
        "Sessions that ended",
        "Sessions of agents that ended, by cause.",
        "ops",
        (Query(per_second("tessera_sessions_ended_total", "cause", where=MEMBERS), "{{cause}}"),),
        empty_while="no session ended",
    ),
]
INSIDE = [
    Panel(
        "Messages that wait",
        "Messages in the mailboxes of the parts of a member.",
        "short",
        (Query(f"max by (actor) ({of_member('tessera_actor_mailbox_depth')})", "{{actor}}"),),
    ),
    Panel(
        "Wait in mailboxes, p99",
        "How long one of a hundred messages waits at least.",
        "s",
        (Query(quantile(0.99, "tessera_actor_wait_seconds", "actor", where=MEMBERS), "{{actor}}"),),
    ),
    Panel(
        "Handling of messages, p99",
        "How long one of a hundred messages takes at least.",
        "s",
        (Query(quantile(0.99, "tessera_actor_handle_seconds", "actor", where=MEMBERS), "{{actor}}"),),
    ),
    Panel(
        "Messages refused",
        "Messages that found a mailbox full: a part of the member gets more to do than it can.",
        "ops",
        (Query(per_second("tessera_actor_refused_total", "actor", where=MEMBERS), "{{actor}}"),),
        width=12,
    ),
    Panel(
        "Panics",
        "Panics of the parts of a member; each is a bug.",
        "ops",
        (Query(per_second("tessera_actor_panics_total", "actor", where=MEMBERS), "{{actor}}"),),
        width=12,
        empty_while="nothing ever panicked",
        runbook="TesseraActorPanicked",
    ),
]
BOARD = board(
    "control-plane",
    "Raft and control plane",
    "Consensus, disks, calls and limits of the members.",
    (MEMBER,),
    [
        ("Consensus now", TILES),
        ("Consensus", RAFT),
        ("Disks", DISKS),
        ("Calls", CALLS),
        ("Limits and sessions", LIMITS),
        ("Inside of members", INSIDE),
    ],
    "/control",
)
