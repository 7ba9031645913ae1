//! The series of a metric by labels. Each can end: what is gone is not shown for ever, and takes no memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::family::MetricConstructor;
use prometheus_client::metrics::{MetricType, TypedMetric};

use crate::declare::Labels;

type ByLabels<const N: usize, M> = BTreeMap<Labels<N>, M>;

/// Series that begin when they are first asked for. Clones are the same series.
#[derive(Clone)]
pub(crate) struct Series<const N: usize, M, C = fn() -> M> {
    shown: Arc<RwLock<ByLabels<N, M>>>,
    constructor: C,
}

impl<const N: usize, M: Default> Default for Series<N, M> {
    fn default() -> Self {
        Self::made_by(M::default)
    }
}

impl<const N: usize, M, C> Series<N, M, C> {
    pub(crate) fn made_by(constructor: C) -> Self {
        Self { shown: Arc::default(), constructor }
    }

    // Every change is one insertion or removal: a panic elsewhere leaves nothing half made.
    fn read(&self) -> RwLockReadGuard<'_, ByLabels<N, M>> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ByLabels<N, M>> {
        self.shown.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all series but those of which this is true.
    pub(crate) fn retain(&self, stays: impl Fn(&Labels<N>) -> bool) {
        self.write().retain(|labels, _| stays(labels));
    }
}

impl<const N: usize, M: Clone, C: MetricConstructor<M>> Series<N, M, C> {
    pub(crate) fn of(&self, labels: Labels<N>) -> M {
        if let Some(known) = self.read().get(&labels) {
            return known.clone();
        }
        self.write().entry(labels).or_insert_with(|| self.constructor.new_metric()).clone()
    }
}

impl<const N: usize, M: fmt::Debug, C> fmt::Debug for Series<N, M, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.read().iter()).finish()
    }
}

impl<const N: usize, M: EncodeMetric + TypedMetric, C> EncodeMetric for Series<N, M, C> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.read().iter().try_for_each(|(labels, series)| series.encode(encoder.encode_family(labels)?))
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.read().is_empty()
    }
}

/// Series of things that come and go.
pub trait Ending: fmt::Debug + Send + Sync {
    /// Ends those of which `label` has a value for which this is not true.
    fn keep(&self, label: &str, is_there: &dyn Fn(&str) -> bool);
}

impl<const N: usize, M, C> Ending for Series<N, M, C>
where
    M: fmt::Debug + Send + Sync,
    C: Send + Sync,
{
    fn keep(&self, label: &str, is_there: &dyn Fn(&str) -> bool) {
        self.retain(|labels| labels.value(label).is_none_or(is_there));
    }
}
