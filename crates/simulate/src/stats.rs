//! Means and quantiles of what was measured.

/// Values in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    sorted: Vec<f64>,
}

impl Distribution {
    /// Orders the values; those that are no numbers are left out.
    #[must_use]
    pub fn new(mut values: Vec<f64>) -> Self {
        values.retain(|value| !value.is_nan());
        values.sort_by(f64::total_cmp);
        Self { sorted: values }
    }

    /// The [`quantile`](tessera_metrics::quantile) of the share `q`; 0 without values.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        tessera_metrics::quantile(&self.sorted, q).unwrap_or(0.0)
    }

    /// The mean; 0 without values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        mean(self.sorted.iter().copied())
    }

    /// The largest value; 0 without values.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.sorted.last().copied().unwrap_or(0.0)
    }

    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.sorted
    }
}

/// The mean; 0 without values.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "counts of values are far below 2^52")]
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / count as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let distribution = Distribution::new(vec![4.0, 1.0, 3.0, 2.0, f64::NAN]);
        assert_eq!([0.0, 0.5, 1.0].map(|q| distribution.quantile(q)), [1.0, 2.0, 4.0]);
        assert_eq!((distribution.mean(), distribution.max()), (2.5, 4.0));
        assert_eq!((Distribution::default().quantile(0.5), mean(std::iter::empty())), (0.0, 0.0));
    }
}
