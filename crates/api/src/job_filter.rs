//! The selection of the jobs that a list or a watch is about.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::wire::{FieldError, enum_from_wire};
use tessera_ledger::{Job, JobId, JobState, State};

use crate::error::Refusal;
use crate::fields::{count, line, sought_labels};
use crate::{limits, v1};

/// A selection of jobs; a job must meet every condition that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// One of these jobs; empty: any.
    pub jobs: BTreeSet<JobId>,
    /// In one of these states; empty: any.
    pub states: BTreeSet<JobState>,
    /// In this queue; empty: any.
    pub queue: String,
    /// Submitted by this person; empty: anybody.
    pub submitter: String,
    /// Carrying all of these labels.
    pub labels: BTreeMap<String, String>,
    /// With a worker on the node of this name now; empty: any.
    pub node_name: String,
}

impl JobFilter {
    /// Reads a filter; an absent one takes every job.
    ///
    /// # Errors
    /// A [`Refusal`] with the fields that are not acceptable.
    pub fn of_list(filter: Option<&v1::JobFilter>) -> Result<Self, Refusal> {
        let Some(filter) = filter else { return Ok(Self::default()) };
        check_size(filter)?;
        let mut states = BTreeSet::new();
        for (place, number) in filter.states.iter().enumerate() {
            let field = format!("filter.states[{place}]");
            states.insert(enum_from_wire(&field, *number)?.ok_or_else(|| FieldError::missing(field))?);
        }
        Ok(Self {
            jobs: filter.job_ids.iter().copied().map(JobId).collect(),
            states,
            queue: filter.queue.clone(),
            submitter: filter.submitter.clone(),
            labels: filter.labels.clone(),
            node_name: filter.node_name.clone(),
        })
    }

    /// Reads the filter of a watch, which cannot ask for a node: jobs come and go there without an event of their own.
    ///
    /// # Errors
    /// A [`Refusal`] with the fields that are not acceptable.
    pub fn of_watch(filter: Option<&v1::JobFilter>) -> Result<Self, Refusal> {
        let filter = Self::of_list(filter)?;
        if filter.node_name.is_empty() {
            return Ok(filter);
        }
        Err(FieldError::invalid("filter.node_name", "must not be set in a watch; list the jobs of a node instead")
            .into())
    }

    /// Returns whether a job matches the filter.
    #[must_use]
    pub fn takes(&self, state: &State, job: &Job) -> bool {
        (self.jobs.is_empty() || self.jobs.contains(&job.id))
            && (self.states.is_empty() || self.states.contains(&job.state))
            && (self.queue.is_empty() || self.queue == job.spec.queue)
            && (self.submitter.is_empty() || self.submitter == job.submitter)
            && self.labels.iter().all(|(key, value)| job.spec.labels.get(key) == Some(value))
            && (self.node_name.is_empty() || self.is_on_node(state, job))
    }

    /// Returns whether a job that has left the ledger may have matched: only its number is still known.
    #[must_use]
    pub fn takes_removed(&self, job: JobId) -> bool {
        let by_number_alone = Self { jobs: self.jobs.clone(), ..Self::default() };
        *self == by_number_alone && (self.jobs.is_empty() || self.jobs.contains(&job))
    }

    fn is_on_node(&self, state: &State, job: &Job) -> bool {
        let held = job.allocation.and_then(|id| state.allocation(id));
        let node = state.node_by_name(&self.node_name);
        matches!((held, node), (Some(held), Some(node)) if held.workers.iter().any(|worker| worker.node == node.id))
    }
}

/// Refuses a filter that is larger than any that takes a job, or names what nothing is called: a watch keeps its own
/// for as long as it is open.
fn check_size(filter: &v1::JobFilter) -> Result<(), FieldError> {
    let v1::JobFilter { job_ids, states, queue, submitter, labels, node_name } = filter;
    count("filter.job_ids", job_ids.len(), limits::FILTER)?;
    count("filter.states", states.len(), limits::FILTER)?;
    for (field, text) in [("filter.queue", queue), ("filter.submitter", submitter), ("filter.node_name", node_name)] {
        line(field, text)?;
    }
    sought_labels("filter.labels", labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_bounded_in_each_of_its_fields() {
        let refused = |change: fn(&mut v1::JobFilter, String)| {
            let mut filter = v1::JobFilter::default();
            change(&mut filter, "x".repeat(limits::NAME));
            assert!(JobFilter::of_list(Some(&filter)).is_ok());
            change(&mut filter, "x".repeat(limits::NAME + 1));
            JobFilter::of_list(Some(&filter)).expect_err("it is larger").fields()[0].field.clone()
        };
        assert_eq!(refused(|filter, text| filter.queue = text), "filter.queue");
        assert_eq!(refused(|filter, text| filter.submitter = text), "filter.submitter");
        assert_eq!(refused(|filter, text| filter.node_name = text), "filter.node_name");
        let value = |filter: &mut v1::JobFilter, text| filter.labels = BTreeMap::from([("team".to_owned(), text)]);
        assert_eq!(refused(value), "filter.labels");
        let key = |filter: &mut v1::JobFilter, text| filter.labels = BTreeMap::from([(text, String::new())]);
        assert_eq!(refused(key), "filter.labels");
        let many = |count: usize| v1::JobFilter {
            labels: (0..count).map(|number| (number.to_string(), String::new())).collect(),
            ..Default::default()
        };
        assert!(JobFilter::of_list(Some(&many(limits::LABELS))).is_ok());
        assert!(JobFilter::of_list(Some(&many(limits::LABELS + 1))).is_err());
        let running = i32::from(v1::JobState::Running);
        let states = v1::JobFilter { states: vec![running; limits::FILTER + 1], ..Default::default() };
        let ids = v1::JobFilter { job_ids: vec![1; limits::FILTER + 1], ..Default::default() };
        for (filter, field) in [(states, "filter.states"), (ids, "filter.job_ids")] {
            let refused = JobFilter::of_list(Some(&filter)).expect_err("it is larger");
            assert_eq!(refused.fields()[0].field, field);
        }
    }
}
