//! `tessera pool config`.

use prost_types::Duration;
use tessera_api::v1::{GetPoolConfigRequest, Oversubscription, PoolConfig, SetPoolConfigRequest};

use super::Desk;
use super::desk::wire_time;
use crate::args::{ConfigVerb, SetConfigArgs};
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

async fn present(desk: &Desk, what: &str) -> Result<PoolConfig, Failure> {
    let answer = desk.client.get_pool_config(GetPoolConfigRequest { consistency: desk.consistency }).await;
    Ok(answer.map_err(|error| Failure::call(what, &error))?.config.unwrap_or_default())
}

async fn show(mut desk: Desk) -> Result<Exit, Failure> {
    let config = present(&desk, "the settings cannot be shown").await?;
    desk.printer.one(&ConfigView::from(config))?;
    Ok(Exit::Done)
}

/// Changes what is given and keeps the rest.
async fn set(desk: Desk, args: SetConfigArgs) -> Result<Exit, Failure> {
    const WHAT: &str = "the settings were not changed";
    let present = present(&desk, WHAT).await?;
    let config = Some(merged(&args, present.clone()));
    let request = SetPoolConfigRequest { request_id: String::new(), config, expected: Some(present) };
    let answer = desk.client.set_pool_config(request).await.map_err(|error| Failure::call(WHAT, &error))?;
    let view = MutationView { name: "pool".to_owned(), done: "is configured".to_owned(), revision: answer.revision };
    desk.report(vec![Ok(view)])
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
    put(&mut config.job_limit, args.job_limit);
    put_time(&mut config.job_retention, args.job_retention);
    put(&mut config.ended_job_limit, args.ended_job_limit);
    put_time(&mut config.output_retention, args.output_retention);
    put(&mut config.event_limit, args.event_limit);
    put(&mut config.hold_level, args.hold_level);
    config
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
            ..SetConfigArgs::default()
        };
        let changed = merged(&args, present.clone());
        assert_eq!(changed.packing(), Packing::Spread);
        assert_eq!(changed.oversubscription, [Oversubscription { kind: CardKind::Gpu.into(), percent: 200 }]);
        assert_eq!(changed.compaction.map(|of| (of.automatic, of.threshold_percent)), Some((true, 50)));
        assert_eq!((changed.job_limit, &changed.job_retention), (present.job_limit, &present.job_retention));
        assert!(pool_view::config_of_request(Some(&changed)).is_ok());
    }
}
