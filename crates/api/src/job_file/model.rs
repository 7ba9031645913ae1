//! The job file, field by field. Its JSON Schema and the tables of `docs/job-file.md` are made from these types and
//! their comments: what holds when a field is left out is what a comment ends with.

use schemars::JsonSchema;
use serde::Deserialize;
use tessera_ledger::wire::duration_to_wire;

use super::units::{Cpus, Memory, Tflops, Time};
use super::values::{
    Access, CheckpointMode, CommandLine, Isolation, Kind, OnDisconnect, OneOrMany, Packing, Precision, Span, Word,
    Words,
};
use crate::v1;

/// A job for `tessera job submit`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// A name for people. It need not be unique; empty when left out.
    pub name: Option<String>,
    /// The queue, which has guarantees and limits; `default` when left out.
    pub queue: Option<String>,
    /// 0 to 100; within its queue a higher one goes first and may preempt lower ones; a point counts as much as 15
    /// minutes of waiting; 50 when left out.
    #[schemars(range(min = 0, max = 100))]
    pub priority: Option<u32>,
    /// Program and arguments as a list. One text instead of a list is run by `/bin/sh -c`; the `script` when left out.
    pub command: Option<CommandLine>,
    /// A script that travels with the job. It is written into the worker's folder as `script`, executable, and run when
    /// there is no `command`; none when left out.
    pub script: Option<String>,
    /// Environment variables. Numbers and booleans are taken as they are written. `RANK`, `WORLD_SIZE`, `LOCAL_RANK`,
    /// `LOCAL_WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` and `TESSERA_*` are set by Tessera and refused here, all but
    /// `TESSERA_SPLIT` and `TESSERA_SLOWER` (docs/device.md); none when left out.
    pub environment: Option<Words>,
    /// An absolute path on the node where the program starts; a fresh folder of the worker when left out.
    pub working_directory: Option<String>,
    /// Number of virtual cards that start together or not at all. They are also preempted and resumed together; 1 when
    /// left out.
    #[schemars(range(min = 1, max = 4096))]
    pub gang: Option<u32>,
    /// Least number of virtual cards that it starts with when there is no room for `gang`. `WORLD_SIZE` says how many
    /// workers there are; `gang` when left out.
    #[schemars(range(min = 1, max = 4096))]
    pub gang_min: Option<u32>,
    /// Having run so long with fewer virtual cards than `gang`, it may be suspended and started again with more, when
    /// there is room that nobody else would take; it stays as it began when left out.
    pub grow_after: Option<Time>,
    /// What each of them must offer.
    pub virtual_card: VirtualCard,
    /// What each worker needs of its host; nothing when left out.
    pub host: Option<Host>,
    /// Where workers would rather be, and must not be; anywhere when left out.
    pub affinity: Option<Affinity>,
    /// `stack`: beside what runs already, so that whole cards and nodes stay free. `spread`: where the most room is; as
    /// the queue or the pool says when left out.
    pub packing: Option<Packing>,
    /// When it may run, each as `0 20 * * mon-fri for 10h in Europe/Berlin`: when the window opens as cron writes it,
    /// how long it stays open, and the time zone (without one: UTC). Outside of them it is suspended; at any time when
    /// left out.
    pub windows: Option<Vec<String>>,
    /// Whether a job of its queue with a higher priority may take its blocks. What its queue has borrowed can be
    /// recalled either way; `true` when left out.
    pub preemptible: Option<bool>,
    /// It is not preempted before an attempt has run so long; no such time when left out.
    pub min_runtime: Option<Time>,
    /// How the job is suspended, and what that costs it; `requeue` when left out.
    pub checkpoint: Option<Checkpoint>,
    /// What happens when a node is cut off for longer than its lease. `stop`: the work is stopped there and tried
    /// elsewhere. `keep`: it goes on there, and its blocks are given to nobody until the node is back or an operator
    /// declares it dead; `stop` when left out.
    pub on_disconnect: Option<OnDisconnect>,
    /// Longest run of one attempt. The job ends as `timeout` when it is reached; no limit when left out.
    pub time_limit: Option<Time>,
    /// What happens after a failed attempt; no retry when left out.
    pub retry: Option<Retry>,
    /// Labels for people and for `tessera job list --label`; none when left out.
    pub labels: Option<Words>,
    /// Labels that every node of the job must carry, `node` being its name; none when left out.
    pub node_labels: Option<Words>,
    /// How long output is kept on the nodes after the end; the pool's setting when left out.
    pub output_retention: Option<Time>,
    /// Submitted on hold: not considered until `tessera job release`; `false` when left out.
    pub hold: Option<bool>,
}

/// What one virtual card must offer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VirtualCard {
    /// Compute, with up to three decimals; `"500 GFLOPS"` and `"1.5 PFLOPS"` are understood too. Rounded up to whole
    /// blocks.
    pub tflops: Tflops,
    /// Card memory, such as `16GiB` or `512MiB`; the unit must be said; none when left out.
    pub memory: Option<Memory>,
    /// The number format that `tflops` is meant in: `fp32`, `tf32`, `fp16`, `bf16`, `fp8`, `int8`; the pool's reference
    /// when left out.
    pub precision: Option<Precision>,
    /// How far one virtual card may spread: `card`, `node` or `pool`. A wider span finds room sooner; the program then
    /// talks over more distance, and runs as one worker per node; `card` when left out.
    pub span: Option<Span>,
    /// Kinds of cards that may back it: `gpu`, `npu`, `fpga`, `cpu`; one or a list; any when left out.
    pub kinds: Option<OneOrMany<Kind>>,
    /// Whether one virtual card may be made of several kinds at once; `false` when left out.
    pub mixed: Option<bool>,
    /// The weakest isolation from other jobs that is acceptable: `shared`, `soft` (software holds the shares) or `hard`
    /// (hardware does, or the card is held whole); `shared` when left out.
    pub isolation: Option<Isolation>,
    /// Makers of cards that may back it; one or a list; any when left out.
    #[schemars(with = "Option<OneOrMany<String>>")]
    pub vendors: Option<OneOrMany<Word>>,
    /// Models that may back it; one or a list; any when left out.
    #[schemars(with = "Option<OneOrMany<String>>")]
    pub models: Option<OneOrMany<Word>>,
    /// Whether its slices take whole cards, on which nobody else computes; `false` when left out.
    pub whole_cards: Option<bool>,
    /// The least memory on each card that it takes something of, such as what a replica of a model needs. Where it
    /// spreads over more cards it gets more than `memory`; none when left out.
    pub slice_memory: Option<Memory>,
    /// How the program uses it: `worker` tells it its slices, and it computes on them itself; `device` gives it one
    /// device of PyTorch, on nodes that serve them (docs/device.md), with `memory`, and on however many nodes its
    /// `span` allows; `remote` gives that to a program on a host of its own, on one node, and the job has neither
    /// command nor script then (`tessera run --here` makes such jobs); `worker` when left out.
    pub access: Option<Access>,
    /// Whether it takes time of its cards that nobody else uses just now, and gives it back as soon as somebody does;
    /// else it gets its share and no more. For cards whose time is divided by their agent: processors, and cards with
    /// `time_slicing` (docs/inventory.md); `false` when left out.
    pub elastic: Option<bool>,
}

/// What each worker needs of its host beside its virtual card. So much is kept free for it, and it gets no more.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Processors: `8`, `1.5`, or `500m` for half of one; no share, no limit when left out.
    pub cpus: Option<Cpus>,
    /// Host memory, such as `32GiB`; no share, no limit when left out.
    pub memory: Option<Memory>,
}

/// Where a job's workers would rather be, and must not be.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Affinity {
    /// Node labels that are better to have than not: a list of `key`, `value` and `weight`; none when left out.
    pub preferred: Option<Vec<PreferredLabel>>,
    /// Key of a node label of which all workers must have the same value, such as `rack`; `node` for one node; none
    /// when left out.
    pub together: Option<String>,
    /// Key of a node label over whose values workers are spread as far as they can be, such as `rack`; `node` for
    /// nodes; none when left out.
    pub spread: Option<String>,
    /// Labels of jobs: no worker goes to a node that runs another job that carries all of them; none when left out.
    pub avoid: Option<Words>,
    /// Names of data sets, model weights and images that the job reads; nodes that report them in their `data_dirs` (at
    /// most 10,000 names of at most 253 bytes) are better; none when left out.
    #[schemars(with = "Option<OneOrMany<String>>")]
    pub data: Option<OneOrMany<Word>>,
}

/// A node label that is better to have than not.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreferredLabel {
    /// Key of the label.
    pub key: Word,
    /// Its value.
    pub value: Word,
    /// How much it counts beside the others, 1 to 100; 1 when left out.
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<u32>,
}

/// How a job is suspended.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// `cooperative`: the program is signalled, writes what it needs to go on into `$TESSERA_CHECKPOINT_DIR` within the
    /// grace time and exits; wherever the job goes on, it finds there what it wrote (worker.md). `transparent`: its
    /// processes, which know nothing of it, are dumped and restored, with what they have on their device, on nodes that
    /// can (worker.md); not for gangs, nor for `access: remote`; what cannot be dumped is stopped as `fallback` says,
    /// and says why. `requeue`: stopped, and started again from the beginning; what was not saved is lost; `requeue`
    /// when left out.
    pub mode: Option<CheckpointMode>,
    /// The signal that asks it to stop: `SIGTERM`, `SIGINT`, `SIGHUP`, `SIGQUIT`, `SIGUSR1` or `SIGUSR2`; `SIGTERM`
    /// when left out.
    pub signal: Option<String>,
    /// How long it has before it is killed, dumping it included; 10 seconds when left out.
    pub grace: Option<Time>,
    /// How often a `cooperative` program that listens on `$TESSERA_CONTROL` is asked to save while it runs on, and a
    /// `transparent` one is dumped, 1 second to 7 days; never, so that it saves only when it is stopped, when left out.
    pub every: Option<Time>,
    /// How many of its checkpoints are kept, the newest ones, 1 to 16; the quota of its queue may leave fewer, and
    /// never none; 2 when left out.
    pub keep: Option<u32>,
    /// How a `transparent` program is saved that cannot be dumped: `cooperative`: it writes what it needs to go on into
    /// `$TESSERA_CHECKPOINT_DIR` when it is told to stop; `requeue`: it goes on from the checkpoint before, or begins
    /// again; `requeue` when left out.
    pub fallback: Option<CheckpointMode>,
}

/// What happens after a failed attempt.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Retries after the first attempt. The loss of a node and preemption do not count; 0 when left out.
    #[schemars(range(min = 0, max = 1000))]
    pub max_retries: Option<u32>,
    /// Wait before the first retry, doubled for each further one; 1 second when left out.
    pub backoff: Option<Time>,
    /// Longest wait between retries; 5 minutes when left out.
    pub max_backoff: Option<Time>,
}

impl JobFile {
    /// The job as a message. What the file leaves out is left out there too.
    #[must_use]
    pub fn into_spec(self) -> v1::JobSpec {
        let time = |time: Option<Time>| time.map(|time| duration_to_wire(time.0));
        let Self {
            name,
            queue,
            priority,
            command,
            script,
            environment,
            working_directory,
            gang,
            gang_min,
            grow_after,
            virtual_card,
            host,
            affinity,
            packing,
            windows,
            preemptible,
            min_runtime,
            checkpoint,
            on_disconnect,
            time_limit,
            retry,
            labels,
            node_labels,
            output_retention,
            hold,
        } = self;
        v1::JobSpec {
            name: name.unwrap_or_default(),
            queue: queue.unwrap_or_default(),
            command: command.map(|command| command.0).unwrap_or_default(),
            environment: environment.unwrap_or_default().0,
            working_directory: working_directory.unwrap_or_default(),
            script: script.unwrap_or_default(),
            gang: gang.unwrap_or(1),
            virtual_card: Some(virtual_card.into_request()),
            priority,
            preemptible,
            checkpoint: checkpoint.map(|Checkpoint { mode, signal, grace, every, keep, fallback }| {
                v1::CheckpointPolicy {
                    mode: mode.map_or(0, Into::into),
                    signal: signal.unwrap_or_default(),
                    grace: time(grace),
                    every: time(every),
                    keep: keep.unwrap_or(0),
                    fallback: fallback.map_or(0, Into::into),
                }
            }),
            on_disconnect: on_disconnect.map_or(0, Into::into),
            time_limit: time(time_limit),
            retry: retry.map(|Retry { max_retries, backoff, max_backoff }| v1::RetryPolicy {
                max_retries: max_retries.unwrap_or(0),
                backoff: time(backoff),
                max_backoff: time(max_backoff),
            }),
            labels: labels.unwrap_or_default().0,
            node_labels: node_labels.unwrap_or_default().0,
            output_retention: time(output_retention),
            held: hold.unwrap_or(false),
            host: host.map(|Host { cpus, memory }| v1::HostRequest {
                milli_cpus: cpus.map_or(0, |cpus| cpus.0.0),
                memory_mib: memory.map_or(0, |memory| memory.0.0),
            }),
            gang_min,
            grow_after: time(grow_after),
            min_runtime: time(min_runtime),
            affinity: affinity.map(Affinity::into_message),
            packing: packing.map_or(0, Into::into),
            windows: windows.unwrap_or_default(),
        }
    }
}

impl Affinity {
    fn into_message(self) -> v1::Affinity {
        let Self { preferred, together, spread, avoid, data } = self;
        let preferred = preferred.unwrap_or_default().into_iter().map(|label| v1::PreferredLabel {
            key: label.key.0,
            value: label.value.0,
            weight: label.weight.unwrap_or(1),
        });
        v1::Affinity {
            preferred: preferred.collect(),
            together: together.unwrap_or_default(),
            spread: spread.unwrap_or_default(),
            avoid: avoid.unwrap_or_default().0,
            data: data.map_or_else(Vec::new, OneOrMany::into_texts),
        }
    }
}

impl VirtualCard {
    fn into_request(self) -> v1::VirtualCardRequest {
        let Self {
            tflops,
            memory,
            precision,
            span,
            kinds,
            mixed,
            isolation,
            vendors,
            models,
            whole_cards,
            slice_memory,
            access,
            elastic,
        } = self;
        v1::VirtualCardRequest {
            milli_tflops: tflops.0.0,
            memory_mib: memory.map_or(0, |memory| memory.0.0),
            precision: precision.map_or(0, Into::into),
            span: span.map_or(0, Into::into),
            kinds: kinds.map_or_else(Vec::new, |kinds| kinds.0.into_iter().map(Into::into).collect()),
            mixed: mixed.unwrap_or(false),
            isolation: isolation.map_or(0, Into::into),
            vendors: vendors.map_or_else(Vec::new, OneOrMany::into_texts),
            models: models.map_or_else(Vec::new, OneOrMany::into_texts),
            whole_cards: whole_cards.unwrap_or(false),
            slice_memory_mib: slice_memory.map_or(0, |memory| memory.0.0),
            access: access.map_or(0, Into::into),
            elastic: elastic.unwrap_or(false),
        }
    }
}
