"""One job: what its workers hold and use, the nodes and the queue it is in, and where the rest is."""

from grafana_foundation_sdk.builders import dashboard
from panels import AGENTS, IN, NODE, Panel, QUEUE, Query, Shape, board, note, of_leader, per_second, quantile

JOB = dashboard.TextBoxVariable("job").label("Job").description("Number of the job").default_value("1")
CHOSEN = f'{IN}, queue=~"$queue"'
CARD = "{{node}}/{{card}}"
OF_IT = f'{AGENTS}, job_id=~"$job"'
HERE = "job {{job_id}}, rank {{rank}} on {{node}}/{{card}}"
WORDS = """Agents tell of each worker that is on their node, and members of the jobs that hold most, on a page of its own
(`/metrics/detail/jobs`). A job that is over, or that is not among those, is not shown here. The pool itself knows more:

| question | command |
|---|---|
| where is it, since when, what became of it, what does it use | `tessera job show $job` |
| why does it wait, and what would start it | `tessera job why $job` |
| what happened to it | `tessera job events $job` |
| what does it print | `tessera job logs $job` |
| where did its time go | its trace, whose id `job show` prints: [traces](${docs}/traces.md) |

Take its nodes and its queue from `tessera job show $job` and choose them above: the rows below are what agents and the
leader tell of these."""


def told(metric):
    """A number that members tell job by job, as the leader has it."""
    return of_leader(metric, "job_id", where='job_id=~"$job"')


def of_server(counter):
    """What slice servers count, a second."""
    return f"sum by (job_id, rank, node, card) (rate({counter}{{{OF_IT}}}[$__rate_interval]))"


NO_DEVICE = "no virtual card of the job is a device with a slice server"
USE = [
    Panel(
        "What it is",
        "Name, queue, submitter and state; how old it is, how often it was tried, and how many workers it has.",
        "short",
        (
            Query(
                'max by (job_id, name, queue, submitter, state) (tessera_job_info{cluster="$cluster", job_id=~"$job"})',
                "jobs",
            ),
            Query(f"max by (job_id) ({told('tessera_job_age_seconds')})", "seconds old"),
            Query(f"max by (job_id) ({told('tessera_job_attempts')})", "attempts"),
            Query(f"max by (job_id) ({told('tessera_job_workers')})", "workers"),
        ),
        shape=Shape.TABLE,
        width=24,
    ),
    Panel(
        "Use",
        "Share of what each worker may compute on a card that it computed: 1 is all of what was granted.",
        "percentunit",
        (Query(f"tessera_slice_utilization_ratio{{{OF_IT}}}", HERE),),
    ),
    Panel(
        "Use of all it holds",
        "The same over all blocks of the job, as the leader counts it for the console and the command line.",
        "percentunit",
        (Query(told("tessera_job_utilization_ratio"), "job {{job_id}}"),),
    ),
    Panel(
        "Blocks that it holds",
        "Blocks that are granted to the job.",
        "short",
        (Query(told("tessera_job_granted_blocks"), "job {{job_id}}"),),
    ),
    Panel(
        "Card memory",
        "Memory of cards that the job has in use, and that it holds.",
        "bytes",
        (
            Query(told("tessera_job_memory_used_bytes"), "job {{job_id}}, in use"),
            Query(told("tessera_job_memory_granted_bytes"), "job {{job_id}}, held"),
        ),
    ),
    Panel(
        "Card memory by worker",
        "Memory in use as a share of what a worker holds of a card.",
        "percentunit",
        (Query(f"tessera_slice_memory_used_bytes{{{OF_IT}}} / (tessera_slice_memory_limit_bytes{{{OF_IT}}} > 0)", HERE),),
    ),
    Panel(
        "Blocks by worker",
        "Blocks that a worker holds of a card.",
        "short",
        (Query(f"tessera_slice_granted_blocks{{{OF_IT}}}", HERE),),
        shape=Shape.STACK,
    ),
    Panel(
        "Processors of hosts",
        "Processors that workers keep busy, and the sum of them that the leader has.",
        "short",
        (
            Query(
                f"sum by (job_id, rank, node) (rate(tessera_worker_processor_seconds_total{{{OF_IT}}}[$__rate_interval]))",
                "job {{job_id}}, rank {{rank}} on {{node}}",
            ),
            Query(told("tessera_job_processors"), "job {{job_id}}"),
        ),
    ),
    Panel(
        "Memory of hosts",
        "Memory of their hosts that workers use, without cached files, and the sum that the leader has.",
        "bytes",
        (
            Query(f"tessera_worker_memory_used_bytes{{{OF_IT}}}", "job {{job_id}}, rank {{rank}} on {{node}}"),
            Query(told("tessera_job_host_memory_used_bytes"), "job {{job_id}}"),
        ),
    ),
]
SERVERS = [
    Panel(
        "Devices computing and waiting",
        "Seconds a second that slice servers computed for the job, and waited for their turn on a card that others share.",
        "percentunit",
        (
            Query(of_server("tessera_slice_device_seconds_total"), HERE + ": computing"),
            Query(of_server("tessera_slice_gate_wait_seconds_total"), HERE + ": waiting"),
        ),
        empty_while=NO_DEVICE,
    ),
    Panel(
        "Turns on a card",
        "Seconds a second in which it was the job's turn, and in which it stood still for others.",
        "percentunit",
        (
            Query(of_server("tessera_slice_turn_seconds_total"), HERE + ": its turn"),
            Query(of_server("tessera_slice_rest_seconds_total"), HERE + ": stands still"),
        ),
        empty_while="none of its cards has workers that take turns",
    ),
    Panel(
        "Operations",
        "Operations that slice servers executed for the job.",
        "ops",
        (Query(of_server("tessera_slice_operations_total"), HERE),),
        empty_while=NO_DEVICE,
    ),
    Panel(
        "Bytes between program and device",
        "What the program sent to its slice servers and read back.",
        "Bps",
        (Query(of_server("tessera_slice_transferred_bytes_total"), HERE),),
        empty_while=NO_DEVICE,
    ),
    Panel(
        "Commands that wait at a device",
        "Bytes of commands that came to slice servers and that they have not executed yet. Programs run ahead of a device that is always behind.",
        "bytes",
        (Query(f"tessera_slice_queued_bytes{{{OF_IT}}}", HERE),),
        empty_while=NO_DEVICE,
    ),
]
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
        "From submission to the first allocation, of the jobs of the queue that started in the last hour: half of "
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
    Panel(
        "Checkpoints passed over",
        "Checkpoints of the pool's jobs that an attempt could have gone on from and did not: damaged, gone, out of reach or not whole.",
        "ops",
        (Query(per_second("tessera_checkpoints_skipped_total"), "passed over"),),
    ),
]
BOARD = board(
    "job",
    "Job",
    "What can be seen of one job: what it uses of what it holds, its nodes, its queue, and where the rest is.",
    (JOB, QUEUE, NODE),
    [("The job", NOTES), ("What it uses", USE), ("Its device", SERVERS), ("Its nodes", PLACES), ("Its queue", QUEUES)],
    "/jobs/$job",
)
