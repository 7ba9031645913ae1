//! The upper limits of what the API accepts. A request above one is refused at the door, with the field and the limit,
//! before it costs anything.

use std::ops::RangeInclusive;
use std::time::Duration;

use tessera_ledger::wire::FieldError;

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
/// Largest virtual card, in thousandths of a TFLOPS: a million TFLOPS.
pub const MILLI_TFLOPS: u64 = 1_000_000_000;
/// Largest memory of a virtual card in MiB: 4 PiB.
pub const MEMORY_MIB: u64 = 1 << 32;
/// Most processor time of one host, in thousandths of a processor: a million processors.
pub const MILLI_CPUS: u64 = 1_000_000_000;
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

/// Refuses a text that is longer than a name.
///
/// # Errors
/// A [`FieldError`] with the bound and the length, in bytes.
pub fn check_length(field: &str, text: &str) -> Result<(), FieldError> {
    if text.len() <= NAME {
        return Ok(());
    }
    Err(FieldError::invalid(field, format!("must have at most {NAME} bytes, has {}", text.len())))
}

/// Refuses more of something than `most`.
///
/// # Errors
/// A [`FieldError`] with the bound and the number.
pub fn check_count(field: &str, count: usize, most: usize) -> Result<(), FieldError> {
    if count <= most {
        return Ok(());
    }
    Err(FieldError::invalid(field, format!("must be at most {most}, are {count}")))
}
