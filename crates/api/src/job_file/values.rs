//! Values in job files: words, and what people may write in more than one way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tessera_ledger::CardKind;

use crate::v1;

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
    /// How a program uses its virtual card.
    Access {
        /// It is told its slices, and computes on them itself.
        Worker,
        /// It has one device of PyTorch.
        Device,
        /// It runs on a host of its own, and has one device of PyTorch there.
        Remote,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
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

impl From<Kind> for CardKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Gpu => Self::Gpu,
            Kind::Npu => Self::Npu,
            Kind::Fpga => Self::Fpga,
            Kind::Cpu => Self::Cpu,
        }
    }
}

impl From<Kind> for i32 {
    fn from(kind: Kind) -> Self {
        v1::CardKind::from(CardKind::from(kind)).into()
    }
}

/// A text; numbers and booleans are taken as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(pub String);

/// Reads a [`Word`].
#[derive(Clone, Copy, Debug)]
struct WordReader {
    /// Set when there is one under the same name already.
    twice: bool,
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WordReader { twice: false }.deserialize(deserializer)
    }
}

impl<'de> DeserializeSeed<'de> for WordReader {
    type Value = Word;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Word, D::Error> {
        // Whoever asks for a text gets what is written, whatever it looks like; only nothing must be told from it.
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for WordReader {
    type Value = Word;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word: a text, a number or a boolean")
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Word, D::Error> {
        deserializer.deserialize_str(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Word, E> {
        if self.twice { Err(E::custom("must be there only once")) } else { Ok(Word(text.to_owned())) }
    }

    fn visit_none<E: Error>(self) -> Result<Word, E> {
        Err(E::custom("says nothing; an empty text is written as \"\", and a word such as null in quotes"))
    }
}

/// Texts by name, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of names to texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Words, A::Error> {
                let mut words = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let word = map.next_value_seed(WordReader { twice: words.contains_key(&name) })?;
                    words.insert(name, word.0);
                }
                Ok(Words(words))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

impl JsonSchema for Words {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        BTreeMap::<String, Word>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, Word>::json_schema(generator)
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

impl OneOrMany<Word> {
    pub(super) fn into_texts(self) -> Vec<String> {
        self.0.into_iter().map(|word| word.0).collect()
    }
}

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
