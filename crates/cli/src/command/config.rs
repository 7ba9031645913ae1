//! `tessera pool config`.

use prost_types::Duration;
use tessera_api::v1::{
    GetPoolConfigRequest, GetPoolConfigResponse, LeaseTimings, Oversubscription, PoolConfig, Precision,
    SetPoolConfigRequest,
};

use super::Desk;
use super::desk::wire_time;
use crate::args::{ConfigVerb, LeaseArgs, SetConfigArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view::{ConfigView, MutationView};

/// Does a verb of `tessera pool config`.
pub(super) async fn run(desk: Desk, verb: ConfigVerb) -> Result<Exit, Failure> {
    match verb {
        ConfigVerb::Show => show(desk).await,
        ConfigVerb::Set(args) => set(desk, *args).await,
    }
}

async fn present(desk: &Desk, what: &str) -> Result<GetPoolConfigResponse, Failure> {
    let answer = desk.client.get_pool_config(GetPoolConfigRequest { consistency: desk.consistency }).await;
    answer.map_err(|error| Failure::call(what, &error))
}

async fn show(mut desk: Desk) -> Result<Exit, Failure> {
    let answer = present(&desk, "the settings cannot be shown").await?;
    desk.printer.one(&ConfigView::from(answer))?;
    Ok(Exit::Done)
}

/// Changes what is given and keeps the rest.
async fn set(desk: Desk, args: SetConfigArgs) -> Result<Exit, Failure> {
    let revision = change(&desk, "the settings were not changed", |config| merged(&args, config)).await?;
    let view = MutationView { name: "pool".to_owned(), done: "is configured".to_owned(), revision };
    desk.report(vec![Ok(view)])
}

/// Changes the settings that are in force, unless they are changed by somebody else meanwhile; answers the revision.
pub(super) async fn change(
    desk: &Desk,
    what: &str,
    made_of: impl FnOnce(PoolConfig) -> PoolConfig,
) -> Result<u64, Failure> {
    let present = present(desk, what).await?.config.unwrap_or_default();
    let config = Some(made_of(present.clone()));
    let request = SetPoolConfigRequest { request_id: String::new(), config, expected: Some(present) };
    Ok(desk.client.set_pool_config(request).await.map_err(|error| Failure::call(what, &error))?.revision)
}

/// The settings with what is given in place of what was there.
fn merged(args: &SetConfigArgs, mut config: PoolConfig) -> PoolConfig {
    fn put<T: Copy>(place: &mut T, given: Option<T>) {
        if let Some(given) = given {
            *place = given;
        }
    }
    let put_time = |place: &mut Option<Duration>, given: Option<std::time::Duration>| {
        if let Some(given) = given {
            *place = Some(wire_time(given));
        }
    };
    put(&mut config.block_milli_tflops, args.block_size);
    let reference = args.reference_precision.map(|choice| i32::from(Precision::from(choice)));
    put(&mut config.reference_precision, reference);
    put(&mut config.packing, args.packing.map(Into::into));
    for (kind, percent) in &args.oversubscribe {
        let kind: i32 = (*kind).into();
        config.oversubscription.retain(|of| of.kind != kind);
        config.oversubscription.push(Oversubscription { kind, percent: *percent });
    }
    put_time(&mut config.fair_share_half_life, args.fair_share_half_life);
    put(&mut config.preemptions_per_hour, args.preemptions_per_hour);
    let compaction = config.compaction.get_or_insert_default();
    put(&mut compaction.automatic, args.automatic_compaction);
    put(&mut compaction.threshold_percent, args.compaction_threshold);
    put(&mut compaction.moves_per_hour, args.moves_per_hour);
    if let Some(limits) = &mut config.limits {
        put(&mut limits.spec_bytes, args.spec_bytes);
        put(&mut limits.queues, args.queue_limit);
        put(&mut limits.nodes, args.node_limit);
        put(&mut limits.cards, args.card_limit);
        put(&mut limits.events, args.history_limit);
    }
    put(&mut config.job_limit, args.job_limit);
    put_time(&mut config.job_retention, args.job_retention);
    put(&mut config.ended_job_limit, args.ended_job_limit);
    put_time(&mut config.output_retention, args.output_retention);
    put(&mut config.event_limit, args.event_limit);
    put_leases(args.leases, config.leases.get_or_insert_default());
    put(&mut config.hold_level, args.hold_level);
    config
}

/// The timings with what is given in place of what was there.
pub(super) fn put_leases(args: LeaseArgs, leases: &mut LeaseTimings) {
    for (place, given) in [
        (&mut leases.heartbeat, args.lease_heartbeat),
        (&mut leases.stop_after, args.lease_stop_after),
        (&mut leases.kill_after, args.lease_kill_after),
        (&mut leases.regrant_after, args.lease_regrant_after),
    ] {
        if let Some(given) = given {
            *place = Some(wire_time(given));
        }
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::pool_view;
    use tessera_api::v1::{CardKind, Packing};

    use super::*;
    use crate::args::{KindChoice, PackingChoice};

    #[test]
    fn what_is_not_given_stays() {
        let present = pool_view::config(&tessera_ledger::PoolConfig::default());
        assert_eq!(merged(&SetConfigArgs::default(), present.clone()), present);
        let args = SetConfigArgs {
            packing: Some(PackingChoice::Spread),
            oversubscribe: vec![(KindChoice::Gpu, 150), (KindChoice::Gpu, 200)],
            automatic_compaction: Some(true),
            leases: LeaseArgs { lease_kill_after: Some(std::time::Duration::from_secs(15)), ..LeaseArgs::default() },
            ..SetConfigArgs::default()
        };
        let changed = merged(&args, present.clone());
        assert_eq!(changed.packing(), Packing::Spread);
        assert_eq!(changed.oversubscription, [Oversubscription { kind: CardKind::Gpu.into(), percent: 200 }]);
        assert_eq!(changed.compaction.map(|of| (of.automatic, of.threshold_percent)), Some((true, 50)));
        assert_eq!((changed.job_limit, &changed.job_retention), (present.job_limit, &present.job_retention));
        let leases = pool_view::config_of_request(Some(&changed)).expect("it can be taken").leases;
        assert_eq!((leases.stop_after.as_secs(), leases.kill_after.as_secs()), (9, 15));
    }
}
