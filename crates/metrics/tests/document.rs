//! The document is made from the table, and no document names a metric that does not exist.

use std::path::{Path, PathBuf};

use tessera_metrics::declare::Process;
use tessera_metrics::document::{document, unknown_in};
use tessera_metrics::table;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_document_is_current() {
    let path = root().join("docs/metrics.md");
    if std::env::var_os("TESSERA_WRITE_DOCS").is_some() {
        std::fs::write(&path, document()).expect("docs can be written");
        return;
    }
    let kept = std::fs::read_to_string(&path).expect("docs/metrics.md is there");
    assert!(kept == document(), "write it anew: TESSERA_WRITE_DOCS=1 cargo test -p tessera-metrics");
}

#[test]
fn documents_name_only_metrics_that_exist() {
    let mut folders = vec![root().join("docs")];
    let mut files = vec![root().join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of documents") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "md") {
                files.push(path);
            }
        }
    }
    for file in files {
        let unknown = unknown_in(&std::fs::read_to_string(&file).expect("a document"));
        assert!(unknown.is_empty(), "{} names metrics that do not exist: {unknown:?}", file.display());
    }
}

#[test]
fn names_are_unique_and_follow_the_rules_of_the_field() {
    let mut names = std::collections::BTreeSet::new();
    for metric in table::all() {
        assert!(names.insert(metric.name), "{} is declared twice", metric.name);
        let counts = metric.kind.name() == "counter";
        assert_eq!(metric.name.ends_with("_total"), counts, "{} and its type", metric.name);
        assert!(metric.bounds.is_sorted(), "{}: bounds rise", metric.name);
        assert_eq!(metric.bounds.is_empty(), metric.kind.name() != "histogram", "{} and its bounds", metric.name);
        assert!(!metric.help.ends_with('.'), "{}: its meaning is one sentence without a full stop", metric.name);
        let may = matches!(metric.of, Process::Agent | Process::JobsPage);
        assert!(may || !metric.labels.contains(&"job_id"), "{} has a series per job", metric.name);
        // Prometheus calls what it scrapes a job, and would rename ours.
        assert!(!metric.labels.contains(&"job"), "{} has a label that Prometheus takes for itself", metric.name);
    }
}
