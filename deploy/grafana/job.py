"""One job: what Prometheus can know of it, which is the nodes and the queue it is in, and where the rest is."""

from grafana_foundation_sdk.builders import dashboard
from panels import AGENTS, IN, NODE, Panel, QUEUE, Query, Shape, board, note, per_second, quantile

JOB = dashboard.TextBoxVariable("job").label("Job").description("Number of the job").default_value("1")
CHOSEN = f'{IN}, queue=~"$queue"'
CARD = "{{node}}/{{card}}"
WORDS = """**No series of Tessera carries the number of a job**: a pool runs through thousands an hour, and each would
stay in Prometheus as series of its own for weeks. Who asks about one job asks the pool itself:

| question | command |
|---|---|
| where is it, since when, what became of it | `tessera job show $job` |
| why does it wait, and what would start it | `tessera job why $job` |
| what happened to it | `tessera job events $job` |
| what does it print | `tessera job logs $job` |
| where did its time go | its trace, whose id `job show` prints: [traces](${docs}/traces.md) |

Take its nodes and its queue from `tessera job show $job` and choose them above: below is what agents and the leader
tell of these."""
NOTES = [note("Where a job is to be seen", WORDS, height=8)]
PLACES = [
    Panel(
        "Workers on its nodes",
        "Workers of all jobs on the nodes chosen, by where they stand.",
        "short",
        (Query(f"sum by (node, state) (tessera_agent_workers{{{AGENTS}}}) > 0", "{{node}}: {{state}}"),),
        shape=Shape.STACK,
        empty_while="nothing runs on these nodes",
    ),
    Panel(
        "Utilization of the cards",
        "Share of time that the cards of the nodes chosen computed, for all jobs on them.",
        "percentunit",
        (Query(f"tessera_card_utilization_ratio{{{AGENTS}}}", CARD),),
        most=1,
    ),
    Panel(
        "Memory of the cards",
        "Memory in use on the cards of the nodes chosen, by all jobs on them.",
        "bytes",
        (Query(f"tessera_card_memory_used_bytes{{{AGENTS}}}", CARD),),
    ),
    Panel(
        "Rest of the lease",
        "When it reaches 0 the node's workers are told to stop: a job that was stopped for its lease shows here.",
        "s",
        (Query(f"tessera_agent_lease_remaining_seconds{{{AGENTS}}}", "{{node}}"),),
        runbook="TesseraAgentDisconnected",
    ),
    Panel(
        "Temperature of the cards",
        "A card that is too hot computes more slowly.",
        "celsius",
        (Query(f"tessera_card_temperature_celsius{{{AGENTS}}}", CARD),),
    ),
    Panel(
        "Power of the cards",
        "What the cards of the nodes chosen draw.",
        "watt",
        (Query(f"tessera_card_power_watts{{{AGENTS}}}", CARD),),
    ),
]
QUEUES = [
    Panel(
        "Wait in its queue",
        "From submission to the first grant, of the jobs of the queue that started in the last hour: half of "
        "them, and all but one of twenty, waited no longer.",
        "s",
        (
            Query(quantile(0.5, "tessera_job_wait_seconds", "queue", where=CHOSEN, window="1h"), "{{queue}}, median"),
            Query(quantile(0.95, "tessera_job_wait_seconds", "queue", where=CHOSEN, window="1h"), "{{queue}}, p95"),
        ),
        empty_while="no job of the queue was started within an hour",
        runbook="TesseraQueueWaitsLong",
    ),
    Panel(
        "How jobs of its queue end",
        "Jobs of the queue that came to an end, by how.",
        "ops",
        (Query(per_second("tessera_jobs_finished_total", "queue", "outcome", where=CHOSEN), "{{queue}}: {{outcome}}"),),
        empty_while="no job of the queue ended since the leader came to power",
    ),
    Panel(
        "Preemptions and moves of the pool",
        "What may have stopped a job that was to go on.",
        "ops",
        (
            Query(per_second("tessera_preemptions_total", "cause"), "preempted: {{cause}}"),
            Query(per_second("tessera_migrations_total", "outcome"), "moved: {{outcome}}"),
        ),
        empty_while="no job was preempted or moved since the leader came to power",
    ),
]
BOARD = board(
    "job",
    "Job",
    "What can be seen of one job: its nodes, its queue, and where the rest is.",
    (JOB, QUEUE, NODE),
    [("The job", NOTES), ("Its nodes", PLACES), ("Its queue", QUEUES)],
    "/jobs/$job",
)
