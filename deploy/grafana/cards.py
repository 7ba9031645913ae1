"""Cards and nodes as their agents see them, and beside that what the exporters of vendors say of the same cards.

The exporters know cards by UUID, as `tessera_card_info` does: a join gives their series the node and the number
that Tessera uses.
"""

from panels import AGENTS, GREEN, IN, NODE, RED, YELLOW, Panel, Query, Shape, board, of_leader

CARD = "{{node}}/{{card}}"
WARMTH = ((None, GREEN), (80, YELLOW), (90, RED))


def joined(metric, label):
    """A series of an exporter with node, card and model of the card that has the same UUID."""
    cards = f'label_replace(tessera_card_info{{{AGENTS}}}, "{label}", "$1", "uuid", "(.+)")'
    return f"{metric} * on ({label}) group_left (node, card, model) {cards}"


def exported(title, says, unit, metric, label, scale=1, most=None):
    """A panel of an exporter, in the unit that people read."""
    exporter = "the DCGM exporter" if label == "UUID" else "AMD's device metrics exporter"
    expr = joined(metric, label) if scale == 1 else f"{scale:g} * {joined(metric, label)}"
    return Panel(
        title,
        says,
        unit,
        (Query(expr, f"{CARD} {{{{model}}}}"),),
        most=most,
        empty_while=f"{exporter} is not scraped or knows none of these cards",
    )


NODES = [
    Panel(
        "Agents connected",
        "1 while the agent has a leader that answers.",
        "short",
        (Query(f"tessera_agent_connected{{{AGENTS}}}", "{{node}}"),),
        runbook="TesseraAgentDisconnected",
        most=1,
        names=((0, "no leader"), (1, "connected")),
    ),
    Panel(
        "Rest of the lease",
        "Time until the workers of a node are told to stop if no leader answers. It is renewed with every heartbeat.",
        "s",
        (Query(f"tessera_agent_lease_remaining_seconds{{{AGENTS}}}", "{{node}}"),),
        runbook="TesseraNodesSilent",
    ),
    Panel(
        "Age of readings",
        "Time since an agent last read its cards and workers. It reads them every other second; older than 10 s, what it "
        "read is told to nobody.",
        "s",
        (Query(f"tessera_agent_readings_age_seconds{{{AGENTS}}}", "{{node}}"),),
        runbook="TesseraCardsUnread",
    ),
    Panel(
        "Workers",
        "Workers on the nodes chosen, by where they stand.",
        "short",
        (Query(f"sum by (state) (tessera_agent_workers{{{AGENTS}}})", "{{state}}"),),
        shape=Shape.STACK,
    ),
    Panel(
        "Nodes where fencing is under way",
        "Workers are being stopped, or could not be (`unconfirmed`).",
        "short",
        (Query(f'tessera_agent_fence_state{{{AGENTS}, state!="clear"}} == 1', "{{node}}: {{state}}"),),
        empty_while="nothing is being stopped",
        runbook="TesseraWorkersUnconfirmed",
    ),
    Panel(
        "Sessions opened",
        "How often agents had to find a leader again; a leader's change makes one each. And how often somebody who spoke as a"
        " leader named a term that no elections can have reached.",
        "ops",
        (
            Query(f"sum by (node) (rate(tessera_agent_sessions_total{{{AGENTS}}}[$__rate_interval]))", "{{node}}"),
            Query(
                f"sum by (node) (rate(tessera_agent_terms_refused_total{{{AGENTS}}}[$__rate_interval]))",
                "{{node}}: implausible terms",
            ),
        ),
    ),
    Panel(
        "Disk of ended work",
        "What output and files of ended work take on a node's disk. `ended_disk` of its agent is the most.",
        "bytes",
        (Query(f"tessera_agent_ended_bytes{{{AGENTS}}}", "{{node}}"),),
    ),
    Panel(
        "Output that went early",
        "Ended workers whose output was removed before its time, for lack of room: give ended work more, or keep output "
        "for a shorter time.",
        "ops",
        (
            Query(
                f"sum by (node) (rate(tessera_agent_ended_removed_early_total{{{AGENTS}}}[$__rate_interval]))",
                "{{node}}",
            ),
        ),
    ),
]
CHECKPOINTS = [
    Panel(
        "Checkpoints kept",
        "Parts of checkpoints that the nodes chosen keep, by where they lie.",
        "short",
        (Query(f"sum by (place) (tessera_checkpoints{{{AGENTS}}})", "{{place}}"),),
        shape=Shape.STACK,
    ),
    Panel(
        "Work on checkpoints",
        "Checkpoints that were saved, fetched for a worker, copied from other nodes and removed.",
        "ops",
        (
            Query(
                f'sum by (operation) (rate(tessera_checkpoint_work_total{{{AGENTS}, result="done"}}[$__rate_interval]))',
                "{{operation}}",
            ),
        ),
    ),
    Panel(
        "Bytes saved",
        "What workers wrote into the checkpoints that are kept: what the disks and the network between nodes have to carry.",
        "Bps",
        (Query(f"sum by (node) (rate(tessera_checkpoint_saved_bytes_total{{{AGENTS}}}[$__rate_interval]))", "{{node}}"),),
    ),
    Panel(
        "Checkpoints that failed",
        "What could not be saved, fetched, copied or removed. Interrupted jobs lose more than they should.",
        "ops",
        (
            Query(
                "sum by (node, operation) "
                f'(rate(tessera_checkpoint_work_total{{{AGENTS}, result="failed"}}[$__rate_interval]))',
                "{{node}}: {{operation}}",
            ),
        ),
        runbook="TesseraCheckpointsFail",
    ),
    Panel(
        "Time to save",
        "How long it takes to keep what a worker saved; while it is stopped, its blocks wait for that.",
        "s",
        (
            Query(
                "histogram_quantile(0.99, sum by (le, operation) "
                f"(rate(tessera_checkpoint_work_seconds_bucket{{{AGENTS}}}[$__rate_interval])))",
                "p99 {{operation}}",
            ),
        ),
        empty_while="nothing is saved or fetched",
    ),
]
CARDS = [
    Panel(
        "Serial numbers and drivers",
        "What the cards are, for whoever has to find one in a rack.",
        "short",
        (
            Query(
                "count by (node, card, vendor, model, uuid, serial, driver, pci_address) "
                f"(tessera_card_info{{{AGENTS}}})",
                "cards",
            ),
        ),
        shape=Shape.TABLE,
        width=24,
    ),
    Panel(
        "Cards",
        "All cards of the nodes chosen: how busy they are, memory in use, power and heat.",
        "short",
        (
            Query(
                f"tessera_card_utilization_ratio{{{AGENTS}}} * on (instance, card) "
                "group_left (uuid, vendor, model, kind, simulated) "
                f"tessera_card_info{{{AGENTS}}}",
                "busy",
            ),
            Query(
                f"tessera_card_memory_used_bytes{{{AGENTS}}} / tessera_card_memory_limit_bytes{{{AGENTS}}}", "memory"
            ),
            Query(f"tessera_card_power_watts{{{AGENTS}}}", "watts"),
            Query(f"tessera_card_temperature_celsius{{{AGENTS}}}", "celsius"),
        ),
        shape=Shape.TABLE,
        width=24,
        height=10,
    ),
    Panel(
        "Granted and idle",
        "Blocks that are granted on cards which hardly compute: below a tenth, over a quarter of an hour. Somebody holds them.",
        "short",
        (
            Query(
                f"tessera_card_granted_blocks{{{AGENTS}}} > 0 and on (instance, card) "
                f"(avg_over_time(tessera_card_utilization_ratio{{{AGENTS}}}[15m]) < 0.1)",
                CARD,
            ),
        ),
        empty_while="every card on which blocks are granted computes",
    ),
    Panel(
        "Memory granted",
        "Memory of a card that is granted, as a share of what can be.",
        "percentunit",
        (
            Query(
                f"tessera_card_memory_granted_bytes{{{AGENTS}}} / (tessera_card_memory_limit_bytes{{{AGENTS}}} > 0)", CARD
            ),
        ),
        most=1,
    ),
    Panel(
        "Slices",
        "Workers that share a card.",
        "short",
        (Query(f"tessera_card_slices{{{AGENTS}}}", CARD),),
    ),
    Panel(
        "Utilization",
        "Share of time that a card computed.",
        "percentunit",
        (Query(f"tessera_card_utilization_ratio{{{AGENTS}}}", CARD),),
        most=1,
    ),
    Panel(
        "Memory in use",
        "Memory in use as a share of what can be granted.",
        "percentunit",
        (Query(f"tessera_card_memory_used_bytes{{{AGENTS}}} / tessera_card_memory_limit_bytes{{{AGENTS}}}", CARD),),
        most=1,
    ),
    Panel(
        "Switches per round",
        "How often another worker is put on a card in a round, where workers take turns: as often as there are workers, "
        "and more where blocks lie scattered.",
        "short",
        (
            Query(
                f"rate(tessera_card_switches_total{{{AGENTS}}}[$__rate_interval]) "
                f"/ (rate(tessera_card_rounds_total{{{AGENTS}}}[$__rate_interval]) > 0)",
                CARD,
            ),
        ),
        empty_while="on no card do several workers take turns",
    ),
    Panel(
        "Cards that are not usable",
        "Cards that their drivers report as unhealthy.",
        "short",
        (Query(f"tessera_card_healthy{{{AGENTS}}} == 0", CARD),),
        shape=Shape.TABLE,
        empty_while="all cards are usable",
        runbook="TesseraCardUnhealthy",
    ),
    Panel(
        "Temperature",
        "Temperature of each card, where its driver tells.",
        "celsius",
        (Query(f"tessera_card_temperature_celsius{{{AGENTS}}}", CARD),),
        steps=WARMTH,
    ),
    Panel(
        "Power",
        "Power that each card draws, where its driver tells.",
        "watt",
        (Query(f"tessera_card_power_watts{{{AGENTS}}}", CARD),),
    ),
    Panel(
        "Power of nodes",
        "Power of all cards of a node.",
        "watt",
        (Query(f"sum by (node) (tessera_card_power_watts{{{AGENTS}}})", "{{node}}"),),
        shape=Shape.STACK,
    ),
    Panel(
        "Power by energy",
        "Joules a second by the cards' own counters of energy, where their drivers tell: what was drawn between two looks, too.",
        "watt",
        (Query(f"rate(tessera_card_energy_joules_total{{{AGENTS}}}[$__rate_interval])", CARD),),
    ),
    Panel(
        "Errors",
        "Errors that cards had within an hour, by kind, of those that their drivers tell. A card that goes on having some is "
        "to be looked at before it fails.",
        "short",
        (
            Query(
                f"sum by (node, card, kind) (increase(tessera_card_errors_total{{{AGENTS}}}[1h])) > 0",
                CARD + ": {{kind}}",
            ),
        ),
        empty_while="no card had an error within an hour",
        runbook="TesseraCardUnhealthy",
    ),
]
CLASSES = [
    Panel(
        "Blocks by model",
        "Blocks that the cards of each model offer, as the leader counts them.",
        "short",
        (Query(of_leader("tessera_blocks_capacity", "kind", "vendor", "model"), "{{vendor}} {{model}} ({{kind}})"),),
        shape=Shape.STACK,
    ),
    Panel(
        "Free blocks by model",
        "Blocks that nobody holds.",
        "short",
        (Query(of_leader("tessera_blocks", "vendor", "model", where='state="free"'), "{{vendor}} {{model}}"),),
        shape=Shape.STACK,
    ),
    Panel(
        "Oversubscription",
        "Blocks that cards may offer, as a share of those that they are rated for.",
        "percentunit",
        (Query(f"max by (kind) (tessera_oversubscription_ratio{{{IN}}})", "{{kind}}"),),
        shape=Shape.BARS,
    ),
    Panel(
        "Cards that are oversubscribed",
        "Cards that offer more blocks than they are rated for; they promise isolation `shared` only.",
        "short",
        (Query(of_leader("tessera_cards_oversubscribed", "kind"), "{{kind}}"),),
        width=24,
        height=6,
    ),
]
NVIDIA = [
    exported(
        "GPU utilization (DCGM)",
        "Share of time with a kernel on the card.",
        "percent",
        "DCGM_FI_DEV_GPU_UTIL",
        "UUID",
        most=100,
    ),
    exported(
        "Framebuffer in use (DCGM)", "Memory of the card in use.", "bytes", "DCGM_FI_DEV_FB_USED", "UUID", scale=1048576
    ),
    exported("Power (DCGM)", "Power that the card draws.", "watt", "DCGM_FI_DEV_POWER_USAGE", "UUID"),
    exported("Temperature (DCGM)", "Temperature of the card.", "celsius", "DCGM_FI_DEV_GPU_TEMP", "UUID"),
    exported("SM clock (DCGM)", "Clock of the multiprocessors.", "hertz", "DCGM_FI_DEV_SM_CLOCK", "UUID", scale=1e6),
    exported(
        "Last XID error (DCGM)",
        "Number of the last error that the driver reported, 0 for none.",
        "short",
        "DCGM_FI_DEV_XID_ERRORS",
        "UUID",
    ),
]
AMD = [
    exported(
        "Graphics activity (ROCm)",
        "Share of time that the graphics engine worked.",
        "percent",
        "gpu_gfx_activity",
        "gpu_uuid",
        most=100,
    ),
    exported("Memory in use (ROCm)", "Memory of the card in use.", "bytes", "gpu_used_vram", "gpu_uuid", scale=1048576),
    exported("Power (ROCm)", "Power that the card draws.", "watt", "gpu_power_usage", "gpu_uuid"),
    exported(
        "Junction temperature (ROCm)",
        "Temperature at the hottest place.",
        "celsius",
        "gpu_junction_temperature",
        "gpu_uuid",
    ),
]
BOARD = board(
    "cards",
    "Cards and nodes",
    "What nodes and their cards do, by agents and by the exporters of vendors.",
    (NODE,),
    [
        ("Nodes", NODES),
        ("Cards", CARDS),
        ("Checkpoints", CHECKPOINTS),
        ("Classes of cards", CLASSES),
        ("NVIDIA cards, by the DCGM exporter", NVIDIA),
        ("AMD cards, by the ROCm device metrics exporter", AMD),
    ],
    "/nodes",
)
