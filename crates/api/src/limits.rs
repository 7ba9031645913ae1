//! The upper limits of what the API accepts. A request above one is refused at the door, with the field and the limit,
//! before it costs anything.

use std::ops::RangeInclusive;
use std::time::Duration;

use tessera_ledger::{Mebibytes, MilliCpus, MilliTflops};

/// Longest job file in bytes.
pub const JOB_FILE: usize = 4 << 20;
/// Longest script in bytes.
pub const SCRIPT: usize = 1 << 20;
/// Largest request that a member reads, in bytes; everything smaller is judged field by field.
pub const REQUEST: usize = 4 << 20;
/// Most jobs of one message of a stream of submissions.
pub const SUBMISSIONS: usize = 1_000;
/// Jobs of one stream of submissions that may be unanswered; the member reads no further then.
pub const UNANSWERED: usize = 8_192;
/// Bytes of the messages of one stream of submissions that may be unanswered; the member reads no further then.
pub const UNANSWERED_BYTES: usize = 4 << 20;
/// The longest time by which a request id may lie in the future: clients' clocks differ a little.
pub const REQUEST_AHEAD: Duration = tessera_ledger::REQUEST_AHEAD;
/// Most words of a command.
pub const COMMAND_WORDS: usize = 4096;
/// Longest command in bytes, all words together.
pub const COMMAND: usize = 512 << 10;
/// Most environment variables.
pub const VARIABLES: usize = 1024;
/// Longest environment in bytes, names and values together.
pub const ENVIRONMENT: usize = 512 << 10;
/// Longest path in bytes.
pub const PATH: usize = 4096;
/// Longest name of anything, and longest value of a label, in bytes.
pub const NAME: usize = 253;
/// Bytes of a sentence for people.
pub const SENTENCE: usize = 1000;
/// Most labels of a job, and most vendors or models that it names.
pub const LABELS: usize = 64;
/// Most time windows of a queue or job.
pub const WINDOWS: usize = tessera_ledger::WINDOW_LIMIT;
/// Most virtual cards of a gang.
pub const GANG: u32 = 4096;
pub const PRIORITY: u32 = 100;
/// Most compute of a card, virtual or not: a million TFLOPS.
pub const COMPUTE: MilliTflops = MilliTflops::from_tflops(1_000_000);
/// Most memory of a card, virtual or not, and of a host: 4 PiB.
pub const MEMORY: Mebibytes = Mebibytes(1 << 32);
/// Most processor time of one host: a million processors.
pub const CPUS: MilliCpus = MilliCpus(1_000_000_000);
/// Most compute of a queue: that of 200,000 of the largest cards.
pub const QUEUE_COMPUTE: MilliTflops = MilliTflops(200_000 * COMPUTE.0);
/// Most memory of a queue: that of 200,000 of the largest cards.
pub const QUEUE_MEMORY: Mebibytes = Mebibytes(200_000 * MEMORY.0);
/// Most of the checkpoints of a queue: 1 EiB.
pub const QUEUE_CHECKPOINTS: Mebibytes = Mebibytes(1 << 40);
/// Highest weight of a queue.
pub const QUEUE_WEIGHT: u32 = 1_000_000;
/// Largest block: a thousand TFLOPS.
pub const BLOCK: MilliTflops = MilliTflops::from_tflops(1_000);
/// Most of anything that a pool counts: more than any member has memory for.
pub const COUNT: u64 = 1_000_000_000;
/// Most bytes that all jobs of a pool may have: 1 TiB.
pub const ALL_SPECS: u64 = 1 << 40;
/// Most times in an hour that something is done: more than once in four milliseconds.
pub const PER_HOUR: u32 = 1_000_000;
/// Most slices of one card, and most megabytes a second between two.
pub const CARD_PARTS: u32 = 1_000_000;
pub const LINK_SPEED: u64 = 1_000_000_000;
/// Highest weight of a preferred label.
pub const WEIGHT: u32 = 100;
/// Most names of data on the disks of a node.
pub const CACHED: usize = 10_000;
/// Most cards of a node, and most links of a card.
pub const CARDS: usize = 1024;
/// Most workers of which one message of an agent speaks.
pub const REPORTED: usize = 65_536;
/// Most that cards may be oversubscribed, in percent.
pub const OVERSUBSCRIPTION: u32 = 1_000;
/// Longest time that a program may take to write its checkpoint.
pub const GRACE: Duration = Duration::from_secs(3600);
/// The intervals at which a program can be asked to save while it runs: from once a second to once in seven days.
pub const SAVE_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
/// Shortest time that is any: the log counts in no less.
pub const SHORTEST: Duration = Duration::from_millis(1);
/// Shortest time in which past use counts half.
pub const HALF_LIFE: Duration = Duration::from_secs(1);
/// Longest time after which a step of an idle ladder is taken: ten years.
pub const LADDER: Duration = Duration::from_secs(10 * 366 * 86_400);
/// Longest time that anything else may take or be kept: a year.
pub const TIME: Duration = Duration::from_secs(31_557_600);
/// Least time that a gang runs before it is started again with more virtual cards.
pub const GROW_AFTER: Duration = Duration::from_secs(1);
pub const RETRIES: u32 = 1000;
/// Most bytes of a page, whatever its size; one thing more is sent.
pub const PAGE_BYTES: usize = 1 << 20;
/// Things on a page when the caller does not say.
pub const PAGE: u32 = 100;
/// Most things on a page.
pub const LARGEST_PAGE: u32 = 1000;
/// Most things that a filter may name.
pub const FILTER: usize = 1000;

/// Signals that a program can be asked to stop with.
pub const SIGNALS: [&str; 6] = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"];
/// Environment variables that Tessera sets itself.
pub const OWN_VARIABLES: [&str; 6] =
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
/// Beginning of further names that Tessera sets itself.
pub const OWN_PREFIX: &str = "TESSERA_";
/// Names with that beginning that a job sets, and what it can set them to: how its device works (docs/device.md). A
/// slice server knows no other words, and one that does not come up is held against its node.
pub const CHOSEN_VARIABLES: [(&str, &[&str]); 2] =
    [("TESSERA_SPLIT", &["auto", "one", "layers", "batch"]), ("TESSERA_SLOWER", &["warn", "refuse"])];
