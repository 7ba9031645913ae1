//! The definition of a quantile, here and in every report: a value that was measured.

/// The smallest value that at least the share `q` (0 to 1) of all values do not exceed (nearest rank); `None` without
/// values.
///
/// `sorted` is in rising order.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // a rank is small
pub fn quantile<T: Copy>(sorted: &[T], q: f64) -> Option<T> {
    let rank = (q.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let of_four = |q| quantile(&[1, 2, 3, 4], q);
        assert_eq!([0.0, 0.25, 0.5, 0.51, 0.99, 1.0].map(of_four), [1, 1, 2, 3, 4, 4].map(Some));
        assert_eq!([-1.0, 2.0].map(of_four), [Some(1), Some(4)], "a share is at most the whole");
        assert_eq!(quantile(&(1..=100).collect::<Vec<_>>(), 0.99), Some(99));
        assert_eq!((quantile(&[7], 0.01), quantile::<u8>(&[], 0.5)), (Some(7), None));
    }
}
