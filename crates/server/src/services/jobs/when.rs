//! Estimates of a job's start, in the API's words.

use std::time::Duration;

use tessera_api::fields::duration;
use tessera_api::time::timestamp;
use tessera_api::{Refusal, limits, v1};
use tessera_foresight::{Assumptions, Estimate, Unknown, Whom, when};
use tokio::time::Instant;
use tonic::Status;

use crate::services::Desk;
use crate::services::reading::Reading;

/// Estimates the start of a job.
pub(super) async fn estimate(
    desk: &Desk,
    reading: &Reading,
    deadline: Instant,
    whom: Whom,
    assumed_limit: Option<Duration>,
) -> Result<v1::StartEstimate, Status> {
    let estimate = desk.rehearse(reading, deadline, move |state, now| when(state, now, &whom, assumed_limit)).await?;
    Ok(in_words(&estimate))
}

/// Reads the limit that is assumed for jobs without one.
pub(super) fn limit_of(limit: Option<prost_types::Duration>) -> Result<Option<Duration>, Refusal> {
    let read = |limit| duration("assumed_limit", &limit, &(limits::SHORTEST..=limits::TIME));
    Ok(limit.map(read).transpose()?)
}

fn in_words(estimate: &Estimate) -> v1::StartEstimate {
    let (start, unknown, rests_on) = match estimate {
        Estimate::At { time, rests_on } => (Some(timestamp(*time)), String::new(), rests_on),
        Estimate::Unknown { why, rests_on } => (None, sentence(why), rests_on),
    };
    v1::StartEstimate {
        start,
        unknown,
        assumptions: assumptions(rests_on),
        ends_at_limits: rests_on.ends_at_limits,
        without_limit: rests_on.without_limit,
    }
}

fn sentence(why: &Unknown) -> String {
    match why {
        Unknown::NotWaiting(explanation) => explanation.sentence.clone(),
        Unknown::Refused(rejection) => rejection.to_string(),
        Unknown::HeldWithoutLimit => {
            "what it waits for is held by jobs without a time limit; assume one for them to get an estimate".to_owned()
        }
        Unknown::NeverFits(explanation) => {
            format!("it would not fit when all that runs has ended: {}", explanation.sentence)
        }
        Unknown::TooFar => "too much happens before it to be played through".to_owned(),
    }
}

fn assumptions(rests_on: &Assumptions) -> Vec<String> {
    let mut sentences = vec!["nothing else is submitted, no job fails and no node is lost".to_owned()];
    if rests_on.ends_at_limits > 0 {
        sentences.push("jobs end at their time limits and not before".to_owned());
    }
    if rests_on.without_limit > 0 {
        sentences.push(format!("{} jobs without a time limit never end", rests_on.without_limit));
    }
    if let Some(limit) = rests_on.assumed_limit {
        sentences.push(format!("jobs without a time limit run for {} s", limit.as_secs()));
    }
    sentences
}
