//! The fields of messages that are not printed as they are declared: names and shapes that programs read, and rely on.
//!
//! Whatever is not here is printed as it is declared. What is here stays: a field that is added needs no line.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, ReflectMessage as _, Value};
use serde_json::{Value as Json, json};
use tessera_api::v1;

use super::checkpoint::name_of;
use super::job::{from_of, master_of};
use super::queue::percent;
use super::time::seconds;
use super::used::mebibytes;
use super::words;
use crate::args::{idle_text, order_text};

/// The way in which a field is printed.
#[derive(Clone, Copy)]
pub(super) enum Known {
    /// Under this name.
    Named(&'static str),
    /// As its fields, among those of the message that it belongs to.
    Among,
    /// As `null` when nothing was said, where others show nothing said.
    OrNull,
    /// Only when something was said.
    IfSaid,
    /// As this makes it, of nothing when nothing was said, under this name.
    Made(&'static str, fn(Option<&Value>) -> Json),
    /// Not here: the view around the message says it.
    Elsewhere,
}

use Known::{Among, Elsewhere, IfSaid, Made, Named, OrNull};

/// Fields of messages; kinds of messages, wherever there is one of them; fields of that name, wherever they are.
const KNOWN: &[(&str, Known)] = &[
    ("node_name", Named("node")),
    ("first_block_number", Named("first_block")),
    ("last_block_number", Named("last_block")),
    ("utilization_ratio", Named("utilization")),
    ("CardDescription", Among),
    ("CompactionPolicy", Among),
    ("Containment", Among),
    ("LeaseTimings", Among),
    ("PoolConfig", Among),
    ("PoolLimits", Among),
    ("QueueSettings", Among),
    ("ReadState", Among),
    ("Slice", Among),
    ("UsageSums", Among),
    ("Allocation", OrNull),
    ("BlockOwner", OrNull),
    ("Explanation", OrNull),
    ("HostCapacity", OrNull),
    ("Idle", OrNull),
    ("Move", OrNull),
    ("PlannedMove", OrNull),
    ("StartEstimate", OrNull),
    ("TimeSlicing", OrNull),
    ("WorkerExit", OrNull),
    ("DeviceUse", IfSaid),
    ("Attempt.not_saved", OrNull),
    ("Attempt.passed_over", OrNull),
    ("Attempt.reason", OrNull),
    ("Attempt.saved_as", OrNull),
    ("Card.block_counts", Named("blocks")),
    // Those counts say it.
    ("Card.blocks", Elsewhere),
    ("Card.oversubscription_percent", Named("oversubscription")),
    ("Card.sample", Elsewhere),
    // What the card can promise now is said instead.
    ("CardDescription.isolation", Elsewhere),
    ("CardBlocks.card_index", Named("index")),
    ("CompactionPolicy.automatic", Named("automatic_compaction")),
    ("CompactionPolicy.threshold_percent", Named("compaction_threshold")),
    ("Containment.missing", Named("containment_missing")),
    ("Containment.whole", Named("contained")),
    ("GetClusterStatusResponse.leader", Made("leader", leader)),
    ("GetClusterStatusResponse.member_id", Named("id")),
    // Every member says what it is itself.
    ("GetClusterStatusResponse.members", Elsewhere),
    ("GetClusterStatusResponse.role", Elsewhere),
    ("GetClusterStatusResponse.staleness", Made("staleness_seconds", or_unknown)),
    ("GetClusterStatusResponse.uptime", Made("uptime_seconds", or_zero)),
    ("GetPoolConfigResponse.regrant_ceiling", Named("lease_regrant_ceiling")),
    ("Job.spec", Elsewhere),
    // Whether it is on hold now is said of the job, not of what was submitted.
    ("JobSpec.held", Elsewhere),
    ("JobSpec.packing", OrNull),
    ("JobUse.by_worker", IfSaid),
    ("JobUse.host_memory_bytes", Made("host_memory_mib", whole_mebibytes)),
    ("JobUse.memory_held_bytes", Made("memory_held_mib", whole_mebibytes)),
    ("JobUse.memory_used_bytes", Made("memory_used_mib", whole_mebibytes)),
    ("KindMeasure.fragmentation", Made("fragmentation_percent", tenths)),
    ("LeaseTimings.heartbeat", Named("lease_heartbeat")),
    ("LeaseTimings.kill_after", Named("lease_kill_after")),
    ("LeaseTimings.regrant_after", Named("lease_regrant_after")),
    ("LeaseTimings.stop_after", Named("lease_stop_after")),
    ("MoveProgress.move_id", Named("id")),
    ("Node.host_used", Elsewhere),
    ("Node.job_ids", Named("jobs")),
    ("Node.session", Elsewhere),
    ("PlanCompactionResponse.renumbers", Made("renumbers", places)),
    ("PlanJobResponse.refusal", OrNull),
    ("PlannedMove.makes_room_for", OrNull),
    ("PlannedMove.work_lost", Made("work_lost_seconds", or_zero)),
    ("Pool.config", Elsewhere),
    ("Pool.jobs", Elsewhere),
    ("Pool.nodes", Elsewhere),
    ("PoolConfig.oversubscription", Made("oversubscription", by_kind)),
    ("PoolLimits.cards", Named("card_limit")),
    ("PoolLimits.events", Named("history_limit")),
    ("PoolLimits.nodes", Named("node_limit")),
    ("PoolLimits.queues", Named("queue_limit")),
    ("Queue.share_ppm", Made("share_percent", share)),
    ("QueueSettings.attained", Made("order", order)),
    ("QueueSettings.guaranteed", OrNull),
    ("QueueSettings.idle", Made("idle", ladder)),
    ("QueueSettings.maximum", OrNull),
    ("QueueSettings.packing", OrNull),
    ("QueueSettings.weight", Made("weight", at_least_one)),
    ("ReadState.age", Made("age_seconds", or_unknown)),
    ("Slice.card_index", Named("card")),
    ("SliceUse.card_index", Named("card")),
    ("SliceUse.memory_held_bytes", Made("memory_held_mib", whole_mebibytes)),
    ("SliceUse.memory_used_bytes", Made("memory_used_mib", whole_mebibytes)),
    ("Worker.only_serves", Made("runs_program", is_not)),
    ("WorkerUse.host_memory_bytes", Made("host_memory_mib", whole_mebibytes)),
];

/// The entry of a field in the table, if the field is not printed as it is declared.
pub(super) fn known(field: &FieldDescriptor) -> Option<Known> {
    static BY_NAME: LazyLock<BTreeMap<&str, Known>> = LazyLock::new(|| KNOWN.iter().copied().collect());
    let kind = field.kind();
    let kind = kind.as_message().filter(|_| !field.is_list() && !field.is_map());
    let of = |name: &str| BY_NAME.get(name.strip_prefix("tessera.v1.")?).copied();
    let own = of(field.full_name()).or_else(|| of(kind?.full_name()));
    own.or_else(|| BY_NAME.get(field.name()).copied())
}

/// The additional field of a printed message, which is computed from its other fields.
pub(super) fn computed(message: &DynamicMessage) -> Option<(&'static str, Json)> {
    Some(match message.descriptor().full_name() {
        "tessera.v1.Allocation" => {
            let of: v1::Allocation = typed(message)?;
            ("master", json!(master_of(&of)))
        }
        "tessera.v1.Attempt" => {
            let of: v1::Attempt = typed(message)?;
            ("from", json!(from_of(&of)))
        }
        "tessera.v1.BlockCounts" => {
            ("total", json!(super::BlocksView::from(typed::<v1::BlockCounts>(message)?).total()))
        }
        "tessera.v1.Checkpoint" => {
            let of: v1::Checkpoint = typed(message)?;
            ("name", json!(name_of(of.attempt, of.sequence)))
        }
        _ => return None,
    })
}

fn typed<M: Message + Default>(message: &DynamicMessage) -> Option<M> {
    message.transcode_to().ok()
}

fn within<M: Message + Default>(value: Option<&Value>) -> Option<M> {
    typed(value?.as_message()?)
}

fn each<M: Message + Default>(value: Option<&Value>) -> Vec<M> {
    let items = value.and_then(Value::as_list).unwrap_or_default();
    items.iter().filter_map(|item| within(Some(item))).collect()
}

fn number(value: Option<&Value>) -> u64 {
    let number = value.and_then(|value| value.as_u64().or_else(|| value.as_u32().map(u64::from)));
    number.unwrap_or_default()
}

fn or_zero(value: Option<&Value>) -> Json {
    json!(seconds(within(value).as_ref()).unwrap_or_default())
}

fn or_unknown(value: Option<&Value>) -> Json {
    json!(seconds(within(value).as_ref()))
}

fn whole_mebibytes(value: Option<&Value>) -> Json {
    json!(mebibytes(number(value)))
}

fn tenths(value: Option<&Value>) -> Json {
    json!(number(value) as f64 / 10.0)
}

fn share(value: Option<&Value>) -> Json {
    json!(percent(number(value)))
}

fn at_least_one(value: Option<&Value>) -> Json {
    json!(number(value).max(1))
}

fn is_not(value: Option<&Value>) -> Json {
    json!(value.and_then(Value::as_bool) != Some(true))
}

fn leader(value: Option<&Value>) -> Json {
    json!(within(value).map(|leader: v1::Member| leader.id))
}

fn ladder(value: Option<&Value>) -> Json {
    json!(within(value).map(|policy: v1::IdlePolicy| idle_text(&policy)))
}

fn order(value: Option<&Value>) -> Json {
    json!(order_text(within::<v1::AttainedOrder>(value).as_ref()))
}

fn places(value: Option<&Value>) -> Json {
    json!(each(value).iter().map(super::compaction::place).collect::<Vec<_>>())
}

fn by_kind(value: Option<&Value>) -> Json {
    let kinds = each::<v1::Oversubscription>(value);
    json!(kinds.iter().map(|of| (words::kind(of.kind), of.percent)).collect::<BTreeMap<_, _>>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::Serialize;
    use tessera_api::reflect::descriptors;

    use super::*;
    use crate::view::{CardDetailView, JobView, MemberStatusView, MemberVerdictView, MoveAnswerView, NodeView};
    use crate::view::{PoolView, WhyView};

    /// A name that is printed twice makes the text longer than what it says.
    fn says_all_once(view: impl Serialize) {
        let text = serde_json::to_string(&view).expect("JSON");
        assert_eq!(serde_json::to_value(&view).expect("JSON").to_string().len(), text.len(), "{text}");
    }

    #[test]
    fn what_views_add_to_messages_has_names_of_its_own() {
        let sampled = v1::Card { sample: Some(v1::CardSample::default()), ..Default::default() };
        says_all_once(CardDetailView::from(v1::GetCardResponse { card: Some(sampled), ..Default::default() }));
        says_all_once(JobView::from(v1::Job::default()));
        says_all_once(MemberStatusView::answered(String::new(), v1::GetClusterStatusResponse::default()));
        says_all_once(MemberVerdictView::silent(String::new(), String::new()));
        says_all_once(MoveAnswerView::of(1, v1::MoveJobResponse::default()));
        says_all_once(NodeView::from(v1::Node::default()));
        says_all_once(PoolView::from(v1::GetPoolResponse::default()));
        says_all_once(WhyView::of(1, v1::WhyResponse::default()));
    }

    #[test]
    fn what_is_known_is_of_the_api() {
        let mut names = BTreeSet::new();
        for message in descriptors().expect("those of the API").all_messages() {
            names.insert(message.name().to_owned());
            for field in message.fields() {
                names.extend([field.name().to_owned(), format!("{}.{}", message.name(), field.name())]);
            }
        }
        let unknown: Vec<_> = KNOWN.iter().map(|(name, _)| *name).filter(|name| !names.contains(*name)).collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }
}
