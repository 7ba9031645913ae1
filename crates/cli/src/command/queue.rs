//! `tessera queue`.

use tessera_api::v1::{
    ErrorReason, GetQueueRequest, ListQueuesRequest, Packing, QueueAmount, QueueSettings, RemoveQueueRequest,
    SetQueueRequest,
};

use super::Desk;
use super::desk::PAGE;
use crate::args::{IdleChoice, OrderChoice, QueuePacking, QueueVerb, SetQueueArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::confirm;
use crate::view::{MutationView, QueueView};

pub(super) async fn run(desk: Desk, verb: QueueVerb) -> Result<Exit, Failure> {
    match verb {
        QueueVerb::List => list(desk).await,
        QueueVerb::Show { queue } => show(desk, queue).await,
        QueueVerb::Set(args) => set(desk, *args).await,
        QueueVerb::Remove { queue, yes } => remove(desk, queue, yes).await,
    }
}

async fn list(mut desk: Desk) -> Result<Exit, Failure> {
    let mut queues: Vec<QueueView> = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListQueuesRequest { page_size: PAGE, page_token, consistency: desk.consistency };
        let page = desk.client.list_queues(request).await;
        let page = page.map_err(|error| Failure::call("the queues cannot be listed", &error))?;
        queues.extend(page.queues.into_iter().map(QueueView::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    desk.printer.list(&queues)?;
    Ok(Exit::Done)
}

async fn show(mut desk: Desk, name: String) -> Result<Exit, Failure> {
    let what = format!("queue {name} cannot be shown");
    let answer = desk.client.get_queue(GetQueueRequest { name, consistency: desk.consistency }).await;
    let answer = answer.map_err(|error| Failure::call(what, &error))?;
    desk.printer.one(&QueueView::from(answer.queue.unwrap_or_default()))?;
    Ok(Exit::Done)
}

/// Changes what is given and keeps the rest.
async fn set(desk: Desk, args: SetQueueArgs) -> Result<Exit, Failure> {
    let settings = wished(&desk, &args).await?;
    let request = SetQueueRequest { request_id: String::new(), queue: Some(settings) };
    let answer = desk.client.set_queue(request).await;
    let answer = answer.map_err(|error| Failure::call(format!("queue {} was not set", args.queue), &error))?;
    let view = MutationView { name: args.queue, done: "is set".to_owned(), revision: answer.revision };
    desk.report(vec![Ok(view)])
}

/// The settings that a queue would have with what is given.
pub(super) async fn wished(desk: &Desk, args: &SetQueueArgs) -> Result<QueueSettings, Failure> {
    let request = GetQueueRequest { name: args.queue.clone(), consistency: desk.consistency };
    let present = match desk.client.get_queue(request).await {
        Ok(answer) => answer.queue.and_then(|queue| queue.settings).unwrap_or_default(),
        Err(error) if error.reason() == Some(ErrorReason::QueueUnknown) => QueueSettings::default(),
        Err(error) => return Err(Failure::call(format!("queue {} cannot be read", args.queue), &error)),
    };
    merged(args, present)
}

/// The settings with what is given in place of what was there.
fn merged(args: &SetQueueArgs, present: QueueSettings) -> Result<QueueSettings, Failure> {
    let amount = |milli_tflops: Option<u64>, memory_mib: Option<u64>, present: Option<QueueAmount>| {
        if milli_tflops.is_none() && memory_mib.is_none() {
            return present;
        }
        let present = present.unwrap_or_default();
        Some(QueueAmount {
            milli_tflops: milli_tflops.unwrap_or(present.milli_tflops),
            memory_mib: memory_mib.unwrap_or(present.memory_mib),
        })
    };
    // A maximum of which only one half is known would bound the other half to nothing.
    let half = args.max_tflops.is_some() != args.max_memory.is_some();
    if half && present.maximum.is_none() {
        let why = "a maximum bounds compute and memory together, and only one of them was given";
        return Err(Failure::new(Exit::Usage, format!("queue {} was not set", args.queue), why)
            .next("give --max-tflops and --max-memory"));
    }
    Ok(QueueSettings {
        name: args.queue.clone(),
        parent: match args.parent.as_deref() {
            None => present.parent,
            Some("none") => String::new(),
            Some(parent) => parent.to_owned(),
        },
        guaranteed: amount(args.guaranteed_tflops, args.guaranteed_memory, present.guaranteed),
        maximum: amount(args.max_tflops, args.max_memory, present.maximum),
        weight: args.weight.unwrap_or(present.weight),
        packing: match args.packing {
            None => present.packing,
            Some(QueuePacking::Stack) => Packing::Stack.into(),
            Some(QueuePacking::Spread) => Packing::Spread.into(),
            Some(QueuePacking::Pool) => Packing::Unspecified.into(),
        },
        windows: match args.windows.as_slice() {
            [] => present.windows,
            [always] if always == "always" => Vec::new(),
            windows => windows.to_vec(),
        },
        idle: match args.idle {
            None => present.idle,
            Some(IdleChoice::Never) => None,
            Some(IdleChoice::Ladder(policy)) => Some(policy),
        },
        checkpoints_mib: match args.checkpoints {
            None => present.checkpoints_mib,
            Some(mib) => Some(mib).filter(|mib| *mib > 0),
        },
        attained: match args.order {
            None => present.attained,
            Some(OrderChoice::Fifo) => None,
            Some(OrderChoice::Attained(order)) => Some(order),
        },
    })
}

async fn remove(desk: Desk, name: String, yes: bool) -> Result<Exit, Failure> {
    confirm(yes, &format!("Remove the queue {name}?"))?;
    let request = RemoveQueueRequest { request_id: String::new(), name: name.clone() };
    let answer = desk.client.remove_queue(request).await;
    let answer = answer.map_err(|error| Failure::call(format!("queue {name} was not removed"), &error))?;
    desk.report(vec![Ok(MutationView { name, done: "is removed".to_owned(), revision: answer.revision })])
}

#[cfg(test)]
mod tests {
    use tessera_api::v1::{AttainedOrder, IdlePolicy};

    use super::*;

    fn args() -> SetQueueArgs {
        SetQueueArgs {
            queue: "team".to_owned(),
            parent: None,
            guaranteed_tflops: None,
            guaranteed_memory: None,
            max_tflops: None,
            max_memory: None,
            weight: None,
            packing: None,
            windows: Vec::new(),
            idle: None,
            checkpoints: None,
            order: None,
        }
    }

    fn amount(milli_tflops: u64, memory_mib: u64) -> Option<QueueAmount> {
        Some(QueueAmount { milli_tflops, memory_mib })
    }

    #[test]
    fn what_is_not_given_stays() {
        let present = QueueSettings {
            name: "team".to_owned(),
            parent: "all".to_owned(),
            guaranteed: amount(10_000, 1024),
            maximum: amount(50_000, 4096),
            weight: 3,
            packing: Packing::Spread.into(),
            windows: Vec::new(),
            checkpoints_mib: Some(5),
            attained: Some(AttainedOrder { ratio: 4, ..AttainedOrder::default() }),
            idle: Some(IdlePolicy { below_percent: 5, ..IdlePolicy::default() }),
        };
        let same = merged(&args(), present.clone()).expect("merged");
        assert_eq!(same, present);
        let more = SetQueueArgs { max_tflops: Some(60_000), parent: Some("none".to_owned()), ..args() };
        let more = merged(&more, present).expect("merged");
        assert_eq!((more.maximum, more.parent.as_str(), more.weight), (amount(60_000, 4096), "", 3));
        assert_eq!(more.packing(), Packing::Spread);
        let (packing, order) = (Some(QueuePacking::Pool), Some(OrderChoice::Fifo));
        let back = SetQueueArgs { packing, order, idle: Some(IdleChoice::Never), ..args() };
        let back = merged(&back, more).expect("merged");
        assert_eq!((back.packing(), back.idle, back.attained), (Packing::Unspecified, None, None));
    }

    #[test]
    fn half_a_maximum_is_refused() {
        let half = SetQueueArgs { max_tflops: Some(60_000), ..args() };
        let failure = merged(&half, QueueSettings::default()).expect_err("refused");
        assert_eq!(failure.exit, Exit::Usage);
        assert!(merged(&half, QueueSettings { maximum: amount(1, 1), ..Default::default() }).is_ok());
    }
}
