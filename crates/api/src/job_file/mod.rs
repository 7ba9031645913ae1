//! Jobs as people write them: a file in YAML, TOML or JSON, with units that people use, read into a [`v1::JobSpec`].
//!
//! Every complaint names the line, the column, the field, what is wrong and what would be right; a misspelt field is
//! answered with the nearest one. The JSON Schema of the format ([`schema`]) is published as
//! `docs/job-file.schema.json`, for editors.
//!
//! [`model`] is the format; [`units`] and [`values`] are what may be written in it; [`syntax`](self) knows the
//! three notations.

mod complaint;
mod locate;
pub mod model;
mod spelling;
mod syntax;
mod tree;
pub mod units;
mod untagged;
pub mod values;

use tessera_ledger::wire::{FieldError, spec_from_wire};

pub use complaint::{Complaint, JobFileError, Place};
pub use syntax::Notation;

use crate::job_spec::problems_of;
use crate::{limits, v1};
use model::JobFile;

/// Reads a job file.
///
/// # Errors
/// [`JobFileError`] with everything that is not acceptable: the first thing that cannot be read at all, or each field
/// whose value is refused.
pub fn read(text: &str, notation: Notation) -> Result<v1::JobSpec, JobFileError> {
    if text.len() > limits::JOB_FILE {
        let problem = format!(
            "a job file has at most {} bytes, and this one has {}; put large input into files that the job reads",
            limits::JOB_FILE,
            text.len()
        );
        return Err(JobFileError::whole(problem));
    }
    let file: JobFile = syntax::read(text, notation)?;
    let mut problems = Vec::new();
    if file.gang == Some(0) {
        // On the wire 0 means that nothing was said; a file that says 0 says something else.
        problems.push(FieldError::invalid("gang", format!("must be 1 to {}, is 0", limits::GANG)));
    }
    let spec = file.into_spec();
    match spec_from_wire(spec.clone()) {
        Ok(job) => problems.extend(problems_of(&job)),
        Err(problem) => problems.push(problem),
    }
    if problems.is_empty() {
        return Ok(spec);
    }
    let mut complaints: Vec<Complaint> = problems.into_iter().map(|problem| placed(text, notation, problem)).collect();
    complaints.sort_by_key(|complaint| complaint.place);
    Err(JobFileError { complaints })
}

/// The complaint about a field, at the place where the file says it.
fn placed(text: &str, notation: Notation, problem: FieldError) -> Complaint {
    let field = name_in_file(&problem.field);
    let place = syntax::place_of(text, notation, &field);
    Complaint { place, field, problem: problem.problem.to_string(), hint: None }
}

/// The name that a field of the message `JobSpec` has in a job file.
fn name_in_file(field: &str) -> String {
    match field {
        "virtual_card.milli_tflops" => "virtual_card.tflops".to_owned(),
        "virtual_card.memory_mib" => "virtual_card.memory".to_owned(),
        "held" => "hold".to_owned(),
        "host.milli_cpus" => "host.cpus".to_owned(),
        "host.memory_mib" => "host.memory".to_owned(),
        _ => field.to_owned(),
    }
}

/// The JSON Schema of job files.
#[must_use]
pub fn schema() -> schemars::Schema {
    let mut schema = schemars::schema_for!(JobFile);
    schema.insert("title".to_owned(), "Tessera job file".into());
    schema
}
