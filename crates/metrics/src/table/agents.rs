//! What agents measure. A node has few cards and few workers, so series by card and by worker are fine here; those of a
//! worker begin with its order and end with it.

use super::{CounterKind, Declaration, GaugeKind, HistogramKind, Metric, Process, metrics};

/// Bounds in seconds for packing and carrying files, from a few to very many.
const SAVES: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0];

metrics! { Agent;
    AGENT_CONNECTED: GaugeKind "tessera_agent_connected" [] "Whether the leader knows this node and answers";
    AGENT_SESSIONS: CounterKind "tessera_agent_sessions_total" []
        "Sessions opened with a leader since the agent's start";
    AGENT_TERM: GaugeKind "tessera_agent_term" [] "Highest term of a leader that this node has seen";
    AGENT_TERMS_REFUSED: CounterKind "tessera_agent_terms_refused_total" []
        "Messages in the name of a leader that were refused because no elections can have reached their term";
    AGENT_LEASE_REMAINING: GaugeKind "tessera_agent_lease_remaining_seconds" []
        "Time until workers are told to stop if the lease is not renewed";
    AGENT_READINGS_AGE: GaugeKind "tessera_agent_readings_age_seconds" []
        "Time since cards and workers were last read; readings that are older than 10 s are told to nobody";
    AGENT_FENCE_STATE: GaugeKind "tessera_agent_fence_state" ["state"]
        "1 for the state that fencing on this node is in";
    AGENT_WORKERS: GaugeKind "tessera_agent_workers" ["state"] "Workers on this node by where they stand";
    AGENT_ENDED_BYTES: GaugeKind "tessera_agent_ended_bytes" []
        "Bytes of the node's disk that output and files of ended work take";
    AGENT_ENDED_REMOVED_EARLY: CounterKind "tessera_agent_ended_removed_early_total" []
        "Ended workers whose output was removed before its time, for lack of room";
    CHECKPOINTS: GaugeKind "tessera_checkpoints" ["place"]
        "Parts of checkpoints that this node keeps: on its disk, or in the store that all nodes share";
    CHECKPOINT_WORK: CounterKind "tessera_checkpoint_work_total" ["operation", "result"]
        "Checkpoints that were saved, fetched for a worker, copied from other nodes and removed, by how it went";
    CHECKPOINT_SECONDS: HistogramKind "tessera_checkpoint_work_seconds" ["operation"] in SAVES
        "Time that this took";
    CHECKPOINT_SAVED_BYTES: CounterKind "tessera_checkpoint_saved_bytes_total" []
        "Bytes of programs' files in the checkpoints that were saved";
    CARD_INFO: GaugeKind "tessera_card_info" ["card", "uuid", "vendor", "model", "kind", "pci_address", "simulated", "serial", "driver"]
        "What a card is, the maker's serial number and the version of its driver where they are told";
    CARD_HEALTHY: GaugeKind "tessera_card_healthy" ["card"] "Whether a card is usable";
    CARD_UTILIZATION: GaugeKind "tessera_card_utilization_ratio" ["card"] "Share of time that a card computed";
    CARD_MEMORY_LIMIT: GaugeKind "tessera_card_memory_limit_bytes" ["card"] "Memory of a card that can be granted";
    CARD_MEMORY_USED: GaugeKind "tessera_card_memory_used_bytes" ["card"] "Memory of a card in use";
    CARD_MEMORY_GRANTED: GaugeKind "tessera_card_memory_granted_bytes" ["card"]
        "Memory of a card that is granted to workers which are here";
    CARD_GRANTED: GaugeKind "tessera_card_granted_blocks" ["card"]
        "Blocks of a card that are granted to workers which are here";
    CARD_SLICES: GaugeKind "tessera_card_slices" ["card"] "Slices of a card that workers which are here hold";
    CARD_TEMPERATURE: GaugeKind "tessera_card_temperature_celsius" ["card"] "Temperature of a card";
    CARD_POWER: GaugeKind "tessera_card_power_watts" ["card"] "Power that a card draws";
    CARD_ENERGY: CounterKind "tessera_card_energy_joules_total" ["card"] "Energy that a card has drawn";
    CARD_ERRORS: CounterKind "tessera_card_errors_total" ["card", "kind"]
        "Errors that a card has had, by kind, of those that its mechanism tells";
    CARD_ROUNDS: CounterKind "tessera_card_rounds_total" ["card"]
        "Rounds in which the workers on a card took turns";
    CARD_SWITCHES: CounterKind "tessera_card_switches_total" ["card"]
        "Times that another worker was put on a card because its turn came";
    SLICE_UTILIZATION: GaugeKind "tessera_slice_utilization_ratio" ["card", "job_id", "rank", "queue"]
        "Share of what a worker may compute on a card that it computed; 1 is all of it";
    SLICE_MEMORY_USED: GaugeKind "tessera_slice_memory_used_bytes" ["card", "job_id", "rank", "queue"]
        "Memory of a card that a worker has in use";
    SLICE_MEMORY_LIMIT: GaugeKind "tessera_slice_memory_limit_bytes" ["card", "job_id", "rank", "queue"]
        "Memory of a card that a worker holds";
    SLICE_GRANTED: GaugeKind "tessera_slice_granted_blocks" ["card", "job_id", "rank", "queue"]
        "Blocks of a card that a worker holds";
    SLICE_COMPUTED: CounterKind "tessera_slice_device_seconds_total" ["card", "job_id", "rank", "queue"]
        "Time that a slice server computed, of workers whose virtual card is a device";
    SLICE_GATE_WAIT: CounterKind "tessera_slice_gate_wait_seconds_total" ["card", "job_id", "rank", "queue"]
        "Time that a slice server waited for its turn on a card that others share";
    SLICE_OPERATIONS: CounterKind "tessera_slice_operations_total" ["card", "job_id", "rank", "queue"]
        "Operations that a slice server executed";
    SLICE_TRANSFERRED: CounterKind "tessera_slice_transferred_bytes_total" ["card", "job_id", "rank", "queue"]
        "Bytes that came to a slice server from its program, and went back";
    SLICE_QUEUED: GaugeKind "tessera_slice_queued_bytes" ["card", "job_id", "rank", "queue"]
        "Bytes of commands that came to a slice server and that it has not executed yet";
    SLICE_TURN: CounterKind "tessera_slice_turn_seconds_total" ["card", "job_id", "rank", "queue"]
        "Time in which it was a worker's turn on a card whose workers take turns";
    SLICE_REST: CounterKind "tessera_slice_rest_seconds_total" ["card", "job_id", "rank", "queue"]
        "Time in which a worker stood still because it was not its turn";
    WORKER_PROCESSOR_SECONDS: CounterKind "tessera_worker_processor_seconds_total" ["job_id", "rank", "queue"]
        "Time of the host's processors that a worker used";
    WORKER_MEMORY_USED: GaugeKind "tessera_worker_memory_used_bytes" ["job_id", "rank", "queue"]
        "Memory of the host that a worker uses, without cached files that the kernel can drop";
}
