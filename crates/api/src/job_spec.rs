//! Jobs as they come in: turned into the ledger's own type and checked, field by field, against [`limits`].

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_ledger::wire::{FieldError, spec_from_wire};
use tessera_ledger::{
    Access, Affinity, CheckpointMode, CheckpointPolicy, DEVICE_KINDS, DEVICE_LABEL, JobSpec, MOST_CHECKPOINTS,
    Mebibytes, MilliTflops, RetryPolicy, Span, VirtualCardRequest,
};

use crate::error::Refusal;
use crate::fields::{Check, line, line_within, name, number, quoted, time};
use crate::{limits, v1};

/// Takes the job of a request: defaults are filled in, every field is checked.
///
/// # Errors
/// A [`Refusal`] that names every field that is not acceptable, with its path from the request on (`spec.gang`).
pub fn job_of_request(spec: Option<v1::JobSpec>) -> Result<JobSpec, Refusal> {
    let under_spec = |error: FieldError| error.under("spec");
    let spec = spec.ok_or_else(|| Refusal::from(FieldError::missing("spec")))?;
    let job = spec_from_wire(spec).map_err(|error| Refusal::from(under_spec(error)))?.with_needs_of_its_mode();
    let problems = problems_of(&job);
    if problems.is_empty() { Ok(job) } else { Err(Refusal::invalid(problems.into_iter().map(under_spec).collect())) }
}

/// Every field of a job that is not acceptable; paths are those of the message `JobSpec`.
#[must_use]
pub fn problems_of(job: &JobSpec) -> Vec<FieldError> {
    // What is not checked may have any value: booleans, and words that were known when they were read.
    let JobSpec {
        name: title,
        queue,
        command,
        environment,
        working_directory,
        script,
        gang,
        virtual_card,
        priority,
        preemptible: _,
        checkpoint,
        on_disconnect: _,
        time_limit,
        retry,
        labels,
        node_labels,
        output_retention,
        held: _,
        host,
        gang_min,
        grow_after,
        min_runtime,
        affinity,
        packing: _,
        windows,
    } = job;
    let mut check = Check::default();
    check.of(line("name", title));
    check.of(name("queue", queue));
    match virtual_card.access {
        Access::Remote => check_no_program(&mut check, command, script, *gang),
        Access::Worker | Access::Device => check_program(&mut check, command, script),
    }
    check_folder(&mut check, working_directory);
    check_environment(&mut check, environment);
    check.that((1..=limits::GANG).contains(gang), "gang", || format!("must be 1 to {}, is {gang}", limits::GANG));
    check.that(gang_min.is_none_or(|least| (1..=*gang).contains(&least)), "gang_min", || {
        format!("must be 1 to {gang}, the gang; leave it out for a gang that starts whole")
    });
    check_virtual_card(&mut check, virtual_card);
    check_access(&mut check, virtual_card, node_labels);
    check_growth(&mut check, *grow_after, *gang_min, checkpoint.mode);
    check.host("host", *host);
    check_affinity(&mut check, affinity);
    check.windows("windows", windows);
    check.of(time("min_runtime", *min_runtime, limits::TIME));
    check.that(*priority <= limits::PRIORITY, "priority", || {
        format!("must be 0 to {}, is {priority}", limits::PRIORITY)
    });
    check_checkpoint(&mut check, checkpoint);
    check_transparent(&mut check, job);
    if let Some(limit) = *time_limit {
        check.of(time("time_limit", limit, limits::TIME));
        check.that(!limit.is_zero(), "time_limit", || "must be more than zero; leave it out for no limit".to_owned());
    }
    check_retry(&mut check, retry);
    check.labels("labels", labels);
    check.labels("node_labels", node_labels);
    check.of(time("output_retention", output_retention.unwrap_or_default(), limits::TIME));
    check.problems
}

/// The program of such a job is elsewhere.
fn check_no_program(check: &mut Check, command: &[String], script: &str, gang: u32) {
    check.that(command.is_empty() && script.is_empty(), "command", || {
        "must be left out when access is remote, and so must the script: the program runs on the host that uses the card \
         (tessera run --here)"
            .to_owned()
    });
    check.that(gang == 1, "gang", || format!("must be 1 when access is remote: one program has one device, is {gang}"));
}

fn check_program(check: &mut Check, command: &[String], script: &str) {
    let program = command.first();
    let says_what = if script.is_empty() { program.is_some() } else { true };
    check.that(says_what, "command", || {
        "must name a program; or give a script, which is run when there is no command".to_owned()
    });
    check.that(program.is_none_or(|program| !program.trim().is_empty()), "command[0]", || {
        "must name a program, and is empty".to_owned()
    });
    check.that(command.len() <= limits::COMMAND_WORDS, "command", || {
        format!("must have at most {} words, has {}", limits::COMMAND_WORDS, command.len())
    });
    let length: usize = command.iter().map(String::len).sum();
    check.that(length <= limits::COMMAND, "command", || {
        format!("must have at most {} bytes, has {length}; put long input into a file or a script", limits::COMMAND)
    });
    for (place, word) in command.iter().enumerate().filter(|(_, word)| word.contains('\0')) {
        check.refuse(format!("command[{place}]"), format!("must not contain a NUL byte, is {}", quoted(word)));
    }
    check.that(script.len() <= limits::SCRIPT, "script", || {
        format!("must have at most {} bytes, has {}", limits::SCRIPT, script.len())
    });
    check.that(!script.contains('\0'), "script", || "must not contain a NUL byte".to_owned());
}

fn check_folder(check: &mut Check, path: &str) {
    check.of(line_within("working_directory", path, limits::PATH));
    check.that(path.is_empty() || path.starts_with('/'), "working_directory", || {
        format!("must be an absolute path, is {}; leave it out for a fresh folder", quoted(path))
    });
}

fn check_environment(check: &mut Check, environment: &BTreeMap<String, String>) {
    check.that(environment.len() <= limits::VARIABLES, "environment", || {
        format!("must have at most {} variables, has {}", limits::VARIABLES, environment.len())
    });
    let length: usize = environment.iter().map(|(name, value)| name.len() + value.len()).sum();
    check.that(length <= limits::ENVIRONMENT, "environment", || {
        format!("must have at most {} bytes in all, has {length}", limits::ENVIRONMENT)
    });
    for (name, value) in environment {
        let field = || format!("environment[{}]", quoted(name));
        if name.is_empty() || name.contains('=') || line("environment", name).is_err() {
            let problem = format!("a name must have 1 to {} bytes, without '=' and control characters", limits::NAME);
            check.refuse(field(), problem);
        } else if let Some((_, words)) = limits::CHOSEN_VARIABLES.iter().find(|(known, _)| known == name) {
            check.that(words.contains(&value.as_str()), &field(), || {
                format!("must be one of {}, is {}", words.join(", "), quoted(value))
            });
        } else if limits::OWN_VARIABLES.contains(&name.as_str()) || name.starts_with(limits::OWN_PREFIX) {
            check.refuse(field(), "is set by Tessera itself; choose another name");
        }
        if value.contains('\0') {
            check.refuse(field(), "a value must not contain a NUL byte");
        }
    }
}

fn check_checkpoint(check: &mut Check, policy: &CheckpointPolicy) {
    let CheckpointPolicy { mode, signal, grace, every, keep, fallback } = policy;
    check.that(limits::SIGNALS.contains(&signal.as_str()), "checkpoint.signal", || {
        format!("must be one of {}, is {}", limits::SIGNALS.join(", "), quoted(signal))
    });
    check.of(time("checkpoint.grace", *grace, limits::GRACE));
    check.that(*mode == CheckpointMode::Requeue || !grace.is_zero(), "checkpoint.grace", || {
        "must be more than zero when mode is cooperative or transparent: it is saved in this time".to_owned()
    });
    check.that(keep.is_none_or(|keep| (1..=MOST_CHECKPOINTS).contains(&keep)), "checkpoint.keep", || {
        format!("must be 1 to {MOST_CHECKPOINTS}")
    });
    check.that(keep.is_none() || *mode != CheckpointMode::Requeue, "checkpoint.keep", || {
        "is for modes cooperative and transparent: nothing is saved of others".to_owned()
    });
    check.that(fallback.is_one_for(*mode), "checkpoint.fallback", || {
        "must be cooperative or requeue, and is for mode transparent".to_owned()
    });
    if let Some(every) = every {
        let bounds = limits::SAVE_EVERY;
        check.that(bounds.contains(every), "checkpoint.every", || "must be 1 second to 7 days".to_owned());
        check.that(*mode != CheckpointMode::Requeue, "checkpoint.every", || {
            "is for modes cooperative and transparent: nothing is saved of others".to_owned()
        });
    }
}

/// Checks that a job whose checkpoints are transparent can be dumped: a dump holds the processes of one worker, at one
/// moment.
fn check_transparent(check: &mut Check, job: &JobSpec) {
    if job.checkpoint.mode != CheckpointMode::Transparent {
        return;
    }
    let JobSpec { gang, virtual_card, .. } = job;
    let is_device = virtual_card.access == Access::Device;
    check.that(*gang == 1 && (virtual_card.span != Span::Pool || is_device), "checkpoint.mode", || {
        "cannot be transparent for several workers: what they say to each other is in no image; use cooperative"
            .to_owned()
    });
    check.that(virtual_card.access != Access::Remote, "checkpoint.mode", || {
        "cannot be transparent when access is remote: the program is on a host of its own, and goes on by itself \
         wherever its card is; use cooperative"
            .to_owned()
    });
}

fn check_virtual_card(check: &mut Check, card: &VirtualCardRequest) {
    let VirtualCardRequest {
        compute,
        memory,
        precision: _,
        span: _,
        kinds: _,
        mixed: _,
        isolation: _,
        vendors,
        models,
        whole_cards: _,
        slice_memory,
        access: _,
        elastic: _,
    } = card;
    check.that(*compute > MilliTflops::ZERO, "virtual_card.milli_tflops", || {
        "must be more than zero: it is what the job is given a share of".to_owned()
    });
    check.of(number("virtual_card.milli_tflops", *compute, MilliTflops::ZERO..=limits::COMPUTE));
    check.of(number("virtual_card.memory_mib", *memory, Mebibytes::ZERO..=limits::MEMORY));
    check.of(number("virtual_card.slice_memory_mib", *slice_memory, Mebibytes::ZERO..=limits::MEMORY));
    check.names("virtual_card.vendors", vendors.iter(), limits::LABELS);
    check.names("virtual_card.models", models.iter(), limits::LABELS);
}

/// Checks that a device of PyTorch can be backed as the job asks.
fn check_access(check: &mut Check, card: &VirtualCardRequest, node_labels: &BTreeMap<String, String>) {
    if !card.access.is_device() {
        return;
    }
    check.that(card.span != Span::Pool || card.access == Access::Device, "virtual_card.span", || {
        "must be card or node when access is remote: a program outside of the pool reaches slices of one node only"
            .to_owned()
    });
    check.that(card.memory > Mebibytes::ZERO, "virtual_card.memory_mib", || {
        "must be more than zero when access is device or remote: it is what the device holds at most".to_owned()
    });
    check.that(card.kinds.iter().all(|kind| DEVICE_KINDS.contains(kind)), "virtual_card.kinds", || {
        "must be gpu, npu or cpu when access is device or remote: PyTorch has no device of others".to_owned()
    });
    let (key, value) = DEVICE_LABEL;
    check.that(node_labels.get(key).is_some_and(|has| has == value), "node_labels", || {
        format!("must have {key}={value} when access is device or remote; leave it out to have it filled in")
    });
}

/// A gang that grows is stopped for it.
fn check_growth(check: &mut Check, after: Option<Duration>, gang_min: Option<u32>, mode: CheckpointMode) {
    let Some(after) = after else { return };
    check.of(time("grow_after", after, limits::TIME));
    check.that(after >= limits::GROW_AFTER, "grow_after", || "must be at least 1 second".to_owned());
    check.that(gang_min.is_some(), "grow_after", || {
        "is for gangs that may start with fewer: give gang_min too".to_owned()
    });
    check.that(mode != CheckpointMode::Requeue, "grow_after", || {
        "is for jobs that go on where they were: a checkpoint.mode of requeue would begin anew each time".to_owned()
    });
}

fn check_affinity(check: &mut Check, affinity: &Affinity) {
    let Affinity { preferred, together, spread, avoid, data } = affinity;
    check.that(preferred.len() <= limits::LABELS, "affinity.preferred", || {
        format!("must be at most {}", limits::LABELS)
    });
    for (place, label) in preferred.iter().enumerate() {
        let field = |name: &str| format!("affinity.preferred[{place}].{name}");
        check.of(name(&field("key"), &label.key));
        check.of(line(&field("value"), &label.value));
        check.that((1..=limits::WEIGHT).contains(&label.weight), &field("weight"), || {
            format!("must be 1 to {}, is {}", limits::WEIGHT, label.weight)
        });
    }
    for (field, key) in [("affinity.together", together), ("affinity.spread", spread)] {
        if !key.is_empty() {
            check.of(name(field, key));
        }
    }
    check.that(together.is_empty() || together != spread, "affinity.spread", || {
        format!("must be another label than affinity.together, is {}", quoted(spread))
    });
    check.labels("affinity.avoid", avoid);
    check.names("affinity.data", data.iter(), limits::LABELS);
}

fn check_retry(check: &mut Check, retry: &RetryPolicy) {
    let RetryPolicy { max_retries, backoff, max_backoff } = retry;
    check.that(*max_retries <= limits::RETRIES, "retry.max_retries", || {
        format!("must be at most {}, is {max_retries}", limits::RETRIES)
    });
    check.of(time("retry.max_backoff", *max_backoff, limits::TIME));
    check.of(time("retry.backoff", *backoff, limits::TIME));
    check.that(backoff <= max_backoff, "retry.backoff", || "must not be longer than retry.max_backoff".to_owned());
}
