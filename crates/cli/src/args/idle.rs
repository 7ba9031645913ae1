//! The policy for idle jobs of a queue, in one line: `below 5% notify 30m preemptible 1h suspend 2h release 7d`.

use std::time::Duration;

use tessera_api::v1::IdlePolicy;

use super::values::duration;

/// The hint on the syntax at the end of every error.
const SHAPE: &str = "write it like \"below 5% notify 30m preemptible 1h suspend 2h release 7d\", without the steps \
                     that are not to be taken, or `never`";

/// The field of a policy that has the time of a step.
type StepTime = fn(&mut IdlePolicy) -> &mut Option<prost_types::Duration>;

/// The steps, in their order.
const STEPS: [(&str, StepTime); 4] = [
    ("notify", |policy| &mut policy.notify_after),
    ("preemptible", |policy| &mut policy.preemptible_after),
    ("suspend", |policy| &mut policy.suspend_after),
    ("release", |policy| &mut policy.release_after),
];

/// The choice of a policy for idle jobs of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IdleChoice {
    /// Nothing that this queue says.
    Never,
    /// This.
    Ladder(IdlePolicy),
}

/// Reads it.
pub fn idle(text: &str) -> Result<IdleChoice, String> {
    if text == "never" {
        return Ok(IdleChoice::Never);
    }
    let mut policy = IdlePolicy::default();
    let mut words = text.split_whitespace();
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name:?} is without a value; {SHAPE}"))?;
        if name == "below" {
            let percent = value.strip_suffix('%').unwrap_or(value).parse();
            policy.below_percent = percent.map_err(|_| format!("{value:?} is no share in percent; {SHAPE}"))?;
            continue;
        }
        let place = STEPS.iter().find(|(step, _)| *step == name).map(|(_, place)| place);
        let place = place.ok_or_else(|| format!("{name:?} is no step; {SHAPE}"))?;
        let after = duration(value).map_err(|error| format!("{name} {error}; {SHAPE}"))?;
        *place(&mut policy) = Some(prost_types::Duration::try_from(after).map_err(|error| error.to_string())?);
    }
    if policy.below_percent == 0 {
        return Err(format!("what counts as idle is missing; {SHAPE}"));
    }
    Ok(IdleChoice::Ladder(policy))
}

/// Writes it as it is read.
#[must_use]
pub fn idle_text(policy: &IdlePolicy) -> String {
    let mut policy = *policy;
    let step = |(name, place): &(&str, StepTime)| {
        let after = Duration::try_from((*place(&mut policy))?).unwrap_or_default();
        Some(format!(" {name} {}", humantime::format_duration(after).to_string().replace(' ', "")))
    };
    let steps: String = STEPS.iter().filter_map(step).collect();
    format!("below {}%{steps}", policy.below_percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_is_written_as_it_is_read() {
        for text in ["below 5% notify 30m preemptible 1h 30m suspend 2h release 7days", "below 20% suspend 1h30m"] {
            let text = text.replace("1h 30m", "1h30m");
            let Ok(IdleChoice::Ladder(policy)) = idle(&text) else { panic!("{text} cannot be read") };
            assert_eq!(idle_text(&policy), text);
        }
        assert_eq!(idle("never"), Ok(IdleChoice::Never));
        for (text, says) in [
            ("notify 30m", "missing"),
            ("below 5% notify", "without a value"),
            ("below 5% shrink 1h", "no step"),
            ("below few notify 1h", "percent"),
            ("below 5% notify soon", "notify must be a time such as"),
            ("below 5% notify 0s", "notify must be longer than nothing"),
        ] {
            let error = idle(text).expect_err(text);
            assert!(error.contains(says) && error.contains("preemptible 1h"), "{error}");
        }
    }
}
