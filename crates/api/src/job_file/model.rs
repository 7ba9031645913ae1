//! The job file, field by field. Its JSON Schema is made from these types and their comments.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use tessera_ledger::wire::duration_to_wire;

use super::units::{Cpus, Memory, Tflops, Time};
use crate::v1;

/// A job for `tessera job submit`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// A name for people; not unique.
    pub name: Option<String>,
    /// The queue; `default` when left out.
    pub queue: Option<String>,
    /// 0 to 100; a higher one goes first; 50 when left out.
    #[schemars(range(min = 0, max = 100))]
    pub priority: Option<u32>,
    /// Program and arguments as a list, or one text that `/bin/sh -c` runs.
    pub command: Option<CommandLine>,
    /// A script that travels with the job: written into the worker's folder as `script`, run when there is no command.
    pub script: Option<String>,
    /// Environment variables beside those that Tessera sets.
    pub environment: Option<BTreeMap<String, Word>>,
    /// Where the program starts, an absolute path; a fresh folder when left out.
    pub working_directory: Option<String>,
    /// Number of virtual cards that start together or not at all; 1 when left out.
    #[schemars(range(min = 1, max = 4096))]
    pub gang: Option<u32>,
    /// Least number of virtual cards that it starts with when there is no room for `gang`; `gang` when left out.
    #[schemars(range(min = 1, max = 4096))]
    pub gang_min: Option<u32>,
    /// What each virtual card must offer.
    pub virtual_card: VirtualCard,
    /// What each worker needs of its host beside its virtual card; nothing when left out.
    pub host: Option<Host>,
    /// Where the job's workers would rather be, and must not be.
    pub affinity: Option<Affinity>,
    /// How its virtual cards are laid over the pool; as its queue or the pool says when left out.
    pub packing: Option<Packing>,
    /// Whether the job may be preempted by one of higher priority; true when left out.
    pub preemptible: Option<bool>,
    /// The job is not preempted before it has run so long; no such time when left out.
    pub min_runtime: Option<Time>,
    /// How the job is suspended, and what that does to its work.
    pub checkpoint: Option<Checkpoint>,
    /// What happens when its node is cut off for longer than its lease; `stop` when left out.
    pub on_disconnect: Option<OnDisconnect>,
    /// Longest run of one attempt; no limit when left out.
    pub time_limit: Option<Time>,
    /// What happens after a failed attempt.
    pub retry: Option<Retry>,
    /// Labels for people and queries.
    pub labels: Option<BTreeMap<String, Word>>,
    /// Labels that a node must carry.
    pub node_labels: Option<BTreeMap<String, Word>>,
    /// How long output is kept after the end; the pool's setting when left out.
    pub output_retention: Option<Time>,
    /// Submitted on hold: not considered until released.
    pub hold: Option<bool>,
}

/// What one virtual card must offer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VirtualCard {
    /// Compute, at `precision`.
    pub tflops: Tflops,
    /// Memory; none when left out.
    pub memory: Option<Memory>,
    /// The number format in which `tflops` is meant; the pool's reference when left out.
    pub precision: Option<Precision>,
    /// How far one virtual card may spread: over one card, the cards of one node, or the pool; `card` when left out.
    pub span: Option<Span>,
    /// Kinds of cards that may back it; any when left out.
    pub kinds: Option<OneOrMany<Kind>>,
    /// Whether several kinds may back one virtual card at once; false when left out.
    pub mixed: Option<bool>,
    /// The weakest isolation from other jobs that is acceptable; `shared` when left out.
    pub isolation: Option<Isolation>,
    /// Makers of cards that may back it; any when left out.
    pub vendors: Option<OneOrMany<String>>,
    /// Models of cards that may back it; any when left out.
    pub models: Option<OneOrMany<String>>,
    /// Whether it takes whole cards, on which nobody else computes; false when left out.
    pub whole_cards: Option<bool>,
    /// The least memory on each card that it takes something of; none when left out.
    pub slice_memory: Option<Memory>,
}

/// What each worker needs of its host beside its virtual card. So much is kept free for it, and it gets no more.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Processors; none kept, and no limit, when left out.
    pub cpus: Option<Cpus>,
    /// Host memory; none kept, and no limit, when left out.
    pub memory: Option<Memory>,
}

/// Where a job's workers would rather be, and must not be.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Affinity {
    /// Node labels that are better to have than not.
    pub preferred: Option<Vec<PreferredLabel>>,
    /// Key of a node label of which all workers must have the same value; `node`: all on one node.
    pub together: Option<String>,
    /// Key of a node label over whose values workers are spread as far as they can be; `node`: over nodes.
    pub spread: Option<String>,
    /// Labels of jobs: no worker goes to a node that runs another job that carries all of them.
    pub avoid: Option<BTreeMap<String, Word>>,
    /// Names of data sets, model weights and images that the job reads: nodes that have them on disk are better.
    pub data: Option<OneOrMany<String>>,
}

/// A node label that is better to have than not.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreferredLabel {
    /// Its key.
    pub key: String,
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
    /// `cooperative`: a signal and a grace time, in which the program writes its checkpoint; `transparent`: the process
    /// image is dumped; `requeue`: stopped, and started again from the beginning. `requeue` when left out.
    pub mode: Option<CheckpointMode>,
    /// Signal that asks the program to stop; `SIGTERM` when left out.
    pub signal: Option<String>,
    /// Time until it is killed; 10 seconds when left out.
    pub grace: Option<Time>,
}

/// What happens after a failed attempt.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Retries after the first attempt; none when left out. Loss of a node and preemption do not count.
    #[schemars(range(min = 0, max = 1000))]
    pub max_retries: Option<u32>,
    /// Wait before the first retry, doubled for each further one; 1 second when left out.
    pub backoff: Option<Time>,
    /// Longest wait between retries; 5 minutes when left out.
    pub max_backoff: Option<Time>,
}

macro_rules! word {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(rename_all = "lowercase")]
        pub enum $name {
            $($(#[$value_doc])* $value,)*
        }

        impl From<$name> for i32 {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$value => v1::$name::$value.into(),)*
                }
            }
        }
    };
}

word!(
    /// A number format; rates are dense, without sparsity.
    Precision {
        /// 32-bit floating point.
        Fp32,
        /// TF32 tensor operations.
        Tf32,
        /// 16-bit floating point.
        Fp16,
        /// bfloat16.
        Bf16,
        /// 8-bit floating point.
        Fp8,
        /// 8-bit integers.
        Int8,
    }
);
word!(
    /// How far one virtual card may spread.
    Span {
        /// All on one card.
        Card,
        /// Over the cards of one node.
        Node,
        /// Over the nodes of the pool.
        Pool,
    }
);
word!(
    /// How well jobs on one card are kept apart.
    Isolation {
        /// Without enforcement.
        Shared,
        /// Enforced by software.
        Soft,
        /// Enforced by hardware, or the card is held whole.
        Hard,
    }
);
word!(
    /// What suspending a job does to its work.
    CheckpointMode {
        /// The program writes a checkpoint when asked.
        Cooperative,
        /// The process image is dumped.
        Transparent,
        /// It begins again from the start.
        Requeue,
    }
);
word!(
    /// How virtual cards are laid over the pool.
    Packing {
        /// Beside what runs already, so that whole cards and nodes stay free.
        Stack,
        /// Over cards and nodes that have the most room.
        Spread,
    }
);
word!(
    /// What happens when the job's node is cut off.
    OnDisconnect {
        /// The work is stopped and tried elsewhere.
        Stop,
        /// The work goes on there.
        Keep,
    }
);

/// The kind of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A graphics processor.
    Gpu,
    /// A neural processor.
    Npu,
    /// A field-programmable gate array.
    Fpga,
    /// The processors of the host.
    Cpu,
}

impl From<Kind> for i32 {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Gpu => v1::CardKind::Gpu,
            Kind::Npu => v1::CardKind::Npu,
            Kind::Fpga => v1::CardKind::Fpga,
            Kind::Cpu => v1::CardKind::Cpu,
        }
        .into()
    }
}

/// A text; numbers and booleans are taken as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(pub String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number or a boolean")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Word, E> {
                Ok(Word(text.to_owned()))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Word, E> {
                Ok(Word(value.to_string()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for Word {
    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "A text; numbers and booleans are taken as they are written.",
            "type": ["string", "number", "boolean"] })
    }
}

/// Program and arguments as a list, or one text for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine(pub Vec<String>);

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = CommandLine;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of words, or one text for the shell")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CommandLine, E> {
                if text.trim().is_empty() {
                    return Err(E::custom("must name a program, and is empty"));
                }
                Ok(CommandLine(["/bin/sh", "-c", text].map(str::to_owned).into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<CommandLine, A::Error> {
                let words = Vec::<Word>::deserialize(SeqAccessDeserializer::new(words))?;
                if words.is_empty() {
                    return Err(A::Error::custom("must name a program, and is empty"));
                }
                Ok(CommandLine(words.into_iter().map(|word| word.0).collect()))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for CommandLine {
    fn schema_name() -> Cow<'static, str> {
        "CommandLine".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let word = generator.subschema_for::<Word>();
        json_schema!({ "description": "Program and arguments as a list, or one text that /bin/sh -c runs.",
            "anyOf": [{ "type": "string", "minLength": 1 }, { "type": "array", "minItems": 1, "items": word }] })
    }
}

/// One value, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word, or a list of words")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMany<T>, E> {
                let word = serde::de::value::StrDeserializer::new(text);
                Ok(OneOrMany(vec![T::deserialize(word)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<OneOrMany<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(words)).map(OneOrMany)
            }
        }

        deserializer.deserialize_any(Reader(std::marker::PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

impl JobFile {
    /// The job as a message. What the file leaves out is left out there too.
    #[must_use]
    pub fn into_spec(self) -> v1::JobSpec {
        let words = |map: Option<BTreeMap<String, Word>>| {
            map.unwrap_or_default().into_iter().map(|(key, word)| (key, word.0)).collect()
        };
        let time = |time: Option<Time>| time.map(|time| duration_to_wire(time.0));
        v1::JobSpec {
            name: self.name.unwrap_or_default(),
            queue: self.queue.unwrap_or_default(),
            command: self.command.map(|command| command.0).unwrap_or_default(),
            environment: words(self.environment),
            working_directory: self.working_directory.unwrap_or_default(),
            script: self.script.unwrap_or_default(),
            gang: self.gang.unwrap_or(1),
            virtual_card: Some(self.virtual_card.into_request()),
            priority: self.priority,
            preemptible: self.preemptible,
            checkpoint: self.checkpoint.map(|checkpoint| v1::CheckpointPolicy {
                mode: checkpoint.mode.map_or(0, Into::into),
                signal: checkpoint.signal.unwrap_or_default(),
                grace: time(checkpoint.grace),
            }),
            on_disconnect: self.on_disconnect.map_or(0, Into::into),
            time_limit: time(self.time_limit),
            retry: self.retry.map(|retry| v1::RetryPolicy {
                max_retries: retry.max_retries.unwrap_or(0),
                backoff: time(retry.backoff),
                max_backoff: time(retry.max_backoff),
            }),
            labels: words(self.labels),
            node_labels: words(self.node_labels),
            output_retention: time(self.output_retention),
            held: self.hold.unwrap_or(false),
            host: self.host.map(|host| v1::HostRequest {
                milli_cpus: host.cpus.map_or(0, |cpus| cpus.0.0),
                memory_mib: host.memory.map_or(0, |memory| memory.0.0),
            }),
            gang_min: self.gang_min,
            min_runtime: time(self.min_runtime),
            affinity: self.affinity.map(Affinity::into_message),
            packing: self.packing.map_or(0, Into::into),
        }
    }
}

impl Affinity {
    fn into_message(self) -> v1::Affinity {
        let preferred = self.preferred.unwrap_or_default().into_iter().map(|label| v1::PreferredLabel {
            key: label.key,
            value: label.value.0,
            weight: label.weight.unwrap_or(1),
        });
        v1::Affinity {
            preferred: preferred.collect(),
            together: self.together.unwrap_or_default(),
            spread: self.spread.unwrap_or_default(),
            avoid: self.avoid.unwrap_or_default().into_iter().map(|(key, word)| (key, word.0)).collect(),
            data: self.data.map_or_else(Vec::new, |names| names.0),
        }
    }
}

impl VirtualCard {
    fn into_request(self) -> v1::VirtualCardRequest {
        v1::VirtualCardRequest {
            milli_tflops: self.tflops.0.0,
            memory_mib: self.memory.map_or(0, |memory| memory.0.0),
            precision: self.precision.map_or(0, Into::into),
            span: self.span.map_or(0, Into::into),
            kinds: self.kinds.map_or_else(Vec::new, |kinds| kinds.0.into_iter().map(Into::into).collect()),
            mixed: self.mixed.unwrap_or(false),
            isolation: self.isolation.map_or(0, Into::into),
            vendors: self.vendors.map_or_else(Vec::new, |vendors| vendors.0),
            models: self.models.map_or_else(Vec::new, |models| models.0),
            whole_cards: self.whole_cards.unwrap_or(false),
            slice_memory_mib: self.slice_memory.map_or(0, |memory| memory.0.0),
        }
    }
}
