//! The fields that do something else with nonsense than refuse it with their path, and why.

use tessera_api::v1::ErrorReason;

/// The fate of nonsense in a field that does not refuse it with INVALID_FIELD and its path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// A text for programs: anything but a NUL byte is one.
    ForPrograms,
    /// It names something, and is refused as what names nothing.
    Says(ErrorReason),
    /// It is taken; the text says why.
    Taken(&'static str),
}

/// The fields with a rule of their own, by message and path; a `*` stands for any beginning or end.
pub const RULES: [(&str, Rule); 35] = {
    use Rule::{ForPrograms, Says, Taken};
    [
        ("*.request_id", Says(ErrorReason::RequestIdInvalid)),
        ("*Request.job_id", Says(ErrorReason::JobUnknown)),
        ("*.page_token", Says(ErrorReason::PageTokenInvalid)),
        ("*.resume_token", Says(ErrorReason::ResumeTokenInvalid)),
        ("*.page_size", Taken("a page has at most so many things, whatever is asked for")),
        ("*.node.id", Says(ErrorReason::NodeUnknown)),
        ("*.nodes.id", Says(ErrorReason::NodeUnknown)),
        ("*.like.id", Says(ErrorReason::NodeUnknown)),
        ("*.member_id", Says(ErrorReason::MemberUnknown)),
        ("GetCardRequest.index", Says(ErrorReason::CardUnknown)),
        ("StreamLogsRequest.attempt", Says(ErrorReason::WorkerUnknown)),
        ("StreamLogsRequest.rank", Says(ErrorReason::WorkerUnknown)),
        ("StreamLogsRequest.offset", Taken("the agent that has the output judges it")),
        ("*.spec.command", ForPrograms),
        ("*.spec.script", ForPrograms),
        ("*.spec.environment", ForPrograms),
        ("SetPoolConfigRequest.expected.*", Says(ErrorReason::ConfigChanged)),
        ("Hello.incarnation", Taken("it is judged by the last start that is known of the node")),
        ("Hello.highest_term", Taken("whoever has seen a higher term is sent on to its leader")),
        ("Hello.sent_at_unix_ms", Taken("a node's clock may be wrong: its ends are told by the same")),
        ("Hello.cards.index", Taken("the ledger wants cards in their order")),
        ("Hello.workers.worker.allocation_id", Taken("what is not granted is told to stop")),
        ("Hello.workers.worker.epoch", Taken("what is not granted is told to stop")),
        ("Hello.workers.worker.rank", Taken("what is not granted is told to stop")),
        ("Hello.workers.job_id", Taken("it is not read: the ledger knows whose worker it is")),
        ("Hello.workers.exit_code", Taken("any number is a code: it is shown as it is said")),
        ("Hello.workers.signal", Taken("any number is a signal: it is shown as it is said")),
        ("Hello.workers.message", Taken("it is cut: that a worker ended is more than the sentence on it")),
        ("Hello.workers.not_saved", Taken("it is cut: that a worker ended is more than the sentence on it")),
        ("Hello.workers.started_at", Taken("it is not read")),
        ("Hello.workers.stopped_at", Taken("it is not read")),
        ("Hello.workers.exited_at", Taken("it counts as not known")),
        ("Hello.workers.saved.sequence", Taken("a part that the ledger does not want is not taken")),
        ("Hello.workers.saved.progress", Taken("any number is one: the program counts")),
        ("Hello.workers.saved.bytes", Taken("any number is one: it is shown as it is said")),
    ]
};

/// Methods that are not called here, and where their fields are checked.
pub const ELSEWHERE: [(&str, &str); 2] = [
    ("SubmitJobs", "each of its jobs is judged as SubmitJob judges one, and answered by itself"),
    ("InitializeCluster", "a cluster that exists is not founded again: see the tests of founders"),
];

/// The rule of a field, and its place.
pub fn rule_of(key: &str) -> Option<(usize, Rule)> {
    let takes = |pattern: &str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => key.ends_with(end),
        (None, Some(beginning)) => key.starts_with(beginning),
        (None, None) => key == pattern,
    };
    RULES.iter().position(|(pattern, _)| takes(pattern)).map(|place| (place, RULES[place].1))
}
