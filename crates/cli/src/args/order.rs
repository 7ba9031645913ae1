//! The order among the jobs of a queue, in one line: `fifo`, or `attained first 10m ratio 4 bands 8 guard 20%`.

use std::time::Duration;

use tessera_api::v1::AttainedOrder;
use tessera_ledger::Percent;

use super::values::duration;

/// The hint on the syntax at the end of every error.
const SHAPE: &str =
    "write `fifo`, or `attained` with what is to differ: \"attained first 10m ratio 4 bands 8 guard 20%\"";

/// The choice of an order for a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OrderChoice {
    /// By submission.
    Fifo,
    /// By attained service.
    Attained(AttainedOrder),
}

/// Reads it.
pub fn order(text: &str) -> Result<OrderChoice, String> {
    let mut words = text.split_whitespace();
    match words.next() {
        Some("fifo") if words.next().is_none() => return Ok(OrderChoice::Fifo),
        Some("attained") => {}
        _ => return Err(format!("{text:?} is no order; {SHAPE}")),
    }
    let mut order = AttainedOrder::default();
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name:?} is without a value; {SHAPE}"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("{name}: {value:?} is no number; {SHAPE}"));
        match name {
            "first" => {
                let first = duration(value).map_err(|error| format!("first {error}; {SHAPE}"))?;
                order.first_band = Some(prost_types::Duration::try_from(first).map_err(|error| error.to_string())?);
            }
            "ratio" => order.ratio = number()?,
            "bands" => order.bands = number()?,
            "guard" => order.guard_percent = Some(share(value)?.0),
            _ => return Err(format!("{name:?} is nothing of an order; {SHAPE}")),
        }
    }
    Ok(OrderChoice::Attained(order))
}

/// Reads a share: `20%`, `20` or `0.2`.
pub fn share(text: &str) -> Result<Percent, String> {
    let wrong = || format!("{text:?} is no share such as 20% or 0.2");
    if let Ok(percent) = text.strip_suffix('%').unwrap_or(text).parse::<u32>() {
        return Some(Percent(percent)).filter(|percent| *percent <= Percent::WHOLE).ok_or_else(wrong);
    }
    let hundredths = text.strip_prefix("0.").filter(|digits| (1..=2).contains(&digits.len())).ok_or_else(wrong)?;
    let number: u32 = hundredths.parse().map_err(|_| wrong())?;
    Ok(Percent(if hundredths.len() == 1 { number * 10 } else { number }))
}

/// Writes it as it is read.
#[must_use]
pub fn order_text(order: Option<&AttainedOrder>) -> String {
    let Some(AttainedOrder { first_band, ratio, bands, guard_percent }) = order else { return "fifo".to_owned() };
    let first = first_band.and_then(|time| Duration::try_from(time).ok()).unwrap_or_default();
    let first = humantime::format_duration(first).to_string().replace(' ', "");
    format!("attained first {first} ratio {ratio} bands {bands} guard {}%", guard_percent.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_written_as_it_is_read() {
        for text in
            ["fifo", "attained first 10m ratio 4 bands 8 guard 20%", "attained first 1h30m ratio 2 bands 3 guard 0%"]
        {
            let chosen = order(text).expect("an order");
            let read = match &chosen {
                OrderChoice::Fifo => None,
                OrderChoice::Attained(order) => Some(order),
            };
            assert_eq!(order_text(read), text);
        }
    }

    #[test]
    fn what_is_not_given_is_left_to_the_pool() {
        let OrderChoice::Attained(order) = order("attained guard 0.3").expect("an order") else { panic!("is fifo") };
        assert_eq!(order, AttainedOrder { guard_percent: Some(30), ..AttainedOrder::default() });
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        for text in ["", "lifo", "fifo guard 20%", "attained bands", "attained bands many", "attained guard 120%"] {
            let error = order(text).expect_err(text);
            assert!(error.contains("write `fifo`") || error.contains("such as 20%"), "{text:?}: {error}");
        }
    }
}
