"""Who uses how much, who is owed how much, and how long their jobs wait. A tenant is a queue, or a queue with queues
below it.
"""

from panels import GREEN, IN, QUEUE, YELLOW, Panel, Query, Shape, board, of_leader, per_second, quantile

CHOSEN = 'queue=~"$queue"'
HERE = f"{IN}, {CHOSEN}"


LIVE = of_leader("tessera_jobs", "queue", where=f'{CHOSEN}, state!~"completed|failed|cancelled|timeout"')


def tflops(kind):
    return of_leader("tessera_quota_tflops", "queue", where=f'{CHOSEN}, kind="{kind}"')


NOW = [
    Panel(
        "Queues now",
        "Jobs that are not over, compute in use, what is guaranteed and the most that may be used, in TFLOPS at the "
        "pool's reference precision. An empty maximum is none.",
        "short",
        (
            Query(LIVE, "jobs"),
            Query(tflops("used"), "used"),
            Query(tflops("guaranteed"), "guaranteed"),
            Query(tflops("maximum"), "maximum"),
        ),
        shape=Shape.TABLE,
        width=24,
    ),
]
SHARES = [
    Panel(
        "Compute in use",
        "TFLOPS that each queue holds, at the reference precision.",
        "short",
        (Query(tflops("used"), "{{queue}}"),),
        shape=Shape.STACK,
        width=12,
    ),
    Panel(
        "Jobs that are not over",
        "Waiting and running jobs of each queue.",
        "short",
        (Query(LIVE, "{{queue}}"),),
        shape=Shape.STACK,
        width=12,
    ),
    Panel(
        "Use of what is held",
        "Share of what the jobs of a queue may compute on their blocks that they computed, each block counted alike: what is "
        "granted and does nothing is missing here.",
        "percentunit",
        (
            Query(
                f"sum by (queue) (tessera_slice_utilization_ratio{{{HERE}}} * tessera_slice_granted_blocks{{{HERE}}}) "
                f"/ sum by (queue) (tessera_slice_granted_blocks{{{HERE}}})",
                "{{queue}}",
            ),
        ),
        width=8,
    ),
    Panel(
        "Idle jobs",
        "Jobs that compute next to nothing with what they hold, or were suspended for that, by what followed from it: the ladder of "
        "their queue.",
        "short",
        (Query(of_leader("tessera_jobs_idle", "queue", "step", where=CHOSEN), "{{queue}}: {{step}}"),),
        width=8,
        runbook="TesseraJobsIdle",
        empty_while="no job is idle, or no queue says what that is",
    ),
    Panel(
        "Jobs left out job by job",
        "Jobs that the page `/metrics/detail/jobs` of the leader does not tell of, because it has its limit: panels about one job "
        "may have no data.",
        "short",
        (Query(of_leader("tessera_jobs_left_out"), "jobs"),),
        width=8,
    ),
    Panel(
        "Use of the guarantee",
        "Compute in use as a share of what is guaranteed: above 1 a queue has borrowed, and others may ask "
        "for it back.",
        "percentunit",
        (Query(f"{tflops('used')} / ({tflops('guaranteed')} > 0)", "{{queue}}"),),
        shape=Shape.BARS,
        empty_while="no queue has a guarantee",
        steps=((None, GREEN), (1, YELLOW)),
    ),
    Panel(
        "Use of the maximum",
        "Compute in use as a share of the most that a queue may have. At 1 its jobs wait whatever is free.",
        "percentunit",
        (Query(f"{tflops('used')} / {tflops('maximum')}", "{{queue}}"),),
        shape=Shape.BARS,
        empty_while="no queue has a maximum",
        steps=((None, GREEN), (0.9, YELLOW)),
        most=1,
    ),
    Panel(
        "Borrowed",
        "TFLOPS in use above the guarantee; lent by queues that do not need theirs now.",
        "short",
        (Query(tflops("borrowed"), "{{queue}}"),),
        shape=Shape.STACK,
    ),
    Panel(
        "TFLOPS-hours, 24 h",
        "Compute that each queue held within a day, looked at minute by minute; `tessera usage --by queue` says it exactly, and "
        "for longer.",
        "short",
        (
            Query(
                'max by (queue) (sum_over_time(tessera_quota_tflops{%s, kind="used"}[24h:1m])) / 60' % HERE, "{{queue}}"
            ),
        ),
        shape=Shape.BARS,
        width=8,
        empty_while="the pool is younger than a minute",
    ),
    Panel(
        "Card memory in use",
        "Card memory that each queue holds; below its guarantee it is owed, above it has borrowed.",
        "bytes",
        (Query(of_leader("tessera_quota_memory_bytes", "queue", where=f'{CHOSEN}, kind="used"'), "{{queue}}"),),
        shape=Shape.STACK,
        width=8,
    ),
    Panel(
        "Checkpoints",
        "What the checkpoints of each queue's jobs take, each counted once wherever it lies. Above the queue's bound older ones are "
        "given up, and never the newest of a job.",
        "bytes",
        (Query(of_leader("tessera_quota_checkpoint_bytes", "queue", where=f'{CHOSEN}, kind="used"'), "{{queue}}"),),
        shape=Shape.STACK,
        width=8,
    ),
]
WAITS = [
    Panel(
        "What jobs wait for",
        "Jobs that wait, by queue and reason; `tessera job why` says more of one of them.",
        "short",
        (Query(of_leader("tessera_jobs_pending", "queue", "reason", where=CHOSEN), "{{queue}}: {{reason}}"),),
        shape=Shape.STACK,
        width=24,
        runbook="TesseraQueueWaitsLong",
        empty_while="no job waits",
    ),
]
WAITS += [
    Panel(
        f"Wait, {name}",
        f"From submission to the first allocation: {words} that started in the last hour.",
        "s",
        (Query(quantile(share, "tessera_job_wait_seconds", "queue", where=HERE, window="1h"), "{{queue}}"),),
        runbook="TesseraQueueWaitsLong",
        empty_while="no job was started within an hour",
    )
    for share, name, words in (
        (0.5, "median", "the median of jobs"),
        (0.95, "p95", "one of twenty jobs waited longer, of those"),
        (0.99, "p99", "one of a hundred jobs waited longer, of those"),
    )
]
FLOW = [
    Panel(
        "Submitted",
        "Jobs that were accepted.",
        "ops",
        (Query(per_second("tessera_jobs_submitted_total", "queue", where=HERE), "{{queue}}"),),
        empty_while="nothing was submitted since the leader came to power",
    ),
    Panel(
        "Ended",
        "Jobs that came to an end, by how.",
        "ops",
        (Query(per_second("tessera_jobs_finished_total", "queue", "outcome", where=HERE), "{{queue}}: {{outcome}}"),),
        empty_while="no job ended since the leader came to power",
    ),
    Panel(
        "Share that failed",
        "Of the jobs that ended within an hour, those that failed or ran out of time.",
        "percentunit",
        (
            Query(
                'sum by (queue) (increase(tessera_jobs_finished_total{%s, outcome=~"failed|timeout"}[1h])) / '
                "sum by (queue) (increase(tessera_jobs_finished_total{%s}[1h]) > 0)" % (HERE, HERE),
                "{{queue}}",
            ),
        ),
        most=1,
        empty_while="no job failed within an hour",
    ),
    Panel(
        "Preempted",
        "Jobs that were suspended to make room for others; not told by queue.",
        "ops",
        (Query(per_second("tessera_preemptions_total", "cause"), "{{cause}}"),),
        width=12,
        empty_while="no job was preempted since the leader came to power",
    ),
    Panel(
        "Parts of plans",
        "What the ledger said to what placement proposed. Rejected ones were overtaken by another change.",
        "ops",
        (Query(per_second("tessera_plan_parts_total", "outcome"), "{{outcome}}"),),
        width=12,
    ),
]
BOARD = board(
    "queues",
    "Queues and tenants",
    "Who uses how much, who is owed how much, and how long jobs wait.",
    (QUEUE,),
    [("Now", NOW), ("Shares", SHARES), ("Waits", WAITS), ("Flow", FLOW)],
    "/queues",
)
