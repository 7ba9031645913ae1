"""The front page for whoever is on call: is there a leader, what is wrong, and does work get done?"""

from panels import BLUE, GREEN, IN, RED, YELLOW, Panel, Query, Shape, board, of_leader, per_second, quantiles

TILE = {"shape": Shape.STAT, "width": 4, "height": 4}
BAD_FROM_ONE = ((None, GREEN), (1, RED))
IN_USE = of_leader("tessera_blocks", "kind", where='state=~"held|running"')
FREE_MEANS = (
    "`held` is granted and not started yet, `draining` is being given back, `lost` is quarantined, `offline` is on "
    "nodes that are lost."
)

HEALTH = [
    Panel(
        "Leaders",
        "Members that a majority acknowledges as leader. It must be 1: without one nothing is granted.",
        "short",
        (Query(f"sum(tessera_raft_is_leader{{{IN}}})", "leaders"),),
        runbook="TesseraNoLeader",
        steps=((None, RED), (1, GREEN), (2, YELLOW)),
        **TILE,
    ),
    Panel(
        "Members that answer",
        "Share of the members that Prometheus reaches. At half or less nothing can be decided.",
        "percentunit",
        (Query(f'avg(up{{job="tessera-members", {IN}}})', "answer"),),
        runbook="TesseraQuorumLost",
        steps=((None, RED), (0.51, YELLOW), (1, GREEN)),
        most=1,
        **TILE,
    ),
    Panel(
        "Nodes ready",
        "Nodes whose agents have a lease.",
        "short",
        (Query(of_leader("tessera_nodes", where='state="ready"'), "ready"),),
        runbook="TesseraNodesLost",
        steps=((None, BLUE),),
        **TILE,
    ),
    Panel(
        "Nodes silent",
        "Nodes that the leader has not heard in time: their work stops when the lease ends.",
        "short",
        (Query(of_leader("tessera_nodes_silent"), "silent"),),
        runbook="TesseraNodesSilent",
        steps=BAD_FROM_ONE,
        **TILE,
    ),
    Panel(
        "Blocks in quarantine",
        "Blocks of workers whose end could not be confirmed. Somebody has to look.",
        "short",
        (Query(of_leader("tessera_blocks", where='state="lost"'), "quarantined"),),
        runbook="TesseraBlocksQuarantined",
        steps=BAD_FROM_ONE,
        **TILE,
    ),
    Panel(
        "Laws broken",
        "Blocks that are counted wrongly, and comparisons in which members' states differed. Must be 0 for ever.",
        "short",
        (
            Query(
                f"sum(tessera_ledger_conservation_broken{{{IN}}}) + sum(tessera_state_hash_mismatch_total{{{IN}}})",
                "broken",
            ),
        ),
        runbook="TesseraLedgerBroken",
        steps=BAD_FROM_ONE,
        **TILE,
    ),
]
ATTENTION = [
    Panel(
        "Alerts that fire",
        "What the rules of deploy/prometheus/rules say now.",
        "short",
        (
            Query(
                "sum by (alertname, severity, node, member, queue) "
                # Those of Prometheus having no targets at all belong to no pool.
                '(ALERTS{alertstate="firing", alertname=~"Tessera.*", cluster=~"$cluster|"})',
                "firing",
            ),
        ),
        shape=Shape.TABLE,
        width=12,
        empty_while="nothing is wrong, or the rules are not installed",
    ),
    Panel(
        "Members and agents that do not answer",
        "Targets that Prometheus cannot scrape.",
        "short",
        (Query(f'up{{job=~"tessera-members|tessera-agents", {IN}}} == 0', "up"),),
        shape=Shape.TABLE,
        width=12,
        empty_while="all of them answer",
        runbook="TesseraMemberDown",
    ),
]
WORK = [
    Panel(
        "Blocks",
        f"All blocks of the pool by state, as the leader counts them. {FREE_MEANS}",
        "short",
        (Query(of_leader("tessera_blocks", "state"), "{{state}}"),),
        shape=Shape.STACK,
        width=12,
    ),
    Panel(
        "Jobs that are not over",
        "Jobs by state. `pending` beside free blocks: see fragmentation, and `tessera job why ID`.",
        "short",
        (Query(of_leader("tessera_jobs", "state", where='state!~"completed|failed|cancelled|timeout"'), "{{state}}"),),
        shape=Shape.STACK,
        width=12,
        runbook="TesseraJobsWaitBesideFreeBlocks",
    ),
    Panel(
        "Blocks in use",
        "Share of the blocks that jobs hold.",
        "percentunit",
        (Query(f"{IN_USE} / {of_leader('tessera_blocks_capacity', 'kind')}", "{{kind}}"),),
        most=1,
    ),
    Panel(
        "Fragmentation",
        "Part of what is free that the average request cannot use where it is.",
        "percentunit",
        (Query(of_leader("tessera_fragmentation_ratio", "resource"), "{{resource}}"),),
        most=1,
        runbook="TesseraJobsWaitBesideFreeBlocks",
    ),
    Panel(
        "Wait of jobs",
        "From submission to the first allocation, of jobs that were granted something in the last hour.",
        "s",
        quantiles("tessera_job_wait_seconds", window="1h"),
        runbook="TesseraQueueWaitsLong",
        empty_while="no job was started within an hour",
    ),
]
FLOW = [
    Panel(
        "Submitted",
        "Jobs that were accepted, by queue.",
        "ops",
        (Query(per_second("tessera_jobs_submitted_total", "queue"), "{{queue}}"),),
        empty_while="nothing was submitted since the leader came to power",
    ),
    Panel(
        "Ended",
        "Jobs that came to an end, by how.",
        "ops",
        (Query(per_second("tessera_jobs_finished_total", "outcome"), "{{outcome}}"),),
        empty_while="no job ended since the leader came to power",
    ),
    Panel(
        "Preempted and moved",
        "Jobs that were suspended to make room, and moves between cards that ended.",
        "ops",
        (
            Query(per_second("tessera_preemptions_total", "cause"), "preempted: {{cause}}"),
            Query(per_second("tessera_migrations_total", "outcome"), "moved: {{outcome}}"),
        ),
        empty_while="no job was preempted or moved since the leader came to power",
    ),
]
NODES = [
    Panel(
        "Nodes",
        "Nodes by state, and whether they take new work.",
        "short",
        (Query(of_leader("tessera_nodes", "state", "eligibility"), "{{state}}, {{eligibility}}"),),
        shape=Shape.STACK,
        runbook="TesseraNodesLost",
    ),
    Panel(
        "Oldest heartbeat",
        "Age of the oldest last heartbeat of any agent with a session.",
        "s",
        (Query(f"max(tessera_node_heartbeat_age_seconds{{{IN}}})", "oldest"),),
        runbook="TesseraNodesSilent",
    ),
    Panel(
        "Leases",
        "Leases granted, and nodes declared lost.",
        "ops",
        (
            Query(per_second("tessera_leases_granted_total"), "granted"),
            Query(per_second("tessera_leases_expired_total"), "expired"),
        ),
        runbook="TesseraMassLossSuspected",
    ),
    Panel(
        "Leases withheld",
        "Heartbeats that were not answered by a lease, by cause.",
        "ops",
        (Query(per_second("tessera_leases_withheld_total", "cause"), "{{cause}}"),),
        empty_while="no lease was withheld since the leader came to power",
    ),
    Panel(
        "Allocations on nodes that are drained",
        "What is still to leave before the drain is done.",
        "short",
        (Query(of_leader("tessera_drain_remaining_allocations"), "remaining"),),
    ),
    Panel(
        "Moves in progress",
        "Jobs that are between two places; until they have arrived they hold both.",
        "short",
        (Query(of_leader("tessera_moves_in_progress"), "moves"),),
    ),
    Panel(
        "Time of moves",
        "From the reservation of a move's target to its end.",
        "s",
        quantiles("tessera_migration_duration_seconds", window="1h"),
        empty_while="no job was moved within an hour",
    ),
    Panel(
        "Workers in doubt",
        "Workers that are unreachable, or not confirmed to have stopped; their blocks are given to nobody until that is known.",
        "short",
        (Query(of_leader("tessera_fences_pending"), "in doubt"),),
        runbook="TesseraBlocksQuarantined",
    ),
    Panel(
        "How doubts ended",
        "Workers whose blocks were in doubt: released by the end of the lease, confirmed to have stopped, or found running.",
        "ops",
        (Query(per_second("tessera_fencings_total", "outcome"), "{{outcome}}"),),
        empty_while="no worker was in doubt since the leader came to power",
    ),
]
BOARD = board(
    "pool",
    "Pool",
    "Is the pool well, and does it get work done? The first page to open.",
    (),
    [("Health", HEALTH), ("Needs attention", ATTENTION), ("Work", WORK), ("Flow of jobs", FLOW), ("Nodes", NODES)],
    "/",
)
